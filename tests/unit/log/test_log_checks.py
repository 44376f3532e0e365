"""The checks of the logs of a quorum: each finds what it is for, in logs made by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.common.features import VersionRange
from quorate.log.disk import Disk
from quorate.log.meta_properties import MetaProperties
from quorate.log.quorum_state import format_quorum_state
from quorate.log.snapshots import SnapshotInfo, SnapshotStore
from quorate.raft.batches import Batch, ControlRecord, KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.types import (
    BOOTSTRAP_SNAPSHOT,
    ElectionState,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
    VoterSet,
)

from tests.logs.checks import LogReport, check_logs
from tests.logs.files import ReplicaLog, read_log
from tests.unit.log.log_support import PARTITION, control, data

KEYS = {node: ReplicaKey(node, f"{'ABCD'[node - 1] * 20}_w") for node in (1, 2, 3, 4)}
THREE = VoterSet.of(Voter(KEYS[node]) for node in (1, 2, 3))
FOUR = THREE.adding(Voter(KEYS[4]))
TWO = THREE.removing(KEYS[3])
Quorum = dict[int, ReplicaLog]


def batch(raw: bytes, *records: ControlRecord) -> Batch:
    base, epoch, delta = *struct.unpack_from(">q4xi", raw), *struct.unpack_from(">i", raw, 23)
    return Batch(base, base + delta, epoch, records, raw)


def controls(base: int, epoch: int, *records: ControlRecord) -> Batch:
    return batch(control(base, epoch, *records), *records)


def elected(
    base: int,
    epoch: int,
    leader: int,
    voters: VoterSet = THREE,
    granting: tuple[int, ...] = (1, 2),
) -> Batch:
    named = tuple(ReplicaKey(voter.id) for voter in voters)
    votes = tuple(ReplicaKey(node) for node in granting)
    return controls(base, epoch, LeaderChange(leader, named, votes))


FIRST = elected(0, 1, 1)
BOOTSTRAP = controls(1, 1, KRaftVersion(1), VotersRecord(THREE))
OLD = batch(data(3, 1))
SECOND = elected(4, 2, 2)
NEW = batch(data(5, 2))
END = 6


def quorum(*batches: Batch) -> Quorum:
    """Three replicas with these batches, by default those above."""
    found = list(batches or (FIRST, BOOTSTRAP, OLD, SECOND, NEW))
    election = ElectionState(found[-1].epoch)
    return {node: ReplicaLog(KEYS[node], list(found), {}, election) for node in (1, 2, 3)}


def report(logs: Quorum, reached: int = 0) -> LogReport:
    return check_logs(list(logs.values()), reached)


def names(logs: Quorum, reached: int = 0) -> set[str]:
    return {violation.name for violation in report(logs, reached).violations}


def snapshot(voters: VoterSet = THREE, level: int = 1) -> SnapshotInfo:
    return SnapshotInfo(0, 0, level, voters)


# --- logs that are right --------------------------------------------------------------------------


def test_a_quorum_without_a_fault() -> None:
    logs = quorum()
    logs[1].snapshots[BOOTSTRAP_SNAPSHOT] = snapshot()
    found = report(logs, END)
    assert found.violations == ()
    assert [(term.epoch, term.offset, term.leader) for term in found.terms] == [
        (1, 0, 1),
        (2, 4, 2),
    ]
    assert found.terms[1].voters == THREE
    assert found.terms[1].at_ms == 1000
    assert found.voter_sets[-1] == THREE
    assert (found.batches, found.compared) == (5, 5)


def test_a_log_with_a_snapshot_in_front() -> None:
    logs = quorum()
    logs[3].batches = [NEW]
    logs[3].snapshots[OffsetAndEpoch(5, 2)] = snapshot()
    assert names(logs, END) == set()


def test_segments_may_begin_before_the_snapshot() -> None:
    logs = quorum()
    logs[3].batches = [OLD, SECOND, NEW]
    logs[3].snapshots[OffsetAndEpoch(5, 2)] = snapshot()
    assert names(logs, END) == set()


def test_a_snapshot_without_a_log() -> None:
    logs = quorum()
    logs[3].batches = []
    logs[3].snapshots[OffsetAndEpoch(6, 2)] = snapshot()
    assert names(logs, END) == set()


def test_a_snapshot_is_about_to_replace_the_log() -> None:
    logs = quorum()
    logs[3].batches = [FIRST]
    logs[3].snapshots[OffsetAndEpoch(5, 2)] = snapshot()
    assert names(logs) == set()


def test_static_voters_are_upgraded() -> None:
    upgrade = controls(2, 1, KRaftVersion(1), VotersRecord(THREE))
    logs = quorum(FIRST, batch(data(1)), upgrade, elected(4, 2, 3))
    assert names(logs, 5) == set()


def test_a_replica_that_has_not_caught_up_may_have_a_tail_of_its_own() -> None:
    logs = quorum()
    logs[1].batches[3:] = [batch(data(4, 1)), batch(data(5, 1)), batch(data(6, 1))]
    assert names(logs) == set()


def test_others_may_have_snapshots_where_a_replica_has_a_tail_of_its_own() -> None:
    logs = quorum()
    logs[1].batches[3:] = [batch(data(4, 1)), batch(data(5, 1)), batch(data(6, 1))]
    logs[2].snapshots[OffsetAndEpoch(END, 2)] = snapshot()
    assert names(logs) == set()


def test_a_voter_that_was_just_added_need_not_have_what_is_committed() -> None:
    logs = quorum()
    logs[2].snapshots[OffsetAndEpoch(END, 2)] = snapshot()
    logs[1].batches.pop()
    everywhere({2: logs[2]}, controls(6, 2, VotersRecord(FOUR)))
    logs[4] = ReplicaLog(KEYS[4], [FIRST], {}, ElectionState(2))
    assert names(logs) == set()


def test_a_leader_may_be_out_by_the_last_record() -> None:
    removal = controls(6, 2, VotersRecord(TWO))
    logs = quorum(*quorum()[1].batches, removal, elected(7, 3, 3, TWO))
    assert names(logs, 8) == set()


# --- one fault each -------------------------------------------------------------------------------


def gap(logs: Quorum) -> None:
    del logs[3].batches[2]


def falling_epoch(logs: Quorum) -> None:
    for log in logs.values():
        log.batches.append(batch(data(6, 1)))


def unreadable(logs: Quorum) -> None:
    logs[3].faults.append("the checksum of offset 3 is wrong")


def other_bytes(logs: Quorum) -> None:
    logs[3].batches[4] = batch(data(5, 2, size=21))


def other_epoch_before(logs: Quorum) -> None:
    # The same batch of epoch 2, after one of epoch 1 in this log only.
    logs[3].batches = [FIRST, BOOTSTRAP, OLD, batch(data(4, 1)), NEW]


def two_leaders(logs: Quorum) -> None:
    logs[3].batches[2:] = [elected(3, 2, 3)]


def another_leader_on_disk(logs: Quorum) -> None:
    logs[3].election = ElectionState(2, 1)


def one_vote(logs: Quorum) -> None:
    everywhere(logs, elected(6, 3, 1, granting=(1,)))


def votes_of_strangers(logs: Quorum) -> None:
    everywhere(logs, elected(6, 3, 1, granting=(1, 4, 5)))


def majority_overruled(logs: Quorum) -> None:
    logs[3].batches[3:] = [elected(4, 3, 3)]
    logs[3].election = ElectionState(3, 3)


def snapshot_beyond_the_majority(logs: Quorum) -> None:
    logs[1].snapshots[OffsetAndEpoch(END, 2)] = snapshot()
    del logs[2].batches[4:], logs[3].batches[4:]


def older_quorum_state(logs: Quorum) -> None:
    logs[3].election = ElectionState(1)


def no_quorum_state(logs: Quorum) -> None:
    logs[3].election = None


def other_state_below_the_snapshot(logs: Quorum) -> None:
    logs[3].batches[3:] = [batch(data(4, 1)), batch(data(5, 1))]
    logs[3].snapshots[OffsetAndEpoch(5, 1)] = snapshot()


def snapshot_within_a_batch(logs: Quorum) -> None:
    everywhere(logs, batch(data(6, 2, count=2)))
    logs[3].snapshots[OffsetAndEpoch(7, 2)] = snapshot()


def snapshot_of_another_epoch(logs: Quorum) -> None:
    logs[3].snapshots[OffsetAndEpoch(5, 1)] = snapshot()


def two_voters_removed(logs: Quorum) -> None:
    everywhere(logs, controls(6, 2, VotersRecord(TWO.removing(KEYS[2]))))


def voter_replaced_at_once(logs: Quorum) -> None:
    everywhere(logs, controls(6, 2, VotersRecord(TWO.adding(Voter(KEYS[4])))))


def other_voters_named(logs: Quorum) -> None:
    everywhere(logs, elected(6, 3, 1, TWO))


def directory_unknown(logs: Quorum) -> None:
    everywhere(logs, controls(6, 2, VotersRecord(THREE.adding(Voter(ReplicaKey(4))))))


def stranger_leads(logs: Quorum) -> None:
    everywhere(logs, elected(6, 3, 4))


def removed_long_ago(logs: Quorum) -> None:
    everywhere(logs, controls(6, 2, VotersRecord(FOUR)), controls(7, 2, VotersRecord(THREE)))
    everywhere(logs, controls(8, 2, VotersRecord(TWO)), elected(9, 3, 4, TWO))


def start_without_snapshot(logs: Quorum) -> None:
    del logs[3].batches[:3]


def snapshot_of_other_voters(logs: Quorum) -> None:
    logs[3].snapshots[OffsetAndEpoch(5, 2)] = snapshot(TWO)


def snapshot_without_voters(logs: Quorum) -> None:
    logs[3].snapshots[OffsetAndEpoch(5, 2)] = SnapshotInfo(0, 0, None, None)


def no_leader_change(logs: Quorum) -> None:
    everywhere(logs, batch(data(6, 3)))


def leader_change_within(logs: Quorum) -> None:
    everywhere(logs, elected(6, 2, 2))


def leader_change_second(logs: Quorum) -> None:
    change = elected(0, 3, 1).control
    everywhere(logs, controls(6, 3, VotersRecord(THREE), *change))


def level_falls(logs: Quorum) -> None:
    everywhere(logs, controls(6, 2, KRaftVersion(0)))


def level_unknown(logs: Quorum) -> None:
    everywhere(logs, controls(6, 2, KRaftVersion(2)))


def level_unsupported(logs: Quorum) -> None:
    old = replace_voter(THREE, VersionRange(0, 0))
    for log in logs.values():
        log.batches[1] = controls(1, 1, KRaftVersion(1), VotersRecord(old))


def everywhere(logs: Quorum, *batches: Batch) -> None:
    for log in logs.values():
        log.batches += batches
        log.election = ElectionState(log.batches[-1].epoch)


def replace_voter(voters: VoterSet, supported: VersionRange) -> VoterSet:
    return VoterSet((*voters.voters[:2], Voter(voters.voters[2].key, (), supported)))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (gap, {"LogContract"}),
        (falling_epoch, {"LogContract"}),
        (unreadable, {"LogContract"}),
        (other_bytes, {"LogMatching"}),
        (other_epoch_before, {"LogMatching", "LeaderChangeBeginsEpoch"}),
        (two_leaders, {"ElectionSafety"}),
        (another_leader_on_disk, {"ElectionSafety"}),
        (one_vote, {"ElectedByMajority"}),
        (votes_of_strangers, {"ElectedByMajority"}),
        (majority_overruled, {"LeaderCompleteness"}),
        (snapshot_beyond_the_majority, {"MajorityReachedHighWatermark"}),
        (older_quorum_state, {"MonotonicEpoch"}),
        (no_quorum_state, {"MonotonicEpoch"}),
        (other_state_below_the_snapshot, {"StateMachineAgreement"}),
        (snapshot_within_a_batch, {"StateMachineAgreement"}),
        (snapshot_of_another_epoch, {"StateMachineAgreement"}),
        (two_voters_removed, {"NeighbouringVoterSetsDifferByOne"}),
        (voter_replaced_at_once, {"NeighbouringVoterSetsDifferByOne"}),
        (other_voters_named, {"VotersOfTheLog"}),
        (directory_unknown, {"VotersHaveDirectories"}),
        (stranger_leads, {"ValidRoles"}),
        (removed_long_ago, {"ValidRoles"}),
        (start_without_snapshot, {"SnapshotAtLogStart"}),
        (snapshot_of_other_voters, {"SnapshotHoldsVoters"}),
        (snapshot_without_voters, {"SnapshotHoldsVoters"}),
        (no_leader_change, {"LeaderChangeBeginsEpoch"}),
        (leader_change_within, {"LeaderChangeBeginsEpoch"}),
        (leader_change_second, {"LeaderChangeBeginsEpoch"}),
        (level_falls, {"KRaftVersionRises"}),
        (level_unknown, {"KRaftVersionRises"}),
        (level_unsupported, {"KRaftVersionRises"}),
    ],
)
def test_a_fault_is_found(fault: Callable[[Quorum], None], expected: set[str]) -> None:
    logs = quorum()
    fault(logs)
    assert names(logs) == expected


def test_a_log_that_lost_what_it_reached() -> None:
    logs = quorum()
    del logs[3].batches[4:]
    assert names(logs) == set()
    assert names(logs, END) == {"Durability"}


def test_two_logs_that_lost_what_they_reached() -> None:
    logs = quorum()
    del logs[2].batches[4:], logs[3].batches[4:]
    assert names(logs, END) == {"Durability", "MajorityReachedHighWatermark"}


def test_a_log_that_went_its_own_way_before_what_it_reached() -> None:
    logs = quorum()
    logs[3].batches[3:] = [batch(data(4, 1)), batch(data(5, 1))]
    assert names(logs) == set()
    assert names(logs, END) == {"StateMachineAgreement"}


# --- files ----------------------------------------------------------------------------------------


def written(folder: Path, node: int, *segments: tuple[Batch, ...]) -> Path:
    """A node's directory with these segments."""
    partition = folder / f"node-{node}" / PARTITION
    partition.mkdir(parents=True)
    MetaProperties("c", node, KEYS[node].directory_id).write(partition.parent)
    (partition / "quorum-state").write_bytes(format_quorum_state(ElectionState(2, 2), 1))
    for batches in segments:
        path = partition / f"{batches[0].base_offset:020}.log"
        path.write_bytes(b"".join(bytes(each.data) for each in batches))
    return partition


def read(partition: Path) -> ReplicaLog:
    return read_log(partition.parent)


def test_files_are_read(tmp_path: Path) -> None:
    partition = written(tmp_path, 3, (OLD, SECOND), (NEW,))
    SnapshotStore(partition, Disk()).write(OffsetAndEpoch(4, 1), 1, THREE, 1000, [])
    log = read(partition)
    assert (log.key, log.batches, log.faults) == (KEYS[3], [OLD, SECOND, NEW], [])
    assert (log.start, log.last) == (OffsetAndEpoch(4, 1), OffsetAndEpoch(6, 2))
    assert log.snapshots[OffsetAndEpoch(4, 1)].voters == THREE
    assert log.election == ElectionState(2, 2)


@pytest.mark.parametrize("tail", [bytes(100), bytes(NEW.data)[:-1]])
def test_what_follows_the_last_batch_is_no_fault(tmp_path: Path, tail: bytes) -> None:
    partition = written(tmp_path, 3, (FIRST, BOOTSTRAP, OLD, SECOND))
    path = next(partition.glob("*.log"))
    path.write_bytes(path.read_bytes() + tail)
    log = read(partition)
    assert (log.last.offset, log.faults) == (5, [])


def test_a_segment_that_ends_too_early(tmp_path: Path) -> None:
    partition = written(tmp_path, 3, (FIRST, BOOTSTRAP, OLD), (SECOND, NEW))
    path = min(partition.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    assert "follows" in read(partition).faults[0]


def test_a_wrong_checksum(tmp_path: Path) -> None:
    partition = written(tmp_path, 3, (FIRST, BOOTSTRAP, OLD, SECOND, NEW))
    path = next(partition.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-5] + b"?" + path.read_bytes()[-4:])
    assert read(partition).faults == [f"{path.name}: the checksum of offset 5 is wrong"]


def test_a_damaged_snapshot(tmp_path: Path) -> None:
    partition = written(tmp_path, 3, (FIRST, BOOTSTRAP, OLD, SECOND, NEW))
    store = SnapshotStore(partition, Disk())
    store.write(OffsetAndEpoch(4, 1), 1, THREE, 1000, [])
    path = store.path(OffsetAndEpoch(4, 1))
    path.write_bytes(path.read_bytes()[:-1])
    log = read(partition)
    assert len(log.faults) == 1
    assert log.snapshots == {}
