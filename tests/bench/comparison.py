"""The table and the plot of measurements of several contenders."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict


class Line(TypedDict, total=False):
    """One measurement, as `quorate bench --json` and the peers' harness print it."""

    peer: str
    workload: str
    metric: str
    value: float
    unit: str
    n: int
    load1: float


Key = tuple[str, str]
"""Workload and metric."""

Row = tuple[str, ...]
"""Workload and metric, Quorate, the other, ratio, goal, whether it is met."""

OURSELVES = "quorate"
VERDICT = {True: "met", False: "**not met**"}


@dataclass(frozen=True, slots=True)
class Goal:
    """Quorate's figure as a multiple of another: at most (a time) or at least (a rate).

    peers: the other is the best of their figures; Quorate itself for one that shall not depend on a
    size.
    """

    ours: Key
    peers: tuple[str, ...]
    theirs: Key
    factor: float
    is_time: bool = True

    @property
    def text(self) -> str:
        of = self.theirs[1] if self.peers == (OURSELVES,) else " or ".join(self.peers)
        return f"{'at most' if self.is_time else 'at least'} {self.factor:g} x {of}"

    def row(self, lines: Sequence[Line], name: str) -> Row | None:
        """The row of the table, if both were measured: the ratio is that of the medians.

        name: the one of Quorate's contenders that it is about.
        """
        ours = values(lines, name, self.ours)
        peers = (name,) if self.peers == (OURSELVES,) else self.peers
        measured = [found for peer in peers if (found := values(lines, peer, self.theirs))]
        if not ours or not measured:
            return None
        theirs = (min if self.is_time else max)(measured, key=statistics.median)
        ratio = statistics.median(ours) / statistics.median(theirs)
        met = ratio <= self.factor if self.is_time else ratio >= self.factor
        shown = (spread(ours), spread(theirs), f"{ratio:.2f}", self.text)
        return (" ".join(self.ours), *shown, VERDICT[met])


@dataclass(frozen=True, slots=True)
class Bound:
    """What Quorate's figure may be at the most, by itself."""

    ours: Key
    most: float
    unit: str

    def row(self, lines: Sequence[Line], name: str) -> Row | None:
        """The row of the table, if it was measured: the median counts. name: see `Goal.row`."""
        ours = values(lines, name, self.ours)
        if not ours:
            return None
        met = statistics.median(ours) <= self.most
        goal = f"at most {self.most:g} {self.unit}"
        return " ".join(self.ours), spread(ours), "", "", goal, VERDICT[met]


LARGE, EMPTY = "10,000,000 records", "0 records"

ETCD = ("etcd", "etcd36")
ALONE = (OURSELVES,)

GOALS: tuple[Goal | Bound, ...] = (
    Goal(("W1", "p50"), ETCD, ("W1", "p50"), 1.0),
    Goal(("W1", "p99"), ETCD, ("W1", "p99"), 1.0),
    Goal(("W2", "throughput"), ETCD, ("W2", "throughput"), 5.0, is_time=False),
    Goal(("W2", "p99"), ETCD, ("W2", "p99"), 1.0),
    Goal(("W2p", "throughput"), ETCD, ("W2", "throughput"), 3.0, is_time=False),
    Goal(("W2u", "throughput"), ETCD, ("W2", "throughput"), 0.25, is_time=False),
    Goal(("W3", "throughput"), ETCD, ("W3", "throughput"), 6.0, is_time=False),
    Goal(("W4", "median"), ETCD, ("W4", "median"), 0.05),
    Bound(("W4g", "max"), 100, "ms"),
    Goal(("W5", "restart"), ETCD, ("W5", "restart"), 0.5),
    Goal(("W6", "received"), ALONE, ("W6", "one stream to one disk"), 0.7, is_time=False),
    Bound(("W7", "max"), 64, "MiB"),
    Goal(("W8", f"{LARGE}: p50"), ALONE, ("W8", f"{EMPTY}: p50"), 1.1),
    Goal(("W8", f"{LARGE}: median"), ALONE, ("W8", f"{EMPTY}: median"), 1.1),
)


def values(lines: Sequence[Line], peer: str, key: Key) -> list[float]:
    return [
        line["value"]
        for line in lines
        if line["peer"] == peer and (line["workload"], line["metric"]) == key
    ]


def _figure(value: float) -> str:
    return f"{value:,.{0 if value >= 100 else 2 if value >= 1 else 3}f}"


def spread(found: Sequence[float]) -> str:
    """min / median / max."""
    return " / ".join(_figure(of(found)) for of in (min, statistics.median, max))


def markdown(lines: Sequence[Line]) -> str:
    """Goals first, then every figure of everybody: min / median / max over the runs."""
    peers = list(dict.fromkeys(line["peer"] for line in lines))
    text = []
    for name in (peer for peer in peers if peer.startswith(OURSELVES)):
        rows = [row for goal in GOALS if (row := goal.row(lines, name)) is not None]
        text += [f"| workload | {name} | beside it | ratio | goal | |", "|---|---|---|---|---|---|"]
        text += ["| " + " | ".join(row) + " |" for row in rows] + [""]
    keys: dict[Key, str] = {}
    for line in lines:
        keys.setdefault((line["workload"], line["metric"]), line["unit"])
    text += [f"| workload | unit | {' | '.join(peers)} |", "|---" * (2 + len(peers)) + "|"]
    for key, unit in sorted(keys.items()):
        cells = [spread(found) if (found := values(lines, peer, key)) else "" for peer in peers]
        text.append(f"| {key[0]} {key[1]} | {unit} | {' | '.join(cells)} |")
    loads = [line["load1"] for line in lines]
    text.append(f"\nmin / median / max over the runs; load average {min(loads)} to {max(loads)}.")
    return "\n".join(text) + "\n"


PANELS: tuple[tuple[str, Key, Callable[[float], float], str], ...] = (
    ("W1: one caller, p50", ("W1", "p50"), lambda ms: ms, "ms, less is better"),
    ("W2: 64 callers", ("W2", "throughput"), lambda rate: rate, "commits/s, more is better"),
    ("W3: in batches", ("W3", "throughput"), lambda rate: rate, "records/s, more is better"),
    ("W4: leader killed, median", ("W4", "median"), lambda s: s * 1000, "ms, less is better"),
)
COLOURS = {
    "quorate": "#2a6f97",
    "quorate-grpc": "#61a5c2",
    "etcd": "#8d99ae",
    "etcd36": "#8d99ae",
    "kafka": "#adb5bd",
    "pysyncobj": "#ced4da",
}


def plot(lines: Sequence[Line], path: Path) -> None:
    """One panel a workload, a bar a contender (median), its runs as dots; logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(PANELS), figsize=(13, 3.4), layout="constrained")
    for axis, (title, key, scale, unit) in zip(axes, PANELS, strict=True):
        for name, colour in COLOURS.items():
            found = [scale(value) for value in values(lines, name, key)]
            if not found:
                continue
            middle = statistics.median(found)
            axis.bar(name, middle, color=colour)
            axis.plot([name] * len(found), found, "k.", markersize=4)
            axis.annotate(
                _figure(middle),
                (name, max(found)),  # clear of the dots
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=8,
            )
        axis.set_yscale("log")
        axis.margins(y=0.25)
        axis.set_title(title, fontsize=10)
        axis.set_ylabel(unit, fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)
    plt.close(figure)
