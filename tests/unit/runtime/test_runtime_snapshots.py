"""The snapshotter: when it writes, what, and that no failure of one attempt ends it."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from quorate.log.config import LogConfig
from quorate.log.errors import LogError, LogFailedError
from quorate.raft.types import OffsetAndEpoch
from quorate.records import metadata as rec
from quorate.records.batch import iter_records, read_header
from quorate.runtime.metadata_batches import build_metadata_batch
from quorate.runtime.pending_appends import CommitOutcome
from quorate.runtime.snapshot_policy import SnapshotPolicy

from tests.unit.runtime.replicas import HeldDisk, Replica, alone, until

NEVER = SnapshotPolicy(interval_bytes=1 << 40, interval_ms=1 << 40, check_period_ms=20)
QUICK = SnapshotPolicy(interval_bytes=1_000, interval_ms=1 << 40, check_period_ms=20)
SMALL = LogConfig(segment_bytes_max=1_000, retention_bytes=1, preallocate_bytes=0)


def written(replica: Replica) -> list[OffsetAndEpoch]:
    return [each for each in replica.log.snapshots() if each.offset > 0]


def values(replica: Replica, snapshot: OffsetAndEpoch) -> list[bytes | None]:
    found = []
    for batch in replica.log.iter_snapshot_batches(snapshot):
        assert isinstance(batch.data, bytes | memoryview)
        view = memoryview(batch.data)
        found += [bytes(r.value or b"") for r in iter_records(view, read_header(view))]
    return found  # type: ignore[return-value]


async def test_a_snapshot_holds_what_was_committed_before_it(tmp_path: Path) -> None:
    async with alone(tmp_path, policy=NEVER) as replica:
        for size in (10, 20, 30):
            await replica.commit(size)
        first = await replica.snapshotter.write()
        assert first is not None
        assert first.offset == replica.node.high_watermark
        assert [len(each or b"") for each in values(replica, first)] == [10, 20, 30]
        assert await replica.snapshotter.write() is None, "nothing is new"
        await replica.commit(40)
        second = await replica.snapshotter.write()
        assert second is not None
        assert [len(each or b"") for each in values(replica, second)] == [10, 20, 30, 40]
        assert replica.node.core.log.snapshot == second


async def test_one_is_due_after_enough_new_bytes_and_an_interval_of_0_is_none(
    tmp_path: Path,
) -> None:
    policy = SnapshotPolicy(interval_bytes=4_000, interval_ms=0, check_period_ms=10)
    async with alone(tmp_path, policy=policy) as replica:
        replica.snapshotter.start()
        await replica.commit(2_000)
        await asyncio.sleep(0.3)
        assert written(replica) == []
        await replica.commit(2_500)
        await until("a snapshot", lambda: written(replica))


async def test_the_next_one_waits_until_the_log_grew_by_the_size_of_the_last(
    tmp_path: Path,
) -> None:
    policy = SnapshotPolicy(interval_bytes=100, interval_ms=1 << 40, check_period_ms=10)
    async with alone(tmp_path, policy=policy) as replica:
        await replica.commit(20_000)
        assert await replica.snapshotter.write() is not None
        replica.snapshotter.start()
        await replica.commit(5_000)
        await asyncio.sleep(0.3)
        assert len(written(replica)) == 1
        await replica.commit(20_000)
        await until("a second snapshot", lambda: len(written(replica)) == 2)


async def test_one_is_due_after_enough_time(tmp_path: Path) -> None:
    policy = SnapshotPolicy(interval_bytes=1 << 40, interval_ms=200, check_period_ms=10)
    async with alone(tmp_path, policy=policy) as replica:
        await replica.commit(10)
        replica.snapshotter.start()
        await until("a snapshot", lambda: written(replica))


async def test_nothing_is_written_of_what_this_disk_does_not_hold(tmp_path: Path) -> None:
    """On a follower the high watermark may be ahead of its own sync."""
    async with alone(tmp_path, policy=NEVER) as replica:
        await replica.commit()
        replica.disk.go.clear()
        appending = asyncio.create_task(replica.append())
        await until("it is appended", lambda: replica.driver.pending_appends.pending_bytes > 0)
        end = replica.node.core.log.end_offset
        replica.loader._offset = end  # as if a majority elsewhere had committed it
        assert await replica.snapshotter.write() is None
        replica.disk.go.set()
        await appending


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
async def test_an_attempt_that_fails_is_logged_and_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    failed = []

    def fail(found: str, name: str) -> None:
        if found == operation and "checkpoint" in name and "epoch" not in name and len(failed) < 2:
            failed.append(name)
            raise OSError(errno.EROFS, "Read-only file system")

    async with alone(tmp_path, policy=QUICK) as replica:
        await replica.commit(2_000)
        replica.disk.fail = fail
        replica.snapshotter.start()
        await until(
            "a snapshot",
            lambda: (
                replica.node.core.log.snapshot is not None
                and replica.node.core.log.snapshot.offset > 0
            ),
        )
        assert len(failed) == 2
        assert not replica.failures
    lines = [r for r in caplog.records if "writing a snapshot" in r.getMessage()]
    assert [line.levelno for line in lines] == [logging.ERROR] * 2
    pauses = [float(r.getMessage().rsplit(" ", 2)[1]) for r in lines]
    assert pauses[0] < pauses[1] or pauses == [0.0, 0.1], "later each time"
    assert all(r.exc_info is None for r in lines)


async def test_a_cleaning_that_fails_is_repeated_and_the_node_knows_the_start(
    tmp_path: Path,
) -> None:
    failed = []

    def fail(operation: str, name: str) -> None:
        if operation == "unlink" and name.endswith(".log") and not failed:
            failed.append(name)
            raise OSError(errno.EROFS, "Read-only file system")

    async with alone(tmp_path, policy=QUICK, log_config=SMALL) as replica:
        for _ in range(5):
            await replica.commit(900)
        replica.disk.fail = fail
        replica.snapshotter.start()
        await until("cleaning failed", lambda: failed)
        await until("it was repeated", lambda: not replica.snapshotter._must_clean)
        assert replica.node.core.log.start == replica.log.start
        assert replica.log.start_offset > 0
        await replica.commit()
        assert not replica.failures


async def test_the_node_knows_where_a_cleaned_log_starts(tmp_path: Path) -> None:
    async with alone(tmp_path, policy=NEVER, log_config=SMALL) as replica:
        for _ in range(5):
            await replica.commit(900)
        snapshot = await replica.snapshotter.write()
        assert replica.log.start == snapshot
        assert replica.node.core.log.start == snapshot


async def test_files_are_deleted_beside_the_event_loop_and_before_the_end(tmp_path: Path) -> None:
    """To delete gigabytes takes a file system a second and more."""
    may_delete, deleting = threading.Event(), threading.Event()

    def wait(operation: str, name: str) -> None:
        if operation == "unlink" and name.endswith(".log"):
            deleting.set()
            assert may_delete.wait(30)

    async with alone(tmp_path, policy=QUICK, log_config=SMALL) as replica:
        for _ in range(5):
            await replica.commit(900)
        replica.disk.fail = wait
        replica.snapshotter.start()
        await until("files are deleted", deleting.is_set)
        assert replica.node.core.log.start.offset > 0, "the node knows before"
        await replica.commit()
        stopped = asyncio.create_task(replica.snapshotter.stop())
        await asyncio.sleep(0.05)
        assert not stopped.done(), "the log is closed next"
        may_delete.set()
        await stopped
        assert not list(replica.log.directory.glob("00000000000000000000.log"))


async def test_what_is_no_failure_of_an_attempt_stops_the_replica(tmp_path: Path) -> None:
    async with alone(tmp_path, policy=QUICK) as replica:

        def broken(_now_ms: int) -> OffsetAndEpoch:
            raise KeyError("a field")

        replica.log.advance_start = broken  # type: ignore[method-assign]
        await replica.commit(2_000)
        replica.snapshotter.start()
        await until("it stopped", lambda: replica.failures)
        assert "the task snapshotter failed: KeyError: 'a field'" in str(replica.failures[0])
        assert len(replica.failures) == 1


async def test_one_that_a_received_snapshot_overtakes_is_given_up(tmp_path: Path) -> None:
    async with alone(tmp_path, policy=NEVER) as replica:
        await replica.commit(100)
        created = replica.node.core.log.snapshot
        original = replica.log.write_snapshot

        def overtaken(*arguments: Any) -> None:
            original(*arguments)
            replica.node.core.installing = OffsetAndEpoch(1_000, 9)
            raise LogError("the log holds nothing there any more")

        replica.log.write_snapshot = overtaken  # type: ignore[method-assign]
        assert await replica.snapshotter.write() is None
        assert replica.node.core.log.snapshot == created
        assert await replica.snapshotter.write() is None, "none is begun meanwhile"
        replica.node.core.installing = None


async def test_a_failed_write_leaves_nothing_that_looks_like_a_snapshot(tmp_path: Path) -> None:
    async with alone(tmp_path, policy=NEVER) as replica:
        await replica.commit(100)

        def fail(operation: str, name: str) -> None:
            if operation == "sync" and name.endswith(".part"):
                raise OSError(errno.EIO, "Input/output error")

        replica.disk.fail = fail
        with pytest.raises(LogFailedError):
            await replica.snapshotter.write()
        assert written(replica) == []
        assert isinstance(replica.disk, HeldDisk)
        replica.disk.fail = lambda _operation, _name: None
        assert await replica.snapshotter.write() is not None


async def test_none_is_written_while_a_metadata_transaction_is_open(tmp_path: Path) -> None:
    async with alone(tmp_path, policy=NEVER) as replica:
        for record in (rec.BeginTransactionRecord(name="copy"), rec.EndTransactionRecord()):
            ended = await replica.driver.append(1, build_metadata_batch([record], 1), 20_000)
            assert ended[1] is CommitOutcome.COMMITTED  # type: ignore[index]
            await replica.loader.reached(replica.node.high_watermark)
            is_open = isinstance(record, rec.BeginTransactionRecord)
            assert replica.loader.image.in_transaction is is_open
            assert (await replica.snapshotter.write() is None) is is_open
