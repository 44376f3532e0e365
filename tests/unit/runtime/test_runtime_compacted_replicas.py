"""Compacted snapshots of several replicas, of earlier releases, and of half-written files."""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path

import pytest
from quorate.applications import NO_OFFSET, UNKNOWN_OFFSET, digest_of
from quorate.log.config import LogConfig
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_data_batch, has_keys, read_header, snapshot_records
from quorate.records.metadata import ApplicationTag, FeatureLevelRecord
from quorate.runtime.application_snapshots import MachineState
from quorate.runtime.metadata_batches import build_metadata_batch, field_of, snapshot_batches

from tests.logs.cleaning import clean
from tests.unit.runtime.replicas import Replica, alone, leader_of, trio, until
from tests.unit.runtime.test_runtime_compaction import Pair, append, metadata

DROP = LogConfig(segment_bytes_max=400, tail_cache_bytes=0, retention_bytes=1)
Content = list[tuple[int | None, bytes | None, bytes | None]]


def content(replica: Replica) -> tuple[Content, bytes]:
    """The records of applications in the newest snapshot, and the state of a state machine."""
    name = replica.log.latest_snapshot()
    assert name is not None
    records: Content = []
    state = b""
    for batch in replica.log.iter_snapshot_batches(name):
        data = memoryview(batch.data)  # type: ignore[arg-type]
        header = read_header(data)
        if has_keys(data, header):
            records += [(r.offset, r.key, r.value) for r in snapshot_records(data, header)]
        elif (found := field_of(data)) is not None and found[0] is ApplicationTag.STATE_CHUNK:
            state += found[1][1:]
    return records, state


async def finalize(replica: Replica, policy: str | None = "compact") -> None:
    level = FeatureLevelRecord("metadata.version", 20, version=0)
    await append(replica, build_metadata_batch([level], 1))
    await append(replica, metadata(policy, 1))


async def put(replica: Replica, *pairs: Pair) -> int:
    return await append(replica, build_data_batch(pairs, 1_000))


@pytest.mark.parametrize("with_machine", [False, True], ids=["compacted", "state"])
async def test_a_follower_that_lagged_behind_has_the_same_afterwards(
    tmp_path: Path, with_machine: bool
) -> None:
    timers = {"fetch_timeout_ms": 8_000, "election_timeout_ms": 300}
    async with trio(tmp_path, log_config=DROP, **timers) as replicas:
        leader = await leader_of(replicas)
        await finalize(leader)
        await put(leader, (b"a", b"1"), (b"gone", b"1"), (b"", b"1"))
        lagging = next(each for each in replicas.values() if each is not leader)
        leader.network.cut.add(lagging.id)
        if with_machine:

            async def machine_state() -> MachineState:
                return MachineState(leader.loader.offset, [b"the ", b"state"])

            leader.snapshotter.machine_state = machine_state
        for number in range(20):
            await put(leader, (b"a", b"%d" % number), (b"b", b"%d" % number), (b"", b"2"))
        await put(leader, (b"gone", None))
        last = await put(leader, (b"c", b"1"))
        written = await leader.snapshotter.write()
        assert leader.log.start == written
        leader.network.cut.clear()
        await until("it installs the snapshot", lambda: lagging.log.start == written)
        await until("it has caught up", lambda: lagging.node.high_watermark > last)
        await lagging.loader.reached(lagging.node.high_watermark)
        assert content(lagging) == content(leader)
        records, state = content(leader)
        assert state == (b"the state" if with_machine else b"")
        kept = [key for _, key, _ in records]
        assert kept == ([] if with_machine else [*[b""] * 20, b"a", b"b", b"", b"c"])

        # From there on, all replicas go on alike, whatever their own snapshots began with.
        leader.snapshotter.machine_state = None
        await put(leader, (b"a", None), (b"b", b"new"))
        await put(leader, (b"a", None))
        end = await put(leader, (b"d", b"1")) + 1
        for replica in replicas.values():
            await until("it is committed", lambda r=replica: r.node.high_watermark >= end)
            await replica.loader.reached(end)
            await until("it is durable", lambda r=replica: r.log.durable_end >= end)
        for replica in replicas.values():
            assert await replica.snapshotter.write() == OffsetAndEpoch(end, leader.node.epoch)
            assert replica.loader.applications == leader.loader.applications
        assert content(lagging) == content(leader)
        others = [each for each in replicas.values() if each not in (leader, lagging)]
        if not with_machine:
            assert content(others[0]) == content(leader)
        assert not any(replica.failures for replica in replicas.values())


async def test_records_of_earlier_releases_stay_until_their_key_is_written(tmp_path: Path) -> None:
    """The offsets of records in snapshots of earlier releases are unknown."""
    async with alone(tmp_path, log_config=DROP) as replica:
        pairs = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"", b"1"), (b"a", b"2"), (b"b", None)]
        batches = [build_data_batch([pair], 1_000) for pair in pairs]
        for batch in batches:
            await append(replica, bytearray(batch))
        await replica.loader.reached(replica.log.end_offset)
        await write_as_earlier_releases(replica, batches)
        await finalize(replica)
        await replica.loader.reached(replica.node.high_watermark)
        index = replica.loader.applications.index  # type: ignore[union-attr]
        found = [index.get(digest_of(key)) for key in (b"a", b"b", b"c")]
        assert found == [UNKNOWN_OFFSET, NO_OFFSET, UNKNOWN_OFFSET]
        assert await replica.snapshotter.write() is not None
        kept = [(b"a", b"1"), (b"c", b"1"), (b"", b"1"), (b"a", b"2")]
        assert content(replica)[0] == [(None, *pair) for pair in kept]
        base = await put(replica, (b"a", b"3"), (b"c", None), (b"d", b"1"))
        assert await replica.snapshotter.write() is not None
        assert content(replica)[0] == [
            (None, b"", b"1"),
            (base, b"a", b"3"),
            (base + 2, b"d", b"1"),
        ]


async def write_as_earlier_releases(replica: Replica, batches: list[bytearray]) -> None:
    log, end = replica.log, replica.loader.offset
    await until("it is durable", lambda: log.durable_end >= end)
    snapshot = OffsetAndEpoch(end, replica.node.epoch_before(end))
    version, voters = replica.node.membership_at(end)
    records = replica.loader.image.copy().records()
    written = chain(snapshot_batches(records, 1_000), batches)
    await asyncio.to_thread(log.write_snapshot, snapshot, version, voters, 1_000, written)
    replica.driver.snapshot_created(snapshot)
    clean(log, 0)
    replica.driver.log_start_advanced(log.start)


async def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """Batches are read and written one by one: at most a few MiB of a large log at a time."""
    import tracemalloc

    async with alone(tmp_path, log_config=LogConfig(retention_bytes=1)) as replica:
        await finalize(replica)
        for number in range(60):
            await put(replica, (b"%d" % (number % 2), b"x" * 500_000))
        assert await replica.snapshotter.write() is not None
        for number in range(60):
            await put(replica, (b"%d" % number, b"x" * 500_000))
        tracemalloc.start()
        assert await replica.snapshotter.write() is not None
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 12 << 20, peak
        assert len(content(replica)[0]) == 60
