"""The dialogs that change voters and leadership (nicegui).

Every action asks for confirmation, and shows its result. None is executed without a leader.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from nicegui import ui

from quorate.console import rows
from quorate.console.state import ReplicaRow
from quorate.console.watch import Watch
from quorate.raft.errors import MisuseError
from quorate.raft.types import ReplicaKey
from quorate.rpc.errors import ClientError
from quorate.rpc.wire.limits import parse_address

_DIRECTORY_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_BUTTON = "flat dense no-caps size=sm"
SLOT = (
    '<q-td :props="props"><template v-if="props.row.changeable">'
    f"<q-btn v-if=\"props.row.role === 'voter'\" {_BUTTON} label='Make leader' "
    "@click=\"() => $parent.$emit('lead', props.row)\" />"
    f"<q-btn v-if=\"['leader', 'voter'].includes(props.row.role)\" {_BUTTON} "
    "label='Remove' @click=\"() => $parent.$emit('remove', props.row)\" />"
    f"<q-btn v-if=\"props.row.role === 'observer'\" {_BUTTON} "
    "label='Make voter' @click=\"() => $parent.$emit('add', props.row)\" />"
    "</template></q-td>"
)


def _address(text: str) -> tuple[str, int] | None:
    """Parse HOST:PORT; None if `text` is invalid or lacks one of them."""
    try:
        host, port = parse_address(text)
    except MisuseError:
        return None
    return (host, port) if host and port else None


class Actions:
    """The buttons of the table of replicas, and the one below it."""

    def __init__(self, watch: Watch, table: ui.table) -> None:
        self._watch = watch
        column = {"name": "actions", "label": "", "field": "key", "align": "right"}
        table.columns = [*table.columns, column]
        table.add_slot("body-cell-actions", SLOT)
        table.on("lead", lambda event: self._with_replica(event.args, self._lead))
        table.on("remove", lambda event: self._with_replica(event.args, self._remove))
        table.on("add", lambda event: self._with_replica(event.args, self._add))
        with ui.row().classes("items-center"):
            self._button = ui.button("Add a controller …", on_click=lambda: self._add(None))
            self._button.props("unelevated no-caps")
            self._why_not = ui.label().props('data-testid="no-changes"')

    def draw(self) -> None:
        """Offer actions, or say why there are none."""
        why_not = rows.why_no_changes(self._watch.state)
        self._button.set_enabled(not why_not)
        self._why_not.set_text(why_not)

    def _with_replica(self, row: dict[str, object], act: Callable[[ReplicaRow], None]) -> None:
        """Call `act` with the replica of a row, unless it has gone since the row was drawn."""
        for replica in self._watch.state.replicas:
            if rows.key_of(replica) == row.get("key"):
                act(replica)
                return
        ui.notify("The replica is no longer part of the quorum", type="negative")

    def _lead(self, replica: ReplicaRow) -> None:
        self._confirm(
            f"Transfer leadership to controller {replica.key.id}?",
            "Commits pause for a moment while leadership moves.",
            "Transfer",
            lambda: self._watch.transfer(replica.key),
        )

    def _remove(self, replica: ReplicaRow) -> None:
        self._confirm(
            f"Remove controller {replica.key.id} from the voters?",
            f"Directory {replica.key.directory_id}. Its process continues as an observer.",
            "Remove",
            lambda: self._watch.remove(replica.key),
        )

    def _add(self, replica: ReplicaRow | None) -> None:
        """Ask for id, directory id and address, prefilled for a replica that fetches already."""
        known = replica.key if replica is not None else None
        with ui.dialog() as dialog, ui.card():
            ui.label("Add a controller to the voters").classes("text-h6")
            node = ui.input("ID", value="" if known is None else str(known.id))
            directory_id = (known and known.directory_id) or ""
            directory = ui.input("Directory ID (22 characters)", value=directory_id)
            directory.classes("w-80")
            place = ui.input("Host:port", value=replica.endpoint if replica else "")
            problem = ui.label().classes("text-negative")

            async def submit() -> None:
                address = _address(place.value)
                if not node.value.isdecimal():
                    problem.set_text("ID: expected a number of 0 or more")
                elif not _DIRECTORY_ID.fullmatch(directory.value):
                    problem.set_text(
                        "Directory ID: expected 22 characters, as `quorate storage info` prints it"
                    )
                elif address is None:
                    problem.set_text("Host:port: expected an address such as controller-4:9093")
                else:
                    dialog.close()
                    key = ReplicaKey(int(node.value), directory.value)
                    await self._carry_out(lambda: self._watch.add(key, *address))

            with ui.row():
                ui.button("Add", on_click=submit).props("no-caps")
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
        dialog.open()

    def _confirm(
        self, question: str, detail: str, verb: str, action: Callable[[], Awaitable[str]]
    ) -> None:
        with ui.dialog() as dialog, ui.card():
            ui.label(question).classes("text-h6")
            ui.label(detail)

            async def submit() -> None:
                dialog.close()
                await self._carry_out(action)

            with ui.row():
                ui.button(verb, on_click=submit).props('no-caps data-testid="confirm"')
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
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
