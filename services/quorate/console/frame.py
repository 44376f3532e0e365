"""What all pages of the console share (nicegui): the header, and tables of limited length.

Colours follow the browser's preference for light or dark, unless the parameter `theme` of the URL
says otherwise. Links between the pages keep the parameter, so nothing has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from nicegui import ui

from quorate.console import rows
from quorate.console.state import Health
from quorate.console.watch import Watch
from quorate.version import __version__

T = TypeVar("T")

ROWS_SHOWN = 50
PAGES = {"Overview": "/", "Topics": "/topics", "Configs": "/configs"}
HEALTH_COLOURS = {
    Health.HEALTHY: "positive",
    Health.DEGRADED: "warning",
    Health.AT_RISK: "negative",
    Health.NO_LEADER: "negative",
    Health.UNREACHABLE: "negative",
}
# White text is legible on each of these.
PALETTE = {
    "primary": "#2a6f97",
    "positive": "#1b7f36",
    "warning": "#9a5b00",
    "negative": "#c10015",
}
STYLE = """
.nicegui-echart text { fill: currentColor !important; stroke: none !important; }
.nicegui-content a { color: #2a6f97; text-decoration: underline; }
.body--dark { color: #e6e6e6; }
.body--dark .nicegui-content a { color: #8cc4ea; }
:root:has(.body--dark) { color-scheme: dark; }
.q-table__bottom-nodata-icon { display: none; }
.wraps { overflow-wrap: anywhere; }
.q-table td.wraps { white-space: normal; min-width: 8rem; }
"""
STATE_SLOT = (
    '<q-td :props="props"><q-badge :color="props.row.healthy ? \'positive\' : props.row.serious '
    "? 'negative' : 'warning'\" :label=\"props.row.problem\" /></q-td>"
)


class Frame:
    """The header of a page, with the quorum's health. `draw` shows the state after a poll."""

    def __init__(self, watch: Watch, theme: str, path: str, **query: str) -> None:
        self._watch = watch
        self.theme = theme if theme in rows.THEMES else "auto"
        ui.colors(**PALETTE)
        ui.add_css(STYLE)
        if self.theme != "auto":
            ui.dark_mode(self.theme == "dark")
        with ui.header().classes("items-center justify-between gap-x-6 gap-y-1 q-py-sm"):
            with ui.row().classes("items-center gap-x-5 gap-y-1"):
                ui.label("Quorate").classes("text-h6")
                for name, target in PAGES.items():
                    self._link(name, rows.address_of(target, self.theme), target == path)
            with ui.row().classes("items-center gap-x-3 gap-y-1 text-caption"):
                self._cluster = ui.label()
                for other in rows.THEMES:
                    target = rows.address_of(path, other, **query)
                    self._link(other, target, other == self.theme)
        with ui.row().classes("items-center w-full no-wrap"):
            self._badge = ui.badge().classes("text-body1 q-pa-sm").props('data-testid="health"')
            self._verdict = ui.label().classes("text-body1").props('data-testid="verdict"')
        self.draw()

    @staticmethod
    def _link(text: str, target: str, is_current: bool) -> None:
        link = ui.link(text, target).classes("text-white")
        link.classes("text-bold" if is_current else "no-underline")
        if is_current:
            link.props("aria-current=page")

    def draw(self) -> None:
        state = self._watch.state
        self._cluster.set_text(f"cluster {self._watch.cluster_id or 'unknown'} · {__version__}")
        self._badge.set_text(str(state.health))
        self._badge.props(f"color={HEALTH_COLOURS[state.health]}")
        self._verdict.set_text(state.verdict)


def table(columns: rows.Columns, name: str) -> ui.table:
    """Return a table without rows. name: by which tests find it."""
    found = ui.table(columns=columns, rows=[], row_key="key").classes("w-full")
    found.props(f'dense flat bordered data-testid="{name}" hide-pagination')
    found.props["no-data-label"] = rows.READING
    if any(column["name"] == "problem" for column in columns):
        found.add_slot("body-cell-problem", STATE_SLOT)
    return found


def link_cells(found: ui.table, column: str) -> None:
    """Make the cells of a column links to the field `href` of the row."""
    found.add_slot(
        f"body-cell-{column}",
        '<q-td :props="props" class="wraps"><a :href="props.row.href">{{ props.value }}</a></q-td>',
    )


def wrap_cells(found: ui.table, column: str) -> None:
    """Let long values of a column wrap."""
    found.add_slot(
        f"body-cell-{column}", '<q-td :props="props" class="wraps">{{ props.value }}</q-td>'
    )


def fill(found: ui.table, new: list[rows.Row], empty: str) -> None:
    """Show these rows, or the text `empty` if there are none; only changes are sent."""
    if found.props.get("no-data-label") != empty:
        found.props["no-data-label"] = empty
        found.update()
    if new != found.rows:
        found.update_rows(new)


class PagedTable(Generic[T]):
    """A table that shows `ROWS_SHOWN` of many items at a time, with a filter.

    noun: what an item is, in the plural. text_of: the text that the filter searches.
    """

    def __init__(
        self,
        columns: rows.Columns,
        name: str,
        noun: str,
        row_of: Callable[[T], rows.Row],
        text_of: Callable[[T], str],
    ) -> None:
        self._noun, self._row_of, self._text_of = noun, row_of, text_of
        self._items: Sequence[T] = ()
        self._matching: Sequence[T] = ()
        self._empty = ""
        self._left_out = 0
        self._first = 0
        with ui.row().classes("items-center w-full gap-x-4 gap-y-1"):
            self._filter = ui.input(f"Filter {noun}", on_change=self._filter_changed)
            self._filter.props(f'dense clearable debounce=300 data-testid="{name}-filter"')
            self.beside_filter = ui.row().classes("items-center")
            ui.space()
            self._range = ui.label().classes("text-caption").props(f'data-testid="{name}-range"')
            with ui.row().classes("gap-2 no-wrap") as self._buttons:
                self._previous = ui.button("Previous", on_click=lambda: self._turn(-ROWS_SHOWN))
                self._next = ui.button("Next", on_click=lambda: self._turn(ROWS_SHOWN))
                for button in (self._previous, self._next):
                    button.props("dense unelevated no-caps padding='xs sm'")
        self._buttons.set_visibility(False)
        self.table = table(columns, name)

    def show(self, items: Sequence[T], *, empty: str, left_out: int = 0) -> None:
        """Show items. empty: what to say if there are none. left_out: how many more there are."""
        self._items, self._empty, self._left_out = items, empty, left_out
        self._select()

    def _filter_changed(self) -> None:
        self._first = 0
        self._select()

    def _select(self) -> None:
        wanted = (self._filter.value or "").strip().lower()
        self._matching = (
            [item for item in self._items if wanted in self._text_of(item).lower()]
            if wanted
            else self._items
        )
        self._draw()

    def _turn(self, by: int) -> None:
        self._first += by
        self._draw()

    def _draw(self) -> None:
        count = len(self._matching)
        last_page = max(0, count - 1) // ROWS_SHOWN * ROWS_SHOWN
        self._first = min(max(0, self._first), last_page)
        shown = self._matching[self._first : self._first + ROWS_SHOWN]
        no_match = f"No match among {len(self._items):,} {self._noun}."
        fill(self.table, [self._row_of(item) for item in shown],
             no_match if self._items else self._empty)  # fmt: skip
        text = ""
        if count:
            text = f"{self._first + 1:,}–{self._first + len(shown):,} of {count:,} {self._noun}"
        if self._left_out:
            text += f"; {self._left_out:,} more are not listed"
        self._range.set_text(text)
        self._buttons.set_visibility(count > ROWS_SHOWN)
        self._previous.set_enabled(self._first > 0)
        self._next.set_enabled(self._first < last_page)
