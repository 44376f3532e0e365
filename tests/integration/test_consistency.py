"""A replica whose committed records were changed is found while the quorum runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.records.batch import build_data_batch, iter_batches, iter_records, stamp
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import Node, Quorum, assert_clean, until

pytestmark = pytest.mark.slow

INTERVAL_MS = 100


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Quorum]:
    """Three voters that compare their logs ten times a second."""
    settings = {
        "quorate.consistency.check.interval.ms": INTERVAL_MS,
        "controller.quorum.auto.join.enable": "true",
    }
    quorum = Quorum(tmp_path, (1, 2, 3), **settings)
    for node in quorum.nodes.values():
        node.format("--standalone" if node.id == 1 else "--no-initial-controllers")
        node.start()
    try:
        quorum.until_voters(1, 2, 3)
        yield quorum
    finally:
        quorum.kill()


async def _append(quorum: Quorum, count: int) -> None:
    """Records of which each is a batch of its own."""
    async with QuorumClient(quorum.addresses.split(",")) as client:
        for number in range(count):
            await client.append_value(f"value-{number}".encode())


def _change_a_record(node: Node) -> int:
    """Give one data batch other bytes and a checksum that fits them; its base offset."""
    segment = node.data / "__cluster_metadata-0" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    position = 0
    for header, view in iter_batches(memoryview(bytes(content))):
        if not header.is_control and header.base_offset > 10:
            record = next(iter(iter_records(view, header)))
            value = bytes(record.value or b"")[::-1]
            changed = build_data_batch([(record.key, value)], header.max_timestamp)
            stamp(changed, header.base_offset, header.epoch)
            assert len(changed) == len(view)
            content[position : position + len(view)] = changed
            segment.write_bytes(content)
            return header.base_offset
        position += len(view)
    raise AssertionError(f"no data batch in {segment}")


def test_a_changed_committed_record_is_reported(three: Quorum) -> None:
    asyncio.run(_append(three, 30))
    status = three.until("a leader", lambda s: s["leaderId"] > 0)
    leader = three.nodes[status["leaderId"]]
    victim = next(node for node in three.nodes.values() if node is not leader)
    assert victim.stop() == 0
    offset = _change_a_record(victim)
    victim.start()
    victim.wait_said("follower in epoch")

    def reported() -> re.Match[str] | None:
        return re.search(r"ERROR.*consistency check: .*", leader.said())

    line = until("the leader reports the difference", reported).group()
    assert f"the committed log of replica {victim.key} differs from that of the majority" in line
    first, last = map(int, re.findall(r"offsets (\d+) to (\d+)", line)[0])
    assert first <= offset <= last
    assert "remove-controller" in line


def test_equal_logs_are_not_reported(three: Quorum) -> None:
    asyncio.run(_append(three, 30))
    status = three.until("a leader", lambda s: s["leaderId"] > 0)
    follower = three.nodes[status["leaderId"] % 3 + 1]
    follower.kill()
    asyncio.run(_append(three, 30))
    follower.start()
    follower.wait_said("follower in epoch")
    asyncio.run(_append(three, 30))
    for node in three.nodes.values():
        assert node.stop() == 0
        assert_clean(node.said())
