"""What the hot paths cost, so that a change that makes one dearer is seen.

This sees all of it, libraries and the network too; `tests.bench.instructions` sees Quorate's own
code only, and the least change of it.

A cost is a multiple of a yardstick that is measured in the same run, in turn with it: a loop of
plain Python for what computes, an echo over gRPC for what goes through the network. So a slow or
busy machine moves both. The limits stand at about one and a half times what was measured.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import pytest
from quorate.cli.bench.floors import ECHO, floor_server
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partition_index import PartitionIndex
from quorate.records.batch import (
    build_data_batch,
    iter_batches,
    iter_records,
    read_header,
    stamp,
)
from quorate.records.metadata import MetadataRecord
from quorate.records.metadata.partitions import PartitionRecord, TopicRecord
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.runtime.gc_tuning import collection_paused
from quorate.runtime.metadata_batches import load_batch, snapshot_batches

from tests.integration.support import Node, free_ports
from tests.simulation.runner import run_seed

ROUNDS = 7
ROUNDS_MAX = 100
STEPS = 100_000

COMMIT_ECHOES_MAX = 5.0
"""The least is one echo and one sync."""
COMMIT_TRIES = 3
"""Other processes may slow down the disk, but not the echo, for a while."""


class Box:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


def yardstick() -> int:
    """Objects, calls, a dictionary and a list: what Python code is made of. How many steps."""
    boxes: dict[int, Box] = {}
    order = []
    for step in range(STEPS):
        boxes[step & 1023] = Box(step)
        if step & 7 == 0:
            order.append(boxes[step & 511].value)
    assert len(order) == STEPS // 8
    return STEPS


def steps_each(work: Callable[[], int], limit: float) -> float:
    """What one piece of `work`, which says how many there were, costs in steps.

    Rounds go on while it costs more than `limit`: for some seconds, other processes may fill the
    caches, which slows down `work` more than the yardstick.
    """
    costs: list[float] = []
    while len(costs) < ROUNDS or (min(costs) > limit and len(costs) < ROUNDS_MAX):
        times = []
        for part in (yardstick, work):
            began = time.process_time()
            count = part()
            times.append((time.process_time() - began) / count)
        costs.append(times[1] / times[0])
    return min(costs)


def simulated_events() -> int:
    return sum(run_seed(seed).events for seed in (11, 12, 13))


VALUES = [(None, b"v" * 100) for _ in range(1_000)]
BATCHES = [bytearray(build_data_batch(VALUES[:1], 1)) for _ in range(2_000)]
for number, each in enumerate(BATCHES):
    stamp(each, number, 1)
LOG = b"".join(BATCHES)
FULL = bytes(build_data_batch(VALUES, 1))


def built_records() -> int:
    for _ in range(20):
        build_data_batch(VALUES, 1)
    return 20 * len(VALUES)


def read_headers() -> int:
    return sum(1 for _ in iter_batches(LOG))


def read_records() -> int:
    header, batch = next(iter_batches(FULL))
    return sum(1 for _ in range(10) for _ in iter_records(batch, header))


def replayed_records() -> int:
    topic = "A" * 21 + "Q"
    records = [TopicRecord("t", topic)] + [
        PartitionRecord(number, topic, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0)
        for number in range(5_000)
    ]
    MetadataImage().apply_batch(records, 0, 1, 0)
    return len(records)


TOPIC = "A" * 21 + "Q"
METADATA: list[MetadataRecord] = [TopicRecord("t", TOPIC)] + [
    PartitionRecord(
        number, TOPIC, (1001, 1002, 1003), (1001, 1002, 1003), (), (), 1001, 0, 0, 0, (TOPIC,) * 3
    )
    for number in range(5_000)
]
SNAPSHOT = [(read_header(batch), memoryview(batch)) for batch in snapshot_batches(METADATA, 1)]


def loaded_records() -> int:
    """From the bytes of a snapshot."""
    image = MetadataImage()
    with collection_paused():
        return sum(len(load_batch(image, header, batch)) for header, batch in SNAPSHOT)


def indexed_partitions() -> int:
    """As a controller does that becomes active; the image is replayed for it."""
    image = MetadataImage()
    image.load_batch(METADATA, 0, 1, 0)
    PartitionIndex(image.topics.by_topic())
    return len(METADATA)


@pytest.mark.parametrize(
    ("work", "limit"),
    [
        (simulated_events, 80.0),
        (built_records, 3.6),
        (read_headers, 6.0),
        (read_records, 12.0),
        (replayed_records, 6.5),
        (loaded_records, 7.4),
        (indexed_partitions, 4.4),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_what_computes_costs_so_many_steps(work: Callable[[], int], limit: float) -> None:
    cost = steps_each(work, limit)
    print(f"{work.__name__}: {cost:.1f} steps each, at most {limit}")
    assert cost <= limit


# --- through the network --------------------------------------------------------------------------


async def commit_in_echoes(address: str, port: int) -> float:
    """The time of a commit over that of an echo, one after the other: the tenth percentile of
    each, which other work on the machine moves less than the median.
    """
    commits, echoes = [], []
    async with (
        QuorumClient([address]) as client,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stream = channel.stream_stream(ECHO)()
        for _ in range(1_200):
            began = time.perf_counter()
            await client.append_value(b"value".ljust(100, b"."))
            committed = time.perf_counter()
            await stream.write(b"value".ljust(100, b"."))
            await stream.read()
            commits.append(committed - began)
            echoes.append(time.perf_counter() - committed)
        await stream.done_writing()
    commit, echo = (statistics.quantiles(times[200:], n=10)[0] for times in (commits, echoes))
    return commit / echo


@pytest.mark.slow
def test_a_commit_costs_so_many_echoes(tmp_path: Path) -> None:
    """A single controller: one stream, one write to the log, one sync."""
    node = Node(tmp_path, 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("leads epoch 1")
        with floor_server() as port:
            for _ in range(COMMIT_TRIES):
                ratio = asyncio.run(commit_in_echoes(node.address, port))
                if ratio <= COMMIT_ECHOES_MAX:
                    break
    finally:
        node.kill()
    print(f"a commit takes {ratio:.1f} echoes, at most {COMMIT_ECHOES_MAX}")
    assert ratio <= COMMIT_ECHOES_MAX
