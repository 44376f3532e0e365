"""The `quorate` command.

A node runs for months. The library that parses command lines, with what it imports, would take a
seventh of its memory and a sixth of its start, so a command line that only names the node's
settings does without. Tracebacks are printed only with QUORATE_DEBUG=1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from quorate.cli.output import FAILED, INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of the process). Returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    try:
        status = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of stdout has exited (`quorate … | head`): discard the remaining output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("QUORATE_DEBUG", "") not in ("", "0"):
            raise
        from quorate.cli.commands import report

        return report(error)
    return status


def _run(given: list[str]) -> int:
    if given[:1] in (["controller"], ["broker"]) and _is_plain(given[1:]):
        from quorate.cli.node.start import start_broker, start_controller

        start = start_controller if given[0] == "controller" else start_broker
        return start(*map(Path, given[1:]))
    from quorate.cli.commands import run_command

    return run_command(given)


def _is_plain(rest: list[str]) -> bool:
    """Whether a node's arguments are its properties file or nothing."""
    return not rest or (len(rest) == 1 and not rest[0].startswith("-"))


if __name__ == "__main__":
    sys.exit(main())
