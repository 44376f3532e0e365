"""A node's state of applications: maintained from a real log, and begun and ended by the level."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from quorate.applications import NO_OFFSET, ApplicationState, digest_of
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.metadata import requests as r
from quorate.metadata.metadata_version import APPLICATION_VERSION, LATEST_LEVEL
from quorate.raft.types import OffsetAndEpoch
from quorate.records import metadata as rec
from quorate.records.batch import build_data_batch, keep_base_offset
from quorate.runtime.application_service import ApplicationService
from quorate.runtime.metadata_batches import build_metadata_batch
from quorate.runtime.metadata_files import read_directory
from quorate.runtime.pending_appends import CommitOutcome
from quorate.runtime.replay import KEYS_MAX

from tests.unit.runtime import replicas
from tests.unit.runtime.test_runtime_metadata_loader import Log, following
from tests.unit.runtime.test_runtime_metadata_service import Replica, leading

Pairs = list[tuple[bytes | None, bytes | None]]

METADATA_LEVEL = rec.FeatureLevelRecord(METADATA_VERSION, LATEST_LEVEL)
ON = rec.FeatureLevelRecord(APPLICATION_VERSION, 1)
OFF = rec.FeatureLevelRecord(APPLICATION_VERSION, 0)


def write(log: Log, pairs: Pairs, time_ms: int = 1_000) -> int:
    """Returns the offset of the first record."""
    return log.append(build_data_batch(pairs, time_ms)) - len(pairs)


def offset_of(state: ApplicationState | None, key: bytes) -> int:
    assert state is not None
    return state.index.get(digest_of(key))


async def state_at_end(log: Log) -> ApplicationState | None:
    """Of a node that starts with this log, which is closed then."""
    async with following(log) as followed:
        await followed.reach(log.log.end_offset)
        assert followed.failures == []
        return followed.loader.applications


async def test_without_the_level_there_is_no_state(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL)
    write(log, [(b"a", b"1")])
    assert await state_at_end(log) is None


async def test_the_state_begins_with_everything_before_the_level(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL)
    first = write(log, [(b"a", b"1"), (b"b", b"2")], 9_000)
    write(log, [(b"b", None)])
    async with following(log) as followed:
        await followed.reach(log.log.end_offset)
        assert followed.loader.applications is None
        log.append(build_metadata_batch([ON], 2_000))
        await followed.reach(log.log.end_offset)
        state = followed.loader.applications
        assert state is not None
        assert (offset_of(state, b"a"), offset_of(state, b"b")) == (first, NO_OFFSET)
        assert state.last_offset == first + 2
        assert state.time_ms == 2_000, "earlier timestamps do not count"
        later = write(log, [(b"b", b"3")], 1_500)
        await followed.reach(log.log.end_offset)
        assert offset_of(followed.loader.applications, b"b") == later
        assert state.time_ms == 2_000


async def test_one_read_may_contain_all_of_it(tmp_path: Path) -> None:
    """A node that starts late derives the state that the others have."""
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL)
    write(log, [(b"a", b"1")], 9_000)
    log.metadata(ON)
    log.metadata(OFF)
    write(log, [(b"b", b"1")], 9_000)
    log.append(build_metadata_batch([ON], 2_000))
    last = write(log, [(b"c", b"1"), (b"", b"2")], 3_000)
    state = await state_at_end(log)
    assert state is not None
    assert [offset_of(state, key) for key in (b"a", b"b", b"c")] == [1, 4, last]
    assert (state.last_offset, state.time_ms) == (last + 1, 3_000)


@pytest.mark.parametrize("is_before_level", [True, False])
async def test_a_session_of_any_content_opens_none(tmp_path: Path, is_before_level: bool) -> None:
    """A client could append such a record while an earlier release led."""
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL)
    forged = rec.application_record(rec.ApplicationTag.PRODUCER_SESSION, b"not a session")
    log.metadata(*((forged, ON) if is_before_level else (ON, forged)))
    offset = write(log, [(b"a", b"1")])
    log.metadata(forged)
    state = await state_at_end(log)
    assert offset_of(state, b"a") == offset
    assert state is not None
    assert len(state.sessions) == 0


async def test_level_0_ends_the_state(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL, ON)
    write(log, [(b"a", b"1")])
    log.metadata(OFF)
    write(log, [(b"a", b"2")])
    assert await state_at_end(log) is None


async def test_a_level_within_a_transaction_counts_at_its_end(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL)
    log.metadata(rec.BeginTransactionRecord("t"))
    log.metadata(ON)
    async with following(log) as followed:
        await followed.reach(log.log.end_offset)
        assert followed.loader.applications is None
        offset = write(log, [(b"a", b"1")])
        log.metadata(rec.EndTransactionRecord())
        await followed.reach(log.log.end_offset)
        assert offset_of(followed.loader.applications, b"a") == offset
        assert followed.failures == []


async def test_a_level_after_a_transaction_that_is_aborted(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL)
    offset = write(log, [(b"a", b"1")])
    log.metadata(rec.BeginTransactionRecord("t"))
    async with following(log) as followed:
        await followed.reach(log.log.end_offset)
        log.metadata(rec.AbortTransactionRecord("no"))
        log.metadata(ON)
        await followed.reach(log.log.end_offset)
        assert offset_of(followed.loader.applications, b"a") == offset
        assert followed.failures == []


async def test_large_batches_change_the_same_state(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL, ON)
    write(log, [(b"a", b"1")])
    many = [(str(number).encode(), b"") for number in range(KEYS_MAX + 5)]
    base = write(log, many)  # type: ignore[arg-type]
    log.append(build_data_batch([(b"a", b"2"), *many[:3]], 5_000))
    async with following(log) as followed:
        await followed.reach(base)
        before = followed.loader.applications
        assert before is not None
        assert len(before.index) == 1
        await followed.reach(log.log.end_offset)
        state = followed.loader.applications
        assert offset_of(state, b"17") == base + 17
        assert offset_of(state, b"a") == base + len(many)
        assert offset_of(state, b"2") == base + len(many) + 3
        assert len(before.index) == 1, "a worker thread changed a copy"


# --- snapshots --------------------------------------------------------------------------------


async def test_a_written_snapshot_has_the_state(tmp_path: Path) -> None:
    async with replicas.alone(tmp_path / "one") as replica:
        await append_metadata(replica, METADATA_LEVEL, ON)
        await append(replica, [(b"a", b"1"), (b"b", b"1")])
        await append(replica, [(b"a", None), (b"", b"2")])
        await replica.loader.reached(replica.node.high_watermark)
        state = replica.loader.applications
        assert state is not None
        snapshot = await replica.snapshotter.write()
        assert snapshot is not None
        expected = state.copy()
        records = tagged_records(replica, snapshot)
        assert [tag for tag, _ in records] == [rec.ApplicationTag.APPLICATION_STATE]
        other = type(replica.loader)(replica.log, on_fatal=replica.failures.append)
        other.start()
        await asyncio.wait_for(other.reached(snapshot.offset), 20)
        assert other.applications == expected
        await other.stop()
        # At level 0, snapshots have the form of earlier releases again.
        await append_metadata(replica, OFF)
        await append(replica, [(b"a", b"2")])
        snapshot = await replica.snapshotter.write()
        assert snapshot is not None
        assert tagged_records(replica, snapshot) == []
    image = read_directory(tmp_path / "one")
    assert image.features.application_version == 0


async def append(replica: replicas.Replica, pairs: Pairs) -> int:
    ended = await replica.driver.append(len(pairs), build_data_batch(pairs, 1_000), 20_000)
    assert not isinstance(ended, ErrorCode)
    assert ended[1] is CommitOutcome.COMMITTED
    return ended[0]


async def append_metadata(replica: replicas.Replica, *records: rec.MetadataRecord) -> None:
    batch = build_metadata_batch(records, 1_000)
    await replica.driver.append(len(records), batch, 20_000)


def tagged_records(
    replica: replicas.Replica, snapshot: OffsetAndEpoch
) -> list[tuple[rec.ApplicationTag, bytes]]:
    from quorate.records.batch import read_header
    from quorate.runtime.metadata_batches import metadata_records

    found = []
    for batch in replica.log.iter_snapshot_batches(snapshot):
        assert isinstance(batch.data, bytes | memoryview)
        view = memoryview(batch.data)
        _, records = metadata_records(view, read_header(view))
        found += [tagged for each in records if (tagged := rec.application_field(each))]
    return found


async def test_a_snapshot_without_the_state_is_read_when_a_level_is_finalized(
    tmp_path: Path,
) -> None:
    """It was written at level 0; one of its batches does not say its offset."""
    log = Log(tmp_path)
    log.metadata(METADATA_LEVEL)
    write(log, [(b"a", b"1"), (b"b", b"1")])
    known = build_data_batch([(b"a", b"1"), (b"b", b"1")], 1_000)
    keep_base_offset(known, 1)
    log.snapshot(
        [
            build_metadata_batch([METADATA_LEVEL], 1_000),
            build_data_batch([(b"old", b"0")], 1_000),
            known,
        ]
    )
    after = write(log, [(b"b", b"2")])
    log.metadata(ON)
    state = await state_at_end(log)
    assert [offset_of(state, key) for key in (b"a", b"b", b"old")] == [1, after, -2]


# --- the leader -------------------------------------------------------------------------------


async def test_the_working_state_follows_leadership_and_level(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        service = ApplicationService(replica.driver, replica.loader, replica.service)
        await replica.until_active()
        replica.driver.resign("so that the service acquires the leadership")
        await until_leading(replica)
        assert service.working is None
        await finalize(replica, 1)
        working = service.working
        assert working is not None
        assert working.usable_from <= replica.loader.offset
        replica.disk.go.clear()
        appending = asyncio.create_task(
            replica.driver.append(1, build_data_batch([(b"a", b"1")], 1_000), 20_000)
        )
        await asyncio.sleep(0.05)
        state = replica.loader.applications
        assert state is not None
        offset = replica.log.end_offset - 1
        assert offset_of(state, b"a") == NO_OFFSET
        assert working.offset_of(digest_of(b"a"), state) == working.last_offset(state) == offset
        replica.disk.go.set()
        await appending
        await finalize(replica, 0)
        assert service.working is None
        await finalize(replica, 1)
        assert service.working is not working
        replica.driver.resign("a test")
        assert service.working is None
        assert replica.driver.on_append is None
        await until_leading(replica)
        again = service.working
        assert again is not None
        state = replica.loader.applications
        assert state is not None
        assert again.usable_from > offset
        await replica.loader.reached(again.usable_from)
        assert again.offset_of(digest_of(b"a"), state) == offset


async def until_leading(replica: Replica) -> None:
    async with asyncio.timeout(20):
        while not replica.service.is_active:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def finalize(replica: Replica, level: int) -> None:
    kind = 1 if level else 2
    update = r.FeatureUpdate(APPLICATION_VERSION, level, kind)
    response = await replica.done(r.UpdateFeatures((update,)))
    assert response.error is ErrorCode.NONE, response.message
