"""A share of the processors for one process: a control group, or else a duty cycle.

Rules:
1. Where the controller `cpu` of control groups can be written to, a group of its own limits the
   process with all its threads. Its period is short, so that the process does not run in bursts.
2. Elsewhere the process stays on one processor, and is stopped for the rest of each period.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from abc import ABC, abstractmethod
from pathlib import Path

PERIOD_US = 20_000
_VERSION_1 = Path("/sys/fs/cgroup/cpu")
_VERSION_2 = Path("/sys/fs/cgroup")


class Share(ABC):
    """name: how the limit is kept, for the report."""

    name: str

    @abstractmethod
    def add(self, pid: int) -> None:
        """Limit a process from now on."""

    @abstractmethod
    def close(self) -> None:
        """Its processes have ended."""


class ControlGroup(Share):
    """cores: how many processors all processes in it have together. OSError where that is not
    possible.
    """

    def __init__(self, cores: float) -> None:
        quota = int(cores * PERIOD_US)
        if (_VERSION_1 / "cpu.cfs_quota_us").exists():
            self.name = f"control group, version 1: {cores} cores"
            self._folder = _VERSION_1 / f"quorate-pressure-{os.getpid()}"
            limits = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
        else:
            self.name = f"control group, version 2: {cores} cores"
            self._folder = _VERSION_2 / f"quorate-pressure-{os.getpid()}"
            limits = {"cpu.max": f"{quota} {PERIOD_US}"}
        self._folder.mkdir()
        try:
            for file, value in limits.items():
                (self._folder / file).write_text(value)
        except OSError:
            self.close()
            raise

    def add(self, pid: int) -> None:
        (self._folder / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.rmdir()


class DutyCycle(Share):
    """Rule 2."""

    def __init__(self, cores: float) -> None:
        self.name = f"one processor, stopped for {1 - cores:.0%} of the time"
        self._running_s = cores * PERIOD_US / 1e6
        self._stopped_s = (1 - cores) * PERIOD_US / 1e6
        self._pids: set[int] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, pid: int) -> None:
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(pid))})
        self._pids.add(pid)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._running_s):
            self._send(signal.SIGSTOP)
            self._is_over.wait(self._stopped_s)
            self._send(signal.SIGCONT)

    def _send(self, which: signal.Signals) -> None:
        for pid in tuple(self._pids):
            try:
                os.kill(pid, which)
            except ProcessLookupError:
                self._pids.discard(pid)


def make_share(cores: float) -> Share:
    """The best limit that this machine allows."""
    try:
        return ControlGroup(cores)
    except OSError:
        return DutyCycle(cores)
