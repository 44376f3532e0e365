"""The invariants of requests to change the voters and to transfer leadership: `ChangeIsCommitted`,
`TurnComes`, `AddsAreLimited`, `RemovalCanCommit`, `TransferToTheLiving`, `TransferEnds`
(`invariants.py` says what they are).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.common.error_codes import ErrorCode
from quorate.raft.batches import VotersRecord
from quorate.raft.messages import AddVoterRequest, AdminResponse, RemoveVoterRequest
from quorate.raft.roles import ChangeStage, Leader
from quorate.raft.types import ReplicaKey, VoterSet

from tests.replica.errors import InvariantError

if TYPE_CHECKING:
    from tests.simulation.node import SimNode

ADDS_MAX = 8


class ChangeInvariants:
    """nodes, voter_sets: as in the `Oracle`, which sets them."""

    nodes: list[SimNode]
    voter_sets: list[tuple[int, VoterSet]]

    def _directory(self, key: ReplicaKey) -> str | None:
        """At kraft.version 0 a voter has no directory id; its disk is that of the node then."""
        return key.directory_id or self.nodes[key.id - 1].key.directory_id

    def acknowledges(self, node: SimNode, request: object) -> None:
        """A node answered a change of the voters with success, after its commit."""
        if isinstance(request, AddVoterRequest) and request.ack_when_committed:
            if not any(request.voter in voters for _, voters in self.voter_sets):
                raise InvariantError("ChangeIsCommitted", f"{node.key} answered {request}")
        elif isinstance(request, RemoveVoterRequest):
            before = [request.voter in voters for _, voters in self.voter_sets]
            if True not in before or all(before[before.index(True) :]):
                raise InvariantError("ChangeIsCommitted", f"{node.key} answered {request}")

    def takes_change(self, node: SimNode, request_id: int, request: object) -> None:
        """A node was asked for a change of the voters, and has not answered yet."""
        role = node.core.role
        if not isinstance(role, Leader):
            return
        later = [c for c in role.changes if c.stage is not ChangeStage.COMMITTING]
        adds = sum(1 for change in later if isinstance(change.request, AddVoterRequest))
        if adds > ADDS_MAX:
            raise InvariantError("AddsAreLimited", f"{node.key} lets {adds} AddVoters wait")
        history, high_watermark = node.core.history, node.core.high_watermark
        is_quiet = high_watermark > max(role.epoch_start_offset, history.last_change_offset)
        if is_quiet and isinstance(request, RemoveVoterRequest):
            node.turns[request_id] = history.last_change_offset

    def answers_change(self, node: SimNode, request_id: int, response: AdminResponse) -> None:
        """A node answers a request for a change."""
        last = node.turns.pop(request_id, None)
        is_late = response.error is ErrorCode.REQUEST_TIMED_OUT
        same = last == node.core.history.last_change_offset
        if same and is_late and ChangeStage.WAITING.text in response.message:
            text = f"{node.key} answers {response}: nothing was uncommitted"
            raise InvariantError("TurnComes", text)

    def hands_over(self, node: SimNode) -> None:
        """A leader resigns because of a transfer."""
        transfer = node.core.transfer
        assert transfer is not None
        heard_ms = node.heard.get(self._directory(transfer.target), -1)
        if heard_ms < node.now_ms() - node.core.config.fetch_timeout_ms:
            text = f"{node.key} resigns for {transfer.target}, which fetched last at {heard_ms}"
            raise InvariantError("TransferToTheLiving", text)

    def refuses_append(self, node: SimNode) -> None:
        """A leader refuses an append."""
        raft, role = node.raft, node.core.role
        if raft is None or not isinstance(role, Leader) or not role.refuses_appends:
            return
        now_ms = node.now_ms()
        if node.refusing is None or node.refusing[0] is not role.transfer:
            node.refusing = role.transfer, now_ms
        for_ms = now_ms - node.refusing[1]
        if for_ms > node.core.config.election_timeout_ms and raft.next_deadline_ms() > now_ms:
            text = f"{node.key} refuses appends for {for_ms} ms because of {role.transfer}"
            raise InvariantError("TransferEnds", text)

    @staticmethod
    def _is_forced(node: SimNode, record: VotersRecord) -> bool:
        """Whether an administrator insists on this removal, of a voter that is not the last."""
        if not len(record.voters):
            return False
        asked = [waiter[3] for waiter in node.waiting.values()]
        forced = [r.voter for r in asked if isinstance(r, RemoveVoterRequest) and r.force]
        return any(key in node.voters and key not in record.voters for key in forced)

    @staticmethod
    def _can_commit(node: SimNode, voters: VoterSet) -> None:
        """A majority of the voters that a removal leaves are the leader, or fetched from it in its
        epoch and within the fetch timeout, by its clock: what it appends is in force at once, and
        without them neither it nor anything after it could commit.
        """
        oldest_ms = node.now_ms() - node.core.config.fetch_timeout_ms
        there = [
            voter.key
            for voter in voters
            if voter.key == node.key or node.heard.get(voter.key.directory_id, -1) >= oldest_ms
        ]
        if len(there) < voters.majority:
            text = f"{node.key} appends {voters} while it hears only {[str(key) for key in there]}"
            raise InvariantError("RemovalCanCommit", text)
