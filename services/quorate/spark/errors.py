"""The errors of the pipeline. Each message is one line.

    PipelineError
    ├── JavaError          Java is missing or too old for Spark
    ├── NotALogError       a path holds no metadata log
    ├── CompactedError     a snapshot has replaced the requested offsets
    ├── OptionError        an option of the data source is invalid
    ├── UnknownCommitError what is committed does not follow from the directories
    ├── DamagedError       the bytes of the log are corrupt
    ├── DataLossError      offsets are missing, occur twice or are out of order
    ├── FileGoneError      a running node deleted or replaced a file
    └── QuorumUnreachableError   no leader of the quorum responds

Spark wraps the errors of its workers in a long text of its own. Every message here begins with a
mark, by which `explain` finds it in that text.
"""

from __future__ import annotations

import re

from quorate.rpc.errors import OffsetCompactedError, compacted

MARK = "quorate: "
_MARKED = re.compile(r"\b(\w+Error): quorate: ([^\n]+)")


class PipelineError(Exception):
    """The base of this package's exceptions. Its text begins with `MARK`, which `reason` omits."""

    def __init__(self, text: str) -> None:
        super().__init__(text if text.startswith(MARK) else MARK + text)

    @property
    def reason(self) -> str:
        """The message without the mark, for display."""
        return str(self).removeprefix(MARK)


class JavaError(PipelineError):
    """Java is missing, or Spark cannot run on it."""


class NotALogError(PipelineError):
    """A path holds no metadata log."""


class CompactedError(PipelineError):
    """The log does not hold the requested offsets: a snapshot has replaced them."""


class OptionError(PipelineError):
    """An option is unknown, contradicts another, or has an invalid value."""


class UnknownCommitError(PipelineError):
    """The committed offset of several directories of a cluster cannot be derived."""


class DamagedError(PipelineError):
    """The log's bytes are corrupt."""


class DataLossError(PipelineError):
    """The log lacks requested offsets, or holds them twice or out of order."""


class FileGoneError(PipelineError):
    """A file of the log disappeared while it was read: its node is running."""


class QuorumUnreachableError(PipelineError):
    """No leader of the quorum responds."""


def lost(asked: int, start: int) -> CompactedError:
    """The error for an offset that a snapshot has replaced. start: where the log begins."""
    return lost_offset(compacted(asked, start))


def lost_offset(error: OffsetCompactedError) -> CompactedError:
    """The error for one of a client."""
    return CompactedError(
        f"{error.message}. Set startOffset={error.log_start_offset}, or skip the lost offsets with "
        "failOnDataLoss=false"
    )


def explain(error: BaseException) -> str | None:
    """The message of a PipelineError, or of one that Spark has wrapped; None for other errors."""
    if isinstance(error, PipelineError):
        return error.reason
    found = _MARKED.search(str(error))
    return found[2].strip() if found else None


def is_file_gone(error: BaseException) -> bool:
    """Whether an error is a FileGoneError, or one that Spark has wrapped."""
    if isinstance(error, PipelineError):
        return isinstance(error, FileGoneError)
    found = _MARKED.search(str(error))
    return found is not None and found[1] == FileGoneError.__name__


def explain_failure(error: BaseException) -> str | None:
    """What a failure of Spark or of a connector says; None for other errors.

    It is None for exceptions of this package's code in a worker of Spark, too.
    """
    is_of_spark = type(error).__module__.startswith(("py4j.", "pyspark."))
    if not is_of_spark or "PythonException" in f"{type(error).__name__} {error}":
        return None
    return f"Spark failed: {innermost_cause(error)}"


def innermost_cause(error: BaseException) -> str:
    """The innermost cause that Java names in an error text with stack traces."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return next(iter([*reversed(causes), *thrown, *lines]), type(error).__name__)
