"""The processor time and memory of processes and all their descendants, by sampling /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_S = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _stat(pid: int) -> tuple[int, float, float]:
    """The parent, the processor seconds and the resident MiB of a process."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE_MIB


@dataclass
class Meter:
    """What some processes and their descendants take while the `with` block runs.

    What a process does after the last sample before its end is missed: at most `SAMPLE_S`.
    """

    roots: Iterable[int]
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    """Of all processes together; pages that they share count once for each."""
    _seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Meter:
        self._sample()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        stats: dict[int, tuple[int, float, float]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError, ValueError):
                    stats[int(entry.name)] = _stat(int(entry.name))
        children: dict[int, list[int]] = {}
        for pid, (parent, *_) in stats.items():
            children.setdefault(parent, []).append(pid)
        found, left = set(), list(self.roots)
        while left:
            pid = left.pop()
            if pid in stats and pid not in found:
                found.add(pid)
                left += children.get(pid, [])
        is_first = not self._seen
        for pid in found:
            now = stats[pid][1]
            # What ran before the block does not count.
            begun = self._seen[pid][0] if pid in self._seen else now if is_first else 0.0
            self._seen[pid] = (begun, now)
        self.cpu_s = sum(now - begun for begun, now in self._seen.values())
        self.peak_mib = max(self.peak_mib, sum(stats[pid][2] for pid in found))
