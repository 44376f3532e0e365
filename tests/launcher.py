"""Start a process of Quorate with what a test changes in it; `quorate` itself has no such switches.

    python tests/launcher.py [OPTION ...] -- controller FILE

    --kill FAILPOINT=MARKER   kill -9 the first process that comes to the failpoint
    --stop FAILPOINT=MARKER   stop that process until somebody sends SIGCONT, as a long pause would
    --unsafe-isr              any replica may enter an ISR: KIP-841's checks are off

The first of the processes that share a MARKER creates that file and is the one. What follows `--`
is a command line of `quorate`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from quorate.cli.main import main
from quorate.failpoints import ACTIONS

TAKES_EFFECT_S = 0.5


def launched_by(*options: str) -> tuple[str, ...]:
    """The arguments of Python that put this launcher before a command line of `quorate`."""
    return ("-P", str(Path(__file__).resolve()), *options, "--")


def signal_the_first(number: signal.Signals, marker: Path) -> None:
    """Send the signal to this process, if it is the first to come here."""
    with contextlib.suppress(FileExistsError):
        marker.touch(exist_ok=False)
        os.kill(os.getpid(), number)
        # The process stops when its first thread is scheduled, and that need not be this.
        time.sleep(TAKES_EFFECT_S)


def set_default(function: Callable[..., Any], name: str, value: object) -> None:
    """Change the default of a parameter by keyword. KeyError if there is none of that name."""
    defaults = function.__kwdefaults__
    if name not in defaults:
        raise KeyError(f"{function.__qualname__} has no keyword parameter {name} with a default")
    defaults[name] = value


def make_isr_unsafe() -> None:
    """Let any replica into an ISR, on the controllers' side and on the leaders' side."""
    from quorate.broker.replica_manager import ReplicaManager
    from quorate.metadata.controller import MetadataController

    set_default(MetadataController.__init__, "enforce_eligibility", False)
    set_default(ReplicaManager.__init__, "check_eligibility", False)


def run(arguments: list[str]) -> int:
    """Make the changes and run the command; its exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", action="append", default=[])
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--unsafe-isr", action="store_true")
    end = arguments.index("--")
    options = parser.parse_args(arguments[:end])
    for number, places in ((signal.SIGKILL, options.kill), (signal.SIGSTOP, options.stop)):
        for place in places:
            name, _, marker = place.partition("=")
            ACTIONS[name] = partial(signal_the_first, number, Path(marker))
    if options.unsafe_isr:
        make_isr_unsafe()
    return main(arguments[end + 1 :])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
