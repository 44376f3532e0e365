"""Figures: quantiles of times, and what the controllers' processes use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from tests.kafka_soak.clusters import CONTROLLERS, Controllers

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024

Quantiles = dict[str, float]
Figure = float | int | Quantiles
Figures = dict[str, Figure]


def quantiles(seconds: Iterable[float]) -> Quantiles:
    """p50, p99 and the maximum of times, as milliseconds."""
    found = sorted(seconds)
    assert found, "nothing was measured"
    last = len(found) - 1
    return {
        name: round(found[round(last * share)] * 1000, 2)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def cpu_s(pid: int) -> float:
    """The processor time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return round(int(found) / 1024, 1)


class CpuWatch:
    """The processor time of the controllers since it was made.

    Unlike the passed time, it hardly depends on what else the machine does.
    """

    def __init__(self, controllers: Controllers) -> None:
        self._pids = {each: controllers.process(each).pid for each in CONTROLLERS}
        self._began_s = time.monotonic()
        self._before = {each: cpu_s(pid) for each, pid in self._pids.items()}

    def used_s(self) -> float:
        """By all processes that still run, seconds."""
        alive = (each for each in self._pids if Path(f"/proc/{self._pids[each]}").exists())
        return sum(cpu_s(self._pids[each]) - self._before[each] for each in alive)

    def shares(self) -> dict[int, float]:
        """By controller, 1.0 for one processor."""
        passed_s = time.monotonic() - self._began_s
        return {
            each: round((cpu_s(pid) - self._before[each]) / passed_s, 3)
            for each, pid in self._pids.items()
        }
