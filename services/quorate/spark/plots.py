"""Plots the history as a PNG file and as a self-contained HTML page.

Four bands share one time axis in UTC: the leader, the voters (one line per replica), the broker
states, and the number of partitions whose ISR is smaller than its largest size ever. The page holds
the same drawing as vector graphics, and the intervals as a table.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from quorate.spark.errors import PipelineError
from quorate.spark.history import BROKER, ISR, LEADER, VOTERS

ROWS_MAX = 5_000
"""The maximum number of intervals in the page's table. The drawing shows all of them."""
_COLOURS = ("#4878a8", "#d1793a", "#5a9a5a", "#a8566b", "#7b68a6", "#8a7450", "#4d9aa5", "#888888")
_STANDING = {
    "active": "#5a9a5a",
    "fenced": "#c4503c",
    "shutting down": "#d6a13a",
    "unregistered": "#999999",
}

Interval = dict[str, Any]


def draw(intervals: Sequence[Interval], title: str, directory: Path) -> tuple[Path, Path]:
    """Write history.png and history.html, and return their paths.

    Raises PipelineError if matplotlib is not installed or there is nothing to draw.
    """
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise PipelineError("matplotlib is not installed: pip install 'quorate[spark]'") from None
    placed = [_in_utc(i) for i in intervals if i["started"] is not None]
    if not placed:
        raise PipelineError("the history is empty: there is nothing to plot")
    end = max(i["ended"] or i["started"] for i in placed)
    directory.mkdir(parents=True, exist_ok=True)
    bands = (_leaders, _voters, _brokers, _isrs)
    figure, axes = plt.subplots(
        len(bands),
        1,
        sharex=True,
        figsize=(14, 11),
        height_ratios=(2, 3, 3, 2),
        layout="constrained",
    )
    for band, axis in zip(bands, axes, strict=True):
        band(axis, placed, end)
        axis.spines[["top", "right"]].set_visible(False)
    # Partition counts are integers, so the ticks must be, too.
    axes[-1].yaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("time, UTC")
    figure.suptitle(title)
    figure.autofmt_xdate()
    png, page = directory / "history.png", directory / "history.html"
    figure.savefig(png, dpi=110)
    drawing = io.StringIO()
    figure.savefig(drawing, format="svg")
    plt.close(figure)
    page.write_text(_page(title, drawing.getvalue(), intervals), encoding="utf-8")
    return png, page


def _in_utc(interval: Interval) -> Interval:
    """Convert times to UTC: Spark returns naive times in the local time zone."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value
        for name, value in interval.items()
    }


def _of(intervals: Sequence[Interval], kind: str) -> list[Interval]:
    return [interval for interval in intervals if interval["kind"] == kind]


def _colour(node_id: str) -> str:
    return _COLOURS[sum(node_id.encode()) % len(_COLOURS)]


def _bars(axis: Any, bars: list[tuple[str, Interval, str]], end: datetime, title: str) -> None:
    """Draw intervals as bars: (lane, interval, colour). The lanes are sorted by name."""
    rows = {lane: row for row, lane in enumerate(sorted({lane for lane, *_ in bars}))}
    for lane, one, colour in sorted(bars, key=itemgetter(0)):
        begin = one["started"]
        width = (one["ended"] or end) - begin
        axis.barh(rows[lane], width, left=begin, height=0.7, color=colour, edgecolor="white")
    axis.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axis.invert_yaxis()
    axis.set_title(title, loc="left", fontsize=10)


def _leaders(axis: Any, intervals: Sequence[Interval], end: datetime) -> None:
    led = [(str(one["value"]).split(" ", 1)[0], one) for one in _of(intervals, LEADER)]
    bars = [(f"replica {leader}", one, _colour(leader)) for leader, one in led]
    _bars(axis, bars, end, "leader")


def _voters(axis: Any, intervals: Sequence[Interval], end: datetime) -> None:
    bars = [
        (key, one, _colour(key.split("-")[0]))
        for one in _of(intervals, VOTERS)
        for key in str(one["value"]).split(", ")
    ]
    _bars(axis, bars, end, "voters (id-directory)")


def _brokers(axis: Any, intervals: Sequence[Interval], end: datetime) -> None:
    bars = [
        (f"broker {one['subject']}", one, _STANDING.get(str(one["value"]), "#888888"))
        for one in _of(intervals, BROKER)
    ]
    _bars(axis, bars, end, "brokers: green active, red fenced, yellow shutting down")


def _isrs(axis: Any, intervals: Sequence[Interval], end: datetime) -> None:
    """Plot the number of partitions whose ISR is smaller than its largest size ever."""
    sizes = [(one, _size(one["value"])) for one in _of(intervals, ISR)]
    most: dict[str, int] = {}
    for one, size in sizes:
        most[one["subject"]] = max(size, most.get(one["subject"], 0))
    steps: list[tuple[datetime, int]] = []
    for one, size in sizes:
        if size < most[one["subject"]]:
            steps += [(one["started"], 1), (one["ended"] or end, -1)]
    steps.sort(key=lambda step: step[0])
    level, xs, ys = 0, [], []
    for at, change in steps:
        level += change
        xs.append(at)
        ys.append(level)
    if xs:
        axis.fill_between(xs, ys, step="post", color="#c4503c", alpha=0.6)
    axis.set_ylim(bottom=0)
    axis.set_title("partitions with a shrunken ISR", loc="left", fontsize=10)


def _size(value: object) -> int:
    return len([part for part in str(value).split(", ") if part])


def _page(title: str, drawing: str, intervals: Sequence[Interval]) -> str:
    columns = ("kind", "subject", "change", "value", "start_offset", "epoch", "started", "ended")
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_shown(one[name]))}</td>" for name in columns)
        + "</tr>\n"
        for one in intervals[:ROWS_MAX]
    )
    more = len(intervals) - ROWS_MAX
    note = f"<p>{more} more intervals are in the table history.</p>" if more > 0 else ""
    svg = drawing[drawing.index("<svg") :]
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; }}
svg {{ max-width: 100%; height: auto; }}
table {{ border-collapse: collapse; font-size: 12px; }}
td, th {{ border-bottom: 1px solid #ddd; padding: 2px 8px; text-align: left; }}
</style>
<h1>{html.escape(title)}</h1>
{svg}
<table><thead><tr>{head}</tr></thead><tbody>
{body}</tbody></table>
{note}
</html>
"""


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    return str(value)
