"""The plots as options of Apache ECharts: plain data, so that tests can inspect them.

The page draws them as SVG and gives texts the colour of the page's other texts, so all other
colours must be visible on light and on dark backgrounds. The unit of the values is in a plot's
title, where no legend can cover it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quorate.console.state import BROKER, OBSERVER, LeaderTerm, QuorumState

COLOURS = ("#3a86b7", "#e07a5f", "#5ea283", "#a878a9", "#c9a227", "#6f8f91", "#d05a5c", "#6c8aa8")
NOBODY_COLOUR = "#9e9e9e"
LINE_COLOUR = "rgba(128, 128, 128, 0.6)"
GRID_COLOUR = "rgba(128, 128, 128, 0.25)"
TERMS_SHOWN = 60
POINTS_SHOWN = 300
OBSERVERS_SHOWN = 8

Options = dict[str, Any]


def colour(node_id: int | None) -> str:
    """Return the colour of a node, the same in all plots; grey for None."""
    return NOBODY_COLOUR if node_id is None else COLOURS[node_id % len(COLOURS)]


def has_data(options: Options) -> bool:
    """Whether a plot shows anything."""
    return any(series["data"] for series in options["series"])


def latency(state: QuorumState) -> Options:
    """How long a majority takes to confirm the leader, over time."""
    points = [(point.at_ms, point.confirm_ms) for point in state.points]
    data = [[at_ms, round(value, 2)] for at_ms, value in _thinned(points)]
    series = [
        {"type": "line", "showSymbol": False, "data": data, "areaStyle": {"opacity": 0.15},
         "itemStyle": {"color": COLOURS[0]}}
    ]  # fmt: skip
    return _over_time({"left": 56, "bottom": 28}, _value_axis(), series)


def lag(state: QuorumState) -> Options:
    """How far each voter and the slowest observers are behind the leader, over time."""
    ids, _ = _plotted(state)
    series = [
        {
            "type": "line",
            "name": state.name_of(node_id),
            "showSymbol": False,
            "itemStyle": {"color": colour(node_id)},
            "data": [list(each) for each in _thinned((p.at_ms, p.lags.get(node_id))
                                                     for p in state.points)],
        }
        for node_id in ids
    ]  # fmt: skip
    legend = {
        "bottom": 0,
        "type": "scroll",
        "icon": "roundRect",
        "pageIconColor": COLOURS[0],
        "pageIconInactiveColor": NOBODY_COLOUR,
    }
    options = _over_time({"left": 56, "bottom": 60}, _value_axis(minInterval=1), series)
    return {**options, "legend": legend}


def lags_left_out(state: QuorumState) -> int:
    """Return how many observers and brokers are not plotted."""
    return _plotted(state)[1]


def _plotted(state: QuorumState) -> tuple[list[int], int]:
    """Return the nodes whose lag is plotted, and the number of others."""
    ids = {node_id for point in state.points for node_id in point.lags}
    others = {row.key.id for row in state.replicas if row.role in (BROKER, OBSERVER)}
    latest = state.points[-1].lags if state.points else {}
    slowest = sorted(ids & others, key=lambda node_id: (-latest.get(node_id, 0), node_id))
    chosen = slowest[:OBSERVERS_SHOWN]
    return sorted((ids - others) | set(chosen)), len(slowest) - len(chosen)


def leader_terms(state: QuorumState) -> Options:
    """The leaders over time: a bar for each term, one row per controller, grey without a leader."""
    shown = list(state.leader_terms)[-TERMS_SHOWN:]
    names = sorted({term.leader for term in shown}, key=lambda leader: (leader is None, leader))
    lines = {leader: index for index, leader in enumerate(names)}
    series = [_term(term, lines[term.leader], state.at_ms) for term in shown]
    labels = ["no leader" if leader is None else f"controller {leader}" for leader in names]
    axis = {"type": "category", "data": labels, "inverse": True,
            "axisLine": {"lineStyle": {"color": LINE_COLOUR}}}  # fmt: skip
    options = _over_time({"left": 96, "right": 56, "bottom": 28}, axis, series)
    return {**options, "tooltip": {"show": False}}


def _term(term: LeaderTerm, line: int, now_ms: int) -> Options:
    """Return a bar. Its label is above its start; labels that would overlap are left out."""
    start = {
        "value": [term.from_ms, line],
        "label": {
            "show": term.leader is not None,
            "formatter": f"epoch {term.epoch}",
            "position": "top",
            "align": "left",
            "distance": 10,
            "fontSize": 10,
            "textBorderWidth": 0,
        },
    }
    return {
        "type": "line",
        "showSymbol": True,
        "symbol": "rect",
        "symbolSize": 1,
        "silent": True,
        "labelLayout": {"hideOverlap": True},
        "itemStyle": {"color": colour(term.leader)},
        "lineStyle": {"width": 14, "color": colour(term.leader), "cap": "butt"},
        "data": [start, {"value": [now_ms if term.to_ms is None else term.to_ms, line]}],
    }


def _over_time(grid: Options, values: Options, series: list[Options]) -> Options:
    return {
        "animation": False,
        "grid": {"right": 16, "top": 16, **grid},
        "xAxis": {
            "type": "time",
            "axisLabel": {"hideOverlap": True},
            "axisLine": {"lineStyle": {"color": LINE_COLOUR}},
            "splitLine": {"show": False},
        },
        "yAxis": values,
        "tooltip": {"trigger": "axis"},
        "series": series,
    }


def _value_axis(**more: Any) -> Options:
    return {"type": "value", "min": 0, "splitLine": {"lineStyle": {"color": GRID_COLOUR}}, **more}


def _thinned(points: Iterable[tuple[int, float | None]]) -> list[tuple[int, float]]:
    """Return at most about `POINTS_SHOWN` of the known values: the largest of each interval."""
    known = [(at_ms, value) for at_ms, value in points if value is not None]
    if len(known) <= POINTS_SHOWN:
        return known
    width_ms = (known[-1][0] - known[0][0]) // POINTS_SHOWN + 1
    largest: dict[int, tuple[int, float]] = {}
    for at_ms, value in known:
        interval = at_ms // width_ms
        if interval not in largest or value > largest[interval][1]:
            largest[interval] = (at_ms, value)
    return list(largest.values())
