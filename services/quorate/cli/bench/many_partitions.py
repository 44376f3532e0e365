"""`metadata`: the cost of many partitions for the metadata controller.

1. Three controllers run, by default, and three simulated brokers, which only register and send
   heartbeats. The workload creates topics of ten partitions with three replicas each, a hundred
   topics per request, until there are `Bench.partitions` partitions.
2. The workload kills the leader's process, and measures the time until a new leader has created a
   topic.
3. It writes the image in the killed leader's directory as a checkpoint, and reads the checkpoint,
   in this process.
4. It reads a checkpoint of `Bench.records` records, in this process, and measures the records per
   second of processor time.
5. It starts a separate controller on this checkpoint, and measures the time until the controller
   answers from it.

Source: KIP-500, KIP-630 (what a snapshot is for).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from quorate.cli.bench.quorum import BenchQuorum
from quorate.cli.bench.report import Measurement, percentile
from quorate.cli.bench.workloads import Bench, processor_seconds, resident_mib
from quorate.cli.local.local_cluster import HOST, LocalCluster
from quorate.cli.output import CommandError
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.common.identifiers import uuid_from_bytes
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.meta_properties import random_uuid
from quorate.log.metadata_log import MetadataLog, create_partition_directory, partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.snapshots import CHECKPOINT_SUFFIX, SnapshotStore, snapshot_name
from quorate.metadata import requests as r
from quorate.metadata.metadata_version import LATEST_LEVEL, SUPPORTED
from quorate.raft.types import ElectionState, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.metadata import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.quorum_client import ClientError
from quorate.rpc.metadata_client import MetadataClient
from quorate.runtime.gc_tuning import collection_paused
from quorate.runtime.metadata_batches import snapshot_batches
from quorate.runtime.metadata_files import read_directory, read_snapshot
from quorate.runtime.replay import load_snapshot

NAME = "metadata"
BROKERS = (1001, 1002, 1003)
BEAT_S = 1.0
UNFENCED_TIMEOUT_S = 30.0
PARTITIONS_A_TOPIC = 10
TOPICS_A_REQUEST = 100
TIMEOUT_MS = 60_000
READY_TIMEOUT_S = 120.0
POLL_S = 0.02


async def many_partitions(bench: Bench) -> list[Measurement]:
    """Run the steps in the docstring of this module."""
    found: list[Measurement] = []
    async with (
        bench.quorum() as quorum,
        MetadataClient(quorum.bootstrap, tls=bench.access.tls) as client,
    ):
        async with _brokers(client):
            found += await _created(bench, quorum, client)
            killed = await quorum.leader()
            found += await _failed_over(bench, quorum, client, killed)
        data = quorum.own.nodes[killed].data
        found += await asyncio.to_thread(_written_and_read, bench, data)
    with tempfile.TemporaryDirectory(prefix="quorate-bench-", dir=bench.folder) as folder:
        found += await _large_checkpoint(bench, Path(folder))
    return found


def _directory_of(broker: int) -> str:
    """Return the id of the broker's log directory, which is not one that Kafka reserves."""
    return uuid_from_bytes(bytes([200, *[BROKERS.index(broker)] * 15]))


def _took(bench: Bench, metric: str, value: float, unit: str, n: int) -> Measurement:
    return bench.took(NAME, metric, value, unit, n, partitions=bench.partitions)


# --- brokers that only register -------------------------------------------------------------------


@asynccontextmanager
async def _brokers(client: MetadataClient) -> AsyncIterator[None]:
    unfenced = [asyncio.Event() for _ in BROKERS]
    beats = [
        asyncio.create_task(_beat(client, broker, event))
        for broker, event in zip(BROKERS, unfenced, strict=True)
    ]
    try:
        try:
            async with asyncio.timeout(UNFENCED_TIMEOUT_S):
                await asyncio.gather(*(event.wait() for event in unfenced))
        except TimeoutError:
            raise CommandError(
                f"the brokers were not unfenced within {UNFENCED_TIMEOUT_S:.0f} s"
            ) from None
        yield
    finally:
        await cancel_tasks(*beats)


async def _beat(client: MetadataClient, broker: int, unfenced: asyncio.Event) -> None:
    answer = await client.ask(
        r.RegisterBroker(
            broker,
            random_uuid(),
            (Endpoint("PLAINTEXT", HOST, 9092),),
            log_dirs=(_directory_of(broker),),
            features=tuple(r.BrokerFeature(name, levels) for name, levels in SUPPORTED.items()),
        )
    )
    while True:
        with suppress(ClientError):  # between two leaders
            beat = await client.ask(
                r.BrokerHeartbeat(broker, answer.broker_epoch, answer.broker_epoch)
            )
            if beat.error is ErrorCode.NONE and not beat.is_fenced:
                unfenced.set()
        await asyncio.sleep(BEAT_S)


# --- a quorum -------------------------------------------------------------------------------------


def _topics(first: int, count: int) -> tuple[r.NewTopic, ...]:
    names = (f"topic-{number:06}" for number in range(first, first + count))
    return tuple(r.NewTopic(name, PARTITIONS_A_TOPIC, len(BROKERS)) for name in names)


async def _create(client: MetadataClient, topics: tuple[r.NewTopic, ...]) -> None:
    answer = await client.ask(r.CreateTopics(topics), timeout_ms=TIMEOUT_MS)
    for topic in answer.topics:
        if topic.error is not ErrorCode.NONE:
            raise CommandError(f"topic {topic.name}: {topic.error.name} {topic.message}")


async def _created(bench: Bench, quorum: BenchQuorum, client: MetadataClient) -> list[Measurement]:
    count = -(-bench.partitions // PARTITIONS_A_TOPIC)
    leader = quorum.own.processes[await quorum.leader()].pid
    empty = resident_mib(leader)
    times: list[float] = []
    began = time.monotonic()
    for first in range(0, count, TOPICS_A_REQUEST):
        asked = time.monotonic()
        await _create(client, _topics(first, min(TOPICS_A_REQUEST, count - first)))
        times.append(time.monotonic() - asked)
        bench.note(f"{(first + TOPICS_A_REQUEST) * PARTITIONS_A_TOPIC:,} partitions")
    seconds = time.monotonic() - began
    await quorum.until_all_caught_up()
    times.sort()
    made = count * PARTITIONS_A_TOPIC
    return [
        _took(bench, "create", seconds, "s", made),
        _took(bench, "create, partitions a second", made / seconds, "/s", made),
        _took(bench, f"create {TOPICS_A_REQUEST} topics, p50", percentile(times, 0.5) * 1000,
              "ms", len(times)),
        _took(bench, f"create {TOPICS_A_REQUEST} topics, p99", percentile(times, 0.99) * 1000,
              "ms", len(times)),
        _took(bench, "resident memory of the leader, empty", empty, "MiB", 1),
        _took(bench, "resident memory of the leader, full", resident_mib(leader), "MiB", 1),
    ]  # fmt: skip


async def _failed_over(
    bench: Bench, quorum: BenchQuorum, client: MetadataClient, leader: int
) -> list[Measurement]:
    bench.note("kill -9 of the leader")
    began = time.monotonic()
    await asyncio.to_thread(quorum.own.kill, leader)
    await _create(client, (r.NewTopic("after-the-kill", 1, len(BROKERS)),))
    return [_took(bench, "kill -9 to the next topic", time.monotonic() - began, "s", 1)]


def _written_and_read(bench: Bench, directory: Path) -> list[Measurement]:
    bench.note("checkpoint of the image")
    image = read_directory(directory)
    snapshot = OffsetAndEpoch(image.offset + 1, image.epoch)
    count = sum(1 for _ in image.records())
    with tempfile.TemporaryDirectory(prefix="quorate-bench-", dir=bench.folder) as folder:
        store = SnapshotStore(create_partition_directory(Path(folder)), Disk())
        began = time.monotonic()
        store.write(snapshot, 0, None, 0, snapshot_batches(image.records(), 0))
        written = time.monotonic() - began
        path = partition_directory(Path(folder)) / (snapshot_name(snapshot) + CHECKPOINT_SUFFIX)
        size = path.stat().st_size / 1024**2
        began = time.monotonic()
        read_snapshot(path)
        read = time.monotonic() - began
    return [
        _took(bench, "write the checkpoint", written, "s", count),
        _took(bench, "size of the checkpoint", size, "MiB", count),
        _took(bench, "load the checkpoint", read, "s", count),
    ]


# --- a large checkpoint ---------------------------------------------------------------------------


def _records(count: int) -> Iterator[MetadataRecord]:
    """Yield `count` records as an image would write them: topics with a hundred partitions."""
    yield FeatureLevelRecord(METADATA_VERSION, LATEST_LEVEL)
    directories = tuple(map(_directory_of, BROKERS))
    for broker, directory in zip(BROKERS, directories, strict=True):
        # Unfenced, so that the measured start does not include moving the leader of each partition.
        yield RegisterBrokerRecord(broker, fenced=False, log_dirs=(directory,))
    topic_id = ""
    for number in range(count - 1 - len(BROKERS)):
        topic, partition = divmod(number, 101)
        if partition == 0:
            topic_id = uuid_from_bytes(b"topic!" + topic.to_bytes(10, "big"))
            yield TopicRecord(f"topic-{topic:06}", topic_id)
        else:
            yield PartitionRecord(
                partition - 1, topic_id, BROKERS, BROKERS, (), (), BROKERS[partition % 3],
                leader_epoch=0, partition_epoch=0, directories=directories,
            )  # fmt: skip


async def _large_checkpoint(bench: Bench, folder: Path) -> list[Measurement]:
    bench.note(f"checkpoint of {bench.records:,} records")
    cluster = LocalCluster(folder / "cluster")
    cluster.create([1])
    node = cluster.nodes[1]
    snapshot = OffsetAndEpoch(bench.records, 1)
    endpoint = Endpoint("CONTROLLER", HOST, node.port)
    voters = VoterSet.of((Voter(ReplicaKey(1, node.directory_id), (endpoint,)),))
    store = SnapshotStore(partition_directory(node.data), Disk())
    batches = snapshot_batches(_records(bench.records), 0)
    await asyncio.to_thread(store.write, snapshot, 1, voters, 0, batches)
    QuorumStateFile(store.directory).write(ElectionState(snapshot.epoch))
    rate = await asyncio.to_thread(_replay_rate, node.data, snapshot, bench.records)
    bench.note(f"start from {bench.records:,} records")
    try:
        began = time.monotonic()
        cluster.start()
        await _until_loaded(cluster)
        seconds = time.monotonic() - began
        pid = cluster.processes[1].pid
        processor, memory = processor_seconds(pid), resident_mib(pid)
    finally:
        for node_id in cluster.running:
            cluster.kill(node_id)
    return [
        _took(bench, "replay, records a second a core", rate, "/s", bench.records),
        _took(bench, "start from the large checkpoint", seconds, "s", bench.records),
        _took(bench, "processor time of that start", processor, "s", bench.records),
        _took(bench, "resident memory after that", memory, "MiB", bench.records),
    ]


def _replay_rate(directory: Path, snapshot: OffsetAndEpoch, count: int) -> float:
    """Measure the replay of a starting controller, in records per second of processor time."""
    log = MetadataLog.open(
        directory, LogConfig(), on_durable=lambda _ticket: None, on_failure=lambda _error: None
    )
    try:
        with collection_paused():
            began = time.process_time()
            found = load_snapshot(log, snapshot).records
            seconds = time.process_time() - began
    finally:
        log.close()
    assert found == count, f"{found} of {count} records were replayed"
    return count / seconds


async def _until_loaded(cluster: LocalCluster) -> None:
    """Wait until the controller rejects a topic because the checkpoint has it already."""
    request = r.CreateTopics((r.NewTopic("topic-000000", 1, 1),), validate_only=True)
    deadline = time.monotonic() + READY_TIMEOUT_S
    async with MetadataClient(cluster.addresses) as client:
        while time.monotonic() < deadline:
            cluster.check_running()
            with suppress(ClientError):
                answer = await client.ask(request, timeout_ms=1_000)
                if answer.topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
            await asyncio.sleep(POLL_S)
    raise CommandError(f"controller 1 was not ready within {READY_TIMEOUT_S:.0f} s")
