"""The plots as options of Apache ECharts: plain data, so that tests can inspect them."""

from __future__ import annotations

from typing import Any

from quorate.console.state import QuorumState

COLOURS = ("#2a6f97", "#e07a5f", "#81b29a", "#9d6b9e", "#c9a227", "#5f797b", "#bc4749", "#577590")
NOBODY_COLOUR = "#d9d9d9"
TENURES_SHOWN = 60

Options = dict[str, Any]


def colour(node_id: int | None) -> str:
    """Return the colour of a controller, the same in all plots; grey for None."""
    return NOBODY_COLOUR if node_id is None else COLOURS[node_id % len(COLOURS)]


def _time_axis() -> Options:
    return {"type": "time", "axisLabel": {"hideOverlap": True}, "splitLine": {"show": False}}


def latency(state: QuorumState) -> Options:
    """How long a majority takes to confirm the leader, over time."""
    data = [[point.at_ms, round(point.confirm_ms, 2)] for point in state.points
            if point.confirm_ms is not None]  # fmt: skip
    return {
        "animation": False,
        "grid": {"left": 48, "right": 16, "top": 32, "bottom": 28},
        "xAxis": _time_axis(),
        "yAxis": {"type": "value", "name": "ms", "min": 0},
        "tooltip": {"trigger": "axis"},
        "series": [
            {"type": "line", "showSymbol": False, "data": data, "areaStyle": {"opacity": 0.15},
             "itemStyle": {"color": COLOURS[0]}}
        ],
    }  # fmt: skip


def lag(state: QuorumState) -> Options:
    """How far each replica is behind the leader, over time."""
    ids = sorted({node_id for point in state.points for node_id in point.lags})
    series = [
        {
            "type": "line",
            "name": f"controller {node_id}",
            "showSymbol": False,
            "itemStyle": {"color": colour(node_id)},
            "data": [[p.at_ms, p.lags[node_id]] for p in state.points if node_id in p.lags],
        }
        for node_id in ids
    ]
    return {
        "animation": False,
        "grid": {"left": 48, "right": 16, "top": 32, "bottom": 28},
        "legend": {"top": 0, "type": "scroll"},
        "xAxis": _time_axis(),
        "yAxis": {"type": "value", "name": "records", "min": 0, "minInterval": 1},
        "tooltip": {"trigger": "axis"},
        "series": series,
    }


def leader_terms(state: QuorumState) -> Options:
    """The leaders over time: a bar for each term, one row per controller, grey without a leader."""
    shown = list(state.leader_terms)[-TENURES_SHOWN:]
    names = sorted({term.leader for term in shown}, key=lambda leader: (leader is None, leader))
    lines = {leader: index for index, leader in enumerate(names)}
    series = [
        {
            "type": "line",
            "showSymbol": False,
            "lineStyle": {"width": 14, "color": colour(term.leader), "cap": "butt"},
            "data": [
                [term.from_ms, lines[term.leader]],
                [term.to_ms if term.to_ms is not None else state.at_ms, lines[term.leader]],
            ],
            "endLabel": {"show": True, "formatter": f"epoch {term.epoch}", "fontSize": 10},
        }
        for term in shown
    ]
    labels = ["no leader" if leader is None else f"controller {leader}" for leader in names]
    return {
        "animation": False,
        "grid": {"left": 96, "right": 64, "top": 16, "bottom": 28},
        "xAxis": _time_axis(),
        "yAxis": {"type": "category", "data": labels, "inverse": True},
        "series": series,
    }
