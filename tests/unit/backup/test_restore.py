"""Restores: what the new directory contains, to which offsets, and what is rejected before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from quorate.backup import restore as restore_module
from quorate.backup.archive import require_manifest
from quorate.backup.batches import RestorePoint, point_at_offset, point_at_time
from quorate.backup.errors import BackupError
from quorate.backup.restore import (
    INCOMPLETE_FILE,
    RestoredQuorum,
    RestoreTarget,
    restore_backup,
    voter_changes,
)
from quorate.backup.stores import LocalStore
from quorate.backup.verify import verified_point, verify_backup
from quorate.common.endpoints import Endpoint
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties, random_uuid
from quorate.log.metadata_log import partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.raft.batches import KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.types import ElectionState, ReplicaKey, Voter, VoterSet
from quorate.records.batch import Record, iter_batches, iter_records, parse_batches
from quorate.recovery.choice import FORCED_EPOCH_MARGIN
from quorate.recovery.examine import examine

from tests.integration.support import Ran, assert_error, here
from tests.unit.backup.backup_support import CLUSTER, OTHER, VOTERS, WrittenLog, back_up

ENDPOINT = Endpoint("CONTROLLER", "new", 9093)
PLACE = ("--node-id", 7, "--endpoint", "CONTROLLER://new:9093")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    """Control records 0-2; application 3-7 at 1000 ms; metadata 8-10 at 2000 ms; application 11-13
    at 3000 ms in epoch 4.
    """
    log = WrittenLog.begun(tmp_path / "log")
    log.application(5)
    log.metadata(3, time_ms=2000)
    log.application(3, epoch=4, time_ms=3000)
    yield log
    log.close()


@pytest.fixture
def target(log: WrittenLog, tmp_path: Path) -> Path:
    back_up(log, tmp_path / "archive", segment_bytes=100)
    return tmp_path / "archive"


def records_of(data: bytes) -> list[Record]:
    return [
        record for header, batch in iter_batches(data) for record in iter_records(batch, header)
    ]


def restored(archive: Path, directory: Path, end: int | None = None) -> RestoredQuorum:
    store = LocalStore(archive)
    manifest = require_manifest(store)
    point = RestorePoint(manifest.last_run, manifest.last_run.end)
    if end is not None:
        point = point_at_offset(store, manifest.runs, end)
    wanted = RestoreTarget(directory, 7, (ENDPOINT,), OTHER)
    return restore_backup(store, manifest, point, wanted)


def bytes_of(directory: Path) -> bytes:
    written = WrittenLog(directory)
    try:
        return written.read()
    finally:
        written.close()


def test_a_restored_log_is_the_old_one_and_a_new_voter_set(
    log: WrittenLog, target: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "new"
    done = restored(target, directory)
    data, old = bytes_of(directory), log.read()
    assert data[: len(old)] == old
    (added,) = parse_batches(data[len(old) :])
    key = ReplicaKey(7, done.directory_id)
    mine = Voter(key, (ENDPOINT,))
    epoch = 4 + FORCED_EPOCH_MARGIN
    assert (added.base_offset, added.epoch, done.epoch) == (14, epoch, epoch)
    assert added.control == (
        LeaderChange(7, (ReplicaKey(7, None),), (ReplicaKey(7, None),)),
        VotersRecord(VOTERS.adding(mine)),
        VotersRecord(VoterSet.of([mine])),
    )
    assert MetaProperties.read(directory) == MetaProperties(OTHER, 7, done.directory_id)
    state = QuorumStateFile(partition_directory(directory)).read()
    assert state == ElectionState(epoch, 7, key)
    found = examine(directory)
    assert found.is_sound
    assert found.voters.is_only(key)
    assert found.kraft_version == 1
    assert not (directory / INCOMPLETE_FILE).exists()
    assert done.old_voters == VOTERS
    assert (directory.stat().st_mode & 0o777) == 0o700


@pytest.mark.parametrize("end", [0, 1, 3, 4, 7, 8, 11, 12, 13, 14])
def test_a_restore_to_an_offset_is_exact(
    log: WrittenLog, target: Path, tmp_path: Path, end: int
) -> None:
    directory = tmp_path / "new"
    done = restored(target, directory, end)
    assert done.end == end
    data = bytes_of(directory)
    kept = [record for record in records_of(data) if record.offset is not None]
    assert kept[:end] == records_of(log.read())[:end]
    *_, added = parse_batches(data)
    assert (added.base_offset, added.end_offset) == (end, done.log_end)
    found = examine(directory)
    assert found.is_sound
    assert found.voters.is_only(ReplicaKey(7, done.directory_id))
    assert found.kraft_version == 1


@pytest.mark.parametrize("end", [9, 10])
def test_a_change_of_the_metadata_is_not_divided(target: Path, end: int) -> None:
    store = LocalStore(target)
    with pytest.raises(BackupError, match="one change of the metadata: restore to 8 or 11"):
        point_at_offset(store, require_manifest(store).runs, end)


def test_an_offset_beyond_the_backup(target: Path) -> None:
    store = LocalStore(target)
    with pytest.raises(BackupError, match=r"offset 15 is not in the backup: .* offsets 0 to 14"):
        point_at_offset(store, require_manifest(store).runs, 15)


@pytest.mark.parametrize(
    ("time_ms", "end"), [(999, 0), (1000, 8), (1999, 8), (2000, 11), (2999, 11), (3000, 14)]
)
def test_a_time_is_the_offset_of_the_first_later_record(
    target: Path, time_ms: int, end: int
) -> None:
    store = LocalStore(target)
    assert point_at_time(store, require_manifest(store).runs, time_ms).end == end


def test_a_clock_that_went_back_does_not_restore_later_records(tmp_path: Path) -> None:
    """Log order counts: records after the first later one are not restored."""
    log = WrittenLog.begun(tmp_path / "log")
    log.application(2, time_ms=5000)
    log.application(2, time_ms=1000)
    back_up(log, tmp_path / "archive")
    log.close()
    store = LocalStore(tmp_path / "archive")
    assert point_at_time(store, require_manifest(store).runs, 2000).end == 3


def test_runs_have_offsets_and_times_of_their_own(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    log = WrittenLog.begun(tmp_path / "log")
    back_up(log, archive)
    log.application(4)
    log.compact()
    log.application(2, time_ms=5000)
    back_up(log, archive)
    store = LocalStore(archive)
    runs = require_manifest(store).runs
    assert [point_at_offset(store, runs, end).run.start for end in (0, 3, 7, 9)] == [0, 0, 7, 7]
    with pytest.raises(BackupError, match="it can restore to offsets 0 to 3, 7 to 9"):
        point_at_offset(store, runs, 5)
    assert point_at_time(store, runs, 950) == RestorePoint(runs[1], 7)
    assert point_at_time(store, runs, 100) == RestorePoint(runs[0], 0)

    done = restored(archive, tmp_path / "new", 8)
    found = examine(tmp_path / "new")
    assert (done.start, found.start, found.is_sound) == (7, 7, True)
    assert found.voters.is_only(ReplicaKey(7, done.directory_id))
    assert records_of(bytes_of(tmp_path / "new"))[:1] == records_of(log.read())[:1]
    log.close()


def test_a_static_quorum_gets_a_voter_set(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "log")
    log.control(1, LeaderChange(1, (), ()))
    log.application(1)
    back_up(log, tmp_path / "archive")
    log.close()
    done = restored(tmp_path / "archive", tmp_path / "new")
    *_, added = parse_batches(bytes_of(tmp_path / "new"))
    mine = Voter(ReplicaKey(7, done.directory_id), (ENDPOINT,))
    assert added.control[1:] == (KRaftVersion(1), VotersRecord(VoterSet.of([mine])))


def _voter(node_id: int) -> Voter:
    return Voter(ReplicaKey(node_id, random_uuid()), (ENDPOINT,))


@pytest.mark.parametrize("old_ids", [(), (1,), (2,), (1, 2), (1, 2, 3), (2, 3, 4)])
def test_voters_change_one_by_one(old_ids: tuple[int, ...]) -> None:
    old, mine = VoterSet.of(map(_voter, old_ids)), _voter(1)
    sets = voter_changes(old, mine)
    assert sets[-1] == VoterSet.of([mine])
    chain = [old, *sets] if old_ids else sets
    for before, after in pairwise(chain):
        assert len(set(before) ^ set(after)) == 1
        assert before.has_overlapping_majority(after)


# --- directories ----------------------------------------------------------------------------------


def test_directories_that_are_in_use_or_not_empty_are_rejected(
    target: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "new"
    restored(target, directory)
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    with pytest.raises(BackupError, match=f"belongs to node 7 of cluster {OTHER}"):
        restored(target, directory)
    (directory / META_PROPERTIES_FILE).rename(tmp_path / "kept")
    with pytest.raises(BackupError, match="is not empty"):
        restored(target, directory)
    (tmp_path / "kept").rename(directory / META_PROPERTIES_FILE)
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")}.keys() == before.keys()
    (tmp_path / "file").touch()
    with pytest.raises(BackupError, match="is not a directory"):
        restored(target, tmp_path / "file")


def test_a_new_volume_is_empty(target: Path, tmp_path: Path) -> None:
    (tmp_path / "new" / "lost+found").mkdir(parents=True)
    restored(target, tmp_path / "new")
    assert examine(tmp_path / "new").is_sound


@pytest.mark.parametrize("step", ["_write_log", "_take_over", "MetaProperties"])
def test_an_interrupted_restore_begins_anew(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    directory = tmp_path / "new"
    whole: Callable[..., Any] = getattr(restore_module, step)

    def dies(*arguments: Any) -> None:
        if step != "MetaProperties":
            whole(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restore_module, step, dies)
        with pytest.raises(KeyboardInterrupt):
            restored(target, directory)
    assert (directory / INCOMPLETE_FILE).exists()
    ran = here("storage", "format", "-t", OTHER, "-c", _properties(tmp_path, directory), "-s")
    assert_error(ran, "holds a log")
    done = restored(target, directory)
    assert examine(directory).voters.is_only(ReplicaKey(7, done.directory_id))
    assert sorted(path.name for path in directory.iterdir()) == [
        ".lock",
        "__cluster_metadata-0",
        META_PROPERTIES_FILE,
        "recovery-point-offset-checkpoint",
    ]


def _properties(folder: Path, directory: Path) -> Path:
    path = folder / "7.properties"
    path.write_text(
        "process.roles=controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "listeners=CONTROLLER://localhost:9093\ncontroller.quorum.bootstrap.servers=localhost:9093"
        f"\nmetadata.log.dir={directory}\n"
    )
    return path


# --- the command ----------------------------------------------------------------------------------


def run(target: Path, directory: Path, *more: object) -> Ran:
    return here("restore", target, "--directory", directory, *PLACE, *more)


def _segment(target: Path, index: int) -> Path:
    return sorted((target / "log").iterdir())[index]


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def _swap(target: Path) -> None:
    first, second = _segment(target, 0), _segment(target, 1)
    spare = target / "spare"
    first.rename(spare)
    second.rename(first)
    spare.rename(second)


def _manifest(target: Path) -> Path:
    return max((target / "manifests").iterdir())


def _edit(target: Path) -> None:
    path = _manifest(target)
    path.write_text(path.read_text().replace('"lastEpoch": 4', '"lastEpoch": 3'))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of a record": (
        lambda target: _flip(_segment(target, 1), 80),
        "at byte 0, offset 3: the checksum of the batch is wrong",
    ),
    "a bit of an epoch": (
        lambda target: _flip(_segment(target, 1), 15),
        "the SHA-256 of the object is not that of the manifest",
    ),
    "a bit of an offset": (
        lambda target: _flip(_segment(target, 1), 7),
        "at byte 0, offset 3: a batch with offset 19 is there",
    ),
    "a missing segment": (lambda target: _segment(target, 1).unlink(), "the object is missing"),
    "a missing checkpoint": (
        lambda target: next((target / "snapshots").iterdir()).unlink(),
        "the object is missing",
    ),
    "a bit of a checkpoint": (
        lambda target: _flip(next((target / "snapshots").iterdir()), 70),
        "the checksum of the batch is wrong",
    ),
    "a truncated segment": (
        lambda target: _segment(target, 1).write_bytes(_segment(target, 1).read_bytes()[:-9]),
        "bytes are there",
    ),
    "an empty segment": (
        lambda target: _segment(target, 1).write_bytes(b""),
        "the object has 0 bytes, and the manifest says",
    ),
    "an edited manifest": (_edit, "its SHA-256 is wrong"),
    "a truncated manifest": (
        lambda target: _manifest(target).write_bytes(_manifest(target).read_bytes()[:-1]),
        "is not the manifest that a backup wrote",
    ),
    "swapped segments": (_swap, "is there"),
    "an older manifest's name": (
        lambda target: shutil.copy(_manifest(target), target / "manifests" / f"{99:020}.json"),
        "it is generation",
    ),
}


def two_runs(log: WrittenLog, target: Path) -> int:
    """Archive two runs with a gap between them. Returns the end of the first one."""
    back_up(log, target, segment_bytes=100)
    end = log.end
    log.application(2)
    log.compact()
    log.application(2)
    back_up(log, target)
    return end


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_is_rejected_before_anything_is_created(
    log: WrittenLog, tmp_path: Path, damage: str
) -> None:
    target = tmp_path / "archive"
    end = two_runs(log, target)
    change, text = DAMAGES[damage]
    change(target)
    directory = tmp_path / "new"
    wanted = () if "checkpoint" in damage else ("--to-offset", end)
    assert_error(run(target, directory, *wanted), text)
    assert not directory.exists()
    found = here("backup", "verify", target)
    assert found.status == 1
    assert text in found.out
    assert found.err == ""
    as_json = here("backup", "verify", target, "--json").json()
    lines = len(as_json["problems"]) + len(as_json["uncompared"])
    assert lines == len(found.out.splitlines())
    for problem in as_json["problems"]:
        assert problem.keys() == {"object", "position", "offset", "problem"}


def test_damage_that_the_restore_does_not_need_is_no_reason_to_refuse_it(
    log: WrittenLog, tmp_path: Path
) -> None:
    target = tmp_path / "archive"
    end = two_runs(log, target)
    _flip(_segment(target, 1), 80)
    ran = run(target, tmp_path / "newest")
    assert (ran.status, ran.err) == (0, "")
    ran = run(target, tmp_path / "refused", "--to-offset", end)
    assert_error(ran, "nothing was created", "--to-offset 3 does not need it")
    assert run(target, tmp_path / "before", "--to-offset", 3).status == 0
    _flip(next((target / "snapshots").iterdir()), 70)
    assert_error(run(target, tmp_path / "refused"), "the checksum of the batch is wrong")
    assert run(target, tmp_path / "again", "--to-offset", 3).status == 0
    _flip(_segment(target, 0), 80)
    ran = run(target, tmp_path / "refused", "--to-offset", end)
    assert_error(ran, "nothing was created")
    assert "--to-offset" not in ran.err, "a restore to offset 0 would be an empty quorum"


def test_the_progress_of_the_verification_includes_the_checkpoint(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    log.application(2)
    log.compact()
    back_up(log, tmp_path / "archive")
    log.close()
    store = LocalStore(tmp_path / "archive")
    runs = require_manifest(store).runs
    assert runs[-1].snapshot is not None
    seen: list[tuple[int, int]] = []
    point = RestorePoint(runs[-1], runs[-1].end)
    verified_point(store, runs, point, lambda read, total: seen.append((read, total)))
    size = sum(each.size for each in runs[-1].objects)
    assert seen[-1] == (size, size)


def test_every_problem_is_reported(target: Path) -> None:
    _flip(_segment(target, 0), 80)
    _segment(target, 2).unlink()
    problems = verify_backup(LocalStore(target)).problems
    assert [problem.offset for problem in problems] == [0, 8]


def test_the_command_restores_and_reports(target: Path, tmp_path: Path) -> None:
    directory = tmp_path / "new"
    planned = run(target, directory, "--to-offset", 5, "--dry-run", "--json").json()
    assert planned["endOffset"] == 5
    assert not planned["done"]
    assert not directory.exists()
    done = run(target, directory, "--to-offset", 5, "--json").json()
    meta = MetaProperties.read(directory)
    assert done == {
        "done": True,
        "directory": str(directory),
        "nodeId": 7,
        "directoryId": meta.directory_id,
        "clusterId": meta.cluster_id,
        "oldClusterId": CLUSTER,
        "startOffset": 0,
        "endOffset": 5,
        "logEndOffset": 8,
        "epoch": 4 + FORCED_EPOCH_MARGIN,
        "oldVoters": [f"1-{VOTERS.voters[0].key.directory_id}"],
    }
    assert meta.cluster_id not in (CLUSTER, OTHER)
    text = datetime.fromtimestamp(2, UTC).isoformat()
    ran = run(target, tmp_path / "time", "--to-time", text)
    assert (ran.status, ran.err) == (0, "")
    assert "Restored offsets 0 to 11" in ran.out


def test_the_old_cluster_id_needs_a_confirmation(target: Path, tmp_path: Path) -> None:
    directory = tmp_path / "new"
    ran = run(target, directory, "--cluster-id", CLUSTER)
    assert_error(ran, "is the id of the old cluster")
    (key,) = (str(voter.key) for voter in VOTERS)
    keep = ("--keep-cluster-id",)
    assert_error(run(target, directory, *keep), f"confirm it: --erased {key}")
    ran = run(target, directory, *keep, "--erased", "1")
    assert_error(ran, f"1 is not a voter of the backup: these are {key}")
    ran = run(target, directory, "--erased", key)
    assert_error(ran, "--erased needs --keep-cluster-id", status=2)
    assert not directory.exists()
    ran = run(target, directory, *keep, "--erased", key)
    assert ran.status == 0
    assert "if controllers of the old quorum start again" in ran.err
    assert MetaProperties.read(directory).cluster_id == CLUSTER


def test_bad_command_lines(target: Path, tmp_path: Path) -> None:
    directory = tmp_path / "new"
    both = ("--to-offset", 1, "--to-time", "2026-01-01")
    assert_error(run(target, directory, *both), "--to-time cannot be used together", status=2)
    assert_error(run(target, directory, "--to-time", "soon"), "expected a time", status=2)
    assert_error(run(target, directory, "-t", "a b"), "invalid cluster id")
    bad = ("--directory", directory, "--node-id", 7, "--endpoint", "localhost:9093")
    assert_error(here("restore", target, *bad), "no listener name", status=2)
    assert_error(here("restore", target, "--directory", directory), "--endpoint", status=2)
    assert_error(run(tmp_path / "nothing", directory), "contains no backup")
    assert_error(here("backup", "list", tmp_path / "nothing"), "contains no backup")
    assert_error(here("backup", "verify", tmp_path / "nothing"), "contains no backup")
    assert not directory.exists()
    assert not (tmp_path / "nothing").exists()


def test_a_backup_of_a_later_format_is_not_read(target: Path, tmp_path: Path) -> None:
    path = _manifest(target)
    fields = json.loads(path.read_text()) | {"version": 2}
    path.write_text(json.dumps(fields))
    ran = run(target, tmp_path / "new")
    assert_error(ran, "has format version 2: this release reads version 1")


def test_the_list_shows_runs(target: Path) -> None:
    ran = here("backup", "list", target)
    assert ran.status == 0
    assert f"Cluster {CLUSTER}, generation 3" in ran.out
    assert ran.out.splitlines()[2].split()[:3] == ["0", "14", "4"]
