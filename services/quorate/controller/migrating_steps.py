"""The test switches of the migration: who comes to a step first is killed there, or stopped.

A variable holds `STEP MARKER`: the first process that comes to the step makes the file MARKER. With
QUORATE_TEST_MIGRATION_DIE_AT it is then killed as by `kill -9`, with QUORATE_TEST_MIGRATION_STOP_AT
stopped until somebody sends SIGCONT: a controller that was paused between deciding and writing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

TAKES_EFFECT_S = 0.5

SWITCHES = {
    "QUORATE_TEST_MIGRATION_DIE_AT": signal.SIGKILL,
    "QUORATE_TEST_MIGRATION_STOP_AT": signal.SIGSTOP,
}


def step(name: str) -> None:
    """This process is at a step now."""
    for variable, number in SWITCHES.items():
        wanted, _, marker = os.environ.get(variable, "").partition(" ")
        if marker and wanted == name:
            with contextlib.suppress(FileExistsError):
                Path(marker).touch(exist_ok=False)
                os.kill(os.getpid(), number)
                # The process stops when its first thread is scheduled, and that need not be this.
                time.sleep(TAKES_EFFECT_S)
