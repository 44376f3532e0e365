"""A cluster in one process: real raft nodes, disks in memory, one clock, messages moved by command.

Everything that happens is printed, except for the kinds that a transcript hides. The contract of
`RaftNode` with its driver is kept, and checked: a request is answered once, and a clock that is
waited for moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from quorate.raft import RaftConfig, RaftNode
from quorate.raft.batches import Batch
from quorate.raft.errors import ErrorCode, FatalError
from quorate.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.outputs import (
    AppendBatches,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeadershipAcquired,
    LeadershipLost,
    Notice,
    Output,
    PersistElection,
    PersistRequiredEnd,
    Respond,
    RoleChanged,
    Send,
    SendAdmin,
    StartSnapshotFetch,
    TruncateLog,
    VotersChanged,
    WriteSnapshotChunk,
)
from quorate.raft.types import Endpoint, OffsetAndEpoch

from tests.scenarios import rendering
from tests.scenarios.arguments import LISTENER
from tests.scenarios.disk import Disk, Image, Snapshot

T = TypeVar("T")
STEPS_MAX = 5_000
TICKS_PER_MOMENT_MAX = 8


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


@dataclass(frozen=True, slots=True)
class FromPeer:
    """The sender of an inbound request, if it is a node of the cluster."""

    node_id: int
    life: int
    request_id: int


@dataclass(frozen=True, slots=True)
class FromClient:
    """The sender of an inbound request, if it is a command of the transcript."""

    label: str


@dataclass(slots=True)
class Message:
    """A request under way to an endpoint, or a response under way to a node."""

    source: int
    target: int
    payload: object
    request_id: int
    life: int
    is_response: bool
    text: str


@dataclass(slots=True)
class Node:
    """A process and its disk. `raft` is None while it is down; `life` counts its starts."""

    config: RaftConfig
    disk: Disk = field(default_factory=Disk)
    raft: RaftNode | None = None
    life: int = 0
    syncs_itself: bool = True
    is_silent: bool = False
    holds_install: OffsetAndEpoch | None = None
    installs_itself: bool = True
    waiting: dict[int, FromPeer | FromClient] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)

    @property
    def id(self) -> int:
        return self.config.local.id

    @property
    def name(self) -> str:
        return rendering.key(self.config.local)


class Cluster:
    """Nodes, network and clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.nodes: dict[int, Node] = {}
        self.network: list[Message] = []
        self.cut: set[tuple[int, int]] = set()
        self.hidden: set[str] = set()
        self.printed: list[str] = []
        self.shows_time = False
        self.is_checked = True
        self._shown_ms = -1
        self._last_inbound = 0
        self._leaders: dict[int, int] = {}
        self._committed: dict[int, Batch] = {}

    # --- printing ---------------------------------------------------------------------------------

    def show(self, kind: str, text: str, *, message: Message | None = None) -> None:
        kinds = {kind, "all"} | ({_kind(message.payload)} if message is not None else set())
        if kinds & self.hidden:
            return
        if self.shows_time and self._shown_ms != self.now_ms:
            self.printed.append(f"at {self.now_ms} ms")
            self._shown_ms = self.now_ms
        self.printed += text.split("\n")

    def take_printed(self) -> list[str]:
        printed, self.printed = self.printed, []
        self._shown_ms = -1
        return printed

    # --- checking ---------------------------------------------------------------------------------

    def check(self) -> None:
        """One leader in an epoch; what two nodes take for committed is the same."""
        for node in self.nodes.values():
            if node.raft is None or not self.is_checked:
                continue
            if node.raft.is_leader:
                known = self._leaders.setdefault(node.raft.epoch, node.id)
                assert known == node.id, f"{known} and {node.id} lead epoch {node.raft.epoch}"
            for batch in node.disk.live.batches:
                if batch.end_offset <= node.raft.high_watermark:
                    committed = self._committed.setdefault(batch.base_offset, batch)
                    assert committed == batch, (
                        f"{node.name} has {rendering.batch(batch)} for committed, another has "
                        f"{rendering.batch(committed)}"
                    )

    # --- lives ------------------------------------------------------------------------------------

    def node_at(self, endpoint: Endpoint) -> Node | None:
        """Who listens there now: the endpoint of a running node."""
        for node in self.nodes.values():
            own = {(e.host, e.port) for e in node.config.endpoints}
            if node.raft is not None and (endpoint.host, endpoint.port) in own:
                return node
        return None

    def start(self, node: Node) -> None:
        node.life += 1
        node.is_silent = False
        node.sent.clear()
        node.waiting.clear()
        random = NodeRandom(node.id)
        config = replace(node.config, incarnation=100 * node.id + node.life)
        node.raft = RaftNode(config, node.disk.recover(), random, self.now_ms)
        self.pump(node)

    def stop(self, node: Node, *, resets: bool) -> None:
        """End a process. resets: its connections break at once, and new ones are refused; else it
        just falls silent.
        """
        node.raft = None
        node.is_silent = not resets
        node.holds_install = None
        node.disk.crash()
        self.network = [m for m in self.network if m.source != node.id]
        if not resets:
            return
        for other in self.nodes.values():
            if other.raft is None:
                continue
            for request_id in [i for i, target in other.sent.items() if target == node.id]:
                self._forget(other, request_id)
                if other.raft is not None:
                    self.call(
                        other,
                        partial(
                            other.raft.handle_failure,
                            request_id,
                            "connection reset",
                            self.now_ms,
                            refused=True,
                        ),
                    )
            if other.raft is not None:
                self.call(other, partial(other.raft.connection_lost, node.id, self.now_ms))

    def _forget(self, node: Node, request_id: int) -> None:
        node.sent.pop(request_id, None)
        self.network = [
            m
            for m in self.network
            if m.request_id != request_id or node.id != (m.target if m.is_response else m.source)
        ]

    # --- inputs -----------------------------------------------------------------------------------

    def call(self, node: Node, function: Callable[[], T]) -> T | None:
        """One input, and all that follows from it on this node."""
        try:
            result = function()
            self.pump(node)
        except FatalError as error:
            self.show("fatal", f"{node.name} stops: {error}")
            self.stop(node, resets=False)
            return None
        return result

    def request(self, node: Node, request: Request, origin: FromPeer | FromClient) -> None:
        assert node.raft is not None, f"{node.name} is down"
        self._last_inbound += 1
        node.waiting[self._last_inbound] = origin
        handle = node.raft.handle_request
        self.call(node, partial(handle, self._last_inbound, request, self.now_ms))

    def pump(self, node: Node) -> None:
        """Execute outputs until there are none, syncing the log in between."""
        for _ in range(STEPS_MAX):
            if node.raft is None:
                return
            outputs = node.raft.take_outputs()
            for output in outputs:
                self._execute(node, output)
            if not outputs and not (node.syncs_itself and self.sync(node)):
                return
        raise AssertionError(f"{node.name} does not come to rest")

    def sync(self, node: Node) -> bool:
        """Make the log durable and say so to the node; return whether there was anything to do."""
        ticket = node.disk.sync()
        if ticket is None or node.raft is None:
            return False
        node.raft.log_durable(ticket, self.now_ms)
        return True

    # --- outputs ----------------------------------------------------------------------------------

    def _execute(self, node: Node, output: Output) -> None:
        name = node.name
        match output:
            case PersistElection():
                assert node.disk.election is None or (
                    output.state.epoch >= node.disk.election.epoch
                )
                node.disk.election = output.state
                self.show("persist", f"{name} quorum-state {rendering.election(output.state)}")
            case PersistRequiredEnd():
                node.disk.required_end = output.required_end
                end = output.required_end and output.required_end.end
                self.show("persist", f"{name} required end {end or '-'}")
            case AppendBatches():
                node.disk.change(output.ticket, partial(Image.append, batches=output.batches))
                for batch in output.batches:
                    self.show("append", f"{name} appends {rendering.batch(batch)}")
            case TruncateLog():
                end = output.end_offset
                node.disk.change(output.ticket, partial(Image.truncate, end_offset=end))
                self.show("append", f"{name} truncates to {end}")
            case Send():
                target = self.node_at(output.endpoint)
                self._send(node, output.endpoint, output.request_id, output.request, target)
            case SendAdmin():
                target = self.node_at(output.endpoint)
                self._send(node, output.endpoint, output.request_id, output.request, target)
            case Respond():
                self._respond(node, output)
            case HighWatermarkAdvanced():
                self.show("hw", f"{name} high watermark {output.offset}")
            case LeadershipAcquired():
                self.show("lead", f"{name} leads epoch {output.epoch} from {output.start_offset}")
            case LeadershipLost():
                self.show("lead", f"{name} leads epoch {output.epoch} no more")
            case RoleChanged():
                of = "" if output.leader_id in (None, node.id) else f" of {output.leader_id}"
                text = f"{name} is {output.role}{of} in epoch {output.epoch}: {output.reason}"
                self.show("role", text)
            case VotersChanged():
                node.disk.removed = output.removed_self
                own = "a voter" if output.is_voter else "no voter"
                own += ", removed" if output.removed_self else ""
                sets = f"{rendering.voters(output.voters)} from {output.offset}"
                self.show("voters", f"{name} voters {sets} ({own})")
            case Notice():
                sign = "!" if output.warning else "*"
                self.show("notice", f"{name} {sign} {output.text}")
            case StartSnapshotFetch() | WriteSnapshotChunk() | InstallSnapshot():
                self._receive_snapshot(node, output)

    def _send(
        self,
        node: Node,
        endpoint: Endpoint,
        request_id: int,
        request: object,
        target: Node | None,
    ) -> None:
        known = target or next(
            (n for n in self.nodes.values() if endpoint in n.config.endpoints), None
        )
        receiver = known.config.local if known is not None else None
        text = rendering.request(request, node.config.local, receiver)
        where = rendering.endpoint(endpoint)
        if known is not None:
            where = known.name if endpoint.name == LISTENER else f"{known.name} at {where}"
        target_id = known.id if known is not None else -1
        node.sent[request_id] = target_id
        line = f"{node.name} -> {where} {text}"
        message = Message(node.id, target_id, request, request_id, node.life, False, line)
        self.network.append(message)
        self.show("sent", line, message=message)

    def _respond(self, node: Node, output: Respond) -> None:
        assert output.request_id in node.waiting, f"{output.request_id} was answered already"
        origin = node.waiting.pop(output.request_id)
        response = self._fill(node, output.response)
        text = rendering.response(response)
        if isinstance(origin, FromClient):
            self.show("answer", f"{node.name} answers {origin.label}: {text}")
            return
        requester = self.nodes[origin.node_id]
        line = f"{node.name} -> {requester.name} re: {text}"
        request_id, life = origin.request_id, origin.life
        message = Message(node.id, origin.node_id, response, request_id, life, True, line)
        self.network.append(message)
        self.show("sent", line, message=message)

    def _fill(self, node: Node, response: Response) -> Response:
        """What the owner of the log adds to answers: records, and bytes of snapshots."""
        image = node.disk.live
        if isinstance(response, FetchResponse) and response.records_from is not None:
            first = response.records_from
            batches = tuple(batch for batch in image.batches if batch.base_offset >= first)
            return replace(response, batches=batches)
        if isinstance(response, FetchSnapshotResponse) and response.snapshot is not None:
            snapshot = image.snapshots.get(response.snapshot)
            if snapshot is None:
                return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
            data = snapshot.encode()
            if response.position > len(data):
                return replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
            part = data[response.position : response.position + response.max_bytes]
            return replace(response, size=len(data), data=part)
        return response

    def _receive_snapshot(
        self, node: Node, output: StartSnapshotFetch | WriteSnapshotChunk | InstallSnapshot
    ) -> None:
        assert node.raft is not None
        partial_files = node.disk.partial
        if isinstance(output, StartSnapshotFetch):
            position = len(partial_files.setdefault(output.snapshot, b""))
            node.raft.snapshot_position(output.snapshot, position, self.now_ms)
        elif isinstance(output, WriteSnapshotChunk):
            before = partial_files[output.snapshot][: output.position]
            assert len(before) == output.position, "a chunk beyond what is here"
            partial_files[output.snapshot] = before + output.data
        else:
            node.holds_install = output.snapshot
            self.show("snapshot", f"{node.name} has all bytes of snapshot {output.snapshot}")
            if node.installs_itself:
                self.install(node)

    def install(self, node: Node) -> None:
        """Let the received snapshot replace the log, or say that it cannot."""
        assert node.raft is not None
        assert node.holds_install is not None
        name, node.holds_install = node.holds_install, None
        data = node.disk.partial.pop(name)
        try:
            snapshot = Snapshot.decode(data)
        except ValueError as error:
            self.show("snapshot", f"{node.name} cannot install snapshot {name}")
            node.raft.snapshot_failed(name, str(error), self.now_ms)
            return
        node.disk.change_durably(partial(Image.install, snapshot=snapshot))
        self.show("snapshot", f"{node.name} installs snapshot {name}")
        sets, versions = snapshot.sets(), snapshot.versions()
        node.raft.snapshot_installed(name, sets, versions, self.now_ms)

    # --- the network ------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Let one message arrive, or get lost, or find nobody."""
        self.network.remove(message)
        target = self.nodes.get(message.target)
        silent = target is not None and target.is_silent and not message.is_response
        if silent or (message.source, message.target) in self.cut:
            self.show("lost", f"lost: {message.text}", message=message)
            return
        if message.is_response:
            if target is None or target.raft is None or target.life != message.life:
                return
            target.sent.pop(message.request_id, None)
            payload = message.payload
            handle = target.raft.handle_response
            self.call(target, partial(handle, message.request_id, payload, self.now_ms))  # type: ignore[arg-type]
        elif target is None or target.raft is None:
            self.refuse(message)
        else:
            origin = FromPeer(message.source, message.life, message.request_id)
            self.request(target, message.payload, origin)  # type: ignore[arg-type]

    def refuse(self, message: Message, reason: str = "connection refused") -> None:
        """Tell the sender of a request that nobody is there."""
        sender = self.nodes[message.source]
        self.show("refused", f"{reason}: {message.text}", message=message)
        if sender.raft is None:
            return
        sender.sent.pop(message.request_id, None)
        handle = sender.raft.handle_failure
        self.call(sender, partial(handle, message.request_id, reason, self.now_ms, refused=True))

    def forge(self, node: Node, request_id: int, response: Response) -> None:
        """Let a hand-made answer arrive in place of the true one."""
        assert node.raft is not None, f"{node.name} is down"
        self._forget(node, request_id)
        self.call(node, partial(node.raft.handle_response, request_id, response, self.now_ms))

    def settle(self) -> None:
        """Deliver what is under way, and what follows from it, until nothing moves."""
        for _ in range(STEPS_MAX):
            if not self.network:
                return
            self.deliver(self.network[0])
        raise AssertionError("the network does not come to rest")

    # --- the clock --------------------------------------------------------------------------------

    def tick(self, node: Node) -> None:
        if node.raft is not None:
            self.call(node, partial(node.raft.tick, self.now_ms))

    def advance(self, duration_ms: int, *, delivers: bool) -> None:
        """Let time pass; each node is ticked exactly when it asks for it."""
        end_ms = self.now_ms + duration_ms
        moment, ticks = -1, 0
        for _ in range(STEPS_MAX):
            due = {
                node.id: node.raft.next_deadline_ms()
                for node in self.nodes.values()
                if node.raft is not None
            }
            following = max(self.now_ms, min(due.values(), default=end_ms))
            if following > end_ms or not due:
                self.now_ms = end_ms
                return
            ticks = ticks + 1 if following == moment else 0
            assert ticks < TICKS_PER_MOMENT_MAX, f"the clock is stuck at {moment}: {due}"
            moment = self.now_ms = following
            for node_id, deadline in due.items():
                if deadline <= self.now_ms:
                    self.tick(self.nodes[node_id])
            if delivers:
                self.settle()
        raise AssertionError("the clock does not get on")


_KINDS = {
    FetchRequest: "fetch",
    FetchResponse: "fetch",
    VoteRequest: "vote",
    VoteResponse: "vote",
    BeginQuorumEpochRequest: "begin",
    BeginQuorumEpochResponse: "begin",
    EndQuorumEpochRequest: "end",
    EndQuorumEpochResponse: "end",
    FetchSnapshotRequest: "snapshot",
    FetchSnapshotResponse: "snapshot",
    UpdateVoterRequest: "update",
}


def _kind(payload: object) -> str:
    """Under which name a transcript hides a message."""
    return _KINDS.get(type(payload), "message")
