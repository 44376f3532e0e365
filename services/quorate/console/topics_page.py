"""The pages for topics: a list of all topics, and the partitions of one (nicegui)."""

from __future__ import annotations

from nicegui import ui

from quorate.common.error_codes import ErrorCode
from quorate.console import rows
from quorate.console.frame import Frame, PagedTable, fill, link_cells, table, wrap_cells
from quorate.console.topics import TopicRow, TopicTable, topic_configs
from quorate.console.watch import PARTITIONS_SHOWN, Watch
from quorate.metadata.requests import TopicDescription
from quorate.rpc.errors import ClientError

REFRESH_S = 2.0
PARTITION_MAX = (1 << 31) - 1


class TopicsPage:
    """The list of topics."""

    def __init__(self, watch: Watch, theme: str) -> None:
        self._watch = watch
        self._frame = Frame(watch, theme, "/topics")
        self._note = ui.label().classes("text-caption").props('data-testid="topics-note"')
        self._topics: PagedTable[TopicRow] = PagedTable(
            rows.TOPICS,
            "topics",
            "topics",
            lambda found: rows.topic(found, self._frame.theme),
            lambda found: found.name,
        )
        link_cells(self._topics.table, "name")
        with self._topics.beside_filter:
            self._only_problems = ui.checkbox("Only with problems", on_change=self._show)
            self._only_problems.props('data-testid="only-problems"')
        self._drawn: tuple[TopicTable, int, str] | None = None
        self.draw()

    def draw(self) -> None:
        """Show the state after a poll."""
        self._frame.draw()
        summary = self._watch.isr_summary
        self._note.set_text(rows.topics_note(summary, self._watch.state))
        empty = rows.without_topics(summary)
        if self._drawn != (summary.table, summary.table.version, empty):
            self._show()

    def _show(self) -> None:
        summary = self._watch.isr_summary
        found, empty = summary.table, rows.without_topics(summary)
        self._drawn = (found, found.version, empty)
        if self._only_problems.value:
            unhealthy = [row for row in found.rows if row.unhealthy]
            every = f"None of the {len(found.rows):,} topics has a problem."
            self._topics.show(unhealthy, empty=every if found.rows else empty)
        else:
            self._topics.show(found.rows, empty=empty)


class TopicPage:
    """The partitions and configs of one topic. `refresh` reads them from the leader."""

    def __init__(self, watch: Watch, theme: str, name: str) -> None:
        self._watch, self._name = watch, name
        self._first = 0
        self._frame = Frame(watch, theme, "/topic", name=name)
        with ui.row().classes("items-center w-full"):
            ui.link("Topics", rows.address_of("/topics", self._frame.theme)).classes("text-body1")
            ui.label(f"› {name}").classes("text-h6 wraps").props('data-testid="topic"')
        self._note = ui.label().classes("text-body2").props('data-testid="topic-note"')
        with ui.row().classes("items-center w-full gap-x-4"):
            self._start = ui.number("From partition", value=0, min=0, precision=0)
            self._start.props('dense debounce=300 data-testid="from-partition"')
            self._start.on_value_change(self._start_changed)
            ui.space()
            self._range = ui.label().classes("text-caption").props('data-testid="range"')
        self._partitions = table(rows.TOPIC_PARTITIONS, "partitions")
        ui.label("Dynamic configs").classes("text-subtitle1")
        self._configs = table(rows.CONFIGS, "topic-configs")
        wrap_cells(self._configs, "value")
        ui.timer(REFRESH_S, self.refresh)

    def draw(self) -> None:
        """Show the state after a poll."""
        self._frame.draw()

    async def _start_changed(self) -> None:
        self._first = min(max(0, int(self._start.value or 0)), PARTITION_MAX)
        await self.refresh()

    async def refresh(self) -> None:
        """Read the topic and show it; keep what is shown if that fails."""
        first = self._first
        try:
            topic = await self._watch.topic(self._name, first)
        except ClientError as error:
            self._show_problem(str(error))
            return
        if first != self._first:
            return  # the response to an earlier choice
        if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._show_problem(rows.NOT_AUTHORIZED)
        elif topic.error is not ErrorCode.NONE:
            self._show(TopicDescription(self._name), "There is no topic of this name.")
        else:
            self._show(topic, "The topic has no such partition.")

    def _show_problem(self, why: str) -> None:
        self._note.set_text(f"The topic cannot be read: {why}")
        for found in (self._partitions, self._configs):
            fill(found, found.rows, rows.UNREAD)

    def _show(self, found: TopicDescription, empty: str) -> None:
        partitions = found.partitions
        fill(self._partitions, [rows.partition(each) for each in partitions], empty)
        configs = [rows.config(each) for each in topic_configs(found)]
        fill(self._configs, configs, "No dynamic config is set for this topic.")
        row = self._watch.isr_summary.table.find(self._name)
        count = max(row.partitions if row else 0, partitions[-1].index + 1 if partitions else 0)
        self._note.set_text((row and rows.named_partitions(row)) or "")
        text = f"of {count:,} partitions"
        if partitions:
            text = f"{partitions[0].index:,}–{partitions[-1].index:,} {text}"
        if count > PARTITIONS_SHOWN:
            text += f"; the page shows {PARTITIONS_SHOWN} at a time"
        self._range.set_text(text if count else "")
