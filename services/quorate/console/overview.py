"""The first page: the quorum, its brokers, and partitions with problems (nicegui)."""

from __future__ import annotations

from nicegui import ui

from quorate.console import charts, rows
from quorate.console.actions import Actions
from quorate.console.frame import Frame, fill, link_cells, table
from quorate.console.state import Event
from quorate.console.topics import LEADERLESS
from quorate.console.watch import Watch

EVENTS_SHOWN = 100
FIGURES = ("Leader", "Epoch", "High watermark", "Voters", "kraft.version")
CLUSTER_FIGURES = ("Brokers", "Topics", "Partitions", "Not fully in sync", "Without a leader")
PLOTS = {
    "Leader over time": charts.leader_terms,
    "Time until a majority confirms the leader (ms)": charts.latency,
    "Lag behind the leader (records)": charts.lag,
}
NO_DATA = {
    "Leader over time": "No controller has answered yet.",
    "Time until a majority confirms the leader (ms)": "Nothing measured yet: this needs a leader.",
    "Lag behind the leader (records)": "Nothing measured yet: only a leader knows the lags.",
}


class OverviewPage:
    """One browser's view. Without `Watch.allows_changes` it has no buttons."""

    def __init__(self, watch: Watch, theme: str) -> None:
        self._watch = watch
        self._frame = Frame(watch, theme, "/")
        with ui.row().classes("w-full"):
            self._figures = {name: self._figure(name) for name in FIGURES}
        self._table = table(rows.REPLICAS, "replicas")
        self._table.add_slot(
            "body-cell-role",
            "<q-td :props=\"props\"><q-badge :color=\"props.row.role === 'leader' ? 'primary' : "
            "props.row.healthy ? 'positive' : 'negative'\" :label=\"props.row.role\" /></q-td>",
        )
        self._more_observers = ui.label().classes("text-caption")
        self._actions = Actions(watch, self._table) if watch.allows_changes else None
        self._build_cluster()
        self._build_plots()
        self._drawn_event: Event | None = None
        self._draw_events(is_first=True)
        self.draw()

    def _build_cluster(self) -> None:
        with ui.column().classes("w-full gap-2").props('data-testid="cluster"'):
            with ui.row().classes("w-full") as self._of_cluster:
                self._cluster_figures = {name: self._figure(name) for name in CLUSTER_FIGURES}
            self._isrs = ui.label().classes("text-body2").props('data-testid="isr"')
            self._partitions = table(rows.PARTITIONS, "unhealthy-partitions")
            self._partitions.classes("max-h-64")
            link_cells(self._partitions, "partition")
            self._brokers = table(rows.BROKERS, "broker-list").classes("max-h-96")
            self._more_brokers = ui.label().classes("text-caption")

    def _build_plots(self) -> None:
        self._plots: dict[str, tuple[ui.echart, ui.label]] = {}
        card = "w-full min-w-0"
        with ui.grid().classes("w-full grid-cols-1 lg:grid-cols-2"):
            for title, options in PLOTS.items():
                with ui.card().classes(card):
                    ui.label(title).classes("text-subtitle1")
                    empty = ui.label(NO_DATA[title]).classes("text-caption h-56")
                    plot = ui.echart(options(self._watch.state), renderer="svg").classes("h-56")
                    self._plots[title] = (plot, empty)
            with ui.card().classes(card):
                ui.label("Events (UTC)").classes("text-subtitle1")
                self._log = ui.column().classes("gap-0 h-56 overflow-auto w-full")
                self._log.props('data-testid="events"')
        self._more_lags = ui.label().classes("text-caption")

    @staticmethod
    def _figure(name: str) -> ui.label:
        with ui.card().classes("q-pa-sm gap-1"):
            ui.label(name).classes("text-caption")
            return (
                ui.label("–")
                .classes("text-h6")
                .props(f'data-testid="{name.lower().replace(" ", "-")}"')
            )

    def draw(self) -> None:
        """Show the state after a poll."""
        state = self._watch.state
        self._frame.draw()
        pending = " (change in progress)" if state.is_change_pending else ""
        figures = {
            "Leader": "none" if state.leader is None else str(state.leader),
            "Epoch": rows.number(state.epoch if state.epoch >= 0 else None),
            "High watermark": rows.number(state.high_watermark),
            "Voters": f"{len(state.voters)}{pending}",
            "kraft.version": rows.number(state.kraft_version),
        }
        for name, text in figures.items():
            self._figures[name].set_text(text)
        replicas, left_out = rows.replicas(state)
        fill(self._table, replicas, "No controller has described the quorum yet.")
        _say_more(self._more_observers, left_out, "observers and brokers")
        if self._actions is not None:
            self._actions.draw()
        self._draw_cluster()
        self._draw_plots()
        self._draw_events()

    def _draw_cluster(self) -> None:
        summary = self._watch.isr_summary
        health = summary.health
        counts = health.counts if health is not None else {}
        fenced = f" ({len(summary.fenced)} fenced)" if summary.fenced else ""
        figures = {
            "Brokers": f"{len(summary.brokers)}{fenced}",
            "Topics": rows.number(summary.topics),
            "Partitions": rows.number(summary.partitions),
            "Not fully in sync": rows.number(health.unhealthy if health is not None else None),
            "Without a leader": rows.number(None if health is None else counts.get(LEADERLESS, 0)),
        }
        for name, text in figures.items():
            self._cluster_figures[name].set_text(text)
        self._of_cluster.set_visibility(summary.is_in_use)
        theme = self._frame.theme
        worst = () if health is None else health.worst
        fill(self._partitions, [rows.unhealthy_partition(each, theme) for each in worst], "")
        self._partitions.set_visibility(bool(worst))
        brokers, left_out = rows.brokers(summary.brokers)
        fill(self._brokers, brokers, "No broker is registered.")
        self._brokers.set_visibility(summary.is_in_use)
        _say_more(self._more_brokers, left_out, "brokers")
        self._isrs.set_text(rows.isr_verdict(summary, self._watch.state))

    def _draw_plots(self) -> None:
        for title, options in PLOTS.items():
            chart, empty = self._plots[title]
            new = options(self._watch.state)
            has_data = charts.has_data(new)
            chart.set_visibility(has_data)
            empty.set_visibility(not has_data)
            chart.options.clear()
            chart.options.update(new)
            chart.update()
        left_out = charts.lags_left_out(self._watch.state)
        _say_more(self._more_lags, left_out, "observers and brokers with less lag", "plotted")

    def _draw_events(self, *, is_first: bool = False) -> None:
        events = self._watch.state.events
        newest = events[-1] if events else None
        if newest is self._drawn_event and not is_first:
            return
        self._drawn_event = newest
        self._log.clear()
        with self._log:
            if not events:
                ui.label("No changes since this console started.").classes("text-caption")
            for event in list(events)[: -EVENTS_SHOWN - 1 : -1]:
                ui.label(f"{rows.clock(event.at_ms)}  {event.text}").classes("text-caption")


def _say_more(label: ui.label, count: int, noun: str, verb: str = "listed") -> None:
    label.set_text(f"{count:,} more {noun} are not {verb}.")
    label.set_visibility(count > 0)
