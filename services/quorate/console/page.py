"""The page, the same for all users and redrawn after each poll (nicegui; only local files).

Without `Watch.allows_changes` the page has no buttons. Every action asks for confirmation, and
shows its result.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import Awaitable, Callable, Collection

from nicegui import app, ui

from quorate.console import charts
from quorate.console.access import Access
from quorate.console.cluster import LEADERLESS, UnhealthyPartition
from quorate.console.state import Health, ReplicaRow
from quorate.console.watch import Watch
from quorate.raft.errors import MisuseError
from quorate.raft.types import ReplicaKey
from quorate.rpc.errors import ClientError
from quorate.rpc.wire.limits import parse_address
from quorate.version import __version__

HEALTH_COLOURS = {
    Health.HEALTHY: "positive",
    Health.DEGRADED: "warning",
    Health.AT_RISK: "negative",
    Health.NO_LEADER: "negative",
    Health.UNREACHABLE: "negative",
}


def _column(name: str, label: str, align: str) -> dict[str, str]:
    """Return a column that shows the field `name` of a row."""
    return {"name": name, "label": label, "field": name, "align": align}


COLUMNS = [
    _column("id", "Id", "left"),
    _column("role", "Role", "left"),
    _column("directory", "Directory id", "left"),
    _column("endpoint", "Endpoint", "left"),
    _column("software", "Implementation", "left"),
    _column("end", "Log end offset", "right"),
    _column("lag", "Lag", "right"),
    _column("fetched", "Last fetch", "right"),
    _column("caught", "Caught up", "right"),
]
PARTITION_COLUMNS = [
    _column("partition", "Partition", "left"),
    _column("problem", "Problem", "left"),
    _column("leader", "Leader", "right"),
    _column("isr", "ISR", "right"),
    _column("replicas", "Replicas", "right"),
]
_DIRECTORY_ID = re.compile(r"[A-Za-z0-9_-]{22}")
EVENTS_SHOWN = 100
FIGURES = ("Leader", "Epoch", "High watermark", "Voters", "kraft.version")
PLOTS = {
    "Leader over time": charts.leader_terms,
    "Time until a majority confirms the leader": charts.latency,
    "Lag behind the leader": charts.lag,
}
CLUSTER_FIGURES = ("Brokers", "Topics", "Partitions", "Not fully in sync", "Without a leader")


def _clock(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _ago(value: int | None) -> str:
    if value is None:
        return "–"
    # Whole seconds: an unchanged row is not redrawn under the user's mouse.
    return "now" if value < 2_000 else f"{value // 1000} s ago"


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _address(text: str) -> tuple[str, int] | None:
    """Parse HOST:PORT; None if `text` is invalid or lacks one of them."""
    try:
        host, port = parse_address(text)
    except MisuseError:
        return None
    return (host, port) if host and port else None


def _key(replica: ReplicaRow) -> str:
    return f"{replica.key.id}/{replica.key.directory_id}"


def _row(replica: ReplicaRow, brokers: Collection[int]) -> dict[str, object]:
    """Return a row. brokers: ids of brokers, which are observers that must not become voters."""
    is_broker = replica.role == "observer" and replica.key.id in brokers
    return {
        "key": _key(replica),
        "id": replica.key.id,
        "role": "broker" if is_broker else replica.role,
        "directory": replica.key.directory_id or "unknown",
        "endpoint": replica.endpoint,
        "software": str(replica.software),
        "end": _number(replica.end_offset),
        "lag": _number(replica.lag),
        "fetched": _ago(replica.fetched_ago_ms),
        "caught": _ago(replica.late_ms),
        "healthy": replica.is_healthy,
    }


def _partition_row(found: UnhealthyPartition) -> dict[str, object]:
    return {
        "partition": f"{found.topic}-{found.partition}",
        "problem": found.problem,
        "leader": "none" if found.leader is None else str(found.leader),
        "isr": ", ".join(map(str, found.isr)),
        "replicas": ", ".join(map(str, found.replicas)),
        "serious": found.problem == LEADERLESS,
    }


class ConsolePage:
    """One browser's view."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._build()
        self._draw()

    def _build(self) -> None:
        ui.colors(primary=charts.COLOURS[0])
        with ui.header().classes("items-center justify-between"):
            ui.label("Quorate").classes("text-h6")
            self._cluster = ui.label().classes("text-caption")
        with ui.row().classes("items-center w-full no-wrap"):
            self._badge = ui.badge().classes("text-body1 q-pa-sm").props('data-testid="health"')
            self._verdict = ui.label().classes("text-body1").props('data-testid="verdict"')
        with ui.row().classes("w-full"):
            self._figures = {name: self._figure(name) for name in FIGURES}
        self._table = ui.table(columns=COLUMNS, rows=[], row_key="key").classes("w-full")
        self._table.props('dense flat bordered data-testid="replicas" hide-pagination')
        self._table.add_slot(
            "body-cell-role",
            "<q-td :props=\"props\"><q-badge :color=\"props.row.role === 'leader' ? 'primary' : "
            "props.row.healthy ? 'positive' : 'negative'\" :label=\"props.row.role\" /></q-td>",
        )
        if self._watch.allows_changes:
            self._add_actions()
        self._build_cluster()
        self._plots: dict[str, ui.echart] = {}
        with ui.grid(columns=2).classes("w-full"):
            for title, options in PLOTS.items():
                with ui.card().classes("w-full"):
                    ui.label(title).classes("text-subtitle1")
                    self._plots[title] = ui.echart(options(self._watch.state)).classes("h-56")
            with ui.card().classes("w-full"):
                ui.label("Events (UTC)").classes("text-subtitle1")
                self._log = ui.column().classes("gap-0 h-56 overflow-auto w-full")
                self._log.props('data-testid="events"')
        self._drawn_events = -1

    def _build_cluster(self) -> None:
        """Build the part for brokers and ISRs; it is hidden while the quorum serves no cluster."""
        self._of_cluster = ui.column().classes("w-full gap-2").props('data-testid="cluster"')
        with self._of_cluster:
            with ui.row().classes("w-full"):
                self._cluster_figures = {name: self._figure(name) for name in CLUSTER_FIGURES}
            self._isrs = ui.label().classes("text-body2").props('data-testid="isr"')
            self._partitions = ui.table(columns=PARTITION_COLUMNS, rows=[], row_key="partition")
            self._partitions.classes("w-full max-h-64")
            self._partitions.props(
                'dense flat bordered data-testid="unhealthy-partitions" hide-pagination'
            )
            self._partitions.add_slot(
                "body-cell-problem",
                '<q-td :props="props"><q-badge :color="props.row.serious ? \'negative\' : '
                '\'warning\'" :label="props.row.problem" /></q-td>',
            )

    @staticmethod
    def _figure(name: str) -> ui.label:
        with ui.card().classes("q-pa-sm"):
            ui.label(name).classes("text-caption")
            return (
                ui.label("–")
                .classes("text-h6")
                .props(f'data-testid="{name.lower().replace(" ", "-")}"')
            )

    def _add_actions(self) -> None:
        columns = [*COLUMNS, {"name": "actions", "label": "", "field": "key", "align": "right"}]
        self._table.columns = columns
        self._table.add_slot(
            "body-cell-actions",
            '<q-td :props="props">'
            "<q-btn v-if=\"props.row.role === 'voter'\" flat dense size=sm label='Lead' "
            "@click=\"() => $parent.$emit('lead', props.row)\" />"
            "<q-btn v-if=\"['leader', 'voter'].includes(props.row.role)\" flat dense size=sm "
            "color=negative "
            "label='Remove' @click=\"() => $parent.$emit('remove', props.row)\" />"
            "<q-btn v-if=\"props.row.role === 'observer'\" flat dense size=sm color=positive "
            "label='Add' @click=\"() => $parent.$emit('add', props.row)\" /></q-td>",
        )
        self._table.on("lead", lambda event: self._lead(self._replica(event.args)))
        self._table.on("remove", lambda event: self._remove(self._replica(event.args)))
        self._table.on("add", lambda event: self._add(self._replica(event.args)))
        ui.button("Add a controller …", on_click=lambda: self._add(None)).props("outline")

    def _replica(self, row: dict[str, object]) -> ReplicaRow:
        return next(r for r in self._watch.state.replicas if _key(r) == row["key"])

    # --- display ----------------------------------------------------------------------------------

    def draw(self) -> None:
        """Show the state after a poll."""
        self._draw()
        for title, options in PLOTS.items():
            chart = self._plots[title]
            chart.options.clear()
            chart.options.update(options(self._watch.state))
            chart.update()

    def _draw(self) -> None:
        state = self._watch.state
        self._cluster.set_text(f"cluster {self._watch.cluster_id or 'unknown'} · {__version__}")
        self._badge.set_text(str(state.health))
        self._badge.props(f"color={HEALTH_COLOURS[state.health]}")
        self._verdict.set_text(state.verdict)
        pending = " (change in progress)" if state.is_change_pending else ""
        figures = {
            "Leader": "none" if state.leader is None else str(state.leader),
            "Epoch": _number(state.epoch if state.epoch >= 0 else None),
            "High watermark": _number(state.high_watermark),
            "Voters": f"{len(state.voters)}{pending}",
            "kraft.version": _number(state.kraft_version),
        }
        for name, text in figures.items():
            self._figures[name].set_text(text)
        brokers = {broker.id for broker in self._watch.isr_summary.brokers}
        rows = [_row(replica, brokers) for replica in state.replicas]
        if rows != self._table.rows:
            self._table.update_rows(rows)
        self._draw_cluster()
        count = len(state.events)
        if count != self._drawn_events:
            self._drawn_events = count
            self._log.clear()
            with self._log:
                for event in list(state.events)[: -EVENTS_SHOWN - 1 : -1]:
                    ui.label(f"{_clock(event.at_ms)}  {event.text}").classes("text-caption")

    def _draw_cluster(self) -> None:
        isr_summary = self._watch.isr_summary
        # The verdict above already explains a quorum that is unreachable or has no leader.
        is_known_why = self._watch.state.health in (Health.NO_LEADER, Health.UNREACHABLE)
        has_news = bool(isr_summary.error) and not is_known_why
        self._of_cluster.set_visibility(isr_summary.is_in_use or has_news)
        health = isr_summary.health
        counts = health.counts if health is not None else {}
        fenced = f" ({len(isr_summary.fenced)} fenced)" if isr_summary.fenced else ""
        figures = {
            "Brokers": f"{len(isr_summary.brokers)}{fenced}",
            "Topics": _number(isr_summary.topics),
            "Partitions": _number(isr_summary.partitions),
            "Not fully in sync": _number(health.unhealthy if health is not None else None),
            "Without a leader": _number(None if health is None else counts.get(LEADERLESS, 0)),
        }
        for name, text in figures.items():
            self._cluster_figures[name].set_text(text)
        rows = [] if health is None else [_partition_row(each) for each in health.worst]
        if rows != self._partitions.rows:
            self._partitions.update_rows(rows)
        self._partitions.set_visibility(bool(rows))
        self._isrs.set_text(self._isr_verdict())

    def _isr_verdict(self) -> str:
        isr_summary = self._watch.isr_summary
        health = isr_summary.health
        if isr_summary.error:
            since = "" if health is None else f", last update {_clock(health.at_ms)} UTC"
            return f"The state of brokers and partitions is unavailable: {isr_summary.error}{since}"
        if health is None:
            return "" if not isr_summary.partitions else "Reading the state of the partitions …"
        if not health.unhealthy:
            return "Every replica of every partition is in sync."
        parts = (f"{count:,}: {problem}" for problem, count in sorted(health.counts.items()))
        shown = (
            f"; the worst {len(health.worst)} are listed"
            if health.unhealthy > len(health.worst)
            else ""
        )
        return f"{'; '.join(parts)}{shown}"

    # --- actions ----------------------------------------------------------------------------------

    def _lead(self, replica: ReplicaRow) -> None:
        self._confirm(
            f"Transfer leadership to controller {replica.key.id}?",
            "Commits pause for a moment while leadership moves.",
            lambda: self._watch.transfer(replica.key),
        )

    def _remove(self, replica: ReplicaRow) -> None:
        self._confirm(
            f"Remove controller {replica.key.id} from the voters?",
            f"Directory {replica.key.directory_id}. Its process continues as an observer.",
            lambda: self._watch.remove(replica.key),
        )

    def _add(self, replica: ReplicaRow | None) -> None:
        """Ask for id, directory id and address, prefilled for a replica that fetches already."""
        known = replica.key if replica is not None else None
        with ui.dialog() as dialog, ui.card():
            ui.label("Add a controller to the voters").classes("text-h6")
            node = ui.input("Id", value="" if known is None else str(known.id))
            directory_id = (known and known.directory_id) or ""
            directory = ui.input("Directory id (22 characters)", value=directory_id)
            directory.classes("w-80")
            place = ui.input("Host:port", value=replica.endpoint if replica else "")
            problem = ui.label().classes("text-negative")

            async def submit() -> None:
                address = _address(place.value)
                if not node.value.isdecimal():
                    problem.set_text("Id: expected a number of 0 or more")
                elif not _DIRECTORY_ID.fullmatch(directory.value):
                    problem.set_text(
                        "Directory id: expected 22 characters, as `quorate storage info` prints it"
                    )
                elif address is None:
                    problem.set_text("Host:port: expected an address such as controller-4:9093")
                else:
                    dialog.close()
                    key = ReplicaKey(int(node.value), directory.value)
                    await self._carry_out(lambda: self._watch.add(key, *address))

            with ui.row():
                ui.button("Add", on_click=submit)
                ui.button("Cancel", on_click=dialog.close).props("flat")
        dialog.open()

    def _confirm(self, question: str, detail: str, action: Callable[[], Awaitable[str]]) -> None:
        with ui.dialog() as dialog, ui.card():
            ui.label(question).classes("text-h6")
            ui.label(detail)

            async def submit() -> None:
                dialog.close()
                await self._carry_out(action)

            with ui.row():
                ui.button("Do it", on_click=submit).props('data-testid="confirm"')
                ui.button("Cancel", on_click=dialog.close).props("flat")
        dialog.open()

    @staticmethod
    async def _carry_out(action: Callable[[], Awaitable[str]]) -> None:
        waiting = ui.notification("In progress …", spinner=True, timeout=None)
        try:
            done = await action()
        except (ClientError, MisuseError) as error:
            ui.notify(str(error), type="negative", timeout=8_000, close_button=True)
        else:
            ui.notify(done, type="positive", timeout=8_000, close_button=True)
        finally:
            waiting.dismiss()


def serve(watch: Watch, access: Access, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    app.add_middleware(access.around)

    @ui.page("/", title="Quorate")
    def index() -> None:
        page = ConsolePage(watch)
        stop = watch.listen(page.draw)
        ui.context.client.on_disconnect(stop)

    async def start() -> None:
        app.state.watching = asyncio.create_task(watch.run(), name="watch")

    async def end() -> None:
        app.state.watching.cancel()
        await watch.close()

    app.on_startup(start)
    app.on_shutdown(end)
    ui.run(host=host, port=port, show=False, reload=False, title="Quorate", favicon="🗳",
           show_welcome_message=False, uvicorn_logging_level="warning")  # fmt: skip
