"""`quorate.recovery` on directories that the log wrote: what is seen, chosen, and changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from quorate.common.endpoints import Endpoint
from quorate.log.config import LogConfig
from quorate.log.lock import DirectoryLock, lock_holder
from quorate.log.meta_properties import MetaProperties, random_uuid
from quorate.log.metadata_log import MetadataLog, partition_directory, write_bootstrap_checkpoint
from quorate.log.quorum_state import QuorumStateFile
from quorate.raft.batches import KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.types import ElectionState, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.batch import build_control_batch, build_data_batch, parse_batches, stamp
from quorate.recovery import change as change_module
from quorate.recovery.change import BACKUP_PREFIX, NAMES_MAX, REPORT_PREFIX, create_backup_folder
from quorate.recovery.choice import (
    EPOCH_MAX,
    FORCED_EPOCH_MARGIN,
    forced_epoch,
    judge,
    single_changes,
)
from quorate.recovery.endpoints import correct_endpoints, with_endpoints
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination, as_json, examine, examine_in_use, from_json
from quorate.recovery.lost_majority import plan_lost_majority, recover_lost_majority
from quorate.recovery.replica import become_new_replica
from quorate.recovery.staged import PLAN_FILE, apply_staged, parse_plan, stage_lost_majority

from tests.unit.log.log_support import data

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
MOMENT = "20260102T030405Z"


def voter(node_id: int, directory: str) -> Voter:
    endpoint = Endpoint("CONTROLLER", f"old-{node_id}", 9093)
    return Voter(ReplicaKey(node_id, directory), (endpoint,))


IDS = {node_id: random_uuid() for node_id in range(1, 6)}
ALL = VoterSet.of(voter(node_id, IDS[node_id]) for node_id in (1, 2, 3))


def replica(
    folder: Path,
    node_id: int,
    values: Sequence[tuple[int, int]] = ((1, 3), (2, 4)),
    voters: VoterSet = ALL,
    *,
    election: ElectionState | None = None,
    kraft_version: int = 1,
) -> Path:
    """A stopped replica's directory. values: (epoch, how many records) in order."""
    directory = folder / f"replica-{node_id}"
    directory.mkdir()
    MetaProperties(CLUSTER, node_id, IDS[node_id]).write(directory)
    if kraft_version:
        write_bootstrap_checkpoint(directory, voters)
    log = MetadataLog.open(
        directory,
        LogConfig(preallocate_bytes=0),
        on_durable=lambda _: None,
        on_failure=lambda _: None,
    )
    first = True
    for epoch, count in values:
        records = [LeaderChange(1, (), ())]
        if first and kraft_version:
            records += [KRaftVersion(1), VotersRecord(voters)]  # type: ignore[list-item]
        first = False
        control = build_control_batch(records, 1)
        stamp(control, log.end_offset, epoch)
        log.append(1, [control])
        for number in range(count):
            data = build_data_batch([(None, b"%d" % number)], 1)
            stamp(data, log.end_offset, epoch)
            log.append(1, [data])
    last = values[-1][0] if values else 0
    log.close()
    state = election or ElectionState(last, 1, None)
    QuorumStateFile(partition_directory(directory)).write(state, kraft_version)
    return directory


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def segment(directory: Path) -> Path:
    return partition_directory(directory) / f"{0:020}.log"


# --- looking --------------------------------------------------------------------------------------


def test_an_examination_says_what_is_there_and_changes_nothing(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1)
    with segment(directory).open("ab") as file:
        file.write(data(11, epoch=2, size=200)[:100])  # a torn write, which a start would cut off
    before = bytes_of(directory)
    found = examine(directory)
    assert bytes_of(directory) == before
    assert found.key == ReplicaKey(1, IDS[1])
    assert found.end == OffsetAndEpoch(11, 2)
    assert (found.voters, found.voters_offset, found.kraft_version) == (ALL, 2, 1)
    assert (found.known_committed, found.known_committed_voters) == (0, ALL)
    assert (found.epoch, found.leader_id, found.torn_bytes) == (2, 1, 100)
    assert found.is_sound


def test_an_examination_survives_json(tmp_path: Path) -> None:
    state = ElectionState(7, None, ReplicaKey(2, IDS[2]))
    found = examine(replica(tmp_path, 1, election=state))
    assert from_json(json.loads(json.dumps(as_json(found)))) == found
    for broken in ({}, {"version": 2}, [], None, as_json(found) | {"voters": 1}):
        with pytest.raises(ValueError, match=r"version|not an examination"):
            from_json(broken)


@pytest.mark.parametrize("at", [2, 20, 30, 62])
def test_damage_is_told_with_what_can_be_read_before_it(tmp_path: Path, at: int) -> None:
    directory = replica(tmp_path, 1)
    path = segment(directory)
    content = bytearray(path.read_bytes())
    batches = parse_batches(bytes(content))
    position = sum(len(batch.data) for batch in batches[:3])  # type: ignore[arg-type]
    content[position + at] ^= 1
    path.write_bytes(content)
    before = bytes_of(directory)
    found = examine(directory)
    assert bytes_of(directory) == before
    assert "is damaged" in found.damage
    assert found.end == OffsetAndEpoch(batches[3].base_offset, 1)
    assert found.voters == ALL


def test_a_broken_quorum_state_is_damage(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1)
    (partition_directory(directory) / "quorum-state").write_text("{")
    assert "does not know how it voted" in examine(directory).damage


# --- choosing -------------------------------------------------------------------------------------


def seen(node_id: int, offset: int, epoch: int, voters: VoterSet = ALL) -> Examination:
    return Examination(
        f"/{node_id}",
        CLUSTER,
        ReplicaKey(node_id, IDS[node_id]),
        end=OffsetAndEpoch(offset, epoch),
        voters=voters,
        kraft_version=1,
        epoch=epoch,
    )


def test_the_best_log_has_the_highest_epoch_then_the_greatest_length() -> None:
    found = [seen(1, 100, 4), seen(2, 20, 5), seen(3, 21, 5)]
    assert judge(found).best is found[2]
    assert judge(found).is_complete
    damaged = replace(found[2], damage="torn apart")
    assert judge([found[0], found[1], damaged]).best is found[1]
    verdict = judge([found[0]])
    assert verdict.missing == (found[1].key, found[2].key)
    assert not verdict.is_complete
    assert any("cannot be known" in line for line in verdict.lines)


def test_another_directory_of_a_voters_id_is_not_that_voter() -> None:
    other = replace(seen(2, 20, 5), key=ReplicaKey(2, IDS[5]))
    assert not judge([seen(1, 20, 5), other]).is_complete


def test_a_forced_epoch_is_far_above_everything_seen() -> None:
    assert forced_epoch([3, 9, 4]) == 9 + FORCED_EPOCH_MARGIN
    assert forced_epoch([3, 9], 1) == 10
    with pytest.raises(RecoveryError, match="no room"):
        forced_epoch([EPOCH_MAX - FORCED_EPOCH_MARGIN])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_way_to_one_voter_is_made_of_single_changes(size: int) -> None:
    old = VoterSet.of(voter(node_id, IDS[node_id]) for node_id in range(1, size + 1))
    for node_id in range(1, 6):
        survivor = voter(node_id, IDS[node_id])
        sets = [old, *single_changes(old, survivor)]
        assert sets[-1].is_only(survivor.key)
        for before, after in pairwise(sets):
            assert before.has_overlapping_majority(after)
            assert len({v.key for v in before} ^ {v.key for v in after}) == 1


def test_a_replaced_directory_of_the_survivors_node_is_removed_first() -> None:
    survivor = voter(1, IDS[5])
    sets = single_changes(ALL, survivor)
    assert sorted(v.key for v in sets[0]) == [v.key for v in ALL][1:]
    assert sets[-1].is_only(survivor.key)
    with pytest.raises(RecoveryError, match="the only voter"):
        single_changes(VoterSet((voter(1, IDS[1]),)), survivor)


def test_refusals_of_lost_majority() -> None:
    mine = seen(1, 20, 5)
    with pytest.raises(RecoveryError, match="better survivor"):
        plan_lost_majority(mine, [seen(2, 21, 5)])
    with pytest.raises(RecoveryError, match="not lost"):
        plan_lost_majority(mine, [seen(2, 19, 5)])
    with pytest.raises(RecoveryError, match=r"controller\.quorum\.voters"):
        plan_lost_majority(replace(mine, kraft_version=0, voters=VoterSet()))
    with pytest.raises(RecoveryError, match="already the only voter"):
        plan_lost_majority(replace(mine, voters=VoterSet((voter(1, IDS[1]),))))
    with pytest.raises(RecoveryError, match="cluster"):
        plan_lost_majority(mine, [replace(seen(2, 9, 5), cluster_id="other")])
    with pytest.raises(RecoveryError, match="cannot be the survivor"):
        plan_lost_majority(replace(mine, damage="bytes"))
    assert plan_lost_majority(mine, epochs=[77]).epoch == 77 + FORCED_EPOCH_MARGIN


# --- a lost majority ------------------------------------------------------------------------------


def test_the_survivors_log_goes_on_in_the_forced_epoch(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1)
    before = segment(directory).read_bytes()
    (partition_directory(directory) / "removed-voter").touch()
    with DirectoryLock(directory):
        done = recover_lost_majority(directory)
    after = segment(directory).read_bytes()
    assert after.startswith(before)
    (forced,) = parse_batches(after[len(before) :])
    assert (forced.base_offset, forced.epoch) == (11, done.epoch)
    assert [type(record) for record in forced.control] == [LeaderChange, VotersRecord, VotersRecord]
    found = examine(directory)
    assert found.voters.is_only(found.key)
    assert found.end == OffsetAndEpoch(14, done.epoch)
    assert (found.epoch, found.leader_id, found.voted) == (done.epoch, 1, found.key)
    assert not (partition_directory(directory) / "removed-voter").exists()
    assert done.backup is not None
    kept = done.backup / partition_directory(directory).name
    assert (kept / segment(directory).name).read_bytes() == before
    assert (kept / "removed-voter").exists()
    assert not (done.backup / ".lock").exists()
    assert done.report is not None
    report = json.loads(done.report.read_text())
    assert report["forcedOffset"] == 11
    assert report["before"]["lastEpoch"] == 2
    with pytest.raises(RecoveryError, match="already the only voter"):
        recover_lost_majority(directory)


def test_an_observer_can_be_the_survivor(tmp_path: Path) -> None:
    """It is made a voter before the others go; its address is added when its controller leads."""
    directory = replica(tmp_path, 4)
    done = recover_lost_majority(directory)
    assert [len(each) for each in done.voter_sets] == [4, 3, 2, 1]
    found = examine(directory)
    assert found.voters.is_only(ReplicaKey(4, IDS[4]))
    assert found.end == OffsetAndEpoch(16, done.epoch)


def test_the_lock_is_still_held_after_a_backup(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1)
    with DirectoryLock(directory):
        recover_lost_majority(directory)
        assert lock_holder(directory) is not None
    assert lock_holder(directory) is None


def test_a_second_has_as_many_backups_as_the_refusal_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_module, "timestamp", lambda: MOMENT)
    first = create_backup_folder(tmp_path)
    assert first.name == BACKUP_PREFIX + MOMENT
    for number in range(2, NAMES_MAX):
        (tmp_path / f"{first.name}-{number}").mkdir()
    assert create_backup_folder(tmp_path).name == f"{first.name}-{NAMES_MAX}"
    assert len(list(tmp_path.iterdir())) == NAMES_MAX
    with pytest.raises(RecoveryError, match=f"already has {NAMES_MAX} backups from this second"):
        create_backup_folder(tmp_path)


def test_cut_short_after_quorum_state_it_is_repeated(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1, election=ElectionState(1_000_002, 1, ReplicaKey(1, IDS[1])))
    assert recover_lost_majority(directory).epoch == 1_000_002 + FORCED_EPOCH_MARGIN


# --- staged ---------------------------------------------------------------------------------------


def test_a_plan_is_applied_once(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1)
    assert apply_staged(directory) == ""
    stage_lost_majority(directory, dry_run=True)
    assert not (directory / PLAN_FILE).exists()
    stage_lost_majority(directory, [replace(seen(2, 3, 1), epoch=50, damage="bytes")])
    staged = (directory / PLAN_FILE).read_bytes()
    assert parse_plan(staged).epochs == (50,)
    assert apply_staged(directory).startswith("applied the staged recovery")
    assert examine(directory).epoch == 50 + FORCED_EPOCH_MARGIN
    assert apply_staged(directory) == ""
    # The process died before the plan was deleted.
    (directory / PLAN_FILE).write_bytes(staged)
    before = segment(directory).read_bytes()
    assert "already" in apply_staged(directory)
    assert segment(directory).read_bytes() == before
    assert not (directory / PLAN_FILE).exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"directoryId": IDS[5]}, "is for directory"),
        ({"logEndOffset": 10}, "there was a leader meanwhile"),
        ({"lastEpoch": 1}, "there was a leader meanwhile"),
        ({"version": 9}, "of version 9"),
        ({"acceptDataLoss": False}, "does not accept"),
        ({"otherEpochs": None}, "not a plan"),
    ],
)
def test_a_plan_that_does_not_fit_is_set_aside(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    directory = replica(tmp_path, 1)
    stage_lost_majority(directory)
    path = directory / PLAN_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    before = bytes_of(partition_directory(directory))
    assert said in apply_staged(directory)
    assert bytes_of(partition_directory(directory)) == before
    assert not path.exists()
    assert len(list(directory.glob(PLAN_FILE + ".refused-*"))) == 1
    path.write_bytes(b"\xff{")
    assert "not a plan" in apply_staged(directory)


def test_a_plan_is_set_aside_when_the_backup_fails(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1)
    stage_lost_majority(directory)
    unreadable = directory / "notes"
    unreadable.symlink_to("/proc/self/mem")  # a read at offset 0 fails with EIO
    before = bytes_of(partition_directory(directory))
    assert apply_staged(directory).startswith("the staged recovery did not complete")
    assert bytes_of(partition_directory(directory)) == before
    assert len(list(directory.glob(PLAN_FILE + ".refused-*"))) == 1
    assert apply_staged(directory) == ""
    unreadable.unlink()
    stage_lost_majority(directory)
    assert apply_staged(directory).startswith("applied the staged recovery")


def test_a_plan_is_set_aside_when_the_report_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = replica(tmp_path, 1)
    stage_lost_majority(directory)
    monkeypatch.setattr(change_module, "timestamp", lambda: MOMENT)
    (directory / f"{REPORT_PREFIX}{MOMENT}.json.tmp").mkdir()
    assert apply_staged(directory).startswith("the staged recovery did not complete")
    found = examine(directory)
    assert found.is_sound
    assert found.voters.is_only(found.key), "the log was changed before the report failed"
    assert apply_staged(directory) == ""


def test_a_plan_that_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1)
    (directory / PLAN_FILE).mkdir()
    assert apply_staged(directory).startswith("the staged recovery did not complete")
    assert apply_staged(directory) == ""


# --- endpoints ------------------------------------------------------------------------------------


def test_endpoints_take_the_votes_of_the_directories_at_hand(tmp_path: Path) -> None:
    best = replica(tmp_path, 1)
    other = replica(tmp_path, 2, ((1, 3), (2, 2)))
    wanted = {1: [(None, "new-1", 1)], 2: [("CONTROLLER", "new-2", 2)]}
    with pytest.raises(RecoveryError, match="but 2 are needed"):
        correct_endpoints(best, [], [], wanted)
    with pytest.raises(RecoveryError, match="has the best log"):
        correct_endpoints(other, [best], [], wanted)
    log = segment(other).read_bytes()
    done = correct_endpoints(best, [other], [], wanted)
    assert done.epoch == 3
    assert (done.voted, done.promised) == ((ReplicaKey(2, IDS[2]),), (ReplicaKey(3, IDS[3]),))
    voted = examine(other)
    assert (voted.epoch, voted.leader_id, voted.voted) == (3, None, ReplicaKey(1, IDS[1]))
    assert segment(other).read_bytes() == log
    found = examine(best)
    hosts = {v.id: v.endpoints[0].host for v in found.voters}
    assert hosts == {1: "new-1", 2: "new-2", 3: "old-3"}
    assert {v.key for v in found.voters} == {v.key for v in ALL}
    assert len(done.backups) == 2


def test_endpoints_with_reports_force_the_epoch(tmp_path: Path) -> None:
    best = replica(tmp_path, 1)
    report = examine(replica(tmp_path, 2, ((1, 3), (2, 2))))
    done = correct_endpoints(best, [], [report], {3: [(None, "new-3", 3)]})
    assert done.epoch == 2 + FORCED_EPOCH_MARGIN
    assert done.voted == ()


def test_endpoints_need_reports_of_stopped_controllers(tmp_path: Path) -> None:
    one, two = (replica(tmp_path, node_id) for node_id in (1, 2))
    report = from_json(json.loads(json.dumps(as_json(examine_in_use(two)))))
    assert report.is_in_use
    moved = {1: [(None, "new-1", 9093)]}
    with pytest.raises(RecoveryError, match="ran when its directory was inspected"):
        correct_endpoints(one, [], [report], moved)
    assert correct_endpoints(one, [], [examine(two)], moved).new_voters != ALL


def test_a_directory_is_examined_while_its_log_grows(tmp_path: Path) -> None:
    """No batch that is being written, and no segment that was just created, is damage."""
    directory = replica(tmp_path, 1)
    log = MetadataLog.open(
        directory,
        LogConfig(preallocate_bytes=0, segment_bytes_max=1_000),
        on_durable=lambda _: None,
        on_failure=lambda _: None,
    )
    is_done = threading.Event()

    def write() -> None:
        while not is_done.is_set():
            batch = build_data_batch([(None, bytes(200))], 1)
            stamp(batch, log.end_offset, 2)
            log.append(1, [batch])
            is_done.wait(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        examined = [examine_in_use(directory) for _ in range(50)]
    finally:
        is_done.set()
        writer.join()
        log.close()
    assert all(found.is_sound for found in examined), [found.damage for found in examined]
    offsets = [found.end.offset for found in examined]
    assert offsets == sorted(offsets)
    assert offsets[0] < offsets[-1]


def test_endpoints_of_listeners_and_voters_that_are_not_there() -> None:
    with pytest.raises(RecoveryError, match="is not a voter"):
        with_endpoints(ALL, {9: [(None, "h", 1)]})
    with pytest.raises(RecoveryError, match="no listener OTHER"):
        with_endpoints(ALL, {1: [("OTHER", "h", 1)]})


# --- a damaged replica ----------------------------------------------------------------------------


def damage(directory: Path) -> None:
    path = segment(directory)
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)


def test_a_damaged_replica_gets_a_new_directory_id_and_keeps_the_evidence(tmp_path: Path) -> None:
    directory = replica(tmp_path, 2)
    with pytest.raises(RecoveryError, match="is sound"):
        become_new_replica(directory)
    damage(directory)
    evidence = segment(directory).read_bytes()
    done = become_new_replica(directory)
    assert done.backup is not None
    moved = done.backup / partition_directory(directory).name / segment(directory).name
    assert moved.read_bytes() == evidence
    assert MetaProperties.read(done.backup).directory_id == IDS[2]
    meta = MetaProperties.read(directory)
    assert (meta.cluster_id, meta.node_id) == (CLUSTER, 2)
    assert meta.directory_id not in (None, IDS[2])
    found = examine(directory)
    assert found.end == OffsetAndEpoch(0, 0)
    assert found.is_sound
    assert f"remove-controller -i 2 -d {IDS[2]}" in done.commands()[0]


def test_the_only_voter_is_not_emptied(tmp_path: Path) -> None:
    directory = replica(tmp_path, 1, voters=VoterSet((voter(1, IDS[1]),)))
    damage(directory)
    before = bytes_of(directory)
    with pytest.raises(RecoveryError, match="only voter"):
        become_new_replica(directory)
    assert bytes_of(directory) == before
