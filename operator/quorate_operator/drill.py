"""What the pod of a restore drill runs: it restores a backup, opens the result, and reports.

    python -m quorate_operator.drill --directory=DIR --report=FILE [--key-file=FILE] URL

1. `quorate restore` restores the newest state of the archive as a quorum of its own: with a random
   cluster id, and an endpoint that nobody serves.
2. `quorate recover inspect` opens the restored directory. Its log must be sound, and end where the
   restore says.
3. `quorate backup verify` reads the whole archive. A drill fails if anything in it is damaged, even
   if the restore did not need it.

The report is JSON with `endOffset` (of the archive), `clusterId` (the archive's), and `seconds`, of
the first two steps. A drill that fails ends with one line on stderr. It needs no Quorum, and only
reads the archive. This module imports only the standard library, because pods use it.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

COMMAND = (sys.executable, "-m", "quorate.cli.main")
NODE = ("--node-id=0", "--endpoint=CONTROLLER://localhost:9093")


class DrillError(Exception):
    """The backup cannot be restored. An empty text: the command has said why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Drill, and return the exit status.

    arguments: --directory, an empty one; --report, the file; and the options of `quorate restore`
    that say where the archive is.
    """
    parser = argparse.ArgumentParser(prog="drill", allow_abbrev=False)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    options, source = parser.parse_known_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    began = time.monotonic()
    try:
        restored = _restored(options.directory / "metadata", source)
        seconds = round(time.monotonic() - began, 3)
        _verify(source)
    except DrillError as error:
        if str(error):
            print(f"quorate: error: {error}", file=sys.stderr)
        return 1
    report = {
        "endOffset": restored["endOffset"],
        "clusterId": restored["oldClusterId"],
        "seconds": seconds,
    }
    options.report.write_text(json.dumps(report))
    print(f"restored and opened the backup: {json.dumps(report)}")
    return 0


def _end(*_: object) -> NoReturn:
    """End at once: without a handler, a container's first process ignores the signal."""
    sys.exit(128 + signal.SIGTERM)


def _restored(directory: Path, source: Sequence[str]) -> Any:
    """Restore and open it; what `quorate restore` says. Raises DrillError."""
    where = f"--directory={directory}"
    restored = _call(("restore", where, *NODE, "--json", *source))
    (found,) = _call(("recover", "inspect", f"--dirs={directory}", "--json"))["directories"]
    if found["damage"] or found["tornBytes"]:
        what = found["damage"] or f"{found['tornBytes']} bytes of the log are torn"
        raise DrillError(f"the restored log is damaged: {what}")
    for name in ("logEndOffset", "clusterId"):
        if found[name] != restored[name]:
            raise DrillError(f"the restored {name} is {found[name]}, not {restored[name]}")
    return restored


def _verify(source: Sequence[str]) -> None:
    """Verify the whole archive. Raises DrillError."""
    problems = _call(("backup", "verify", "--json", *source))["problems"]
    if problems:
        first = problems[0]
        more = f", and {len(problems) - 1} more" if problems[1:] else ""
        raise DrillError(
            f"the newest state was restored, but the backup is damaged: {first['object']} at byte "
            f"{first['position']}, offset {first['offset']}: {first['problem']}{more}"
        )


def _call(command: Sequence[str]) -> Any:
    """Run `quorate`; the JSON value that it prints. Its errors go to stderr. Raises DrillError."""
    whole = [*COMMAND, *command]
    done = subprocess.run(whole, stdout=subprocess.PIPE, check=False)
    if done.returncode < 0:
        raise DrillError(f"`quorate {command[0]}` was ended by signal {-done.returncode}")
    # `verify` prints the problems that it finds, and fails.
    if done.returncode != 0 and not done.stdout:
        raise DrillError
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
