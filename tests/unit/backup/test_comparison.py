"""Checkpoints of archives, compared with the archived log: right ones and planted wrong ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quorate.applications import ProducerSessions
from quorate.applications.loading import StateLoader, state_records
from quorate.backup import archiver, verify
from quorate.backup.archive import Archive, require_manifest
from quorate.backup.comparison import CheckpointDifference
from quorate.backup.manifest import ArchivedSnapshot
from quorate.backup.retention import DAY_MS, divide
from quorate.backup.stores import LocalStore
from quorate.backup.verify import BackupReport, verify_backup
from quorate.common.endpoints import Endpoint
from quorate.metadata.config.config_defs import CLEANUP_POLICY, COMPACT
from quorate.metadata.image.metadata_image import ReplayError
from quorate.metadata.metadata_version import APPLICATION_VERSION
from quorate.raft.batches import SnapshotHeader, VotersRecord
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.batch import (
    BatchProducer,
    build_control_batch,
    build_data_batch,
    decode_control_batch,
    iter_batches,
    keep_base_offset,
    read_header,
    snapshot_records,
    stamp,
)
from quorate.records.metadata import (
    ApplicationTag,
    ConfigRecord,
    FeatureLevelRecord,
    OpenedSession,
    application_record,
)
from quorate.records.primitives import Buffer
from quorate.runtime.metadata_batches import (
    build_metadata_batch,
    field_of,
    holds_metadata,
    metadata_records,
)

from tests.integration.support import here
from tests.unit.backup.backup_support import BROKER, DIRECTORY, Changed, WrittenLog, back_up

OTHERS = VoterSet.of([Voter(ReplicaKey(2, DIRECTORY), (Endpoint("CONTROLLER", "other", 9093),))])
LEVEL = FeatureLevelRecord(APPLICATION_VERSION, 1)
POLICY = ConfigRecord(BROKER, "", CLEANUP_POLICY, COMPACT)
TIME_MS = 1000
LATER_MS = 2 * DAY_MS
Fill = Callable[[WrittenLog], None]


def keyed(*pairs: tuple[bytes, bytes | None], time_ms: int = TIME_MS) -> bytearray:
    return build_data_batch(list(pairs), time_ms)


def metadata(log: WrittenLog) -> None:
    """Settings, some of which change."""
    log.metadata(3)
    log.metadata(2)


def applications(log: WrittenLog) -> None:
    """Records with and without a key."""
    log.application(2)
    log.batch(keyed((b"a", b"1"), (b"b", b"2"), (b"a", b"3")))
    log.metadata(1)
    log.batch(keyed((b"b", None)))


def sessions(log: WrittenLog) -> None:
    """A session with batches, from application.version 1 on; its records are compacted."""
    log.records(LEVEL)
    log.records(POLICY)
    opened = OpenedSession(60_000).to_bytes()
    producer_id = log.end
    log.records(application_record(ApplicationTag.PRODUCER_SESSION, opened))
    for number in range(3):
        producer = BatchProducer(producer_id, 0, number * 2)
        log.batch(
            build_data_batch([(b"a", b"%d" % number), (b"c", b"%d" % number)], TIME_MS, producer)
        )


def everything(log: WrittenLog) -> None:
    applications(log)
    sessions(log)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    log = WrittenLog.begun(tmp_path / "log")
    yield log
    log.close()


def read_checkpoint(log: WrittenLog, name: OffsetAndEpoch) -> bytes:
    with log.log.open_snapshot(name) as reader:
        return reader.read(0, reader.size)


def divided(log: WrittenLog, target: Path, name: OffsetAndEpoch) -> BackupReport:
    """Archive the log, and divide the run at the log's checkpoint, as if that were right."""
    back_up(log, target)
    put_checkpoint(LocalStore(target), name, read_checkpoint(log, name))
    return verify_backup(LocalStore(target))


def put_checkpoint(store: LocalStore, name: OffsetAndEpoch, data: bytes) -> None:
    """Divide the last run at a checkpoint with these bytes; the manifest has its checksum."""
    first = next(decode_control_batch(view, header)[0] for header, view in iter_batches(data))
    assert isinstance(first, SnapshotHeader)
    time_ms = first.last_contained_log_timestamp
    digest = hashlib.sha256(data).hexdigest()
    snapshot = ArchivedSnapshot(name.offset, name.epoch, time_ms, len(data), digest)
    store.put(snapshot.name, [data])
    manifest = require_manifest(store)
    tried = (divide(store, manifest.last_run, replace(snapshot, epoch=e)) for e in range(1, 5))
    before, after = next(halves for halves in tried if halves is not None)
    runs = (*manifest.runs[:-1], before, replace(after, snapshot=snapshot))
    Archive(store).publish(replace(manifest, runs=runs))


# --- right checkpoints ----------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [metadata, applications, sessions, everything])
def test_right_checkpoints_are_found_right(log: WrittenLog, tmp_path: Path, fill: Fill) -> None:
    target = tmp_path / "archive"
    for _ in range(3):
        fill(log)
        name = log.checkpoint()
        fill(log)
        report = divided(log, target, name)
        assert report.problems == ()
        assert report.uncompared == ()
    assert len(require_manifest(LocalStore(target)).runs) == 4


def test_runs_that_retention_divided_are_right(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    for number in range(1, 4):
        everything(log)
        log.application(1, time_ms=number * LATER_MS)
        back_up(log, target)
        log.checkpoint(number * LATER_MS)
        everything(log)
        log.clean()
        back_up(log, target, keep_ms=1 << 60)
        report = verify_backup(LocalStore(target))
        assert report.problems == ()
        assert report.uncompared == ()
        assert len(require_manifest(LocalStore(target)).runs) == number + 1


def test_what_cannot_be_compared_is_reported(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    everything(log)
    first = log.compact()
    back_up(log, target)
    log.application(2)
    log.metadata(2)
    second = log.compact()
    back_up(log, target)
    report = verify_backup(LocalStore(target))
    assert report.problems == ()
    reasons = {each.offset: each.reason for each in report.uncompared}
    assert reasons == {
        first.offset: "the archive has no log before it",
        second.offset: "the archive does not have all of the log before it",
    }
    ran = here("backup", "verify", target)
    assert ran.status == 0
    assert "was not compared with the log: the archive has no log before it" in ran.out
    found = here("backup", "verify", target, "--json").json()
    assert [each["offset"] for each in found["uncompared"]] == sorted(reasons)
    (run, _) = require_manifest(LocalStore(target)).runs
    assert run.snapshot is not None
    assert found["uncompared"][0]["object"] == run.snapshot.name


# --- wrong checkpoints ----------------------------------------------------------------------------


def of_metadata(change: Callable[[list[ConfigRecord]], list[ConfigRecord]]) -> Changed:
    """Replace the settings in the only batch of metadata."""

    def changed(batches: list[Buffer]) -> Iterator[Buffer]:
        for batch in batches:
            header = read_header(batch)
            if field_of(batch) is None and holds_metadata(batch, header):
                yield build_metadata_batch(change(settings(batch)), header.max_timestamp)
            else:
                yield batch

    return changed


def settings(batch: Buffer) -> list[ConfigRecord]:
    _, records = metadata_records(memoryview(batch), read_header(batch))
    return [record for record in records if isinstance(record, ConfigRecord)]


def of_applications(change: Callable[[bytes, bytes], tuple[bytes, bytes] | None]) -> Changed:
    """Replace the records of applications: each is a batch of its own then."""

    def changed(batches: list[Buffer]) -> Iterator[Buffer]:
        for batch in batches:
            header = read_header(batch)
            if holds_metadata(batch, header):
                yield batch
                continue
            for record in snapshot_records(memoryview(batch), header):
                pair = change(record.key or b"", record.value or b"")
                if pair is not None:
                    assert record.offset is not None
                    value = None if record.value is None else pair[1]
                    one = build_data_batch([(pair[0], value)], record.timestamp)
                    keep_base_offset(one, record.offset)
                    yield one

    return changed


EXTRA = ConfigRecord(BROKER, "", "setting.9", "forged")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (of_metadata(lambda found: found[1:]), 'setting.0 is missing, but {"resourceType":4'),
        (of_metadata(lambda found: [*found, EXTRA]), "setting.9 is {"),
        (
            of_metadata(lambda found: [replace(found[0], value="3"), *found[1:]]),
            '"value":"3"}, but {"resourceType":4,"resourceName":"","name":"setting.0","value":"6"}',
        ),
    ],
)
def test_wrong_metadata_is_found(
    log: WrittenLog, tmp_path: Path, changed: Changed, text: str
) -> None:
    metadata(log)
    name = log.checkpoint(changed=changed)
    log.metadata(1)
    (problem,) = divided(log, tmp_path / "archive", name).problems
    assert (problem.offset, problem.position) == (name.offset, 0)
    assert problem.object.startswith(f"snapshots/{name.offset:020d}-")
    assert text in problem.text
    ran = here("backup", "verify", tmp_path / "archive")
    assert (ran.status, ran.out) == (1, f"{problem}\n")
    (found,) = here("backup", "verify", tmp_path / "archive", "--json").json()["problems"]
    assert (found["object"], found["offset"]) == (problem.object, name.offset)
    # A restore does not begin with it, but with the log.
    endpoint = ("--node-id", 1, "--endpoint", "CONTROLLER://localhost:9093")
    ran = here("restore", tmp_path / "archive", "--directory", tmp_path / "new", *endpoint)
    assert ran.status == 0
    assert ran.out.startswith("Restored offsets 0 to ")
    assert f"{problem}; the restore uses the log before this checkpoint" in ran.err


@pytest.mark.parametrize(
    ("changed", "text", "offset"),
    [
        (of_applications(lambda k, v: (k, v) if v != b"value-4" else None), "are missing: 1", 4),
        (of_applications(lambda k, v: (k, b"forged" if v == b"1" else v)), "differ: 1", 5),
        (of_applications(lambda k, v: (b"z" if v == b"2" else k, v)), "differ: 1", 6),
        (
            lambda batches: [*batches, kept(keyed((b"z", b"forged")), 8)],
            "are superfluous: 1, from offset 8",
            8,
        ),
    ],
)
def test_wrong_records_of_applications_are_found(
    log: WrittenLog, tmp_path: Path, changed: Changed, text: str, offset: int
) -> None:
    applications(log)
    name = log.checkpoint(changed=changed)
    log.application(1)
    (problem,) = divided(log, tmp_path / "archive", name).problems
    assert f"application records {text}" in problem.text
    assert problem.offset == offset
    assert (problem.position > 0) == ("missing" not in text)


def kept(batch: bytearray, offset: int) -> bytearray:
    keep_base_offset(batch, offset)
    return batch


def of_sessions(batches: list[Buffer]) -> Iterator[Buffer]:
    """Forget the sessions' last batches."""
    loader = StateLoader()
    for batch in batches:
        if (found := field_of(batch)) is not None:
            loader.add_field(*found)
    state = loader.finish()
    wrong = ProducerSessions(state.time_ms)
    for producer_id, session in state.sessions.items():
        wrong.open(producer_id, session.expiration_ms)
    state.sessions = wrong
    is_written = False
    for batch in batches:
        if field_of(batch) is None:
            yield batch
        elif not is_written:
            is_written = True
            for record in state_records(state):
                yield build_metadata_batch([record], TIME_MS)


def test_a_wrong_producer_session_is_found(log: WrittenLog, tmp_path: Path) -> None:
    sessions(log)
    name = log.checkpoint(changed=of_sessions)
    log.application(1)
    (problem,) = divided(log, tmp_path / "archive", name).problems
    assert problem.text.startswith("producer session 5 is ProducerSession(")
    assert "end=0" in problem.text.partition(", but ")[0]
    assert "end=6" in problem.text.partition(", but ")[2]


def test_wrong_voters_are_found(log: WrittenLog, tmp_path: Path) -> None:
    metadata(log)
    name = log.checkpoint()
    data = bytearray()
    for header, view in iter_batches(read_checkpoint(log, name)):
        batch = bytearray(view)
        records = decode_control_batch(view, header) if header.is_control else ()
        if any(isinstance(record, VotersRecord) for record in records):
            found = [VotersRecord(OTHERS) if isinstance(r, VotersRecord) else r for r in records]
            batch = build_control_batch(found, header.max_timestamp)
            stamp(batch, header.base_offset, header.epoch)
        data += batch
    back_up(log, tmp_path / "archive")
    put_checkpoint(LocalStore(tmp_path / "archive"), name, bytes(data))
    (problem,) = verify_backup(LocalStore(tmp_path / "archive")).problems
    assert problem.text.startswith(f"voters 1-{DIRECTORY} is missing, but ")
    assert "voters 2-" in problem.text


def test_a_wrong_epoch_and_a_wrong_offset_in_the_name_are_found(
    log: WrittenLog, tmp_path: Path
) -> None:
    metadata(log)
    name = log.checkpoint()
    data = read_checkpoint(log, name)
    log.metadata(3, epoch=3)
    for target, wrong, text in (
        ("epoch", OffsetAndEpoch(name.offset, 2), "its epoch is 2, that of the record before it 1"),
        ("offset", OffsetAndEpoch(log.end, 3), "configs 4//setting.0 is "),
    ):
        store = LocalStore(tmp_path / target)
        back_up(log, tmp_path / target)
        put_checkpoint(store, wrong, data)
        (problem,) = verify_backup(store).problems
        assert problem.offset == wrong.offset
        assert problem.text.startswith(text)


def test_after_a_wrong_checkpoint_the_next_is_compared_with_the_whole_log(
    log: WrittenLog, tmp_path: Path
) -> None:
    target = tmp_path / "archive"
    everything(log)
    first = log.checkpoint()
    everything(log)
    second = log.checkpoint()
    everything(log)
    right = read_checkpoint(log, second)
    wrong = b"".join(
        bytes(view)
        for header, view in iter_batches(read_checkpoint(log, first))
        if header.is_control or not holds_metadata(view, header) or field_of(view) is not None
    )
    back_up(log, target)
    put_checkpoint(LocalStore(target), first, wrong)
    put_checkpoint(LocalStore(target), second, right)
    report = verify_backup(LocalStore(target))
    assert {problem.offset for problem in report.problems} == {first.offset}
    assert report.uncompared == ()


def test_a_checkpoint_after_a_damaged_log_is_not_compared(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    metadata(log)
    name = log.checkpoint()
    log.metadata(1)
    divided(log, target, name)
    segment = require_manifest(LocalStore(target)).runs[0].segments[0].name
    path = target / segment
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = verify_backup(LocalStore(target))
    assert {problem.object for problem in report.problems} == {segment}
    assert [each.reason for each in report.uncompared] == ["the archived log before it is damaged"]


def test_a_fault_of_the_comparison_stops_neither_backups_nor_restores(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "archive"
    metadata(log)
    name = log.checkpoint()
    log.metadata(1, time_ms=LATER_MS)
    divided(log, target, name)

    def fails(*_: object) -> list[CheckpointDifference]:
        raise ReplayError(7, "a record of a later\nrelease")

    for module in (archiver, verify):
        monkeypatch.setattr(module, "checkpoint_differences", fails)
    report = verify_backup(LocalStore(target))
    assert report.problems == ()
    (found,) = report.uncompared
    assert found.reason.startswith("the comparison failed: ReplayError: the metadata record at")
    assert "a record of a later release" in found.reason
    place = ("--node-id", 1, "--endpoint", "CONTROLLER://localhost:9093")
    ran = here("restore", target, "--directory", tmp_path / "new", *place)
    assert (ran.status, ran.err) == (0, "")
    warnings: list[str] = []
    other = tmp_path / "other"
    back_up(log, other)
    log.clean()
    back_up(log, other, keep_ms=1, warn=warnings.append)
    (warning,) = warnings
    assert "so that log is kept: ReplayError: the metadata record at offset 7" in warning
    (run,) = require_manifest(LocalStore(other)).runs
    assert (run.start, run.end) == (0, log.end)
