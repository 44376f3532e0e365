"""What was measured, gathered over all runs: how long each thing took, and the writer's gap."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

NOT_WRITTEN = -1


@dataclass(slots=True)
class Figures:
    """Of one thing: seconds and longest gaps, milliseconds, a run each."""

    seconds: list[float] = field(default_factory=list)
    gaps_ms: list[int] = field(default_factory=list)


_FOUND: dict[str, Figures] = {}
_LOST: list[int] = []
_ACKNOWLEDGED: list[int] = []


def add(what: str, seconds: float, gap_ms: int = NOT_WRITTEN) -> None:
    """One run's. gap_ms: the longest time without an acknowledgement, if anybody wrote."""
    found = _FOUND.setdefault(what, Figures())
    found.seconds.append(seconds)
    shown = ""
    if gap_ms != NOT_WRITTEN:
        found.gaps_ms.append(gap_ms)
        shown = f", longest gap {gap_ms} ms"
    print(f"{what}: {seconds:.1f} s{shown}")


def verified(acknowledged: int, lost: int) -> None:
    _ACKNOWLEDGED.append(acknowledged)
    _LOST.append(lost)


def table() -> list[str]:
    """The lines of the report; none if nothing was measured."""
    if not _FOUND:
        return []
    lines = [
        "",
        "| what | runs | median, s | max, s | longest gap, median, ms | max, ms |",
        "|---|---|---|---|---|---|",
    ]
    for what, found in _FOUND.items():
        gaps = ["", ""]
        if found.gaps_ms:
            gaps = [f"{statistics.median(found.gaps_ms):.0f}", f"{max(found.gaps_ms)}"]
        seconds = [f"{statistics.median(found.seconds):.1f}", f"{max(found.seconds):.1f}"]
        lines.append(f"| {what} | {len(found.seconds)} | {' | '.join(seconds + gaps)} |")
    lines.append(
        f"lost {sum(_LOST)} of {sum(_ACKNOWLEDGED)} acknowledged records "
        f"({len(_ACKNOWLEDGED)} writers)"
    )
    return lines
