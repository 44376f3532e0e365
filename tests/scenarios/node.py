"""A node of a transcript: a replica that syncs and installs snapshots at once, or by command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from quorate.raft import RaftConfig
from quorate.raft.errors import FatalError
from quorate.raft.outputs import (
    InstallSnapshot,
    Output,
    Respond,
    Send,
    SendAdmin,
    StartSnapshotFetch,
)
from quorate.raft.types import OffsetAndEpoch, VoterSet

from tests.replica import driver
from tests.replica.disk import Disk, Snapshot
from tests.scenarios import rendering

if TYPE_CHECKING:
    from tests.scenarios.cluster import Cluster

T = TypeVar("T")
STEPS_MAX = 5_000
FOOTER = b"\nfooter"


class NodeRandom:
    """No randomness at all: the lower a node's id, the shorter it waits; choices go round."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._choices = 0

    def randint(self, a: int, b: int) -> int:
        return a + (b - a) * min(self._node_id, 10) // 10

    def choice(self, seq: Sequence[T]) -> T:
        self._choices += 1
        return seq[(self._choices - 1) % len(seq)]


def snapshot_content(name: OffsetAndEpoch, level: int, members: VoterSet) -> bytes:
    """The bytes of a snapshot; the state machine's records do not matter here."""
    parts = [f"{name}", f"{level}"]
    parts += [
        f"{v.key.id},{v.key.directory_id or ''},{v.kraft_version},"
        + ",".join(f"{e.name}/{e.host}/{e.port}" for e in v.endpoints)
        for v in members
    ]
    return "\n".join(parts).encode() + FOOTER


class Node(driver.Replica):
    """A process and its disk. What waits for a response is a node, or the label of a command.

    config: as the node was configured, with the key of its first disk. sent: the target's id of
    each request without a response. received: the snapshot whose bytes are complete.
    """

    def __init__(self, cluster: Cluster, config: RaftConfig) -> None:
        assert config.local.directory_id is not None
        super().__init__(config.local, Disk(config.local.directory_id))
        self.cluster = cluster
        self.config = config
        self.is_silent = False
        self.syncs_itself = True
        self.installs_itself = True
        self.received: OffsetAndEpoch | None = None
        self.sent: dict[int, int] = {}

    @property
    def id(self) -> int:
        return self.key.id

    @property
    def name(self) -> str:
        return rendering.key(self.key)

    def now_ms(self) -> int:
        return self.cluster.now_ms

    def make_config(self) -> RaftConfig:
        return replace(self.config, local=self.key, incarnation=100 * self.id + self.life)

    def start(self) -> None:
        self.is_silent = False
        self.sent.clear()
        self.recover(NodeRandom(self.id))
        self.flush()

    def feed(self, handle: Callable[..., T], *args: Any) -> T | None:
        try:
            return super().feed(handle, *args)
        except FatalError as error:
            self.cluster.show("fatal", f"{self.name} stops: {error}")
            self.cluster.stop(self, resets=False)
            return None

    def sync(self, now_ms: int) -> bool:
        """Make the log durable and say so to the node; return whether there was anything to do."""
        ticket = self.disk.log.last_ticket
        if ticket is None:
            return False
        self.synced(ticket, now_ms)
        return True

    # --- outputs ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Execute outputs until there are none, syncing the log in between."""
        for _ in range(STEPS_MAX):
            if self.raft is None:
                return
            if self.raft.core.outputs:
                self.execute(self._shown(self.raft.take_outputs()))
            elif not (self.syncs_itself and self.sync(self.now_ms())):
                return
        raise AssertionError(f"{self.name} does not come to rest")

    def _shown(self, outputs: Iterable[Output]) -> Iterator[Output]:
        for output in outputs:
            for kind, text in rendering.output(self.key, output):
                self.cluster.show(kind, f"{self.name} {text}")
            yield output

    def send(self, output: Send | SendAdmin) -> None:
        self.cluster.send(self, output)

    def respond(self, output: Respond) -> None:
        waiter, response = self.take_response(output)
        self.cluster.respond(self, waiter, response)

    def start_snapshot(self, output: StartSnapshotFetch) -> None:
        assert self.raft is not None
        position = len(self.disk.part(output.snapshot))
        self.raft.snapshot_position(output.snapshot, position, self.now_ms())

    def receive_snapshot(self, output: InstallSnapshot) -> None:
        self.received = output.snapshot
        if self.installs_itself:
            self.install_received(self.now_ms())

    def install_received(self, now_ms: int) -> None:
        """Let the received snapshot replace the log, or say that it cannot."""
        assert self.received is not None
        name, self.received = self.received, None
        verb = "cannot install" if self.install(name, now_ms) is None else "installs"
        self.cluster.show("snapshot", f"{self.name} {verb} snapshot {name}")

    def read_snapshot(self, name: OffsetAndEpoch, content: bytes) -> Snapshot:
        if not content.endswith(FOOTER):
            raise ValueError("the snapshot has no footer")
        return self.cluster.snapshots[content]


Node.executors = driver.EXECUTORS | {
    Send: Node.send,
    SendAdmin: Node.send,
    Respond: Node.respond,
    StartSnapshotFetch: Node.start_snapshot,
    InstallSnapshot: Node.receive_snapshot,
}
