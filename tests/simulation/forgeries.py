"""Messages that no honest replica sends: epochs that are too high, and Votes while a leader lives.

The sender is a stranger, or claims to be a voter with an empty log; nobody grants that a vote that
could elect anyone. What a message may not do is checked when it has arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.epochs import BUDGET_EPOCHS, CATCH_UP_EPOCHS, EPOCH_MAX
from quorate.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    CurrentLeader,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    VoteRequest,
)
from quorate.raft.types import ReplicaKey

from tests.replica.errors import InvariantError
from tests.simulation.changes import Changes
from tests.simulation.scheduler import MS
from tests.simulation.targets import Numbers

if TYPE_CHECKING:
    from tests.simulation.node import SimNode

Forged = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest

OWN_ELECTIONS = 16
"""How far a node may raise its own epoch meanwhile: an only voter elects itself."""

QUICK_RAISE = 1_000
SLOW_RAISE = 20_000
NOWHERE = (Endpoint("CONTROLLER", "nowhere", 1),)


class Forgeries(Changes):
    """The actions of an adversary."""

    def _huge_epochs(self, n: Numbers) -> bool:
        """Epochs beyond every budget, from strangers and in the voters' names, to all nodes."""
        for node in self._running():
            keys = [self._stranger(1), *(voter.key for voter in node.voters if voter.id != node.id)]
            for key in keys:
                own = node.core.epoch
                for epoch in (own + BUDGET_EPOCHS + 1, EPOCH_MAX, EPOCH_MAX + 1, 2**31 - 1):
                    self._send_forged(node, _vote(node, key, epoch, pre_vote=n[0] < 0.3), 0)
            stranger = self._stranger(1)
            for request in (
                _begin(node, stranger, EPOCH_MAX),
                EndQuorumEpochRequest("sim", EPOCH_MAX, stranger, (node.key,), NOWHERE),
            ):
                self._send_forged(node, request, 0)
        return True

    def _forged_answers(self, n: Numbers) -> bool:
        """A server that a replica asks for records names an epoch that it must not adopt."""
        done = False
        for node in self._running():
            node.pass_time()
            if node.raft is None:
                continue
            core = node.core
            sent = core.inflight.get(core.fetch_id) if core.fetch_id is not None else None
            if core.fetch_id is not None and sent is not None:
                has_log = core.is_voter and core.log.last_epoch >= 1
                epoch = core.epoch + CATCH_UP_EPOCHS + BUDGET_EPOCHS if has_log else 2**31 - 1
                asked = isinstance(sent.request, FetchRequest)
                kind = FetchResponse if asked else FetchSnapshotResponse
                answer = kind(ErrorCode.FENCED_LEADER_EPOCH, CurrentLeader(epoch))
                before = core.epoch
                node.receive_response(node.life, core.fetch_id, answer)
                self._has_risen(node, before, 0, answer)
                done = True
        return done

    def _quick_epochs(self, n: Numbers) -> bool:
        """Three large raises at once: one is taken, of whichever stranger."""
        running = self._running()
        if not running:
            return False
        node = running[int(n[0] * len(running))]
        before = node.core.epoch
        for number in range(3):
            request = _begin(node, self._stranger(number), node.core.epoch + QUICK_RAISE)
            self._send_forged(node, request, QUICK_RAISE)
        self._has_risen(node, before, QUICK_RAISE, "three raises in a second")
        return True

    def _slow_epochs(self, n: Numbers) -> bool:
        """One large raise after the other: the strangers' common budget ends."""
        running = self._running()
        if not running:
            return False
        node = running[int(n[0] * len(running))]
        self._slow_step(node, node.life, 0, 0)
        return True

    def _slow_step(self, node: SimNode, life: int, number: int, risen: int) -> None:
        if self.healed or number == 6 or node.life != life or node not in self._running():
            return
        before = node.core.epoch
        request = _begin(node, self._stranger(number), before + SLOW_RAISE)
        self._send_forged(node, request, SLOW_RAISE)
        if node.life == life:
            risen += node.core.epoch - before
            if risen > BUDGET_EPOCHS + 6 * OWN_ELECTIONS:
                raise InvariantError("EpochBudget", f"strangers raised {node.key} by {risen}")
            # Also where its clock runs slowly.
            self.scheduler.after(2_500 * MS, self._slow_step, node, life, number + 1, risen)

    def _votes_for_another(self, n: Numbers) -> bool:
        """Messages that are meant for another replica raise nobody's epoch."""
        for node in self._running():
            other = ReplicaKey(node.id, "another".ljust(22, "_"))
            epoch = node.core.epoch + 1
            self._send_forged(node, _vote(node, self._stranger(1), epoch, other), 0)
            self._send_forged(node, _begin(node, self._stranger(1), epoch, other), 0)
        return True

    def _forged_votes(self, n: Numbers) -> bool:
        """Someone stands for election in ever later epochs, without a pre-vote, for a second."""
        self._vote_step(50, n[0] < 0.5)
        return True

    def _vote_step(self, left: int, pre_vote: bool) -> None:
        if self.healed or left == 0:
            return
        for node in self._running():
            request = _vote(node, self._stranger(1), node.core.epoch + 1, pre_vote=pre_vote)
            self._send_forged(node, request, 1)
        self.scheduler.after(20 * MS, self._vote_step, left - 1, pre_vote)

    def _lying_voter(self, n: Numbers) -> bool:
        """A voter answers every BeginQuorumEpoch from a higher epoch, for five seconds."""
        leader = self.cluster.leader()
        if leader is None or len(leader.voters) < 2:
            return False
        others = [voter.id for voter in leader.voters if voter.id != leader.id]
        liar = self.cluster.nodes[others[int(n[0] * len(others))] - 1]
        # It does not fetch, so that leaders send it BeginQuorumEpoch.
        cut = self.network.cut(
            [(liar.index, other.index) for other in self.cluster.nodes if other is not liar]
        )
        self.scheduler.after(5_000 * MS, self.network.heal, cut)
        self._lie_step(liar.id, 250, {})
        return True

    def _lie_step(self, liar: int, left: int, stepped: dict[int, tuple[int, int]]) -> None:
        if self.healed or left == 0:
            return
        for node in self._running():
            asked = [
                request_id
                for request_id, sent in node.core.inflight.items()
                if isinstance(sent.request, BeginQuorumEpochRequest) and sent.replica_id == liar
            ]
            if not asked or not node.is_leading:
                continue
            life, now_ms, epoch = node.life, node.now_ms(), node.core.epoch
            known = CurrentLeader(epoch + 1)
            answer = BeginQuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, known)
            node.receive_response(life, asked[0], answer)
            if node.life == life and node.core.epoch > epoch:
                self._steps_down(node, now_ms, stepped)
        self.scheduler.after(20 * MS, self._lie_step, liar, left - 1, stepped)

    @staticmethod
    def _steps_down(node: SimNode, now_ms: int, stepped: dict[int, tuple[int, int]]) -> None:
        life, last_ms = stepped.get(node.id, (-1, 0))
        if life == node.life and now_ms - last_ms < node.core.config.step_down_period_ms:
            text = f"{node.key} stepped down for a voter's answer at {last_ms} and {now_ms}"
            raise InvariantError("StepsDownSeldom", text)
        stepped[node.id] = node.life, now_ms

    # --- sending ----------------------------------------------------------------------------------

    def _running(self) -> list[SimNode]:
        now = self.scheduler.now
        return [n for n in self.cluster.nodes if n.raft is not None and n.paused_until <= now]

    @staticmethod
    def _stranger(number: int) -> ReplicaKey:
        return ReplicaKey(9_001 + number, "stranger".ljust(22, "_"))

    def _send_forged(self, node: SimNode, request: Forged, allowed: int) -> None:
        """Let a request arrive now. It may raise the epoch by `allowed` at most."""
        node.pass_time()
        if node.raft is None:
            return
        before = node.core.epoch
        node.receive_request(request, _answered, 0, 0)
        self._has_risen(node, before, allowed, request)

    @staticmethod
    def _has_risen(node: SimNode, before: int, allowed: int, message: object) -> None:
        own = OWN_ELECTIONS if allowed else 0
        if node.raft is not None and node.core.epoch > before + allowed + own:
            text = f"{node.key} went from epoch {before} to {node.core.epoch}: {message}"
            raise InvariantError("EpochBudget", text)


def _vote(
    node: SimNode,
    candidate: ReplicaKey,
    epoch: int,
    voter: ReplicaKey | None = None,
    *,
    pre_vote: bool = False,
) -> VoteRequest:
    return VoteRequest("sim", epoch, candidate, voter or node.key, 0, 0, pre_vote)


def _begin(
    node: SimNode, leader: ReplicaKey, epoch: int, voter: ReplicaKey | None = None
) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest("sim", epoch, leader, NOWHERE, voter or node.key)


def _answered(node: SimNode, request: object, response: object) -> None:
    """The adversary ignores the answer."""
