"""What a node reads back after snapshots and cleaning, from any offset: its quorum's only voter."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.log.config import LogConfig
from quorate.log.errors import OffsetOutOfRangeError
from quorate.log.metadata_log import MetadataLog, write_bootstrap_checkpoint
from quorate.log.quorum_state import QuorumStateFile
from quorate.raft import InitialState, LogState, RaftConfig, RaftNode
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records import metadata as rec
from quorate.records.batch import build_data_batch, iter_batches
from quorate.records.primitives import Buffer
from quorate.rpc.client.reading import records_of
from quorate.rpc.client.transport import PeerTransport
from quorate.rpc.wire.values import ReadChunk, ReadRequest
from quorate.runtime.clock import Clock
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_batches import holds_metadata, snapshot_batches
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.outbound import Outbound
from quorate.runtime.service import NodeService
from quorate.runtime.snapshot_policy import SnapshotPolicy
from quorate.runtime.snapshots import Snapshotter

from tests.unit.log.log_support import QuickDisk

KEY = ReplicaKey(1, "Rigw3vfNRMmcl9pdbu4hDQ")
ENDPOINTS = (Endpoint("CONTROLLER", "127.0.0.1", 9),)
SOON_S = 20
KEEP, DROP = -1, 1
"""Retention in bytes: the log stays, or begins at the newest snapshot."""
SMALL_SEGMENTS = LogConfig(segment_bytes_max=300, tail_cache_bytes=0, preallocate_bytes=0)


class Replica:
    """A node without server, metadata controller and timers of snapshots."""

    def __init__(self, directory: Path, retention_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self.failures: list[BaseException] = []
        self.log = MetadataLog.open(
            directory,
            replace(SMALL_SEGMENTS, retention_bytes=retention_bytes),
            on_durable=lambda ticket: loop.call_soon_threadsafe(self.durable, ticket),
            on_failure=lambda error: loop.call_soon_threadsafe(self.failures.append, error),
            disk=QuickDisk(),
        )
        quorum_state = QuorumStateFile(self.log.partition)
        found = self.log.recovered
        epochs = tuple((entry.epoch, entry.offset) for entry in found.epochs)
        state = LogState(found.start, found.end_offset, epochs, found.latest_snapshot)
        initial = InitialState(quorum_state.read(), state, found.voters, found.kraft_versions)
        clock = Clock()
        config = RaftConfig("yFPgY5iXQYqr5sMxfdxu0Q", KEY, ENDPOINTS)
        self.loader = MetadataLoader(self.log, on_fatal=self.failures.append)
        self.driver = RaftDriver(
            RaftNode(config, initial, random.Random(1), clock.now_ms()),
            self.log,
            quorum_state,
            Outbound(PeerTransport(config.cluster_id)),
            clock,
            on_fatal=self.failures.append,
            on_committed=self.loader.committed,
        )
        self.snapshotter = Snapshotter(self.driver, SnapshotPolicy(), self.loader)
        self.service = NodeService(self.driver, batch_bytes_max=1 << 20, is_ready=lambda: True)

    def durable(self, ticket: int) -> None:
        self.driver.durable(ticket)

    async def settled(self) -> None:
        """Wait until it leads and everything is committed and in the image."""
        node = self.driver.node
        while not node.is_leader or node.high_watermark < self.log.end_offset:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await self.loader.reached(node.high_watermark)

    async def append(self, *pairs: tuple[bytes | None, bytes]) -> int:
        """One batch; its base offset."""
        ended = await self.driver.append(len(pairs), build_data_batch(pairs, 1_000), 20_000)
        assert not isinstance(ended, ErrorCode), ended
        return ended[0]

    async def read(self, begin: int) -> list[tuple[int | None, bytes]]:
        """The records of applications, as a client takes them from the chunks."""
        found: list[tuple[int | None, bytes]] = []
        position = begin
        async for chunk in self.service.read(ReadRequest(begin, linearizable=False)):
            assert chunk.error is ErrorCode.NONE, chunk
            for record, after in records_of(chunk, position):
                if record is not None and record.key is not None:
                    found.append((record.offset, record.value or b""))
                position = max(position, after)
        return found


@asynccontextmanager
async def running(directory: Path, retention_bytes: int) -> AsyncIterator[Replica]:
    replica = Replica(directory, retention_bytes)
    replica.loader.start()
    replica.driver.start()
    try:
        async with asyncio.timeout(SOON_S):
            await replica.settled()
            yield replica
    finally:
        await replica.loader.stop()
        await replica.driver.close()
        await asyncio.to_thread(replica.log.close)
    assert replica.failures == []


def config_record(number: int) -> bytes:
    return rec.encode(rec.ConfigRecord(2, f"topic-{number % 3}", "retention.ms", str(number)))


def written_by_earlier_versions(
    log: MetadataLog, previous: OffsetAndEpoch | None, end: int
) -> Iterator[Buffer]:
    """The batches of applications in an earlier version's checkpoint: as they lie in the log."""
    if previous is not None:
        for batch in log.iter_snapshot_batches(previous):
            ((header, view),) = iter_batches(bytes(batch.data))  # type: ignore[arg-type]
            if not holds_metadata(view, header):
                yield view
    position = previous.offset if previous is not None else 0
    while position < end:
        for piece in log.read_durable(position, 1 << 20, end):
            for header, view in iter_batches(piece):
                position = header.end_offset
                if not header.is_control and not holds_metadata(view, header):
                    yield view


@dataclass(slots=True)
class Model:
    """The records of applications: offset, value. unknown: those without an offset in snapshots."""

    records: list[tuple[int, bytes]] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    snapshot: int = 0
    start: int = 0

    def read(self, begin: int) -> list[tuple[int | None, bytes]]:
        if begin >= self.start:
            return [each for each in self.records if each[0] >= begin]
        found: list[tuple[int | None, bytes]] = []
        for offset, value in self.records:
            if offset >= self.snapshot or offset not in self.unknown:
                if offset <= begin:
                    found.clear()  # what came before has no offset, but lies before this one
                if offset >= begin:
                    found.append((offset, value))
            else:
                found.append((None, value))
        return found


@dataclass(frozen=True, slots=True)
class Step:
    """kind: what happens; count: of records; number: makes values differ."""

    kind: str
    count: int = 1


APPLICATION, METADATA, MIXED = "application", "metadata", "mixed"
SNAPSHOT, OLD_SNAPSHOT, RESTART_KEEP, RESTART_DROP = "snapshot", "old", "restart", "clean"
STEPS = st.builds(
    Step,
    st.sampled_from(
        [APPLICATION, APPLICATION, METADATA, MIXED, SNAPSHOT, SNAPSHOT, RESTART_KEEP, RESTART_DROP]
    ),
    st.integers(1, 4),
)
OLD_STEPS = st.one_of(STEPS, st.just(Step(OLD_SNAPSHOT)))


class Run:
    """Steps on a node and on the model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.model = Model()
        self.number = 0
        self.mixed_at = -1

    def values(self, count: int) -> list[bytes]:
        self.number += count
        return [b"%06d" % number for number in range(self.number - count, self.number)]

    async def play(self, steps: list[Step]) -> None:
        write_bootstrap_checkpoint(self.directory, VoterSet.of([Voter(KEY, ENDPOINTS)]))
        retention, rest = KEEP, iter(steps)
        last = False
        while not last:
            last = True
            async with running(self.directory, retention) as replica:
                for step in rest:
                    if step.kind in (RESTART_KEEP, RESTART_DROP):
                        retention = KEEP if step.kind == RESTART_KEEP else DROP
                        last = False
                        break
                    await self.take(replica, step)
                await self.check(replica)

    async def take(self, replica: Replica, step: Step) -> None:
        if step.kind == SNAPSHOT:
            written = await replica.snapshotter.write()
            if written is not None:
                self.model.snapshot = written.offset
        elif step.kind == OLD_SNAPSHOT:
            await self.old_snapshot(replica)
        else:
            await self.append(replica, step)
        self.model.start = replica.log.start_offset

    async def append(self, replica: Replica, step: Step) -> None:
        values = self.values(step.count)
        pairs: list[tuple[bytes | None, bytes]] = [(b"", value) for value in values]
        if step.kind == METADATA:
            await replica.append((None, config_record(self.number)))
            return
        if step.kind == MIXED:
            changes = [(None, config_record(n)) for n in range(step.count + 1)]
            pairs = [changes[0], *chain.from_iterable(zip(pairs, changes[1:], strict=True))]
            pairs += [(b"k", value) for value in self.values(2)]
        base = await replica.append(*pairs)
        if step.kind == MIXED:
            self.mixed_at = base
        for offset, (key, value) in enumerate(pairs, base):
            if key is not None:
                self.model.records.append((offset, value))

    async def old_snapshot(self, replica: Replica) -> None:
        log, node = replica.log, replica.driver.node
        await replica.settled()
        end = replica.loader.offset
        previous = log.latest_snapshot()
        assert previous is not None
        # A batch that begins with metadata is not copied as it lies in the log.
        if previous.offset >= end or self.mixed_at >= previous.offset:
            return
        version, voters = node.membership_at(end)
        image = replica.loader.image.copy()
        batches = chain(
            snapshot_batches(image.records(), 1_000),
            written_by_earlier_versions(log, previous, end),
        )
        snapshot = OffsetAndEpoch(end, node.epoch_before(end))
        log.write_snapshot(snapshot, version, voters, 1_000, batches)
        replica.driver.snapshot_created(snapshot)
        for offset, _ in self.model.records:
            if previous.offset <= offset < end:
                self.model.unknown.add(offset)
        self.model.snapshot = end

    async def check(self, replica: Replica) -> None:
        await replica.settled()
        self.model.start = replica.log.start_offset
        for begin in range(replica.log.end_offset + 2):
            assert await replica.read(begin) == self.model.read(begin), begin


def play(steps: list[Step]) -> Run:
    directory = Path(tempfile.mkdtemp(prefix="quorate-snapshots-"))
    try:
        run = Run(directory)
        asyncio.run(run.play(steps))
        return run
    finally:
        shutil.rmtree(directory, ignore_errors=True)


SLOW = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
DROPPED = Step(RESTART_DROP)


@SLOW
@given(st.lists(STEPS, max_size=14))
@example([DROPPED, Step(APPLICATION, 2), Step(SNAPSHOT), Step(APPLICATION, 3), Step(SNAPSHOT)])
@example([DROPPED, Step(METADATA), Step(MIXED, 2), Step(SNAPSHOT), Step(SNAPSHOT), DROPPED])
def test_what_is_read_from_any_offset_has_its_offset(steps: list[Step]) -> None:
    run = play(steps)
    assert not run.model.unknown


@SLOW
@given(st.lists(OLD_STEPS, max_size=14))
@example(
    [
        *(DROPPED, Step(APPLICATION, 2), Step(SNAPSHOT), Step(APPLICATION, 3)),
        *(Step(APPLICATION), Step(OLD_SNAPSHOT)),
        *(Step(APPLICATION, 2), Step(SNAPSHOT), DROPPED, Step(APPLICATION)),
    ]
)
def test_records_of_older_snapshots_have_none(steps: list[Step]) -> None:
    play(steps)


# --- what cannot be read --------------------------------------------------------------------------

LENGTH_AT, MAGIC_AT = 8, 16
"""Where a batch has its length and its format, bytes."""


async def last_chunk(replica: Replica, begin: int) -> ReadChunk:
    async def pause() -> None:
        await asyncio.sleep(0)

    async with asyncio.timeout(SOON_S):
        read = [each async for each in replica.service.read(ReadRequest(begin), pause)]
    assert read[-1].last
    return read[-1]


def overwrite(path: Path, position: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, position)
    finally:
        os.close(descriptor)


def told(caplog: pytest.LogCaptureFixture) -> str:
    """The one line that was logged, without a traceback."""
    (record,) = [each for each in caplog.records if each.name == "quorate.runtime.service"]
    assert record.exc_info is None
    return record.getMessage()


@pytest.mark.parametrize(
    ("at", "data"),
    [(MAGIC_AT, b"\x07"), (LENGTH_AT, b"\x7f\xff\xff\xff"), (0, b"\0\0\1")],
    ids=["format", "length", "offset"],
)
async def test_damage_of_the_log_is_no_offset_out_of_range(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int, data: bytes
) -> None:
    write_bootstrap_checkpoint(tmp_path, VoterSet.of([Voter(KEY, ENDPOINTS)]))
    async with running(tmp_path, KEEP) as replica:
        base = await replica.append((b"", b"a" * 300))
        for _ in range(3):
            await replica.append((b"", b"b" * 300))  # in other segments, so nothing is in memory
        await replica.settled()
        segment = replica.log.partition / f"{base:020}.log"
        raw = segment.read_bytes()
        overwrite(segment, at, data)
        chunk = await last_chunk(replica, base)
        assert chunk.error is ErrorCode.CORRUPT_MESSAGE, chunk
        assert f"records from offset {base} on cannot be read" in told(caplog)
        overwrite(segment, 0, raw)


async def test_damage_of_a_snapshot_is_no_offset_out_of_range(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_bootstrap_checkpoint(tmp_path, VoterSet.of([Voter(KEY, ENDPOINTS)]))
    async with running(tmp_path, DROP) as replica:
        for _ in range(4):
            await replica.append((b"", b"a" * 200))
        await replica.settled()
        await replica.snapshotter.write()
    async with running(tmp_path, DROP) as replica:
        assert replica.log.start_offset > 0
        overwrite(max(replica.log.partition.glob("*.checkpoint")), 100, b"!!!!")
        chunk = await last_chunk(replica, 0)
        assert chunk.error is ErrorCode.CORRUPT_MESSAGE, chunk
        assert "checkpoint" in told(caplog)


async def test_a_failing_disk_is_a_storage_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> list[memoryview]:
        raise OSError(errno.EIO, "Input/output error")

    write_bootstrap_checkpoint(tmp_path, VoterSet.of([Voter(KEY, ENDPOINTS)]))
    async with running(tmp_path, KEEP) as replica:
        monkeypatch.setattr(replica.log, "read", failing)
        chunk = await last_chunk(replica, 0)
        assert chunk.error is ErrorCode.KAFKA_STORAGE_ERROR, chunk
        assert "Input/output error" in chunk.message
        assert "Input/output error" in told(caplog)
        monkeypatch.undo()


async def test_an_offset_that_was_deleted_meanwhile_is_out_of_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bootstrap_checkpoint(tmp_path, VoterSet.of([Voter(KEY, ENDPOINTS)]))
    async with running(tmp_path, KEEP) as replica:

        def gone(*_: object) -> list[memoryview]:
            raise OffsetOutOfRangeError("the log starts later now")

        monkeypatch.setattr(replica.log, "read", gone)
        chunk = await last_chunk(replica, 0)
        assert chunk.error is ErrorCode.OFFSET_OUT_OF_RANGE, chunk
        monkeypatch.undo()
