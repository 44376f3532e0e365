"""Two brokers' data planes over real gRPC and real logs, told of metadata by records: replication,
idempotent producing, readers, and what becomes of them when the leader changes.

The controllers are not there: proposals stay unanswered, ISRs are what the records say.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from quorate.broker.alter_partition_manager import AlterPartitionManager
from quorate.broker.authorizer import BrokerAuthorizer
from quorate.broker.client import Producer, RecordReader, sequenced
from quorate.broker.config import BrokerConfig
from quorate.broker.metadata_view import MetadataView
from quorate.broker.partition import PartitionConfig, PartitionReplica
from quorate.broker.replica import LocalReplica
from quorate.broker.replica_log import ReplicaLog
from quorate.broker.replica_manager import ReplicaManager
from quorate.broker.service import PartitionService
from quorate.broker.values import PartitionState
from quorate.common.config_types import Address
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE
from quorate.log.disk import Disk
from quorate.log.meta_properties import random_uuid
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records.batch import build_data_batch, read_header
from quorate.records.metadata import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.records.metadata.nodes import RegisteredEndpoint
from quorate.rpc.client.partition_client import BrokerConnections
from quorate.rpc.errors import AdminError, OutcomeUnknownError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.server.partition_servicer import PartitionServicer
from quorate.rpc.server.response_memory import SMALL_BYTES, ResponseMemory
from quorate.rpc.wire.limits import ServerLimits
from quorate.rpc.wire.methods import PARTITION_METHODS
from quorate.rpc.wire.partition_convert import encode_fetch, encode_produce_request
from quorate.rpc.wire.partition_values import (
    FetchPosition,
    PartitionFetch,
    PartitionKey,
    ProduceRequest,
    ProducerIdentity,
)
from quorate.runtime.clock import Clock

from tests.pressure import http2
from tests.pressure.target import Aim

HOST = "127.0.0.1"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAABAA"
KEY = PartitionKey(TOPIC_ID, 0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in many places
            await asyncio.sleep(0.01)


class DataPlane:
    """One broker without its life: a server, a manager, an image that the test feeds."""

    def __init__(self, broker_id: int, folder: Path, **settings: object) -> None:
        self.id = broker_id
        self.folder = folder / f"broker-{broker_id}"
        self.folder.mkdir(exist_ok=True)
        self.settings = settings
        self.failures: list[BaseException] = []
        self.authorizer: BrokerAuthorizer | None = None
        self.server = grpc.aio.server()
        self.port = self.server.add_insecure_port(f"{HOST}:0")

    async def start(self) -> None:
        endpoint = Endpoint("PLAINTEXT", HOST, self.port)
        config = BrokerConfig(
            node_id=self.id,
            listen=(f"{HOST}:{self.port}",),
            endpoints=(endpoint,),
            controller_listener_names=("CONTROLLER",),
            metadata_log_dir=self.folder,
            log_dirs=(self.folder,),
            bootstrap_servers=(Address(HOST, 1),),
            **self.settings,  # type: ignore[arg-type]
        )
        self.image, self.view = MetadataImage(), MetadataView(self.id)
        self.client = MetadataClient([f"{HOST}:1"])
        self.connections = BrokerConnections()
        alter_partition_manager = AlterPartitionManager(
            self.id, self.client, broker_epoch=lambda: self.id, fail=self.failures.append
        )
        self.manager = ReplicaManager(
            config,
            Clock(),
            self.view,
            alter_partition_manager,
            self.connections,
            fail=self.failures.append,
        )
        service = PartitionService(self.manager, self.view, self.client)
        self.servicer = PartitionServicer(service, ServerLimits(), self.authorizer)
        self.servicer.add_to(self.server)
        await self.server.start()
        self.manager.start(self.id)

    def tell(self, *records: MetadataRecord) -> None:
        changes = self.image.apply_batch(records, self.image.offset + 1, 1, 0)
        self.view.follow(self.image, changes)
        self.manager.brokers_changed()
        gone = [key for key in self.manager.replicas if not self.view.has_topic(key.topic_id)]
        self.manager.partitions_changed([*gone, *(PartitionKey(*k) for k in changes.partitions)])

    async def stop(self) -> None:
        await self.server.stop(None)
        await self.manager.stop()
        await self.connections.close()
        await self.client.close()
        assert self.failures == []


class Pair:
    """Brokers 1 and 2 with one partition on both, led by 1."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.brokers = {i: DataPlane(i, folder, **settings) for i in (1, 2)}

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()
        registrations = [
            RegisterBrokerRecord(
                broker_id=i,
                broker_epoch=i,
                end_points=(RegisteredEndpoint("PLAINTEXT", HOST, broker.port, 0),),
                fenced=False,
                version=3,
            )
            for i, broker in self.brokers.items()
        ]
        self.tell(
            *registrations,
            TopicRecord("t", TOPIC_ID, version=0),
            PartitionRecord(
                0, TOPIC_ID, (1, 2), (1, 2), leader=1, leader_epoch=0, partition_epoch=0, version=0
            ),
        )
        replicas = [broker.manager.replicas for broker in self.brokers.values()]
        await until(lambda: all(KEY in r and r[KEY].machine.leader_id == 1 for r in replicas))

    def tell(self, *records: MetadataRecord) -> None:
        for broker in self.brokers.values():
            broker.tell(*records)

    @property
    def addresses(self) -> list[str]:
        return [f"{HOST}:{broker.port}" for broker in self.brokers.values()]

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()


class NumberedProducer(Producer):
    """A producer whose ids come from the test, since no controller is there to give them."""

    async def identity(self) -> ProducerIdentity:
        return ProducerIdentity(ErrorCode.NONE, 7, 0)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path, min_insync_replicas=2)
    await pair.start()
    yield pair
    await pair.stop()


async def read(pair: Pair) -> list[bytes]:
    async with RecordReader(pair.addresses) as reader:
        end = await reader.end_offset("t", 0)
        return [r.value or b"" async for r in reader.records("t", 0, 0, end)]


async def test_a_record_is_acknowledged_when_both_have_it_and_then_readers_see_it(
    pair: Pair,
) -> None:
    async with NumberedProducer(pair.addresses) as producer:
        sent = [producer.send("t", b"%d" % n, partition=0) for n in range(200)]
        placed = await asyncio.gather(*sent)
    assert [each.offset for each in placed] == list(range(200))
    assert pair.brokers[2].manager.replicas[KEY].log.end_offset == 200
    assert await read(pair) == [b"%d" % n for n in range(200)]


async def test_a_repeated_batch_is_answered_with_the_offset_that_it_has(pair: Pair) -> None:
    service = PartitionService(
        pair.brokers[1].manager, pair.brokers[1].view, pair.brokers[1].client
    )
    batch = build_data_batch([(None, b"a"), (None, b"b")], 0)
    request = ProduceRequest(
        KEY, bytes(sequenced(batch, ProducerIdentity(ErrorCode.NONE, 7, 0), 0)), timeout_ms=5_000
    )
    first, again = [await service.produce(request) for _ in range(2)]
    assert (first.error, first.base_offset) == (ErrorCode.NONE, 0)
    assert again == first
    assert pair.brokers[1].manager.replicas[KEY].log.end_offset == 2


async def test_a_broken_batch_is_refused(pair: Pair) -> None:
    service = PartitionService(
        pair.brokers[1].manager, pair.brokers[1].view, pair.brokers[1].client
    )
    batch = bytes(build_data_batch([(None, b"a")], 0))
    for records, error in (
        (batch[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (batch + batch, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.CORRUPT_MESSAGE),
    ):
        assert (await service.produce(ProduceRequest(KEY, records))).error is error
    unknown = PartitionKey("AAAAAAAAAAAAAAAAAAAB_w", 0)
    answer = await service.produce(ProduceRequest(unknown, batch))
    assert answer.error is ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_producer_follows_the_leader_and_nothing_is_doubled(pair: Pair) -> None:
    async with NumberedProducer(pair.addresses) as producer:
        for number in range(60):
            if number in (20, 40):
                leader = 2 if number == 20 else 1
                pair.tell(PartitionChangeRecord(0, TOPIC_ID, leader=leader, version=0))
            await producer.send("t", b"%d" % number, partition=0)
    assert await read(pair) == [b"%d" % n for n in range(60)]


async def test_what_was_not_committed_is_truncated_when_the_other_leads(pair: Pair) -> None:
    async with NumberedProducer(pair.addresses) as producer:
        await producer.send("t", b"kept", partition=0)
        replica = pair.brokers[1].manager.replicas[KEY]
        # The other broker hears of another leader before these records reach it.
        pair.brokers[2].tell(PartitionChangeRecord(0, TOPIC_ID, isr=(2,), leader=2, version=0))
        await until(lambda: pair.brokers[2].manager.replicas[KEY].machine.is_leader)
        producer.delivery_timeout_ms = producer.request_timeout_ms = 300
        with pytest.raises(OutcomeUnknownError):
            await producer.send("t", b"gone", partition=0)
        assert replica.log.end_offset == 2
    pair.brokers[1].tell(PartitionChangeRecord(0, TOPIC_ID, isr=(2,), leader=2, version=0))
    await until(lambda: replica.log.end_offset == 1)


async def test_acks_all_is_refused_under_the_smallest_isr(pair: Pair) -> None:
    pair.tell(PartitionChangeRecord(0, TOPIC_ID, isr=(1,), version=0))
    await until(lambda: pair.brokers[1].manager.replicas[KEY].machine.is_under_min_isr)
    producer = NumberedProducer(pair.addresses, delivery_timeout_ms=300)
    with pytest.raises(OutcomeUnknownError, match="NOT_ENOUGH_REPLICAS"):
        await producer.send("t", b"v", partition=0)
    await producer.close()
    assert pair.brokers[1].manager.replicas[KEY].log.end_offset == 0


async def test_with_flush_before_ack_all_of_it_works_too(tmp_path: Path) -> None:
    pair = Pair(tmp_path, min_insync_replicas=2, flush_interval_messages=1)
    await pair.start()
    async with NumberedProducer(pair.addresses) as producer:
        for number in range(20):
            await producer.send("t", b"%d" % number, partition=0)
        for broker in pair.brokers.values():
            assert broker.manager.replicas[KEY].machine.flushed_end == 20
    await pair.stop()


async def test_a_deleted_topic_is_removed_from_the_disk(pair: Pair) -> None:
    assert (pair.brokers[1].folder / "t-0").is_dir()
    pair.tell(RemoveTopicRecord(TOPIC_ID, version=0))
    folders = [broker.folder / "t-0" for broker in pair.brokers.values()]
    await until(lambda: not any(folder.exists() for folder in folders))
    async with RecordReader(pair.addresses) as reader:
        with pytest.raises(AdminError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await reader.topic("t", timeout_s=0.1)


async def test_a_deleted_topic_with_the_longest_name_is_removed_from_the_disk(pair: Pair) -> None:
    other, name = random_uuid(), "n" * 249
    pair.tell(
        TopicRecord(name, other, version=0),
        PartitionRecord(0, other, (1, 2), (1, 2), leader=1, leader_epoch=0, version=0),
    )
    keys = [broker.manager.replicas.keys() for broker in pair.brokers.values()]
    await until(lambda: all(PartitionKey(other, 0) in each for each in keys))
    pair.tell(RemoveTopicRecord(other, version=0))
    await until(lambda: not any(PartitionKey(other, 0) in each for each in keys))
    folders = [broker.folder for broker in pair.brokers.values()]
    await until(lambda: not any(list(folder.glob("n*")) for folder in folders))


async def test_a_start_resumes_deletions_and_keeps_strays(tmp_path: Path) -> None:
    first = DataPlane(1, tmp_path)
    for last in "ab":
        ReplicaLog(first.folder / ("s" * 248 + last + "-0"), random_uuid()).close()
    for name in ("old-0-deleted", f"{'d' * 200}-0.{random_uuid()}-deleted"):
        ReplicaLog(first.folder / name, random_uuid()).close()
    await first.start()
    await first.stop()
    strays = {path.name for path in first.folder.iterdir() if path.is_dir()}
    assert len(strays) == 2
    assert all(name.startswith("sss") and name.endswith("-stray") for name in strays)
    second = DataPlane(1, tmp_path)
    await second.start()
    await second.stop()
    assert {path.name for path in first.folder.iterdir() if path.is_dir()} == strays


async def test_a_refused_log_is_reported_when_the_others_have_been_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowLog(ReplicaLog):
        def __init__(self, directory: Path, *arguments: Any, **options: Any) -> None:
            if directory.name == "t-1":
                time.sleep(0.3)
            super().__init__(directory, *arguments, **options)

    monkeypatch.setattr("quorate.broker.replica_manager.ReplicaLog", SlowLog)
    broker = DataPlane(1, tmp_path)
    await broker.start()
    try:
        await broker.manager.settled()
        ReplicaLog(broker.folder / "t-0", TOPIC_ID).save_recovery_point(7)
        broker.tell(
            TopicRecord("t", TOPIC_ID, version=0),
            *(
                PartitionRecord(index, TOPIC_ID, (1,), (1,), leader=1, leader_epoch=0, version=0)
                for index in range(2)
            ),
        )
        await until(lambda: bool(broker.failures))
        assert list(broker.manager.replicas) == [PartitionKey(TOPIC_ID, 1)]
        (failure,) = broker.failures
        assert "t-0 has lost records: its log ends at offset 0" in str(failure)
        broker.failures.clear()
    finally:
        await broker.stop()


async def test_a_fetch_stream_is_woken_by_a_replica_that_was_opened_again(pair: Pair) -> None:
    broker = pair.brokers[1]
    service = PartitionService(broker.manager, broker.view, broker.client)
    session = service.open_session(lambda _: ErrorCode.NONE)

    def fetch(max_wait_ms: int) -> PartitionFetch:
        return PartitionFetch(NO_NODE, -1, max_wait_ms, 1 << 20, (FetchPosition(KEY, 0),))

    room = ResponseMemory().hold("")
    first = broker.manager.replicas[KEY]
    await session.fetch(fetch(0), room)
    assert session in first.watchers  # beside the other broker's session
    pair.tell(PartitionChangeRecord(0, TOPIC_ID, (2,), leader=2, replicas=(2,), version=0))
    await until(lambda: KEY not in broker.manager.replicas)
    pair.tell(PartitionChangeRecord(0, TOPIC_ID, (1,), leader=1, replicas=(1,), version=0))
    replicas = broker.manager.replicas
    await until(lambda: KEY in replicas and replicas[KEY].machine.is_leader)
    waiting = asyncio.create_task(session.fetch(fetch(30_000), room))
    await asyncio.sleep(0)  # the request is parked
    batch = bytes(build_data_batch([(None, b"a")], 0))
    assert (await service.produce(ProduceRequest(KEY, batch))).error is ErrorCode.NONE
    async with asyncio.timeout(10):
        response = await waiting
    assert [len(each.records) for each in response.partitions] == [1]
    assert session not in first.watchers
    assert session in replicas[KEY].watchers
    session.close()


async def test_without_room_records_are_acknowledged_and_read_later(pair: Pair) -> None:
    broker = pair.brokers[1]
    service = PartitionService(broker.manager, broker.view, broker.client)
    batch = bytes(build_data_batch([(None, bytes(SMALL_BYTES))], 0))
    answer = await service.produce(ProduceRequest(KEY, batch))
    assert answer.error is ErrorCode.NONE
    machine = broker.manager.replicas[KEY].machine
    await until(lambda: machine.high_watermark == 1)

    memory = ResponseMemory(8 << 20)
    memory.end = lambda _peer, _reason: None
    slow, reader, follower = (memory.hold(name) for name in ("slow", "reader", "follower"))
    await slow.reserve(8 << 20)
    session = service.open_session(lambda _: ErrorCode.NONE)
    request = PartitionFetch(NO_NODE, -1, 0, 1 << 20, (FetchPosition(KEY, 0),))
    waiting = asyncio.create_task(session.fetch(request, reader))
    # Another one has nothing to read; its request acknowledges what is before its position.
    acknowledging = service.open_session(lambda _: ErrorCode.NONE)
    position = FetchPosition(KEY, 1, leader_epoch=0, last_epoch=0)
    request = PartitionFetch(2, 2, 0, 1 << 20, (position,))
    async with asyncio.timeout(10):
        assert not (await acknowledging.fetch(request, follower)).partitions[0].records
    assert not waiting.done()
    assert memory.bytes == slow.size
    slow.release()
    async with asyncio.timeout(10):
        (found,) = (await waiting).partitions
    assert sum(map(len, found.records)) == len(batch)
    assert memory.bytes == reader.size
    acknowledging.close()
    session.close()


async def test_answers_that_nobody_reads_are_bounded(pair: Pair) -> None:
    broker, size, ended = pair.brokers[1], 900_000, []
    memory = broker.servicer.response_memory = ResponseMemory(9_000_000, stalled_s=0.0)
    memory.end = lambda _peer, reason: ended.append(reason)
    service = PartitionService(broker.manager, broker.view, broker.client)
    batch = bytes(build_data_batch([(None, bytes(size))], 0))
    assert (await service.produce(ProduceRequest(KEY, batch))).error is ErrorCode.NONE
    machine = broker.manager.replicas[KEY].machine
    await until(lambda: machine.high_watermark == 1)
    request = encode_fetch(PartitionFetch(NO_NODE, -1, 0, 1 << 20, (FetchPosition(KEY, 0),)))
    # gRPC's own clients may give windows that take all responses at once.
    connection = await http2.Connection.open(Aim(broker.port, kafka=0, http=0))
    headers = http2.call_headers(PARTITION_METHODS["Fetch"].path)
    message = http2.message(request.SerializeToString())
    streams = range(1, 61, 2)
    for stream in streams:
        await connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, headers))
        await connection.send_data(stream, message, ends=True)
    await until(lambda: bool(ended))
    assert memory.bytes <= 9_000_000
    for stream in (0, *streams):
        more = (1 << 30).to_bytes(4, "big")
        await connection.send(http2.frame(http2.WINDOW_UPDATE, 0, stream, more))
    await until(lambda: connection.received > len(streams) * len(batch))
    await until(lambda: memory.bytes == 0)
    await connection.close()


async def test_a_broker_that_stops_ends_idle_streams(pair: Pair) -> None:
    broker = pair.brokers[1]
    batch = bytes(build_data_batch([(None, b"a")], 0))
    produce = encode_produce_request(1, ProduceRequest(KEY, batch))
    fetch = encode_fetch(PartitionFetch(NO_NODE, -1, 0, 1 << 20, (FetchPosition(KEY, 0),)))
    async with grpc.aio.insecure_channel(f"{HOST}:{broker.port}") as channel:
        streams = []
        for name, request in (("Produce", produce), ("Fetch", fetch)):
            stream = channel.stream_stream(PARTITION_METHODS[name].path)()
            await stream.write(request.SerializeToString())
            await stream.read()
            streams.append(stream)
        async with asyncio.timeout(10):
            await broker.servicer.stop()
            assert [await stream.code() for stream in streams] == [grpc.StatusCode.OK] * 2


class SlowDisk(Disk):
    """While `is_slow`, a sync sets `has_begun` and waits for `may_finish`."""

    def __init__(self) -> None:
        self.is_slow = False
        self.has_begun = threading.Event()
        self.may_finish = threading.Event()

    def sync_data(self, descriptor: int) -> None:
        if self.is_slow:
            self.has_begun.set()
            assert self.may_finish.wait(10)
        super().sync_data(descriptor)


async def test_records_appended_during_a_flush_are_flushed_when_they_reach_the_limit(
    pair: Pair, tmp_path: Path
) -> None:
    disk = SlowDisk()
    log = ReplicaLog(tmp_path / "u-0", TOPIC_ID, disk=disk)
    machine = PartitionReplica(1, log.state, PartitionConfig())
    host = pair.brokers[1].manager
    replica = LocalReplica(PartitionKey(TOPIC_ID, 1), "u-0", machine, log, host, flush_messages=2)
    replica.apply(PartitionState(1, 0, 0, (1,), (1,)), {})

    async def produce(count: int) -> None:
        batch = build_data_batch([(None, b"v")] * count, 0)
        answer = await replica.produce(batch, read_header(batch), acks_all=True, timeout_ms=1_000)
        assert answer.error is ErrorCode.NONE

    disk.is_slow = True
    await produce(2)
    assert await asyncio.to_thread(disk.has_begun.wait, 10)
    await produce(2)
    assert machine.flushed_end == 0
    disk.may_finish.set()
    await until(lambda: machine.flushed_end == 4)
    await replica.close()
