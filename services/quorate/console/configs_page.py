"""The page for dynamic configs of brokers and topics (nicegui). Sensitive values are hidden."""

from __future__ import annotations

from nicegui import ui

from quorate.console import rows
from quorate.console.frame import Frame, PagedTable, fill, wrap_cells
from quorate.console.topics import ConfigRow, TopicTable
from quorate.console.watch import Watch
from quorate.rpc.errors import ClientError

REFRESH_S = 5.0


class ConfigsPage:
    """The dynamic configs. `refresh` reads those of brokers; those of topics come with a poll."""

    def __init__(self, watch: Watch, theme: str) -> None:
        self._watch = watch
        self._frame = Frame(watch, theme, "/configs")
        ui.label("Brokers").classes("text-h6")
        self._problem = ui.label().classes("text-body2").props('data-testid="configs-problem"')
        self._of_brokers = _table(rows.BROKER_CONFIGS, "broker-configs", "broker configs")
        ui.label("Topics").classes("text-h6")
        self._note = ui.label().classes("text-caption")
        self._of_topics = _table(rows.TOPIC_CONFIGS, "topic-configs", "topic configs")
        self._drawn: tuple[TopicTable, int, str] | None = None
        self.draw()
        ui.timer(REFRESH_S, self.refresh)

    def draw(self) -> None:
        """Show the state after a poll."""
        self._frame.draw()
        summary = self._watch.isr_summary
        self._note.set_text(rows.topics_note(summary, self._watch.state))
        found = summary.table
        empty = rows.without_topics(summary, "No dynamic config is set for any topic.")
        if self._drawn != (found, found.version, empty):
            self._drawn = (found, found.version, empty)
            self._of_topics.show(found.configs, empty=empty, left_out=found.configs_left_out)

    async def refresh(self) -> None:
        """Read the configs of brokers and show them; keep what is shown if that fails."""
        try:
            found = await self._watch.broker_configs()
        except ClientError as error:
            self._problem.set_text(f"The configs of brokers cannot be read: {error}")
            fill(self._of_brokers.table, self._of_brokers.table.rows, rows.UNREAD)
            return
        self._problem.set_text("")
        self._of_brokers.show(found, empty="No dynamic config is set for any broker.")


def _table(columns: rows.Columns, name: str, noun: str) -> PagedTable[ConfigRow]:
    def text(found: ConfigRow) -> str:
        return f"{found.entity} {found.name}"

    created: PagedTable[ConfigRow] = PagedTable(columns, name, noun, rows.config, text)
    wrap_cells(created.table, "entity")
    wrap_cells(created.table, "value")
    return created
