"""Processes of release 0.1.0: its commands, its controllers, and a client that appends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.earlier import EarlierNode
from tests.integration.support import (
    CLUSTER,
    COMMAND_TIMEOUT_S,
    Quorum,
    Ran,
    assert_clean,
    here,
    until,
)
from tests.processes import QUORATE, Process, environment

FOLDER = Path(__file__).parent


def python(sources: Path | None, *arguments: object) -> str:
    """What a program printed that ran with these sources, or with this version's; no error."""
    found = {} if sources is None else {"PYTHONPATH": str(sources)}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        env=environment() | found,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def run(sources: Path | None, *arguments: object) -> str:
    """What a command line of `quorate` printed."""
    return python(sources, *QUORATE, *arguments)


class Appender(Process):
    """A client that appends until it is stopped (see `appender`), with 0.1.0's code if given."""

    def __init__(
        self, log_file: Path, name: str, addresses: str, sources: Path | None, count: object = ""
    ) -> None:
        counted = (count,) if count else ()
        super().__init__(
            name, log_file, sys.executable, FOLDER / "appender.py", name, addresses, *counted
        )
        self.error_file = log_file.with_suffix(".errors")
        self.sources = sources

    @property
    def variables(self) -> dict[str, str]:
        return {} if self.sources is None else {"PYTHONPATH": str(self.sources)}

    def lines(self) -> list[list[str]]:
        text = self.recently()
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def acknowledged(self) -> list[tuple[int, str]]:
        """The offset and value of each record that the quorum has acknowledged."""
        return [(int(first), value) for first, value in self.lines() if first != "failed"]

    def failed(self) -> list[str]:
        """The values of appends that failed."""
        return [value for first, value in self.lines() if first == "failed"]


class ReleasedNode(EarlierNode):
    """A controller that 0.1.0 also formats; `sources` None makes it one of this version."""

    def format(self, how: str | None, cluster_id: str = CLUSTER) -> None:
        options = () if how is None else (how,)
        run(self.sources, "storage", "format", "-t", cluster_id, "-c", self.properties, *options)


class Released(Quorum):
    """Controllers of 0.1.0, or of this version with `sources` None."""

    nodes: dict[int, ReleasedNode]  # type: ignore[assignment]

    def __init__(
        self,
        folder: Path,
        ids: Sequence[int],
        sources: Path | None,
        ports: Sequence[int] = (),
        **settings: object,
    ) -> None:
        super().__init__(folder, ids, ports, **settings)
        for node in self.nodes.values():
            node.__class__ = ReleasedNode
            node.sources = sources

    def change_version(self, node_id: int, sources: Path | None) -> None:
        """Stop a node, start the other version on its directory, wait until it has caught up."""
        node = self.nodes[node_id]
        assert node.stop() == 0
        assert_clean(node.recently())
        node.sources = sources
        node.start()
        node.wait_listening(node.port)
        self.until_caught_up()

    def until_caught_up(self) -> None:
        """Wait until all voters have what is committed now, so that any of them can stop."""
        status = self.until("a leader", lambda found: found["leaderId"] in self.nodes)
        until("all have it", lambda: self._have(status["highWatermark"]))

    def _have(self, offset: int) -> bool:
        ran = here(*self.ask, "describe", "--replication", "--json")
        rows = ran.json() if ran.status == 0 else []
        return len([row for row in rows if row["logEndOffset"] >= offset]) == len(self.nodes)

    def transfer(self, node_id: int, *options: object) -> Ran:
        self.until_caught_up()
        return super().transfer(node_id, *options)
