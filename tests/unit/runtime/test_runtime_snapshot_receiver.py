"""Receiving a snapshot while the event loop goes on, on disks that are slow, full or failing."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.log.disk import Disk
from quorate.log.metadata_log import PARTITION_DIRECTORY
from quorate.log.snapshots import SnapshotStore
from quorate.raft.messages import (
    CurrentLeader,
    DescribeQuorumRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Response,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.outputs import RoleName
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_data_batch

from tests.unit.runtime.replicas import (
    CLUSTER,
    SOON_S,
    Network,
    Replica,
    address,
    key,
    leader_of,
    trio,
    until,
    voters,
)

EPOCH = 5
SNAPSHOT = OffsetAndEpoch(1_000_000, EPOCH)
LEADER = CurrentLeader(EPOCH, 2, (address(2),))
PART = "00000000000001000000-0000000005.checkpoint.part"
NAMED = "00000000000001000000-0000000005.checkpoint"


def checkpoint(folder: Path, batches: int) -> bytes:
    folder.mkdir(exist_ok=True)
    store = SnapshotStore(folder, Disk())
    content = (build_data_batch([(b"k", b"v" * 20)], 1) for _ in range(batches))
    store.write(SNAPSHOT, 1, voters(1, 2), 1, content)
    return store.path(SNAPSHOT).read_bytes()


@dataclass
class ScriptedLeader:
    """Node 2 leads epoch 5 and has nothing but a snapshot. chunks: positions asked for."""

    content: bytes
    chunks: list[int] = field(default_factory=list)
    fetches: list[FetchRequest] = field(default_factory=list)
    spoiled: int = 0
    """How many chunks arrive with a flipped byte."""

    async def __call__(self, request: Any) -> Response:
        if isinstance(request, FetchSnapshotRequest):
            return self._chunk(request)
        if isinstance(request, VoteRequest):
            return VoteResponse(ErrorCode.NONE, LEADER, False)
        assert isinstance(request, FetchRequest), request
        if request.epoch != EPOCH:
            return FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, LEADER)
        self.fetches.append(request)
        if request.offset < SNAPSHOT.offset:
            return FetchResponse(
                ErrorCode.NONE, LEADER, SNAPSHOT.offset, SNAPSHOT.offset, snapshot=SNAPSHOT
            )
        await asyncio.sleep(0.05)
        return FetchResponse(ErrorCode.NONE, LEADER, SNAPSHOT.offset, SNAPSHOT.offset)

    def _chunk(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        self.chunks.append(request.position)
        data = self.content[request.position : request.position + request.max_bytes]
        if self.spoiled:
            self.spoiled -= 1
            data = data[:-1] + bytes([data[-1] ^ 1])
        return FetchSnapshotResponse(
            ErrorCode.NONE, LEADER, SNAPSHOT, len(self.content), request.position, data=data
        )


@asynccontextmanager
async def receiving(
    folder: Path, batches: int = 50, chunk_bytes: int = 1 << 20, prepare: Any = None
) -> AsyncIterator[tuple[Replica, ScriptedLeader]]:
    leader = ScriptedLeader(checkpoint(folder / "leader", batches))
    replica = follower(folder, leader, chunk_bytes)
    if prepare is not None:
        prepare(replica, leader)
    replica.start()
    try:
        yield replica, leader
    finally:
        await replica.close()


def follower(folder: Path, leader: ScriptedLeader, chunk_bytes: int = 1 << 20) -> Replica:
    network = Network({address(2): leader})
    return Replica(
        folder / "1",
        network,
        members=voters(1, 2),
        snapshot_chunk_bytes_max=chunk_bytes,
        fetch_timeout_ms=60_000,
        election_timeout_ms=60_000,
    )


def is_installed(replica: Replica) -> bool:
    return replica.log.start == SNAPSHOT and replica.node.core.installing is None


class Gate:
    """Holds a disk operation until it is opened; `reached` tells that it came there."""

    def __init__(self, operation: str, name: str) -> None:
        self.operation, self.name = operation, name
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, operation: str, name: str) -> None:
        if (operation, name) == (self.operation, self.name):
            self.reached.set()
            assert self.open.wait(2 * SOON_S)


def holding(gate: Gate) -> Callable[[Replica, ScriptedLeader], None]:
    def prepare(replica: Replica, _leader: ScriptedLeader) -> None:
        replica.disk.fail = gate

    return prepare


async def test_a_received_snapshot_replaces_the_log_and_survives_a_restart(tmp_path: Path) -> None:
    async with receiving(tmp_path, chunk_bytes=500) as (replica, leader):
        await until("it is installed", lambda: is_installed(replica))
        assert leader.chunks == list(range(0, len(leader.content), 500))
        node = replica.node
        assert (replica.log.end_offset, node.core.log.end_offset) == (1_000_000, 1_000_000)
        assert node.high_watermark == 1_000_000
        assert node.voters == voters(1, 2)
        assert node.core.log.is_durable
        await until("older ones are gone", lambda: replica.log.snapshots() == (SNAPSHOT,))
        await until("it fetches on", lambda: leader.fetches[-1].offset == 1_000_000)
        await until("it is loaded", lambda: replica.loader.offset == 1_000_000)
        part = replica.log.partition / PART
        assert not part.exists()
    again = follower(tmp_path, leader)
    try:
        assert (again.log.start, again.log.end_offset) == (SNAPSHOT, 1_000_000)
    finally:
        await again.close()


async def test_the_loop_goes_on_while_a_big_snapshot_is_installed(tmp_path: Path) -> None:
    """Compared within one run: verifying takes long, the longest pause of the loop does not. A
    busy machine may pause the whole process for as long, but not each time.
    """
    runs: list[tuple[float, float]] = []
    while not runs or (not _goes_on(*runs[-1]) and len(runs) < 3):
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        async with receiving(folder, batches=120_000) as (replica, _):
            await until("all has arrived", lambda r=replica: r.node.core.installing is not None)
            began = last = time.perf_counter()
            longest = 0.0
            while not is_installed(replica):
                await asyncio.sleep(0)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now
            runs.append((longest, last - began))
    assert _goes_on(*runs[-1]), f"the loop's longest pauses, and the times of each run, s: {runs}"


def _goes_on(longest_s: float, took_s: float) -> bool:
    return longest_s < took_s / 3


@pytest.mark.parametrize(
    ("operation", "name"), [("write", PART), ("sync", PART), ("rename", NAMED)]
)
async def test_a_slow_disk_does_not_hold_the_loop(
    tmp_path: Path, operation: str, name: str
) -> None:
    gate = Gate(operation, name)
    async with receiving(tmp_path, prepare=holding(gate)) as (replica, leader):
        await until("the disk is slow", gate.reached.is_set)
        fetches = len(leader.fetches)
        for _ in range(20):
            async with asyncio.timeout(SOON_S):
                response, _ = await replica.driver.ask(DescribeQuorumRequest(CLUSTER))
            assert response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            await asyncio.sleep(0.01)
        # What will be replaced is still there, whole; nothing is appended to it, nobody elected.
        assert (replica.log.start_offset, replica.log.end_offset) == (0, 0)
        assert len(leader.fetches) == fetches
        assert replica.node.role is RoleName.FOLLOWER
        gate.open.set()
        await until("it is installed", lambda: is_installed(replica))
    assert not replica.failures


async def test_no_more_is_fetched_than_the_disk_takes(tmp_path: Path) -> None:
    gate = Gate("write", PART)
    async with receiving(tmp_path, chunk_bytes=300, prepare=holding(gate)) as (replica, leader):
        await until("the first chunk is being written", gate.reached.is_set)
        await asyncio.sleep(0.3)
        assert leader.chunks == [0, 300]
        gate.open.set()
        await until("it is installed", lambda: is_installed(replica))
        assert leader.chunks == list(range(0, len(leader.content), 300))


async def test_a_damaged_snapshot_is_fetched_again(tmp_path: Path) -> None:
    def prepare(_replica: Replica, leader: ScriptedLeader) -> None:
        leader.spoiled = 1

    async with receiving(tmp_path, prepare=prepare) as (replica, leader):
        await until("it is installed", lambda: is_installed(replica))
        assert leader.chunks == [0, 0]
        assert not replica.failures


async def test_a_full_disk_is_no_reason_to_stop(tmp_path: Path) -> None:
    """The chunk is asked for again until there is room."""
    failed = []

    def fail(operation: str, name: str) -> None:
        if (operation, name) == ("write", PART) and len(failed) < 3:
            failed.append(name)
            raise OSError(errno.ENOSPC, "No space left on device")

    def prepare(replica: Replica, _leader: ScriptedLeader) -> None:
        replica.disk.fail = fail

    async with receiving(tmp_path, chunk_bytes=700, prepare=prepare) as (replica, _):
        await until("it is installed", lambda: is_installed(replica))
        assert len(failed) == 3
        assert not replica.failures


@pytest.mark.parametrize(("operation", "name"), [("sync", PART), ("rename", NAMED)])
async def test_a_disk_that_fails_to_sync_stops_the_replica(
    tmp_path: Path, operation: str, name: str
) -> None:
    """A second sync would succeed without writing anything."""

    def fail(found: str, path: str) -> None:
        if (found, path) == (operation, name):
            raise OSError(errno.EIO, "Input/output error")

    def prepare(replica: Replica, _leader: ScriptedLeader) -> None:
        replica.disk.fail = fail

    async with receiving(tmp_path, prepare=prepare) as (replica, _):
        await until("it stopped", lambda: replica.failures)
        assert "Input/output error" in str(replica.failures[0])
        assert replica.log.start_offset == 0


@pytest.mark.parametrize(
    ("operation", "name", "finished"),
    [("write", PART, False), ("sync", PART, False), ("rename", NAMED, True)],
)
async def test_a_shutdown_in_the_middle_is_finished_at_the_next_start(
    tmp_path: Path, operation: str, name: str, finished: bool
) -> None:
    gate = Gate(operation, name)
    leader = ScriptedLeader(checkpoint(tmp_path / "leader", 50))
    replica = follower(tmp_path, leader)
    replica.disk.fail = gate
    replica.start()
    await until("the disk is slow", gate.reached.is_set)
    closing = asyncio.create_task(replica.driver.close())
    await asyncio.sleep(0.1)
    assert not closing.done(), "the directory is still being changed"
    gate.open.set()
    await closing
    assert replica.log.start_offset == 0, "nothing goes on after close"
    await replica.close()
    leader.chunks.clear()
    again = follower(tmp_path, leader)
    again.start()
    try:
        assert (again.log.start == SNAPSHOT) is finished
        await until("it is installed", lambda: is_installed(again))
        # What arrived before is not fetched again.
        assert leader.chunks == ([] if finished else [len(leader.content)])
    finally:
        await again.close()


async def test_a_crash_before_any_disk_operation_of_an_install_loses_nothing(
    tmp_path: Path,
) -> None:
    """The directory as it is before each operation opens as the old log or as the new one."""
    images: list[Path] = []
    folder = tmp_path / "1"

    def snap(operation: str, name: str) -> None:
        image = tmp_path / f"image-{len(images)}-{operation}"
        images.append(image)
        shutil.copytree(folder / PARTITION_DIRECTORY, image / "1" / PARTITION_DIRECTORY)
        for each in folder.iterdir():
            if each.is_file():
                shutil.copy(each, image / "1" / each.name)

    def prepare(replica: Replica, _leader: ScriptedLeader) -> None:
        replica.disk.fail = snap

    async with receiving(tmp_path, prepare=prepare) as (replica, leader):
        await until("it is installed", lambda: is_installed(replica))
        await until("it is cleaned up", lambda: not replica.driver._receiver.is_busy)
        replica.disk.fail = lambda _operation, _name: None
    outcomes = []
    for image in images:
        again = follower(image, leader)
        try:
            found = (again.log.start_offset, again.log.end_offset)
            assert found in ((0, 0), (1_000_000, 1_000_000)), image
            outcomes.append(found)
        finally:
            await again.close()
    assert outcomes == sorted(outcomes), "there is no way back"
    assert len(set(outcomes)) == 2


async def test_installing_does_not_wait_for_the_snapshot_writer(tmp_path: Path) -> None:
    release = threading.Event()

    def slow() -> Any:
        assert release.wait(2 * SOON_S)
        yield build_data_batch([(b"k", b"v")], 1)

    async with receiving(tmp_path, prepare=_with_records) as (replica, _):
        writing = asyncio.create_task(
            asyncio.to_thread(
                replica.log.write_snapshot, OffsetAndEpoch(3, 1), 1, voters(1, 2), 1, slow()
            )
        )
        try:
            await until("it is installed", lambda: is_installed(replica))
            assert not writing.done()
        finally:
            release.set()
            await asyncio.wait([writing])


def _with_records(replica: Replica, _leader: ScriptedLeader) -> None:
    """Three records of epoch 1, in the log and in the node's view of it."""
    from quorate.raft.batches import Batch
    from quorate.records.batch import stamp

    for offset in range(3):
        data = build_data_batch([(b"k", b"v")], 1)
        stamp(data, offset, 1)
        ticket = replica.node.core.log.append([Batch(offset, offset, 1, (), data)])
        replica.log.append(ticket, [data])


async def test_what_a_longer_log_holds_is_read_until_it_is_replaced(tmp_path: Path) -> None:
    gate = Gate("rename", NAMED)

    def prepare(replica: Replica, leader: ScriptedLeader) -> None:
        _with_records(replica, leader)
        replica.disk.fail = gate

    async with receiving(tmp_path, prepare=prepare) as (replica, _):
        await until("the snapshot is about to get its name", gate.reached.is_set)
        assert len(b"".join(map(bytes, replica.log.read(0, 1 << 20)))) > 0
        assert replica.log.end_offset == 3
        gate.open.set()
        await until("it is installed", lambda: is_installed(replica))
        assert replica.log.read(1_000_000, 1 << 20) == []
        await until("the old segments are gone", lambda: not replica.driver._receiver.is_busy)
        names = sorted(path.name for path in replica.log.partition.glob("*.log"))
        assert names == ["00000000000001000000.log"]


async def test_a_leader_reads_a_snapshot_for_a_follower_off_the_loop(tmp_path: Path) -> None:
    async with trio(tmp_path) as replicas:
        leader = await leader_of(replicas)
        offset = await leader.commit(2_000)
        # The followers may commit a record before the leader's disk has it.
        await until("the leader's disk has it", lambda: leader.log.durable_end > offset)
        snapshot = await leader.snapshotter.write()
        assert snapshot is not None
        content = (leader.log.partition / _file_of(snapshot)).read_bytes()
        other = 1 + leader.id % 3

        def ask(position: int, of: OffsetAndEpoch, size: int = 1 << 20) -> Any:
            request = FetchSnapshotRequest(
                CLUSTER, key(other), leader.node.epoch, of, position, size
            )
            return leader.driver.ask(request)

        threads: list[str] = []
        original = leader.driver._read_snapshot

        def reading(response: FetchSnapshotResponse) -> FetchSnapshotResponse:
            threads.append(threading.current_thread().name)
            return original(response)

        leader.driver._read_snapshot = reading  # type: ignore[method-assign]
        response, _ = await ask(0, snapshot, 100)
        assert (response.data, response.size) == (content[:100], len(content))
        response, _ = await ask(100, snapshot)
        assert response.data == content[100:]
        assert threading.main_thread().name not in threads
        response, _ = await ask(len(content) + 1, snapshot)
        assert response.error is ErrorCode.POSITION_OUT_OF_RANGE
        response, _ = await ask(0, OffsetAndEpoch(snapshot.offset, 99))
        assert response.error is ErrorCode.SNAPSHOT_NOT_FOUND


def _file_of(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"
