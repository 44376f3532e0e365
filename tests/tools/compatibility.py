"""docs/compatibility.md: what Kafka's tools and clients get from Quorate's controllers and Kafka's.

    python tests/tools/compatibility.py write
    python tests/tools/compatibility.py check        exit status 1 if the page is out of date

The rows are the commands and operations that `tests/wire` runs on both kinds of controllers, with
the differences that its tests know, and the APIs of `bridge.apis`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "services"), str(ROOT)]

from quorate.bridge.requests.apis import KAFKA_APIS  # noqa: E402

from tests.tools.pages import Page  # noqa: E402
from tests.wire.client_operations import CONFLUENT_KAFKA, KAFKA_PYTHON, Operation  # noqa: E402
from tests.wire.controller_apis import COMPARED, DIFFERENCES  # noqa: E402
from tests.wire.tool_commands import BROKER_COMMANDS, CONTROLLER_COMMANDS, Command  # noqa: E402

SAME = "same"
NOT_COMPARED = "no known difference"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(each.replace("|", r"\|") for each in row) + " |" for row in lines
    )


def tools() -> str:
    """By tool and action: what the commands print through brokers and on controllers."""
    keys = {(each.tool, each.action) for each in (*BROKER_COMMANDS, *CONTROLLER_COMMANDS)}
    return table(
        ("tool", "command", "`--bootstrap-server`", "`--bootstrap-controller`"),
        (
            (
                f"`{tool}`",
                f"`{action}`" if action else "",
                _of_commands(BROKER_COMMANDS, tool, action),
                _of_commands(CONTROLLER_COMMANDS, tool, action),
            )
            for tool, action in sorted(keys)
        ),
    )


def _of_commands(commands: Sequence[Command], tool: str, action: str) -> str:
    found = [each for each in commands if (each.tool, each.action) == (tool, action)]
    length = len(action.split())
    return summary((" ".join(each.arguments[length:]), each.difference) for each in found)


def summary(compared: Iterable[tuple[str, str]]) -> str:
    """What a cell says of (what was compared, its difference): "same" with how many, and for each
    difference what has it. Empty if nothing was compared.
    """
    found = list(compared)
    reasons: dict[str, list[str]] = {}
    for what, reason in found:
        if reason:
            reasons.setdefault(reason, []).append(f"`{what}`" if what else "")
    same = sum(not reason for _, reason in found)
    parts = [f"{SAME} ({same})"] if same else []
    for reason, of in reasons.items():
        named = ", ".join(dict.fromkeys(filter(None, of)))
        parts.append(f"{named}: {reason}" if named and (same or len(found) > len(of)) else reason)
    return "<br>".join(parts)


def apis() -> str:
    """By API key: the served versions, which are all that Kafka's controllers serve."""
    rows = {
        key: (api.name, "{}-{}".format(*api.versions), _behaviour(api.name))
        for key, api in KAFKA_APIS.items()
    }
    return table(
        ("key", "API", "versions", "behaviour"),
        ((str(key), *row) for key, row in sorted(rows.items())),
    )


def _behaviour(api: str) -> str:
    return DIFFERENCES.get(api, SAME if api in COMPARED else NOT_COMPARED)


def clients(operations: Sequence[Operation]) -> str:
    """By method of a client library."""
    methods = dict.fromkeys(each.method for each in operations)
    return table(
        ("method", "result"),
        (
            (
                f"`{method}`",
                summary(
                    (each.subject, each.difference) for each in operations if each.method == method
                ),
            )
            for method in sorted(methods)
        ),
    )


def sections() -> str:
    """The generated part of the page."""
    return "\n\n".join(
        (
            "## Command-line tools",
            tools(),
            "## APIs of the controllers",
            apis(),
            "## confluent-kafka",
            clients(CONFLUENT_KAFKA),
            "## kafka-python",
            clients(KAFKA_PYTHON),
        )
    )


PAGE = Page(ROOT / "docs" / "compatibility.md", "compatibility", sections)


if __name__ == "__main__":
    sys.exit(PAGE.run(sys.argv[1:], __doc__))
