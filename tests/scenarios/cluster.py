"""A cluster in one process: real raft nodes, disks in memory, one clock, messages moved by command.

Everything that happens is printed, except for the kinds that a transcript hides. The contract of
`RaftNode` with its driver is kept, and checked: a request is answered once, and a clock that is
waited for moves on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from quorate.common.endpoints import Endpoint
from quorate.raft.batches import Batch
from quorate.raft.messages import (
    AddVoterRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.outputs import Send, SendAdmin
from quorate.raft.types import VoterSet

from tests.replica.disk import Snapshot
from tests.replica.driver import Waiter
from tests.scenarios import rendering
from tests.scenarios.arguments import LISTENER
from tests.scenarios.node import STEPS_MAX, Node
from tests.scenarios.wire import Wire

TICKS_PER_MOMENT_MAX = 8


@dataclass(slots=True)
class Message:
    """A request under way to an endpoint, or a response under way to a node. answered: the request
    of a response.
    """

    source: int
    target: int
    payload: Any
    request_id: int
    life: int
    text: str
    answered: Request | None = None

    @property
    def is_response(self) -> bool:
        return self.answered is not None


class Cluster:
    """Nodes, network and clock. wire: what carries the messages."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.now_ms = 0
        self.nodes: dict[int, Node] = {}
        self.network: list[Message] = []
        self.cut: set[tuple[int, int]] = set()
        self.hidden: set[str] = set()
        self.unnamed: set[int] = set()
        """Nodes whose ApiVersions do not name their replica, like Kafka's."""
        self.printed: list[str] = []
        self.shows_time = False
        self.is_checked = True
        self.snapshots: dict[bytes, Snapshot] = {}
        self._shown_ms = -1
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
            for batch in node.disk.log.batches_between(0, node.raft.high_watermark):
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

    def stop(self, node: Node, *, resets: bool) -> None:
        """End a process. resets: its connections break at once, and new ones are refused; else it
        just falls silent.
        """
        node.raft = None
        node.life += 1
        node.is_silent = not resets
        node.received = None
        node.disk.log.lose_volatile()
        self.network = [m for m in self.network if m.source != node.id]
        if not resets:
            return
        for other in self.nodes.values():
            if other.raft is None:
                continue
            for request_id in [i for i, target in other.sent.items() if target == node.id]:
                self._forget(other, request_id)
                if other.raft is not None:
                    other.feed(other.handle_reset, request_id, "connection reset")
            if other.raft is not None:
                other.feed(other.raft.connection_lost, node.id)

    def _forget(self, node: Node, request_id: int) -> None:
        node.sent.pop(request_id, None)
        self.network = [
            m
            for m in self.network
            if m.request_id != request_id or node.id != (m.target if m.is_response else m.source)
        ]

    # --- messages ---------------------------------------------------------------------------------

    def send(self, node: Node, output: Send | SendAdmin) -> None:
        """Put a request under way."""
        endpoint, request = output.endpoint, output.request
        known = self.node_at(endpoint) or next(
            (n for n in self.nodes.values() if endpoint in n.config.endpoints), None
        )
        text = rendering.request(request, node.key, known.key if known is not None else None)
        where = rendering.endpoint(endpoint)
        if known is not None:
            where = known.name if endpoint.name == LISTENER else f"{known.name} at {where}"
        target_id = known.id if known is not None else -1
        node.sent[output.request_id] = target_id
        line = f"{node.name} -> {where} {text}"
        self._put(Message(node.id, target_id, request, output.request_id, node.life, line))

    def respond(self, node: Node, waiter: Waiter, response: Response) -> None:
        """Put a response under way to the node that waits for it, or show it to a command."""
        source, life, request_id, request = waiter
        if isinstance(response, ApiVersionsResponse) and node.id in self.unnamed:
            response = replace(response, replica=None)
        text = rendering.response(response)
        if not isinstance(source, Node):
            self.show("answer", f"{node.name} answers {source}: {text}")
            self.wire.response(request, response, VoterSet(), is_peers=is_peers(request))
            return
        line = f"{node.name} -> {source.name} re: {text}"
        self._put(Message(node.id, source.id, response, request_id, life, line, request))

    def _put(self, message: Message) -> None:
        self.network.append(message)
        self.show("sent", message.text, message=message)

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
            response = self.wire.response(
                message.answered, message.payload, target.raft.voters, is_peers=True
            )
            target.feed(target.raft.handle_response, message.request_id, response)
        elif target is None or target.raft is None:
            self.refuse(message)
        else:
            source = self.nodes[message.source]
            request = self.wire.request(message.payload, is_peers=True)
            target.feed(target.handle_request, request, source, message.life, message.request_id)

    def refuse(self, message: Message) -> None:
        """Tell the sender of a request that nobody is there."""
        reason = "connection refused"
        sender = self.nodes[message.source]
        self.show("refused", f"{reason}: {message.text}", message=message)
        if sender.raft is None:
            return
        sender.sent.pop(message.request_id, None)
        sender.feed(sender.handle_reset, message.request_id, reason)

    def forge(self, node: Node, request_id: int, response: Response) -> None:
        """Let a hand-made answer arrive in place of the true one."""
        assert node.raft is not None, f"{node.name} is down"
        self._forget(node, request_id)
        node.feed(node.raft.handle_response, request_id, response)

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
            node.feed(node.raft.tick)

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


def is_peers(request: Request) -> bool:
    """Whether a request that a transcript makes by hand is a replica's, not an administrator's."""
    return not isinstance(request, AddVoterRequest | RemoveVoterRequest)
