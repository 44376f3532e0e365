"""The safety invariants, checked as the cluster runs; all of them cost little per event.

Names from Kafka's raft simulation and the published TLA+ specifications of KRaft:

    ElectionSafety                   an epoch is led once
    ElectedByMajority                with votes that are on the voters' disks
    LogMatching                      same offset and epoch, same record, and the same before it
    LeaderCompleteness               who leads holds all that earlier epochs committed
    MajorityReachedHighWatermark     at commit, a majority of the voters in force holds it durably
    CommitsOwnEpoch                  a leader counts replicas only for records of its own epoch
    MonotonicHighWatermark           neither a node's nor the cluster's goes back
    MonotonicEpoch                   nor does a node's epoch; in memory is what is on disk
    EpochsStayBounded                whatever others send, no node comes near the last epoch
    OneVotePerEpoch                  what quorum-state says of an epoch is never unsaid
    DurableBeforePromised            votes given and records acknowledged are on disk, and what a
                                     node takes for durable
    FetchOfItsEpoch                  only who believes in the leader's epoch gets its records
    AppendsOfItsLeader               what a follower appends is in its leader's log, and comes from
                                     no answer of an older epoch
    StateMachineAgreement            every replica applies the same records
    AtMostOneUncommittedVoterSet     in every log
    NeighbouringVoterSetsDifferByOne in every log
    ChangeAfterCommitInEpoch         a leader changes the voters after a commit of its own epoch
    VotersOfTheLog                   in force is the last set in the log, also after truncation
    VotersHaveDirectories            at kraft.version 1 every voter is a (id, directory id)
    CaughtUpBeforeAdded              who is added to the voters has replicated
    RemovalCanCommit                 a leader removes a voter only while it hears a majority of
                                     those that are left
    SnapshotAtLogStart               a log that was cut at its start has the snapshot for it
    SnapshotHoldsVoters              a snapshot says who the voters were where it ends
    LeaderNeverLoadsSnapshot         only followers do
    ValidRoles                       only voters elect and lead, or who was asked for a vote, and
                                     nobody whose log is about to be replaced; roles change as the
                                     table allows
    RequiredEnd                      the log end that a replica must reach again is lifted only when
                                     its durable log reaches it, and is in force before anything
                                     else is done with the answer that tells it
    LossIsTold                       a replica that lost what it acknowledged to the leader of this
                                     epoch learns it from that leader
    ReadIsConfirmed                  a leader answers a read after a majority fetched from it since
    ResignationIsTold                a leader that restarts tells the other voters, in an order
    AnsweredOnce                     every request is answered, once
    ChangeIsCommitted                a change that was acknowledged is in a committed voter set
    TurnComes                        a removal waits for an uncommitted change, for no other
    AddsAreLimited                   a limited number of AddVoters waits for its voter
    TransferToTheLiving              a leader resigns for a voter that fetched lately
    TransferEnds                     a transfer refuses appends for an election timeout at most

Some of them are checked in `change_invariants.py`, `loss_invariants.py` and
`tests/replica/log_invariants.py`. And elsewhere:
Durability at each commit by MajorityReachedHighWatermark and at the end (`Cluster.verify`),
ClientHistory (`clients.py`), LogContract (`storage.py`), CheckQuorum (`faults.py`), EpochBudget and
StepsDownSeldom (`forgeries.py`), SingleProcess, StableLeadership, LeaderElected and Settled
(`cluster.py`),
Livelock (`scheduler.py`). The checker sees every disk; it never tells the nodes anything.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from quorate.raft.batches import Batch, VotersRecord
from quorate.raft.messages import FetchRequest, VoteRequest, VoteResponse
from quorate.raft.outputs import RoleName
from quorate.raft.roles import Follower
from quorate.raft.types import (
    ElectionState,
    OffsetAndEpoch,
    ReplicaKey,
    VoterSet,
    same_replica,
)

from tests.replica.errors import InvariantError
from tests.replica.log_invariants import (
    LogMembership,
    WrittenBatches,
    check_leads_once,
    check_log_start,
    check_neighbours,
)
from tests.simulation.change_invariants import ChangeInvariants
from tests.simulation.loss_invariants import MOVES, LossInvariants

if TYPE_CHECKING:
    from tests.replica.disk import Disk, Snapshot
    from tests.simulation.node import SimNode

EPOCH_BOUND = 1 << 24
"""Far above what a run's elections and the budgets of all senders together come to."""
ELECTING = frozenset({RoleName.PROSPECTIVE, RoleName.CANDIDATE, RoleName.LEADER})


class Oracle(LossInvariants, ChangeInvariants):
    """What an observer of everything knows: the committed log, and who led when.

    committed: the committed batches, in order, as the first leader that committed them holds them.
    """

    def __init__(self, nodes: list[SimNode], static_voters: VoterSet) -> None:
        self.nodes = nodes
        self.committed: list[Batch] = []
        self.committed_ends: list[int] = []
        self.committed_end = 0
        self.membership = LogMembership(static_voters)
        self.voter_sets = self.membership.voter_sets
        self.leaders: dict[int, ReplicaKey] = {}
        self._leading: dict[int, SimNode] = {}
        self.lost_disks: dict[ReplicaKey, Disk] = {}
        self._written = WrittenBatches()
        self._committed_epochs: set[int] = set()
        self._commit_epochs: list[int] = []
        self._commit_ends: list[int] = []

    def bootstrap(self, level: int, voters: VoterSet) -> None:
        self.membership.load(0, level, voters)

    # --- elections --------------------------------------------------------------------------------

    def leads(self, node: SimNode, epoch: int) -> None:
        check_leads_once(self.leaders, epoch, node.key)
        self._leading[epoch] = node
        self._has_votes(node, epoch)
        index = bisect_left(self._commit_epochs, epoch) - 1
        if index < 0:
            return
        needed = self._commit_ends[index]
        log = node.disk.log
        if log.end >= needed:
            if log.start.offset >= needed:
                return
            mine = log.batch_before(needed)
            theirs = self.committed[bisect_left(self.committed_ends, needed)]
            if mine is not None and (mine is theirs or mine == theirs):
                return
        raise InvariantError(
            "LeaderCompleteness",
            f"{node.key} leads epoch {epoch} with a log that ends at {log.end}; up to {needed} was "
            f"committed in epoch {self._commit_epochs[index]}",
        )

    def _has_votes(self, node: SimNode, epoch: int) -> None:
        """A majority voted for this leader, durably, if it has not moved on to later epochs."""
        count = 0
        for voter in node.voters:
            disk = self._disk(voter.key)
            state = disk.election if disk is not None else None
            if state is not None and (
                state.epoch > epoch or (state.epoch == epoch and state.voted == node.key)
            ):
                count += 1
        if count < node.voters.majority:
            text = f"{node.key} leads epoch {epoch} with {count} votes of {node.voters}"
            raise InvariantError("ElectedByMajority", text)

    def _disk(self, key: ReplicaKey) -> Disk | None:
        """That replica's disk, be it lost."""
        node = self.nodes[key.id - 1]
        if key is node.key or same_replica(key, node.key):
            return node.disk
        return self.lost_disks.get(key)

    def persists(self, node: SimNode, old: ElectionState | None, new: ElectionState) -> None:
        if new.epoch > EPOCH_BOUND:
            raise InvariantError("EpochsStayBounded", f"{node.key}: from {old} to {new}")
        if old is None or new.epoch != old.epoch:
            return
        if old.voted is not None and new.voted is not None and old.voted != new.voted:
            raise InvariantError("OneVotePerEpoch", f"{node.key}: from {old} to {new}")
        leader_changed = old.leader_id is not None and new.leader_id not in (None, old.leader_id)
        if leader_changed or (old.voted is not None and new.voted is None):
            raise InvariantError("OneVotePerEpoch", f"{node.key}: from {old} to {new}")

    def changes_role(self, node: SimNode, role: RoleName) -> None:
        # Who is out by a record that may not be committed still elects (Ongaro, 4.2.2).
        removal_open = bool(node.voter_sets) and node.voter_sets[-1][0] >= node.high_watermark
        may = node.key in node.voters or (removal_open and self._was_voter(node))
        if role not in ELECTING:
            node.was_asked = False
        if role in ELECTING and not (node.can_vote and (may or node.was_asked)):
            text = f"{node.key} is {role}, but {node.voters} are the voters"
            raise InvariantError("ValidRoles", text)
        required = node.disk.required_end
        if role in ELECTING and required is not None and not required.may_stand:
            text = f"{node.key} is {role}, and may have lost a voter set"
            raise InvariantError("ValidRoles", text)
        if role in ELECTING and node.installing is not None:
            text = f"{node.key} is {role} while {node.installing} is about to replace its log"
            raise InvariantError("ValidRoles", text)

    @staticmethod
    def _was_voter(node: SimNode) -> bool:
        return any(node.key in voters for _, voters in node.voter_sets[:-1]) or (
            node.key in node.disk.static_voters
        )

    def votes(self, node: SimNode, request: VoteRequest, response: VoteResponse) -> None:
        """A node answers a vote request."""
        state, required = node.disk.election, node.disk.required_end
        is_for_it = response.granted or response.granted_if_all
        if is_for_it and not node.can_vote:
            raise InvariantError("ValidRoles", f"{node.key} is a broker and votes for {request}")
        log = node.core.log
        is_older = (request.last_epoch, request.last_offset) < (log.last_epoch, log.end_offset)
        if is_older and not is_for_it and request.voter == node.key:
            node.was_asked = True
        if response.granted_if_all and required is not None and not required.may_stand:
            text = f"{node.key} may have lost a voter set and votes for {request}"
            raise InvariantError("RequiredEnd", text)
        granted = is_for_it and not request.pre_vote
        if granted and (
            state is None or (state.epoch, state.voted) != (request.epoch, request.candidate)
        ):
            text = f"{node.key} grants {request}, on disk is {state}"
            raise InvariantError("DurableBeforePromised", text)

    def acknowledges_too_much(self, node: SimNode, request: FetchRequest) -> None:
        """A node asks for records beyond what is durable on its disk."""
        text = f"{node.key} has {node.disk.log.durable_end} durable and sends {request}"
        raise InvariantError("DurableBeforePromised", text)

    def answers_another_epoch(self, node: SimNode, request: object, response: object) -> None:
        """A leader answers a Fetch of another epoch than its own without an error."""
        raise InvariantError("FetchOfItsEpoch", f"{node.key} answers {request} with {response}")

    def asks_for_votes(self, node: SimNode, request: VoteRequest) -> None:
        state = node.disk.election
        if not request.pre_vote and (
            state is None or (state.epoch, state.voted) != (request.epoch, node.key)
        ):
            text = f"{node.key} asks for votes with {request}, on disk is {state}"
            raise InvariantError("DurableBeforePromised", text)

    def confirms_read(self, node: SimNode, asked_ms: int) -> None:
        """A leader answers a read that it was asked for then, by its clock: since then a majority
        of the voters in force fetched from it, itself included if it is one.
        """
        heard = [
            voter.key
            for voter in node.voters
            if same_replica(voter.key, node.key)
            or node.heard.get(self._directory(voter.key), -1) >= asked_ms
        ]
        if len(heard) < node.voters.majority:
            text = f"{node.key} reads, confirmed by {[str(key) for key in heard]} of {node.voters}"
            raise InvariantError("ReadIsConfirmed", text)

    # --- the log ----------------------------------------------------------------------------------

    def appends(self, node: SimNode, batches: tuple[Batch, ...]) -> None:
        """Before the batches are in the node's log."""
        log = node.disk.log
        before = log.batch_before(batches[0].base_offset)
        previous = before.epoch if before is not None else log.start.epoch
        self._written.append(node.key, batches, previous)
        for batch in batches:
            if batch.control:
                self._appends_control(node, batch)
        leader = self._leading.get(node.core.epoch)
        if leader is not None and leader is not node:
            self._are_of(leader, node, batches)

    @staticmethod
    def takes_nothing(node: SimNode, response: object) -> None:
        """A follower got an answer to a Fetch of an older epoch: it moves neither its log nor its
        high watermark.
        """
        assert node.raft is not None
        core = node.raft.core
        moved = [output for output in core.outputs if isinstance(output, MOVES)]
        if moved and isinstance(core.role, Follower):
            text = f"{node.key} follows epoch {core.epoch} and takes {response}: {moved}"
            raise InvariantError("AppendsOfItsLeader", text)

    def _are_of(self, leader: SimNode, node: SimNode, batches: tuple[Batch, ...]) -> None:
        """What a node appends that follows `leader` is in its log, while it leads that epoch."""
        if not leader.is_leading or leader.raft is None or leader.led_epoch != node.core.epoch:
            return
        last, log = batches[-1], leader.disk.log
        end = last.last_offset + 1
        if end <= log.start.offset:
            return  # it was sent before the leader's log was cleaned
        mine = log.batch_before(end)
        if mine is not last and mine != last:
            text = f"{node.key} appends {last}, which its leader {leader.key} does not have: {mine}"
            raise InvariantError("AppendsOfItsLeader", text)

    def _appends_control(self, node: SimNode, batch: Batch) -> None:
        for index, record in enumerate(batch.control):
            if not isinstance(record, VotersRecord):
                continue
            offset = batch.base_offset + index
            uncommitted = [
                at for at, _ in node.voter_sets if self.committed_end <= at < batch.base_offset
            ]
            if uncommitted:
                text = f"{node.key} appends a set at {offset}, that at {uncommitted} is uncommitted"
                raise InvariantError("AtMostOneUncommittedVoterSet", text)
            check_neighbours(node.voters_in_log, record.voters)
            # The bootstrap's voters, which are in force already, come with the LeaderChange record.
            own = node.is_leading and batch.epoch == node.led_epoch and record.voters != node.voters
            if own and batch.epoch not in self._committed_epochs:
                text = f"{node.key} appends {record.voters} in epoch {batch.epoch} before a commit"
                raise InvariantError("ChangeAfterCommitInEpoch", text)
            if own:
                self._are_caught_up(node, record.voters)
            if own and len(record.voters) < len(node.voters) and not self._is_forced(node, record):
                self._can_commit(node, record.voters)
            node.voter_sets.append((offset, record.voters))

    def _are_caught_up(self, node: SimNode, voters: VoterSet) -> None:
        """Who is added has at least begun to replicate, whatever it lost since."""
        for voter in voters:
            disk = self._disk(voter.key)
            is_new = node.voters.get(voter.id) is None
            heard_ms = node.heard.get(voter.key.directory_id, -1)
            is_silent = heard_ms < node.now_ms() - node.core.config.fetch_timeout_ms
            is_empty = disk is None or (disk.log.end == 0 and disk.required_end is None)
            if is_new and (is_empty or is_silent):
                text = f"{node.key} adds {voter.key}, which has replicated nothing"
                raise InvariantError("CaughtUpBeforeAdded", text)

    def follows_its_log(self, node: SimNode, voters: VoterSet) -> None:
        """`voters` is in force at a node."""
        if voters != node.voters_in_log:
            text = f"{node.key} acts on {voters}, in its log is {node.voters_in_log}"
            raise InvariantError("VotersOfTheLog", text)

    def truncates(self, node: SimNode, end_offset: int) -> None:
        while node.voter_sets and node.voter_sets[-1][0] >= end_offset:
            node.voter_sets.pop()
        if end_offset < node.high_watermark:
            text = f"{node.key} truncates to {end_offset} below {node.high_watermark}"
            raise InvariantError("MonotonicHighWatermark", text)

    # --- commit -----------------------------------------------------------------------------------

    def commits(self, node: SimNode, offset: int) -> None:
        """A node's high watermark moved to `offset`."""
        if offset <= node.high_watermark:
            text = f"{node.key}: from {node.high_watermark} to {offset}"
            raise InvariantError("MonotonicHighWatermark", text)
        if offset > self.committed_end:
            self._commits_first(node, offset)
        elif node.is_leading:
            # A late Fetch tells a leader that was deposed what it had committed in its epoch.
            last = node.disk.log.batch_before(offset)
            if last is not None and last.epoch == node.led_epoch:
                self._committed_epochs.add(node.led_epoch)
        end = bisect_left(self.committed_ends, offset) + 1
        if self.committed_ends[end - 1] != offset:
            raise InvariantError("StateMachineAgreement", f"{node.key}: {offset} is in a batch")
        mine = node.disk.log.batches_between(node.high_watermark, offset)
        theirs = self.committed[node.applied : end]
        # Cheap, for lists look at identity first, and a batch is the same object on every replica.
        if mine != theirs:
            text = f"{node.key} applies {mine}, committed is {theirs}"
            raise InvariantError("StateMachineAgreement", text)
        node.applied = end

    def _commits_first(self, node: SimNode, offset: int) -> None:
        if not node.is_leading or self.leaders.get(node.led_epoch) != node.key:
            text = f"{node.key} does not lead and commits {offset} beyond {self.committed_end}"
            raise InvariantError("MonotonicHighWatermark", text)
        last = node.disk.log.batch_before(offset)
        holding = [v.key for v in node.voters if self._holds(v.key, offset, last)]
        if len(holding) < node.voters.majority:
            raise InvariantError(
                "MajorityReachedHighWatermark",
                f"{node.key} commits {offset} in epoch {node.led_epoch}, which only "
                f"{[str(key) for key in holding]} of {node.voters} hold durably",
            )
        if last is None or last.epoch != node.led_epoch:
            text = f"{node.key} commits {last} by counting in epoch {node.led_epoch}"
            raise InvariantError("CommitsOwnEpoch", text)
        for batch in node.disk.log.batches_between(self.committed_end, offset):
            self.committed.append(batch)
            self.committed_ends.append(batch.last_offset + 1)
            if batch.control:
                self.membership.append(batch)
        self.committed_end = offset
        epoch = node.led_epoch
        self._committed_epochs.add(epoch)
        if self._commit_epochs and self._commit_epochs[-1] == epoch:
            self._commit_ends[-1] = offset
        elif not self._commit_epochs or self._commit_epochs[-1] < epoch:
            self._commit_epochs.append(epoch)
            self._commit_ends.append(offset)

    def _holds(self, key: ReplicaKey, offset: int, last: Batch | None) -> bool:
        """Whether that replica's disk holds this durably, or did when the disk was lost: its last
        acknowledgement may still be under way.
        """
        disk = self._disk(key)
        if disk is None:
            return False
        required = disk.required_end
        if required is not None and last is not None:
            # It acknowledged this before it lost it, and votes as if it had it.
            reached = (required.end.epoch, required.end.offset) >= (last.epoch, offset)
            if reached and disk.log.durable_end < offset:
                return True
        if disk.log.durable_end < offset:
            return False
        mine = disk.log.batch_before(offset)
        return disk.log.start.offset >= offset or mine is last or mine == last

    # --- snapshots --------------------------------------------------------------------------------

    def snapshots(self, node: SimNode, snapshot: Snapshot) -> None:
        """A node wrote or installed a snapshot."""
        self.membership.check_snapshot(
            node.key, snapshot.id, snapshot.kraft_version, snapshot.voters
        )
        index = bisect_left(self.committed_ends, snapshot.id.offset)
        is_there = index < len(self.committed) and (
            self.committed_ends[index] == snapshot.id.offset
            and self.committed[index].epoch == snapshot.id.epoch
            and snapshot.count == index + 1
        )
        if not is_there:
            text = f"{node.key}: {snapshot.id} is no position of the committed log"
            raise InvariantError("StateMachineAgreement", text)

    def log_start(self, node: SimNode, start: OffsetAndEpoch) -> None:
        latest = node.disk.latest
        check_log_start(node.key, start, None if latest is None else latest.id)
