"""Measurements: one JSON line for each, and a table of all.

A line has the same fields as those of the peers (peer, workload, metric, value, unit, n, load1 and
additional ones), so that one table can compare Quorate with its peers.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table

PEER = "quorate"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure."""

    workload: str
    metric: str
    value: float
    unit: str
    n: int
    """The number of operations measured."""
    peer: str = PEER
    load1: float = field(default_factory=lambda: round(os.getloadavg()[0], 2))
    """The load average of the machine."""
    more: Mapping[str, object] = field(default_factory=dict)

    def line(self) -> str:
        """Return one line of JSON; the value has six significant digits."""
        fields: dict[str, object] = {
            "peer": self.peer,
            "workload": self.workload,
            "metric": self.metric,
            "value": float(f"{self.value:.6g}"),
            "unit": self.unit,
            "n": self.n,
            "load1": self.load1,
        }
        return json.dumps(fields | dict(self.more))


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values by the nearest rank. share: from 0 to 1.

    It is the least value that is not below this share of the values.
    """
    # Without rounding, 0.07 of 100 values would be rank 8: the product is just above 7.
    rank = math.ceil(round(share * len(values), 6))
    return values[max(rank, 1) - 1]


def number(value: float, largest: float) -> str:
    return f"{value:,.{0 if largest >= 100 else 2}f}"


def table(measurements: Iterable[Measurement]) -> Table:
    """Build the table with the minimum, median and maximum of each figure over the runs."""
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for each in measurements:
        groups.setdefault((each.workload, each.metric, each.unit), []).append(each)
    result = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("Workload", "Metric", "min", "median", "max", "Runs", "n a run", "Load"):
        is_text = name in ("Workload", "Metric")
        result.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text)
    for (workload, metric, unit), found in groups.items():
        values = [each.value for each in found]
        figures = [f(values) for f in (min, statistics.median, max)]
        loads = [each.load1 for each in found]
        result.add_row(
            workload,
            f"{metric}, {unit}",
            *(number(figure, max(values)) for figure in figures),
            str(len(found)),
            f"{statistics.median(each.n for each in found):,.0f}",
            f"{min(loads):.1f}-{max(loads):.1f}",
        )
    return result
