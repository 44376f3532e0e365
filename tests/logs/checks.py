"""The invariants that the logs of stopped replicas decide alone.

Names as in `tests/simulation/invariants.py`, which checks these and many more while its nodes run:

    LogContract                      offsets without a gap, epochs that never fall, right checksums
    LogMatching                      same offset and epoch, same batch, and the same before it
    ElectionSafety                   an epoch has one LeaderChange record, and quorum-state agrees
    ElectedByMajority                as the LeaderChange record says
    LeaderCompleteness               what a majority of the voters holds is in the log of the last
                                     epoch, too
    MajorityReachedHighWatermark     a majority of the voters holds what is known to be committed:
                                     everything before a snapshot's end, and what the caller knows
    MonotonicEpoch                   no log is ahead of its replica's quorum-state
    Durability                       no log has lost what its replica is known to have reached
    StateMachineAgreement            and up to there, all logs are the same; snapshots end where
                                     batches end
    NeighbouringVoterSetsDifferByOne in every log
    VotersOfTheLog                   a leader names the voters in force
    VotersHaveDirectories            at kraft.version 1
    ValidRoles                       a leader is a voter, or was one in the set before: the record
                                     that removed it may not have been committed
    SnapshotAtLogStart               a log that was cut at its start has the snapshot for it
    SnapshotHoldsVoters              those in force where it ends

and two more:

    LeaderChangeBeginsEpoch          it is the first record of its epoch, and of no batch within
    KRaftVersionRises                never falls, and all voters support it

A replica that has not caught up may end with batches that were never committed; so nothing is said
of where it leaves the log of the last epoch, unless a majority of the voters left it there.

What logs do not tell, and is left to the simulation: who promised, voted, or answered what and when
(OneVotePerEpoch, DurableBeforePromised, FetchOfItsEpoch, RequiredEnd, LossIsTold, ReadIsConfirmed,
ResignationIsTold, AnsweredOnce), in which order commits and appends came (CommitsOwnEpoch,
MonotonicHighWatermark, AtMostOneUncommittedVoterSet, ChangeAfterCommitInEpoch,
CaughtUpBeforeAdded, RemovalCanCommit, TurnComes, AddsAreLimited), and why leadership moved
(TransferToTheLiving, TransferEnds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from quorate.raft.batches import Batch, KRaftVersion, LeaderChange
from quorate.raft.types import (
    SUPPORTED_KRAFT_VERSION,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
    VoterSet,
    same_replica,
)

from tests.logs.files import ReplicaLog, timestamp_ms
from tests.replica.errors import InvariantError
from tests.replica.log_invariants import (
    LogMembership,
    WrittenBatches,
    check_leads_once,
    check_log_start,
)


@dataclass(frozen=True, slots=True)
class Term:
    """A LeaderChange record. at_ms: since 1970. voters: in force where it is."""

    epoch: int
    offset: int
    leader: int
    at_ms: int
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class LogReport:
    """What the logs of a quorum show. terms: of all logs, by epoch. voter_sets: of the log of the
    last epoch, in order. batches: distinct ones. compared: those that several logs hold.
    """

    violations: tuple[InvariantError, ...]
    terms: tuple[Term, ...]
    voter_sets: tuple[VoterSet, ...]
    batches: int
    compared: int


def check_logs(logs: Sequence[ReplicaLog], reached: int = 0) -> LogReport:
    """Check the logs of one quorum, of at least one replica.

    reached: an offset before which everything is known to be committed, and to be on all replicas.
    """
    checks = _LogChecks(logs)
    for log in logs:
        checks.check(log)
    checks.check_leaders()
    checks.check_snapshots()
    checks.check_committed(reached)
    copies = Counter((each.base_offset, each.epoch) for log in logs for each in log.batches)
    return LogReport(
        tuple(checks.violations),
        tuple(sorted(checks.terms.values(), key=lambda term: (term.epoch, term.offset))),
        tuple(voters for _, voters in checks.memberships[checks.newest.key].voter_sets),
        len(copies),
        sum(1 for count in copies.values() if count > 1),
    )


class _LogChecks:
    """terms: by epoch, offset and leader. newest: the log of the last epoch, and its longest: it
    holds all that was ever committed.
    """

    def __init__(self, logs: Sequence[ReplicaLog]) -> None:
        self.violations: list[InvariantError] = []
        self.memberships: dict[ReplicaKey, LogMembership] = {}
        self.terms: dict[tuple[int, int, int], Term] = {}
        self.newest = max(logs, key=lambda log: (log.last.epoch, log.last.offset))
        self._agree = {log.key: _agree_until(log, self.newest) for log in logs}
        self._logs = logs
        self._written = WrittenBatches()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note a violation, and go on."""
        try:
            yield
        except InvariantError as error:
            self.violations.append(error)

    def _violated(self, name: str, text: str) -> None:
        self.violations.append(InvariantError(name, text))

    # --- each log ---------------------------------------------------------------------------------

    def check(self, log: ReplicaLog) -> None:
        """What can be said of one log."""
        for fault in log.faults:
            self._violated("LogContract", f"{log.key}: {fault}")
        start = log.start
        before: int | None = None
        if log.batches:
            base = log.batches[0].base_offset
            with self._noted():
                first = OffsetAndEpoch(base, log.batches[0].epoch)
                check_log_start(log.key, first, log.latest)
            if start is not None and start.offset == base:
                before = start.epoch
        self._follow_each_other(log)
        with self._noted():
            self._written.append(log.key, log.batches, before)
        membership = self.memberships[log.key] = LogMembership(VoterSet())
        if start is None:
            return
        info = log.snapshots.get(start)
        if info is not None:
            membership.load(start.offset, info.kraft_version or 0, info.voters or VoterSet())
        epoch = start.epoch
        for batch in log.batches:
            if batch.base_offset >= start.offset:
                self._take(log, membership, batch, begins=batch.epoch > epoch)
                epoch = max(epoch, batch.epoch)
        state = log.election
        if log.last.epoch > (state.epoch if state is not None else 0):
            self._violated("MonotonicEpoch", f"{log.key} ends at {log.last}, on disk is {state}")

    def _follow_each_other(self, log: ReplicaLog) -> None:
        for before, batch in zip(log.batches, log.batches[1:], strict=False):
            if batch.base_offset != before.end_offset or batch.epoch < before.epoch:
                self._violated("LogContract", f"{log.key}: {shown(before)}, then {shown(batch)}")

    def _take(
        self, log: ReplicaLog, membership: LogMembership, batch: Batch, *, begins: bool
    ) -> None:
        """Take a batch of a log. begins: whether it is the first one of its epoch."""
        if begins and not (batch.control and isinstance(batch.control[0], LeaderChange)):
            text = f"{log.key}: epoch {batch.epoch} begins with {shown(batch)}"
            self._violated("LeaderChangeBeginsEpoch", text)
        for index, record in enumerate(batch.control):
            if isinstance(record, LeaderChange) and begins and index == 0:
                self._elected(log, membership, batch, record)
            elif isinstance(record, LeaderChange):
                text = f"{log.key}: a LeaderChange record within its epoch, in {shown(batch)}"
                self._violated("LeaderChangeBeginsEpoch", text)
        level = membership.level
        with self._noted():
            membership.append(batch)
        if any(isinstance(record, KRaftVersion) for record in batch.control):
            self._upgraded(log, membership, level)

    def _elected(
        self, log: ReplicaLog, membership: LogMembership, batch: Batch, record: LeaderChange
    ) -> None:
        if not len(membership.voters):
            # They come from the configuration, or from the first leader's bootstrap checkpoint.
            static = VoterSet.of(Voter(key) for key in record.voters)
            membership.voter_sets[-1] = membership.voter_sets[-1][0], static
        voters = membership.voters
        place = batch.epoch, batch.base_offset, record.leader_id
        term = Term(batch.epoch, batch.base_offset, record.leader_id, timestamp_ms(batch), voters)
        if place in self.terms:
            return  # it is in another log
        self.terms[place] = term
        text = f"{log.key}: {record.leader_id} leads epoch {batch.epoch}"
        if {key.id for key in record.voters} != {voter.id for voter in voters}:
            named = [str(key) for key in record.voters]
            self._violated("VotersOfTheLog", f"{text} and names {named}, in the log are {voters}")
        granting = sorted({key.id for key in record.granting if voters.get(key.id) is not None})
        if len(granting) < voters.majority:
            self._violated("ElectedByMajority", f"{text} with the votes of {granting} of {voters}")
        sets = [each for _, each in membership.voter_sets[-2:]]
        if all(each.get(record.leader_id) is None for each in sets):
            self._violated("ValidRoles", f"{text}, but {voters} are the voters")

    def _upgraded(self, log: ReplicaLog, membership: LogMembership, before: int) -> None:
        level, voters = membership.level, membership.voters
        lacking = [voter.id for voter in voters if level not in voter.kraft_version]
        if level < before or level not in SUPPORTED_KRAFT_VERSION or lacking:
            text = (
                f"{log.key}: from {before} to {level}, which {lacking} of {voters} do not support"
            )
            self._violated("KRaftVersionRises", text)

    # --- all logs ---------------------------------------------------------------------------------

    def check_leaders(self) -> None:
        leaders: dict[int, int] = {}
        for term in self.terms.values():
            with self._noted():
                check_leads_once(leaders, term.epoch, term.leader)
        for log in self._logs:
            state = log.election
            if state is None or state.leader_id is None:
                continue
            leader = leaders.get(state.epoch, state.leader_id)
            if leader != state.leader_id:
                text = f"{leader} leads epoch {state.epoch}; {log.key} has {state} on disk"
                self._violated("ElectionSafety", text)

    def check_snapshots(self) -> None:
        """Every snapshot against every log that has its end in common with the newest one."""
        for owner in self._logs:
            for name, info in owner.snapshots.items():
                for log in self._logs:
                    start, agree = log.start, self._agree[log.key]
                    is_there = start is not None and start.offset <= name.offset <= agree
                    if name.offset == 0 or not is_there:
                        continue
                    text = f"the snapshot of {owner.key} in the log of {log.key}"
                    with self._noted():
                        self.memberships[log.key].check_snapshot(
                            text, name, info.kraft_version or 0, info.voters
                        )
                    if start != name and not _ends_at(log, name):
                        self._violated("StateMachineAgreement", f"{text}: no batch ends at {name}")

    def check_committed(self, reached: int) -> None:
        """What is committed for certain is in the log of the last epoch, and with a majority."""
        known = max([reached, *(each.offset for log in self._logs for each in log.snapshots)])
        membership = self.memberships[self.newest.key]
        sets = [membership.at(known)[1]]
        sets += [voters for offset, voters in membership.voter_sets if offset >= known]
        # It was committed in the first of these sets, or in a later one before that was committed.
        if not any(self._have_reached(voters, known) for voters in sets):
            ends = {str(key): end for key, end in self._agree.items()}
            text = f"{known} is committed, {sets[0]} are the voters, and the logs end at {ends}"
            self._violated("MajorityReachedHighWatermark", text)
        for log in self._logs:
            applied = max(reached, log.latest.offset if log.latest is not None else 0)
            agree = self._agree[log.key]
            if log.last.offset < applied:
                self._violated("Durability", f"{log.key} ends at {log.last}, it had {applied}")
            elif agree < applied:
                text = f"{log.key} had {applied} and leaves {self.newest.key} at {agree}"
                self._violated("StateMachineAgreement", text)
            self._has_no_majority(log, agree)

    def _have_reached(self, voters: VoterSet, offset: int) -> bool:
        """Whether a majority holds everything before `offset`. Who is not among the logs may."""
        count = 0
        for voter in voters:
            ends = [end for key, end in self._agree.items() if same_replica(voter.key, key)]
            count += not ends or max(ends) >= offset
        return count >= voters.majority

    def _has_no_majority(self, log: ReplicaLog, agree: int) -> None:
        """Where a log leaves the newest one, no majority went with it: it would be committed."""
        batch = next((each for each in log.batches if each.base_offset >= agree), None)
        if batch is None or batch.base_offset >= self.newest.last.offset:
            return
        _, voters = self.memberships[log.key].at(batch.end_offset)
        holding = [each.key for each in self._logs if batch in each.batches]
        count = sum(any(same_replica(v.key, key) for key in holding) for v in voters)
        if count >= voters.majority:
            text = f"{[str(key) for key in holding]} of {voters} hold {shown(batch)}"
            self._violated("LeaderCompleteness", f"{text}, {self.newest.key} does not")


def _ends_at(log: ReplicaLog, name: OffsetAndEpoch) -> bool:
    return any(OffsetAndEpoch(each.end_offset, each.epoch) == name for each in log.batches)


def _agree_until(log: ReplicaLog, other: ReplicaLog) -> int:
    """The offset from which on a log has other batches than another one, or their shorter end."""
    theirs = {each.base_offset: each for each in other.batches}
    first = other.batches[0].base_offset if other.batches else other.last.offset
    for batch in log.batches:
        is_common = first <= batch.base_offset < other.last.offset
        if is_common and theirs.get(batch.base_offset) != batch:
            return batch.base_offset
    return min(log.last.offset, other.last.offset)


def shown(batch: Batch) -> str:
    """A batch without its bytes."""
    control = "".join(f", {record}" for record in batch.control)
    return f"[{batch.base_offset}, {batch.end_offset}) of epoch {batch.epoch}{control}"
