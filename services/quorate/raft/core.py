"""The state that all parts of the protocol share, and the few things that all of them do to it.

`Core` owns the role, the log's offsets, the membership history, the high watermark and the outbox.
The protocol's parts (`election`, `leader`, `follower`, `membership`, `reads`) are modules of
functions over it; `node.RaftNode` is the public interface.

Rules: the epoch never decreases; the high watermark never decreases; what `quorum-state` must
remember is emitted as `PersistElection` before any output that depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.raft.batches import Batch, ControlRecord
from quorate.raft.config import InitialState, RaftConfig, Randomness
from quorate.raft.epochs import EPOCH_MAX, LONG_AGO_MS, EpochBudgets, Origin
from quorate.raft.errors import FatalError
from quorate.raft.history import MembershipHistory
from quorate.raft.messages import (
    AdminResponse,
    CurrentLeader,
    FetchResponse,
    PeerRequest,
    ReadIndexResponse,
    Response,
)
from quorate.raft.outputs import (
    AppendBatches,
    HighWatermarkAdvanced,
    LeadershipLost,
    Notice,
    Output,
    PersistElection,
    PersistRequiredEnd,
    Respond,
    RoleChanged,
    Send,
    TruncateLog,
    VotersChanged,
)
from quorate.raft.roles import (
    NEVER,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Transfer,
    Unattached,
)
from quorate.raft.transitions import check_transition
from quorate.raft.types import ElectionState, OffsetAndEpoch, ReplicaKey, RequiredEnd, VoterSet

RoleT = TypeVar("RoleT")

NOT_LOOKED_FOR = -1
"""For `Core.due_ms`: before every deadline."""


@dataclass(slots=True)
class Inflight:
    """An outbound request that has no answer yet. It counts only while the role and epoch are those
    it was sent in.
    """

    request: object
    epoch: int
    endpoint: Endpoint
    replica_id: int | None
    deadline_ms: int


class Core:
    """The shared state of one replica. `now_ms` is the time of the input being handled.

    installing: the snapshot that is about to replace the log. Until the installation has succeeded
    or failed, this replica neither fetches nor starts an election in any role: it would append to,
    or campaign with, a log that is about to be dropped.
    required_end: the log end that this replica must reach again, None for none (`required_end`).
    log_is_stalled: the disk syncs nothing for longer than the fetch timeout. Until it does, this
    replica starts no election: it would resign again and again.
    replaced: for each voter id, the response of another replica that answered at its address.
    observer_versions: the kraft.versions that the registered brokers support, by their ids.
    known_endpoints: where to ask for the leader; None until `follower` asks with these voters.
    concurrent: the incarnations of processes that ran at the same time as another of their replica,
    oldest first (`processes`).
    epochs: how far messages may raise the epoch. stepped_down_ms: when this replica stopped leading
    for a replica in a higher epoch.
    due_ms: no timer expires before it. It may be early, never late: code that sets a deadline
    lowers it (`due`), and `RaftNode.next_deadline_ms` computes it again.
    epoch, own_leadership, voters, is_voter: the role's epoch, the leader fields of a leader's own
    responses, the voter set in force and whether this replica may vote in it. Every message needs
    them and they change seldom, so they are cached: only `_take_role` and `_know_voters` set them.
    """

    def __init__(
        self, config: RaftConfig, initial: InitialState, random: Randomness, now_ms: int
    ) -> None:
        self.config = config
        self.local = config.local
        self.random = random
        self.now_ms = now_ms
        self.log = initial.log
        self.history = MembershipHistory(
            config.static_voters, initial.voters, initial.kraft_versions
        )
        self.voters: VoterSet
        self.is_voter: bool
        self._know_voters()
        was_voter = any(config.local in voters for _, voters in initial.voters)
        self.removed = (initial.removed or was_voter) and not self.is_voter
        self.high_watermark = initial.log.start.offset
        if initial.log.snapshot is not None:
            self.high_watermark = max(self.high_watermark, initial.log.snapshot.offset)
        self.outputs: list[Output] = []
        self.due_ms = NOT_LOOKED_FOR
        self.inflight: dict[int, Inflight] = {}
        self._last_request_id = 0
        self.fetch_id: int | None = None
        self.fetch_at_ms = 0
        self.installing: OffsetAndEpoch | None = None
        self.log_is_stalled = False
        self.replaced: dict[int, str] = {}
        self.observer_versions: Mapping[int, VersionRange] = {}
        self.transfer: Transfer | None = None
        self.shutting_down = False
        self.concurrent: dict[int, None] = {}
        self.epochs = EpochBudgets(now_ms)
        self.stepped_down_ms = LONG_AGO_MS
        self.stand_at_ms = NEVER
        self.persisted = initial.election
        self.required_end = initial.required_end
        self.role: Role
        self.epoch: int
        self._take_role(self._initial_role(initial.election))
        self._persist()
        self._announce("started")
        self._note_last_epoch()

    # --- who and where ----------------------------------------------------------------------------

    def _take_role(self, role: Role) -> None:
        self.role = role
        self.epoch = role.epoch
        self.due_ms = NOT_LOOKED_FOR
        self.own_leadership: CurrentLeader | None = None
        if isinstance(role, Leader):
            self.own_leadership = CurrentLeader(role.epoch, self.local.id, self.config.endpoints)

    def _know_voters(self) -> None:
        """The history may have changed: what is in force now?"""
        self.voters = self.history.voters
        self.known_endpoints: list[Endpoint] | None = None
        self.is_voter = self.config.can_vote and self.local in self.voters

    @property
    def is_electable(self) -> bool:
        """Whether this replica may have to lead: a voter, or one whose removal is not known to be
        committed.

        Until it is, the voters that remain may be unable to elect any of themselves, because this
        replica's log alone is long enough, or its vote still counts where the record has not
        arrived (Ongaro's dissertation, 4.2.2). Its own vote counts only in a set that has it.
        """
        if self.is_voter or not self.config.can_vote:
            return self.is_voter
        # Any set since the high watermark may be the last one committed: after a restart all of a
        # log may be above it.
        if self.history.voters_offset < self.high_watermark:
            return False
        return any(self.local in voters for voters in self.history.since(self.high_watermark))

    @property
    def may_elect(self) -> bool:
        """Whether this replica may start an election of its own accord."""
        return (self.is_voter or self.is_electable) and self.may_stand

    @property
    def may_stand(self) -> bool:
        """Whether nothing forbids this replica to start an election, if it has a reason."""
        if self.shutting_down or self.installing is not None:
            return False
        if self.log_is_stalled:
            return False
        if self.required_end is not None and not self.required_end.may_stand:
            return False
        return self.epoch < EPOCH_MAX

    @property
    def leader_id(self) -> int | None:
        role = self.role
        if isinstance(role, Leader):
            return self.local.id
        if isinstance(role, Follower | Prospective | Unattached):
            return role.leader_id
        return None

    def why_no_leader(self) -> str:
        """Why this replica knows no leader, for its responses; empty if it knows one."""
        if self.leader_id is not None:
            return ""
        if not len(self.voters):
            return "neither a leader nor a voter is known here yet"
        needed = f"electing one takes {self.voters.majority} of {self.voters}"
        if self.required_end is not None:
            needed += f", and this replica must reach {self.required_end.end} again"
        return "; ".join(
            [f"no leader is known in epoch {self.epoch}: {needed}", *self.replaced.values()]
        )

    @property
    def current_leader(self) -> CurrentLeader:
        """The leader fields of every response."""
        if self.own_leadership is not None:
            return self.own_leadership
        role = self.role
        if isinstance(role, Follower | Prospective) and role.leader_id is not None:
            return CurrentLeader(role.epoch, role.leader_id, role.leader_endpoints)
        return CurrentLeader(role.epoch, self.leader_id)

    def role_as(self, kind: type[RoleT]) -> RoleT:
        assert isinstance(self.role, kind), f"expected {kind.__name__}, is {self.role.name}"
        return self.role

    # --- outputs ----------------------------------------------------------------------------------

    def emit(self, output: Output) -> None:
        self.outputs.append(output)

    def notice(self, text: str, *, warning: bool = False) -> None:
        self.outputs.append(Notice(text, warning))

    def respond(self, request_id: int, response: Response) -> None:
        self.outputs.append(Respond(request_id, response))

    def new_request(
        self, endpoint: Endpoint, request: object, replica_id: int | None, timeout_ms: int
    ) -> int:
        """Register an outbound request; its answer is ignored once role and epoch moved on."""
        self._last_request_id = request_id = self._last_request_id + 1
        deadline_ms = self.now_ms + timeout_ms
        sent = Inflight(request, self.epoch, endpoint, replica_id, deadline_ms)
        self.inflight[request_id] = sent
        if deadline_ms < self.due_ms:  # noqa: PLR1730 - once a message: a call costs more
            self.due_ms = deadline_ms
        return request_id

    def send(
        self,
        endpoint: Endpoint,
        request: PeerRequest,
        replica_id: int | None,
        *,
        extra_ms: int = 0,
        to_leader: bool = False,
    ) -> int:
        """Emit a request to a peer. extra_ms: how much longer than the request timeout it may take
        (long polls).
        """
        timeout_ms = self.config.request_timeout_ms + extra_ms
        request_id = self.new_request(endpoint, request, replica_id, timeout_ms)
        self.outputs.append(Send(request_id, endpoint, request, timeout_ms, replica_id, to_leader))
        return request_id

    def back_off_fetch(self) -> None:
        """Fetch again only after the retry backoff."""
        self.fetch_at_ms = self.now_ms + self.config.retry_backoff_ms
        self.due(self.fetch_at_ms)

    def due(self, at_ms: int) -> None:
        """Note that the time asks for something at that moment."""
        if at_ms < self.due_ms:  # noqa: PLR1730 - a call costs more
            self.due_ms = at_ms

    # --- roles ------------------------------------------------------------------------------------

    def _initial_role(self, election: ElectionState | None) -> Role:
        state = election or ElectionState()
        last_epoch = self.log.last_epoch
        if last_epoch > state.epoch:
            state = ElectionState(last_epoch)
        if state.leader_id == self.local.id and self.is_voter:
            # It may have led this epoch: it must not vote in it, nor follow anyone in it. The other
            # voters may not have noticed that it ended: they need not wait for a fetch timeout.
            deadline = self.election_deadline()
            preferred = self._other_voters_shuffled()
            unacknowledged = {key.id: self.now_ms for key in preferred}
            return Resigned(state.epoch, deadline, preferred, unacknowledged)
        deadline = self.election_deadline() if self.is_electable else NEVER
        leader = self.voters.get(state.leader_id) if state.leader_id is not None else None
        if leader is not None and leader.endpoints and leader.id != self.local.id:
            return Follower(
                state.epoch,
                leader.id,
                leader.endpoints,
                self.now_ms + self.config.fetch_timeout_ms,
                state.voted,
                update_voter_at_ms=self.now_ms,
                join_at_ms=self.now_ms if self.config.auto_join else NEVER,
            )
        leader_id = None if state.leader_id == self.local.id else state.leader_id
        return Unattached(state.epoch, leader_id, state.voted, deadline)

    def _other_voters_shuffled(self) -> tuple[ReplicaKey, ...]:
        """The other voters in random order: a restarted leader does not know the longest log."""
        others = [voter.key for voter in self.voters if voter.id != self.local.id]
        shuffled = []
        while others:
            shuffled.append(self.random.choice(others))
            others.remove(shuffled[-1])
        return tuple(shuffled)

    def election_deadline(self) -> int:
        """When to start an election: immediately if this replica is the only voter."""
        if self.is_voter and self.voters.is_only(self.local):
            return self.now_ms
        timeout = self.config.election_timeout_ms
        return self.now_ms + self.random.randint(timeout, 2 * timeout - 1)

    def become(self, role: Role, reason: str) -> None:
        """Change the role: check it, clean up after the old one, make durable what must be."""
        old = self.role
        check_transition(old.name, old.epoch, role.name, role.epoch)
        self._take_role(role)
        self.fetch_id = None
        self.fetch_at_ms = 0
        self.stand_at_ms = NEVER
        self.inflight = {k: v for k, v in self.inflight.items() if v.epoch == role.epoch}
        self._persist()
        if isinstance(old, Leader):
            self._leave_leader(old)
        self._announce(reason)
        if old.epoch < role.epoch:
            self._note_last_epoch()

    def _announce(self, reason: str) -> None:
        self.emit(RoleChanged(self.role.name, self.epoch, self.leader_id, reason))

    def _note_last_epoch(self) -> None:
        if self.epoch >= EPOCH_MAX:
            text = f"epoch {EPOCH_MAX} is the last one: this replica cannot stand for election"
            self.notice(f"{text}; `quorate recover epochs` resets those of a quorum", warning=True)

    def _persist(self) -> None:
        state = self.election_state()
        if state.epoch > EPOCH_MAX:
            raise FatalError(
                f"epoch {state.epoch} is above the last one, {EPOCH_MAX}: stop all voters and "
                "reset their epochs with `quorate recover epochs`"
            )
        if state != self.persisted:
            if self.persisted is not None and state.epoch < self.persisted.epoch:
                raise FatalError(
                    f"the epoch goes back from {self.persisted.epoch} to {state.epoch}"
                )
            self.persisted = state
            self.emit(PersistElection(state, self.history.kraft_version))

    def require_end(self, required_end: RequiredEnd | None) -> None:
        """Set or lift, durably, the log end that this replica must reach again."""
        self.required_end = required_end
        self.due_ms = NOT_LOOKED_FOR
        self.emit(PersistRequiredEnd(required_end))

    def election_state(self) -> ElectionState:
        """The part of the role that quorum-state must remember."""
        role = self.role
        if isinstance(role, Leader | Resigned):
            return ElectionState(role.epoch, self.local.id, self.local)
        if isinstance(role, Candidate):
            return ElectionState(role.epoch, None, self.local)
        return ElectionState(role.epoch, role.leader_id, role.voted)

    def _leave_leader(self, old: Leader) -> None:
        """Answer every request that is pending at the leader that this replica was."""
        self.emit(LeadershipLost(old.epoch))
        self.transfer = self.transfer or old.transfer
        leader = self.current_leader
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for fetch in old.parked.values():
            self.respond(fetch.request_id, FetchResponse(error, leader))
        for read in old.reads:
            self.respond(read.request_id, ReadIndexResponse(error, leader))
        for change in old.changes:
            if change.request_id is not None:
                text = f"the leader of epoch {old.epoch} resigned while {change.stage.text}"
                self.respond(change.request_id, AdminResponse(error, leader, text))

    def become_unattached(
        self,
        epoch: int,
        reason: str,
        *,
        leader_id: int | None = None,
        voted: ReplicaKey | None = None,
    ) -> None:
        deadline = self.election_deadline() if self.is_electable else NEVER
        self.become(Unattached(epoch, leader_id, voted, deadline), reason)

    def become_follower(
        self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], reason: str
    ) -> None:
        """Follow a leader; what was voted in this epoch is kept."""
        voted = None
        if isinstance(self.role, Unattached | Prospective) and self.role.epoch == epoch:
            voted = self.role.voted
        elif isinstance(self.role, Candidate) and self.role.epoch == epoch:
            voted = self.local
        self.become(
            Follower(
                epoch,
                leader_id,
                endpoints,
                self.now_ms + self.config.fetch_timeout_ms,
                voted,
                update_voter_at_ms=self.now_ms,
                join_at_ms=self.now_ms if self.config.auto_join else NEVER,
            ),
            reason,
        )
        self.finish_transfer(leader_id)

    def finish_transfer(self, leader_id: int) -> None:
        """A leader is known: complete the transfer for which this replica resigned, if any."""
        transfer, self.transfer = self.transfer, None
        if transfer is None:
            return
        moved = leader_id == transfer.target.id
        error = ErrorCode.NONE if moved else ErrorCode.REQUEST_TIMED_OUT
        text = "" if moved else f"{leader_id} was elected instead of {transfer.target.id}"
        self.respond(transfer.request_id, AdminResponse(error, self.current_leader, text))

    def maybe_adopt(
        self,
        epoch: int,
        leader_id: int | None,
        endpoints: tuple[Endpoint, ...],
        sender: int | None,
        origin: Origin = Origin.MESSAGE,
    ) -> bool:
        """Take over a higher epoch, or the leader of this one, from a message. Return whether the
        role changed.

        A request is checked before: it is meant for this replica. sender: the id that a request
        claims, or the one that was dialled for an answer; its budget limits the raise (`epochs`).
        """
        role = self.role
        if isinstance(role, Follower) and epoch == role.epoch and endpoints:
            if leader_id == role.leader_id and endpoints != role.leader_endpoints:
                role.leader_endpoints = endpoints
                if not self.may_elect:
                    # Its silence was that of other endpoints, and this replica may ask others now.
                    role.fetch_deadline_ms = self.now_ms + self.config.fetch_timeout_ms
            return False
        if leader_id is not None and not endpoints:
            voter = self.voters.get(leader_id)
            endpoints = voter.endpoints if voter is not None else ()
        knows_leader = leader_id is not None and bool(endpoints) and leader_id != self.local.id
        if epoch > self.epoch:
            if not self._may_raise(epoch, sender, origin):
                return False
            if knows_leader and leader_id is not None:
                self.become_follower(
                    epoch, leader_id, endpoints, f"{leader_id} leads epoch {epoch}"
                )
            else:
                other = leader_id if leader_id != self.local.id else None
                self.become_unattached(epoch, f"epoch {epoch} began", leader_id=other)
            return True
        if epoch < self.epoch or not knows_leader or leader_id is None:
            return False
        if isinstance(role, Unattached | Candidate) or (
            isinstance(role, Prospective) and role.leader_id is None
        ):
            self.become_follower(epoch, leader_id, endpoints, f"{leader_id} leads epoch {epoch}")
            return True
        if isinstance(role, Prospective) and role.leader_id == leader_id:
            role.leader_endpoints = endpoints
        return False

    def _may_raise(self, epoch: int, sender: int | None, origin: Origin) -> bool:
        verdict = self.epochs.judge(
            self.epoch,
            epoch,
            sender,
            {voter.id for voter in self.voters},
            origin=origin,
            now_ms=self.now_ms,
            has_nothing=not self.is_voter or self.log.last_epoch < 1,
        )
        if verdict.is_news:
            who = "an unknown replica" if sender is None else f"replica {sender}"
            text = f"refused epoch {epoch} of {who} in epoch {self.epoch}: {verdict.reason}"
            self.notice(text, warning=True)
        return not verdict.reason

    # --- the log ----------------------------------------------------------------------------------

    def append(self, batches: tuple[Batch, ...]) -> None:
        """Append batches that fit the end of the log; their voter sets are in force from now on."""
        ticket = self.log.append(batches)
        self.outputs.append(AppendBatches(ticket, batches))
        changed = False
        for batch in batches:
            if batch.control:
                changed = self.history.append(batch) or changed
        if changed:
            self._voters_changed()

    def append_control(self, records: tuple[ControlRecord, ...]) -> int:
        """Append the leader's own control records as one batch; return the offset of the last."""
        base = self.log.end_offset
        batch = Batch(base, base + len(records) - 1, self.epoch, records)
        self.append((batch,))
        return batch.last_offset

    def truncate(self, end_offset: int) -> None:
        if end_offset < self.high_watermark:
            raise FatalError(
                f"the leader asks to truncate to {end_offset}, below the high watermark "
                f"{self.high_watermark}: committed records would be lost"
            )
        ticket = self.log.truncate(end_offset)
        self.emit(TruncateLog(ticket, end_offset))
        if self.history.truncate(end_offset):
            self._voters_changed(rolled_back=True)

    def _voters_changed(self, *, rolled_back: bool = False) -> None:
        was_voter, before = self.is_voter, self.voters
        self._know_voters()
        self.due_ms = NOT_LOOKED_FOR
        if self.is_voter:
            self.removed = False
        elif was_voter and not rolled_back:
            self.removed = True
        if before != self.voters:
            self.emit(
                VotersChanged(self.voters, self.history.voters_offset, self.is_voter, self.removed)
            )
        if isinstance(self.role, Leader):
            # The majority to hear from is another one now: give it the whole timeout.
            timeout_ms = self.config.check_quorum_timeout_ms
            self.role.check_quorum_deadline_ms = self.now_ms + timeout_ms
            self.role.fetched_voters.clear()
        if isinstance(self.role, Unattached) and self.is_voter and not was_voter:
            self.role.election_deadline_ms = self.election_deadline()
        if isinstance(self.role, Follower):
            self.role.update_voter_at_ms = self.now_ms
            if self.is_voter and not was_voter:
                self.role.fetch_deadline_ms = self.now_ms + self.config.fetch_timeout_ms

    def reset_membership(
        self,
        voters: tuple[tuple[int, VoterSet], ...],
        kraft_versions: tuple[tuple[int, int], ...],
    ) -> None:
        """A snapshot's history replaces this one."""
        self.history.reset(voters, kraft_versions)
        self._voters_changed()

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark; a lower value is ignored, for it never decreases."""
        if offset <= self.high_watermark:
            return False
        assert offset <= self.log.end_offset, (
            f"{offset} is beyond the log's end {self.log.end_offset}"
        )
        self.high_watermark = offset
        self.outputs.append(HighWatermarkAdvanced(offset))
        return True
