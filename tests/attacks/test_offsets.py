"""Leaders killed under load, snapshots all the time: records keep the offset of their append.

Checked in what clients read, at the leader and at each node, and in the checkpoints' bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.cli.local.demo import SNAPSHOTS, until
from quorate.cli.local.local_cluster import LocalCluster, LocalNode
from quorate.cli.local.workload import Workload
from quorate.records.batch import iter_batches, iter_records
from quorate.rpc.client.quorum_client import QuorumClient

CALLERS = 64
KILLS = 3
LOAD_S = 2.0

Offsets = dict[bytes, int]


@pytest.mark.timeout(240)
async def test_a_record_has_one_offset_in_logs_and_snapshots(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster", controller_settings=SNAPSHOTS)
    cluster.create([1, 2, 3])
    admin = QuorumClient(cluster.addresses)
    load = Workload(cluster.addresses, callers=CALLERS, pause_s=0.02)
    try:
        cluster.start()
        await until(cluster, admin, lambda d: len(d.voters) == 3)
        await load.start()
        for _ in range(KILLS):
            await cluster.poll(LOAD_S)
            described = await until(cluster, admin, lambda d: d.leader.id is not None)
            leader, epoch = described.leader.id, described.leader.epoch
            assert leader is not None
            cluster.kill(leader)
            await until(cluster, admin, lambda d, epoch=epoch: d.leader.epoch > epoch)
            cluster.start([leader])
        await cluster.poll(LOAD_S)
        await load.stop()
        await until(
            cluster, admin, lambda d: all(s.log_end_offset >= d.high_watermark for s in d.voters)
        )
        told = await leaders_offsets(admin)
        in_order = sorted((offset, value.decode()) for value, offset in told.items())
        assert [str(each) for each in load.history.verify(in_order)] == []
        for node in cluster.nodes.values():
            await check_reads(node, told)
    finally:
        await load.stop()
        await admin.close()
        await asyncio.to_thread(cluster.stop)
    for node in cluster.nodes.values():
        in_snapshots = stored(node, told)
        assert in_snapshots > 100, f"{node.id}: {in_snapshots}"


async def leaders_offsets(client: QuorumClient) -> Offsets:
    return {
        bytes(record.value): record.offset
        async for record in client.read(0)
        if record.key is not None and record.value is not None and record.offset is not None
    }


async def check_reads(node: LocalNode, told: Offsets) -> None:
    """The node shows each record at its offset, and goes on behind any of them."""
    in_order = sorted(told.values())
    last = in_order[-1]
    async with QuorumClient([node.address]) as client:
        while not [r async for r in client.read(last, linearizable=False)]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for begin in (0, *(in_order[len(in_order) * part // 8] + 1 for part in range(8))):
            found = {
                bytes(record.value or b""): record.offset
                async for record in client.read(begin, linearizable=False)
                if record.key is not None
            }
            wanted = {value: offset for value, offset in told.items() if offset >= begin}
            assert found == wanted, (node.id, begin)


def stored(node: LocalNode, told: Offsets) -> int:
    """Compare the records in the node's checkpoints; how many there are."""
    count = 0
    for path in node.data.glob("__cluster_metadata-0/*.checkpoint"):
        for value, offset in checkpoint_records(path):
            assert told[value] == offset, (path, value, offset)
            count += 1
    return count


def checkpoint_records(path: Path) -> Iterator[tuple[bytes, int | None]]:
    for header, batch in iter_batches(path.read_bytes()):
        if header.is_control:
            continue
        base = header.log_base_offset
        for record in iter_records(batch, header):
            if record.key is not None and record.value is not None:
                yield (
                    record.value,
                    None if base is None else record.offset - header.base_offset + base,
                )
