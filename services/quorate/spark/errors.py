"""What can go wrong between a log and its tables, each as one clear line.

    PipelineError
    ├── JavaError          Java is missing or too old for Spark
    ├── NotALogError       a path holds no metadata log
    ├── CompactedError     offsets that were asked for are gone into a snapshot
    ├── OptionError        an option of the data source is wrong
    ├── DamagedError       bytes of the log are not what was written there
    └── UnreachableError   no node of the quorum answers

Spark wraps what happens in its workers into a long text of its own: every message here begins with
a mark by which `explain` finds it again.
"""

from __future__ import annotations

import re

MARK = "quorate: "
_MARKED = re.compile(
    r"\b(?:Java|NotALog|Compacted|Option|Damaged|Unreachable|Pipeline)Error: quorate: ([^\n]+)"
)


class PipelineError(Exception):
    """The root of this package's exceptions. Its text begins with `MARK` inside Spark only."""

    def __init__(self, text: str) -> None:
        super().__init__(text if text.startswith(MARK) else MARK + text)

    @property
    def reason(self) -> str:
        """The text for a person."""
        return str(self).removeprefix(MARK)


class JavaError(PipelineError):
    """Spark cannot be started with the Java that is here."""


class NotALogError(PipelineError):
    """A path holds no metadata log."""


class CompactedError(PipelineError):
    """Offsets that were asked for are no longer in the log."""


class OptionError(PipelineError):
    """An option is unknown, contradicts another, or has a value that it cannot have."""


class DamagedError(PipelineError):
    """The log's bytes contradict themselves."""


class UnreachableError(PipelineError):
    """The quorum does not answer."""


def explain(error: BaseException) -> str | None:
    """The one line in an exception of ours or in one that Spark made of it; else None."""
    if isinstance(error, PipelineError):
        return error.reason
    found = _MARKED.search(str(error))
    return found[1].strip() if found else None
