"""The sans-IO state machine of one partition replica: inputs and time in, results and outputs out.

Owns the role, the leader's view of the ISR, the high watermark, and the offsets and epochs of the
log. It does not own the log's bytes: `take_outputs` returns what to write and truncate, in order.

Rules:
1. The leader and the leader epoch come from the metadata log alone. A state older than the known
   one is ignored: a leader's own confirmed proposals may be newer than its replayed metadata.
2. The high watermark is the lowest log end offset among the maximal ISR, and never falls while this
   replica leads. It does not advance while the committed ISR is smaller than min.insync.replicas
   (KIP-966), so every record that a reader saw or that acks=all confirmed was on that many brokers.
3. The leader proposes to add a follower to the ISR when the follower has reached the high watermark
   and the start of the leader's epoch, is active, and fetched as the registered process (KIP-841,
   KIP-903). It proposes to remove a member that has not been caught up for
   replica.lag.time.max.ms.
4. One proposal is in flight at a time. If it was certainly rejected (INELIGIBLE_REPLICA), the ISR
   reverts to the committed one. If it may have been applied (an epoch was stale), it stays in the
   maximal ISR until the metadata log resolves it. Without a response, the same proposal is sent
   again.
5. A follower's fetch names the epoch of its last record. If that contradicts the leader's log, the
   follower truncates to the end of the last epoch that both have, and fetches again (KIP-101,
   KIP-595). Offsets alone decide nothing.
6. With `flush_before_ack`, no replica acknowledges unflushed records: the leader counts its own log
   only up to the flushed end, and a follower flushes before it fetches again.

Source: KIP-841; Kafka's Partition and ReplicaManager for the conditions of rule 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quorate.broker.roles import (
    NOT_FETCHED,
    TRANSITIONS,
    FollowerProgress,
    FollowerRole,
    Idle,
    LeaderRole,
    Role,
)
from quorate.broker.roles import Proposal as IsrProposal
from quorate.broker.values import (
    NO_BROKER_EPOCH,
    NO_EPOCH,
    AppendReplicaBatches,
    Brokers,
    FetchAnswer,
    Output,
    PartitionState,
    ProposalAnswer,
    ProposeIsr,
    ReplicaHighWatermarkAdvanced,
    ReplicaPosition,
    ReplicaRoleChanged,
    TruncateReplicaLog,
)
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE
from quorate.metadata.requests import IsrMember
from quorate.raft import LogState
from quorate.raft.batches import Batch
from quorate.raft.errors import ViolationError
from quorate.raft.logstate import Diverging

REVERTED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The controller rejected the proposal and changed nothing: the committed ISR stays in force."""

SETTLED_BY_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""This replica's state is stale: the metadata log resolves the proposal."""


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Settings of one partition. Times are milliseconds."""

    min_insync_replicas: int = 1
    lag_time_max_ms: int = 30_000
    proposal_backoff_ms: int = 50
    flush_before_ack: bool = False
    check_eligibility: bool = True
    """False disables the KIP-841 and KIP-903 conditions of rule 3, for tests that show why they are
    needed.
    """


class PartitionReplica:
    """The replica on broker `local_id`. `log` is the recovered log state."""

    def __init__(
        self, local_id: int, log: LogState, config: PartitionConfig, high_watermark: int = 0
    ) -> None:
        self.local_id = local_id
        self.log = log
        self.config = config
        self.high_watermark = min(high_watermark, log.end_offset)
        self.flushed_end = log.end_offset
        self.role: Role = Idle()
        self.replicas: tuple[int, ...] = ()
        self.partition_epoch = NO_EPOCH
        self._brokers: Brokers = {}
        self._outputs: list[Output] = []

    def take_outputs(self) -> Sequence[Output]:
        """Return and clear the pending outputs, in the order of execution."""
        outputs, self._outputs = self._outputs, []
        return outputs

    # --- state ------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, LeaderRole)

    @property
    def leader_epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        match self.role:
            case LeaderRole():
                return self.local_id
            case FollowerRole(leader_id=leader_id):
                return leader_id
        return NO_NODE

    @property
    def min_isr(self) -> int:
        """The min.insync.replicas, limited to the number of replicas."""
        return min(self.config.min_insync_replicas, max(1, len(self.replicas)))

    @property
    def is_under_min_isr(self) -> bool:
        return isinstance(self.role, LeaderRole) and len(self.role.isr) < self.min_isr

    # --- inputs from metadata ---------------------------------------------------------------------

    def configure(self, config: PartitionConfig) -> None:
        """Apply changed settings."""
        self.config = config
        self._advance()

    def apply(self, state: PartitionState, brokers: Brokers, now_ms: int) -> None:
        """Apply the state of the partition and of all brokers from the metadata log."""
        self._brokers = brokers
        if (state.leader_epoch, state.partition_epoch) < (self.role.epoch, self.partition_epoch):
            return
        is_new = state.leader_epoch > self.role.epoch or state.leader != self.leader_id
        self.replicas = state.replicas
        self.partition_epoch = state.partition_epoch
        if self.local_id not in state.replicas or not state.has_leader:
            if is_new or not isinstance(self.role, Idle):
                self._become(Idle(state.leader_epoch))
        elif state.leader != self.local_id:
            if is_new:
                self._become(FollowerRole(state.leader_epoch, state.leader))
        elif is_new or not isinstance(self.role, LeaderRole):
            self._lead(state, now_ms)
        else:
            self._update_isr(self.role, frozenset(state.isr), now_ms)
        self._advance()

    def brokers_changed(self, brokers: Brokers) -> None:
        """Update the brokers after a registration, removal or fencing, for the next fetches."""
        self._brokers = brokers

    def _become(self, role: Role) -> None:
        assert type(role) in TRANSITIONS[type(self.role)], (self.role, role)
        self.role = role
        self._outputs.append(ReplicaRoleChanged(role.name, self.leader_id, role.epoch))

    def _lead(self, state: PartitionState, now_ms: int) -> None:
        followers = {i: FollowerProgress(now_ms) for i in state.replicas if i != self.local_id}
        self._become(
            LeaderRole(state.leader_epoch, self.log.end_offset, frozenset(state.isr), followers)
        )

    def _update_isr(self, leader: LeaderRole, isr: frozenset[int], now_ms: int) -> None:
        """Apply the committed ISR and replicas; a proposal with an older epoch is resolved."""
        for replica in self.replicas:
            if replica != self.local_id and replica not in leader.followers:
                leader.followers[replica] = FollowerProgress(now_ms)
        for gone in leader.followers.keys() - set(self.replicas):
            del leader.followers[gone]
        for member in (isr - leader.isr) & leader.followers.keys():
            # A new member gets the full lag time before it counts as lagging.
            progress = leader.followers[member]
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
        leader.isr = isr
        if leader.proposal is not None and leader.proposal.partition_epoch < self.partition_epoch:
            leader.proposal = None

    # --- inputs of a leader -----------------------------------------------------------------------

    def append(self, batch: Batch, *, acks_all: bool) -> int | ErrorCode:
        """Append one batch; return its base offset in the log, or the error that rejects it."""
        leader = self.role
        if not isinstance(leader, LeaderRole):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks_all and len(leader.isr) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        base = self.log.end_offset
        placed = Batch(
            base, base + batch.last_offset - batch.base_offset, leader.epoch, (), batch.data
        )
        self._append((placed,))
        self._advance()
        return base

    def fetch(
        self, replica_id: int, broker_epoch: int, position: ReplicaPosition, now_ms: int
    ) -> FetchAnswer:
        """Handle a follower's fetch, which acknowledges everything before its offset."""
        leader = self.role
        error = self._check_epoch(position.leader_epoch)
        if error is not ErrorCode.NONE or not isinstance(leader, LeaderRole):
            return self._refuse(error)
        progress = leader.followers.get(replica_id)
        if progress is None:
            return self._refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._is_stale(replica_id, broker_epoch, progress):
            return self._refuse(ErrorCode.STALE_BROKER_EPOCH)
        standing = self.log.validate(position.offset, position.last_epoch)
        if isinstance(standing, Diverging):
            return FetchAnswer(
                ErrorCode.NONE,
                self.local_id,
                leader.epoch,
                self.high_watermark,
                self.log.start.offset,
                self.log.end_offset,
                diverging=standing.end,
            )
        progress.fetched(position.offset, broker_epoch, self.log.end_offset, now_ms)
        self._maybe_expand(leader, replica_id, progress, now_ms)
        self._advance()
        return self._records(position.offset, self.log.end_offset)

    def read(self, offset: int, leader_epoch: int | None = None) -> FetchAnswer:
        """Handle a reader's fetch, up to the high watermark.

        leader_epoch: the epoch that the reader expects, None for no check.
        """
        if leader_epoch is not None:
            error = self._check_epoch(leader_epoch)
        else:
            error = ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not ErrorCode.NONE:
            return self._refuse(error)
        if not self.log.start.offset <= offset <= self.log.end_offset:
            return self._refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self._records(offset, self.high_watermark)

    def _check_epoch(self, epoch: int) -> ErrorCode:
        if epoch < self.role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.role.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _is_stale(self, replica_id: int, broker_epoch: int, progress: FollowerProgress) -> bool:
        """Whether a newer process of that broker has fetched or registered."""
        known = self._brokers.get(replica_id)
        registered = known.epoch if known is not None else NO_BROKER_EPOCH
        return broker_epoch < max(progress.broker_epoch, registered)

    def _refuse(self, error: ErrorCode) -> FetchAnswer:
        return FetchAnswer(error, self.leader_id, self.role.epoch, self.high_watermark)

    def _records(self, offset: int, end: int) -> FetchAnswer:
        return FetchAnswer(
            ErrorCode.NONE,
            self.local_id,
            self.role.epoch,
            self.high_watermark,
            self.log.start.offset,
            self.log.end_offset,
            read_from=offset if offset < end else None,
            read_end=end,
        )

    def flushed(self, end_offset: int) -> None:
        """Note that everything before `end_offset` is on disk."""
        self.flushed_end = max(self.flushed_end, min(end_offset, self.log.end_offset))
        self._advance()

    def tick(self, now_ms: int) -> None:
        """Propose to remove members that have not been caught up for too long from the ISR."""
        leader = self.role
        if not isinstance(leader, LeaderRole) or leader.proposal is not None:
            return
        lagging = {
            member
            for member in leader.isr - {self.local_id}
            if self._lags(leader.followers.get(member), now_ms)
        }
        if lagging:
            self._propose(leader, leader.isr - lagging, now_ms)

    def _lags(self, progress: FollowerProgress | None, now_ms: int) -> bool:
        if progress is None:
            return True
        if progress.end_offset == self.log.end_offset:
            return False  # it has the entire log, however long ago the last write was
        return now_ms - progress.caught_up_ms > self.config.lag_time_max_ms

    # --- the ISR ----------------------------------------------------------------------------------

    def _maybe_expand(
        self, leader: LeaderRole, replica_id: int, progress: FollowerProgress, now_ms: int
    ) -> None:
        if leader.proposal is not None or replica_id in leader.isr:
            return
        if progress.end_offset < max(self.high_watermark, leader.epoch_start):
            return
        if self._is_eligible(replica_id, progress):
            self._propose(leader, leader.isr | {replica_id}, now_ms)

    def _is_eligible(self, replica_id: int, progress: FollowerProgress) -> bool:
        if not self.config.check_eligibility:
            return True
        known = self._brokers.get(replica_id)
        return known is not None and known.is_active and known.epoch == progress.broker_epoch

    def _propose(self, leader: LeaderRole, isr: frozenset[int], now_ms: int) -> None:
        if now_ms < leader.retry_at_ms:
            return
        leader.proposal = IsrProposal(isr, self.partition_epoch)
        members = tuple(IsrMember(i, self._broker_epoch(leader, i)) for i in sorted(isr))
        self._outputs.append(ProposeIsr(leader.epoch, self.partition_epoch, members))

    def _broker_epoch(self, leader: LeaderRole, member: int) -> int:
        """The broker epoch of a member's last fetch, or its registered one if it never fetched."""
        progress = leader.followers.get(member)
        if progress is not None and progress.end_offset != NOT_FETCHED:
            return progress.broker_epoch
        known = self._brokers.get(member)
        return known.epoch if known is not None else NO_BROKER_EPOCH

    def is_asked(self, proposed: ProposeIsr) -> bool:
        """Whether this proposal is still pending."""
        leader = self.role
        return (
            isinstance(leader, LeaderRole)
            and leader.epoch == proposed.leader_epoch
            and leader.proposal is not None
            and leader.proposal.partition_epoch == proposed.partition_epoch
        )

    def isr_answered(self, proposed: ProposeIsr, answer: ProposalAnswer, now_ms: int) -> bool:
        """Handle the controller's response; True if the same proposal must be sent again."""
        leader = self.role
        if not isinstance(leader, LeaderRole) or not self.is_asked(proposed):
            return False
        if answer.error is ErrorCode.NONE:
            if answer.leader_epoch == leader.epoch and answer.leader_id == self.local_id:
                self._confirmed(leader, answer, now_ms)
            return False
        if answer.error in REVERTED:
            leader.proposal = None
            leader.retry_at_ms = now_ms + self.config.proposal_backoff_ms
            self._advance()
            return False
        return answer.error not in SETTLED_BY_METADATA

    def _confirmed(self, leader: LeaderRole, answer: ProposalAnswer, now_ms: int) -> None:
        if answer.partition_epoch < self.partition_epoch:
            return
        self.partition_epoch = answer.partition_epoch
        self._update_isr(leader, frozenset(answer.isr), now_ms)
        # If the ISR already is the proposed one, the controller keeps the partition epoch.
        leader.proposal = None
        self._advance()

    def _advance(self) -> None:
        """Advance the high watermark if possible (rules 2 and 6)."""
        leader = self.role
        if not isinstance(leader, LeaderRole) or len(leader.isr) < self.min_isr:
            return
        end = self.flushed_end if self.config.flush_before_ack else self.log.end_offset
        for member in leader.maximal_isr - {self.local_id}:
            progress = leader.followers.get(member)
            end = min(end, progress.end_offset if progress is not None else NOT_FETCHED)
        if end > self.high_watermark:
            self.high_watermark = end
            self._outputs.append(ReplicaHighWatermarkAdvanced(end))

    # --- inputs of a follower ---------------------------------------------------------------------

    def position(self) -> ReplicaPosition | None:
        """Where to fetch from; None if this is not a follower or a flush must finish first."""
        if not isinstance(self.role, FollowerRole):
            return None
        if self.config.flush_before_ack and self.flushed_end < self.log.end_offset:
            return None
        return ReplicaPosition(self.role.epoch, self.log.end_offset, self.log.last_epoch)

    def fetched(
        self, asked: ReplicaPosition, answer: FetchAnswer, batches: Sequence[Batch]
    ) -> ErrorCode:
        """Handle the leader's response to a fetch; ignore it if `position` has changed since.

        Returns the response's error. ViolationError if the batches do not continue the log.
        """
        if not isinstance(self.role, FollowerRole) or asked != self.position():
            return ErrorCode.NONE
        if answer.error is not ErrorCode.NONE:
            return answer.error
        if answer.diverging is not None:
            self._truncate(self.log.truncation_point(answer.diverging))
            return ErrorCode.NONE
        if batches:
            self._check_order(batches, self.role.epoch)
            self._append(tuple(batches))
        mark = min(answer.high_watermark, self.log.end_offset)
        if mark > self.high_watermark:
            self.high_watermark = mark
            self._outputs.append(ReplicaHighWatermarkAdvanced(mark))
        return ErrorCode.NONE

    def _check_order(self, batches: Sequence[Batch], epoch: int) -> None:
        end, last = self.log.end_offset, self.log.last_epoch
        for batch in batches:
            if batch.base_offset != end:
                raise ViolationError(f"offset {batch.base_offset} follows a log that ends at {end}")
            if not last <= batch.epoch <= epoch:
                raise ViolationError(f"epoch {batch.epoch} follows {last} under leader {epoch}")
            end, last = batch.end_offset, batch.epoch

    def _truncate(self, end_offset: int) -> None:
        if end_offset >= self.log.end_offset:
            return
        self.log.durable(self.log.truncate(end_offset))
        self.flushed_end = min(self.flushed_end, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self._outputs.append(TruncateReplicaLog(end_offset))

    def _append(self, batches: tuple[Batch, ...]) -> None:
        # `flushed_end` tracks durability; the log state treats written records as durable.
        self.log.durable(self.log.append(batches))
        self._outputs.append(AppendReplicaBatches(batches))
