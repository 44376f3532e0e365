"""Compaction with controllers as processes: the policy by command, kills, and the way back."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import ClientError
from quorate.spark.files import find_replicas

from tests.integration.support import (
    PARTITION,
    Node,
    Quorum,
    assert_clean,
    assert_error,
    here,
    succeed,
    until,
)
from tests.integration.terminal import Terminal
from tests.spark.checkpoints import snapshot_findings
from tests.tools.documents import block

KEYS = 20
VALUE_BYTES = 200
LIVE_BYTES = KEYS * (VALUE_BYTES + 100)
SMALL = {
    "internal.metadata.log.segment.bytes": 8 * 1024,
    "metadata.log.max.record.bytes.between.snapshots": 16 * 1024,
    "metadata.log.max.snapshot.interval.ms": 1_000,
    "metadata.max.retention.bytes": 16 * 1024,
}
POLICY = "application.cleanup.policy"
DEFAULT = ("--entity-type", "brokers", "--entity-default")

Values = dict[bytes, bytes]


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    quorum = Quorum(tmp_path, (1, 2, 3), **SMALL)
    try:
        quorum.form()
        yield quorum
    finally:
        quorum.kill()


def alter(quorum: Quorum, change: str, value: str) -> tuple[str, ...]:
    connection = ("--bootstrap-controller", quorum.addresses)
    return ("configs", *connection, "alter", *DEFAULT, change, value)


async def write(addresses: str, count: int, values: Values, rng: random.Random) -> None:
    """Set random keys; each is written again until it is acknowledged."""
    async with QuorumClient(addresses.split(",")) as client:
        for number in range(count):
            key = b"key-%d" % rng.randrange(KEYS)
            value = b"%06d".ljust(VALUE_BYTES, b".") % number
            while True:
                with contextlib.suppress(ClientError):
                    await client.append([(key, value)])
                    break
                await asyncio.sleep(0.05)
            values[key] = value


async def read(address: str) -> tuple[Values, int]:
    """The last value of each key, and how many records there are."""
    values: Values = {}
    count = 0
    async with QuorumClient([address]) as client:
        async for record in client.read(0, linearizable=False):
            if record.key:
                assert record.offset is not None
                values[record.key] = record.value or b""
                count += 1
    return values, count


def size(node: Node) -> int:
    return sum(path.stat().st_size for path in (node.data / PARTITION).glob("*.checkpoint"))


def until_same(node: Node, values: Values) -> int:
    """Wait until a node has the values; the number of its records."""
    found: list[tuple[Values, int]] = []

    def same() -> bool:
        with contextlib.suppress(ClientError):
            found.append(asyncio.run(read(node.address)))
        return bool(found) and found[-1][0] == values

    until(f"{node.id} has all values", same)
    return found[-1][1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_snapshots_have_the_last_value_of_each_key(quorum: Quorum, tmp_path: Path) -> None:
    rng = random.Random(22)
    values: Values = {}
    assert_error(here(*alter(quorum, "--add-config", f"{POLICY}=compact")), "application.version")
    asyncio.run(write(quorum.addresses, 200, values, rng))
    succeed(*quorum.features, "upgrade", "--feature", "metadata.version=30")
    upgrade = (*quorum.features, "upgrade", "--feature", "application.version=1")
    until("all controllers have registered", lambda: here(*upgrade, "--dry-run").status == 0)
    Terminal(tmp_path, {"controller-1:9093": quorum.addresses}).paste(
        block("docs/compaction.md", "application.cleanup.policy")
    )
    asyncio.run(write(quorum.addresses, 400, values, rng))
    for node in quorum.nodes.values():
        until_same(node, values)

    # Any of them is killed at any time, also while it writes a snapshot.
    for _ in range(6):
        node = quorum.nodes[rng.choice((1, 2, 3))]
        node.kill()
        asyncio.run(write(quorum.addresses, 60, values, rng))
        node.start()
        asyncio.run(write(quorum.addresses, 60, values, rng))
    for node in quorum.nodes.values():
        assert until_same(node, values) < 400, "of 1,320 records"
        # Retention keeps several snapshots at times, each with less than the live data twice.
        assert size(node) < 2 * LIVE_BYTES + SMALL["metadata.max.retention.bytes"] + 40_000

    # The way back: records that were removed stay so, and from now on all are kept.
    succeed(*quorum.features, "downgrade", "--feature", "application.version=0")
    before = {node.id: until_same(node, values) for node in quorum.nodes.values()}
    asyncio.run(write(quorum.addresses, 300, values, rng))
    for node in quorum.nodes.values():
        assert until_same(node, values) >= min(before[node.id], 300)
        assert node.stop() == 0
        assert_clean(node.said())
        node.start()
    for node in quorum.nodes.values():
        until_same(node, values)
    quorum.stop()
    replicas = find_replicas([node.data for node in quorum.nodes.values()])
    assert snapshot_findings(replicas) == []
