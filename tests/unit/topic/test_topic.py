"""The answers to producers and consumers, in every served version, with Kafka's schemas (kio)."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.listener.listening import ListenerSettings
from quorate.bridge.listener.server import NO_RESPONSE
from quorate.bridge.messages import schemas as s
from quorate.common.batch_layout import HEADER_SIZE
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import AclAuthorizer, Operation, ResourceType
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records import metadata as rec
from quorate.records.batch import (
    BatchHeader,
    build_data_batch,
    iter_batches,
    iter_records,
    verify_crc,
)
from quorate.records.metadata import NoOpRecord, encode
from quorate.rpc.errors import BadMessageError
from quorate.rpc.principals import Caller
from quorate.rpc.server.response_memory import ROOM_BYTES, ResponseMemory
from quorate.rpc.wire.values import OpenProducerRequest, OpenProducerResponse
from quorate.runtime.append_service import AppendService
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.topic import consuming
from quorate.topic.access import TopicSettings
from quorate.topic.apis import INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, PRODUCE, SERVED
from quorate.topic.topic import STRANGERS_FRAME_BYTES_MAX, Topic

from tests.unit.runtime.replicas import CLUSTER, Replica, alone

TOPIC = "records"
NOBODY = -1
ALL_VERSIONS = [
    (key, version) for key, (low, high) in SERVED.items() for version in range(low, high + 1)
]
SERVED_HERE = [
    each for each in ALL_VERSIONS if each[0] not in (s.SASL_HANDSHAKE, s.SASL_AUTHENTICATE)
]


class Lab:
    """The topic of one replica that leads."""

    def __init__(self, replica: Replica, topic: Topic) -> None:
        self.replica = replica
        self.topic = topic
        self.connection = KafkaConnection("10.0.0.1")

    async def ask(self, key: int, version: int, **fields: Any) -> Any:
        """The body of the response, decoded by kio."""
        kind = s.request_type(key, version)
        frame = s.write_header(key, version, 5, "client") + s.write(s.make(kind, **fields))
        with self.connection.room:
            response = await self.topic.answer(s.read_call(frame, SERVED), self.connection)
        if response is NO_RESPONSE:
            return response
        correlation_id, body = s.read_response(key, version, s.write_response(5, response))
        assert correlation_id == 5
        return body

    async def produce(
        self,
        records: bytes,
        version: int = 9,
        *,
        acks: int = -1,
        topic: str = TOPIC,
        index: int = 0,
    ) -> Any:
        module = s.request_module(PRODUCE, version)
        part = s.make(module.PartitionProduceData, index=index, records=records)
        body = await self.ask(
            PRODUCE, version,
            transactional_id=None, acks=acks, timeout=s.milliseconds(5_000),
            topic_data=(s.make(module.TopicProduceData, name=topic, partition_data=(part,)),),
        )  # fmt: skip
        if body is NO_RESPONSE:
            return body
        ((found,),) = (each.partition_responses for each in body.responses)
        return found

    async def fetch(
        self,
        offset: int,
        version: int = 12,
        *,
        wait_ms: int = 0,
        topic: str = TOPIC,
        bytes_max: int = 1 << 20,
        epoch: int = -1,
        replica_id: int = NOBODY,
    ) -> Any:
        module = s.request_module(s.FETCH, version)
        part = s.make(
            module.FetchPartition,
            partition=0, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=-1,
            log_start_offset=-1, partition_max_bytes=bytes_max,
        )  # fmt: skip
        body = await self.ask(
            s.FETCH, version,
            cluster_id=None, replica_id=replica_id, max_wait=s.milliseconds(wait_ms), min_bytes=1,
            max_bytes=bytes_max, isolation_level=0, session_id=0, session_epoch=-1,
            topics=(s.make(module.FetchTopic, topic=topic, partitions=(part,)),),
            forgotten_topics_data=(), rack_id="",
        )  # fmt: skip
        ((found,),) = (each.partitions for each in body.responses)
        return found

    async def offset_at(self, timestamp: int, version: int = 7, *, epoch: int = -1) -> Any:
        module = s.request_module(LIST_OFFSETS, version)
        part = s.make(
            module.ListOffsetsPartition,
            partition_index=0, current_leader_epoch=epoch, timestamp=timestamp,
        )  # fmt: skip
        body = await self.ask(
            LIST_OFFSETS, version,
            replica_id=NOBODY, isolation_level=0,
            topics=(s.make(module.ListOffsetsTopic, name=TOPIC, partitions=(part,)),),
        )  # fmt: skip
        ((found,),) = (each.partitions for each in body.topics)
        return found

    async def append_metadata(self) -> int:
        """A record without a key: its offset."""
        record = encode(NoOpRecord(), 0)
        batch = build_data_batch([(None, record)], time.time_ns() // 1_000_000)
        offset, _ = await self.replica.driver.append(1, batch, 5_000)
        return int(offset)


@asynccontextmanager
async def leading(folder: Path, authorizer: NodeAuthorizer | None = None) -> AsyncIterator[Lab]:
    async with alone(folder) as replica:
        yield Lab(replica, topic_of(replica, authorizer))


def topic_of(replica: Replica, authorizer: NodeAuthorizer | None = None) -> Topic:
    async def open_session(request: OpenProducerRequest) -> OpenProducerResponse:
        assert request.cluster_id == CLUSTER
        assert request.expiration_ms == 60_000
        return OpenProducerResponse(ErrorCode.NONE, replica.node.current_leader, "", 77)

    appends = AppendService(
        replica.driver, None, None, batch_bytes_max=1 << 20, pending_bytes_max=1 << 22
    )
    settings = TopicSettings(
        TOPIC,
        1,
        CLUSTER,
        Endpoint("TOPIC", "here.example.org", 9_095),
        60_000,
        ListenerSettings("TOPIC", "127.0.0.1", 0),
    )
    return Topic(settings, replica.driver, appends, open_session, authorizer=authorizer)


def batch_of(*keys: bytes | None, size: int = 5) -> bytes:
    return bytes(build_data_batch([(key, b"v" * size) for key in keys], 1_000))


def batches(part: Any) -> list[tuple[BatchHeader, list[bytes | None]]]:
    """The header and the keys of each batch in a response to a Fetch."""
    found = []
    for header, batch in iter_batches(part.records or b""):
        assert verify_crc(batch, 0, header)
        found.append((header, [record.key for record in iter_records(batch, header)]))
    return found


def keys(part: Any) -> list[bytes | None]:
    assert part.error_code == 0, part.error_code
    return [key for header, found in batches(part) if not header.is_control for key in found]


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), SERVED_HERE)
async def test_every_served_version_is_answered(tmp_path: Path, key: int, version: int) -> None:
    async with leading(tmp_path) as lab:
        first = await lab.produce(batch_of(b"a", b"b"))
        if key == s.API_VERSIONS:
            body = await lab.ask(
                key, version, client_software_name="a", client_software_version="1"
            )
            offered = {each.api_key: (each.min_version, each.max_version) for each in body.api_keys}
            assert offered == SERVED
        elif key == PRODUCE:
            part = await lab.produce(batch_of(b"c"), version)
            assert (part.error_code, part.base_offset) == (0, first.base_offset + 2)
            age = datetime.datetime.now(tz=datetime.UTC) - part.log_append_time
            assert abs(age.total_seconds()) < 60
        elif key == s.FETCH:
            part = await lab.fetch(first.base_offset, version)
            assert keys(part) == [b"a", b"b"]
            assert part.high_watermark == part.last_stable_offset == first.base_offset + 2
            assert getattr(part, "log_start_offset", 0) == 0
            empty = await lab.fetch(first.base_offset + 2, version)
            assert (empty.error_code, empty.records or b"") == (0, b"")
        elif key == LIST_OFFSETS:
            part = await lab.offset_at(-1, version)
            assert (part.error_code, part.offset) == (0, first.base_offset + 2)
            assert getattr(part, "leader_epoch", 1) == lab.replica.node.epoch
        elif key == METADATA:
            module = s.request_module(key, version)
            asked = (s.make(module.MetadataRequestTopic, name=TOPIC),)
            for topics in (asked, () if version == 0 else None):
                body = await lab.ask(
                    key, version, topics=topics, allow_auto_topic_creation=True,
                    include_cluster_authorized_operations=False,
                    include_topic_authorized_operations=False,
                )  # fmt: skip
                (topic,) = body.topics
                (part,) = topic.partitions
                assert (topic.name, topic.error_code, part.leader_id) == (TOPIC, 0, 1)
                (broker,) = body.brokers
                assert (broker.node_id, broker.host, broker.port) == (1, "here.example.org", 9_095)
                assert getattr(body, "cluster_id", CLUSTER) == CLUSTER
        else:
            assert key == INIT_PRODUCER_ID
            body = await lab.ask(
                key, version, transactional_id=None, transaction_timeout=s.milliseconds(1),
                producer_id=-1, producer_epoch=-1,
            )  # fmt: skip
            assert (body.error_code, body.producer_id, body.producer_epoch) == (0, 77, 0)


# --- producers ------------------------------------------------------------------------------------


async def test_a_batch_is_in_the_log_as_it_was_encoded(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        sent = batch_of(b"a", b"b")
        part = await lab.produce(sent)
        log = lab.replica.log
        (stored,) = log.read(part.base_offset, 1 << 20)
        assert bytes(stored[HEADER_SIZE:]) == sent[HEADER_SIZE:]


@pytest.mark.parametrize("acks", [0, 1])
async def test_every_append_is_committed_before_it_is_acknowledged(
    tmp_path: Path, acks: int
) -> None:
    async with leading(tmp_path) as lab:
        before = lab.replica.node.high_watermark
        response = await lab.produce(batch_of(b"a"), acks=acks)
        assert (response is NO_RESPONSE) == (acks == 0)
        assert lab.replica.node.high_watermark == before + 1
        with pytest.raises(BadMessageError, match="needs a key"):
            await lab.produce(batch_of(None), acks=0)


@pytest.mark.parametrize(
    ("error", "fields", "records"),
    [
        (ErrorCode.INVALID_RECORD, {}, batch_of(None)),
        (ErrorCode.CORRUPT_MESSAGE, {}, b""),
        (ErrorCode.MESSAGE_TOO_LARGE, {}, batch_of(b"k", size=1 << 20)),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"topic": "other"}, batch_of(b"k")),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {"index": 1}, batch_of(b"k")),
        (ErrorCode.INVALID_REQUIRED_ACKS, {"acks": 2}, batch_of(b"k")),
    ],
)
async def test_rejected_records_are_not_appended(
    tmp_path: Path, error: ErrorCode, fields: dict[str, Any], records: bytes
) -> None:
    async with leading(tmp_path) as lab:
        end = lab.replica.log.end_offset
        part = await lab.produce(records, **fields)
        assert (part.error_code, part.base_offset) == (error, -1)
        assert lab.replica.log.end_offset == end


async def test_the_record_at_fault_is_named(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        part = await lab.produce(batch_of(b"k", None))
        (fault,) = part.record_errors
        assert fault.batch_index == 1
        assert fault.batch_index_error_message == part.error_message != ""


async def test_transactions_are_refused(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        module = s.request_module(PRODUCE, 9)
        part = module.PartitionProduceData(index=0, records=batch_of(b"k"))
        body = await lab.ask(
            PRODUCE, 9, transactional_id="t", acks=-1, timeout=s.milliseconds(1_000),
            topic_data=(module.TopicProduceData(name=TOPIC, partition_data=(part,)),),
        )  # fmt: skip
        ((found,),) = (each.partition_responses for each in body.responses)
        assert found.error_code == ErrorCode.INVALID_REQUEST
        body = await lab.ask(
            INIT_PRODUCER_ID, 4, transactional_id="t", transaction_timeout=s.milliseconds(1),
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        assert body.error_code == ErrorCode.INVALID_REQUEST


async def test_a_partition_is_named_once(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        module = s.request_module(PRODUCE, 9)
        part = module.PartitionProduceData(index=0, records=batch_of(b"k"))
        topic = module.TopicProduceData(name=TOPIC, partition_data=(part, part))
        body = await lab.ask(
            PRODUCE, 9, transactional_id=None, acks=-1, timeout=s.milliseconds(1_000),
            topic_data=(topic,),
        )  # fmt: skip
        ((*found,),) = (each.partition_responses for each in body.responses)
        assert [each.error_code for each in found] == [ErrorCode.INVALID_REQUEST] * 2


# --- consumers ------------------------------------------------------------------------------------


async def test_consumers_get_the_records_of_applications_only(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        first = await lab.produce(batch_of(b"a"))
        await lab.append_metadata()
        last = await lab.produce(batch_of(b"b"))
        part = await lab.fetch(0)
        assert [(header.base_offset, found) for header, found in batches(part)] == [
            (first.base_offset, [b"a"]), (last.base_offset, [b"b"])
        ]  # fmt: skip
        assert first.base_offset > 0, "the log begins with control records"


async def test_a_consumer_skips_what_it_does_not_get(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        await lab.append_metadata()
        end = await lab.append_metadata() + 1
        part = await lab.fetch(0)
        ((header, _),) = batches(part)
        assert header.is_control
        assert (header.base_offset, header.end_offset) == (0, end)
        assert part.high_watermark == end
        # At the end, it learns that it is there, whatever else is committed meanwhile.
        fetching = asyncio.create_task(lab.fetch(end, wait_ms=200))
        await asyncio.sleep(0.05)
        await lab.append_metadata()
        part = await fetching
        assert (batches(part), part.high_watermark) == ([], end)


async def test_a_fetch_waits_for_records(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        end = lab.replica.node.high_watermark
        fetching = asyncio.create_task(lab.fetch(end, wait_ms=30_000))
        await asyncio.sleep(0.05)
        await lab.append_metadata()
        await asyncio.sleep(0.05)
        assert not fetching.done()
        assert lab.connection.room.size == 0, "it holds no memory while it waits"
        await lab.produce(batch_of(b"a"))
        assert keys(await fetching) == [b"a"]


async def test_a_fetch_that_waits_goes_through_all_that_is_committed(tmp_path: Path) -> None:
    """Several reads of the log, after one commit."""
    async with leading(tmp_path) as lab:
        replica = lab.replica
        end = replica.node.high_watermark
        fetching = asyncio.create_task(lab.fetch(end, wait_ms=30_000))
        await asyncio.sleep(0.05)
        replica.disk.go.clear()
        large = build_data_batch([(None, encode(NoOpRecord(), 0) + bytes(300_000))], 1_000)
        appends = [replica.driver.append(1, bytearray(large), 20_000) for _ in range(8)]
        others = asyncio.gather(*appends)
        await asyncio.sleep(0.05)
        pending = asyncio.gather(others, lab.produce(batch_of(b"a")))
        await asyncio.sleep(0.05)
        replica.disk.go.set()
        assert keys(await asyncio.wait_for(fetching, 5)) == [b"a"]
        await pending


async def test_a_response_is_bounded(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        first = await lab.produce(batch_of(b"a", size=1_000))
        await lab.produce(batch_of(b"b", size=1_000))
        part = await lab.fetch(first.base_offset, bytes_max=1)
        assert keys(part) == [b"a"], "at least one batch"


async def test_offsets_outside_of_the_log(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        end = lab.replica.log.end_offset
        for offset in (-1, end + 1):
            assert (await lab.fetch(offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await lab.fetch(0, topic="x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await lab.fetch(0, replica_id=2)).error_code == ErrorCode.INVALID_REQUEST


async def test_leader_epochs_are_compared(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        epoch = lab.replica.node.epoch
        for known, error in (
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch, ErrorCode.NONE),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert (await lab.fetch(0, epoch=known)).error_code == error
            assert (await lab.offset_at(-1, epoch=known)).error_code == error


async def test_a_node_that_stops_leading_ends_the_wait(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        end = lab.replica.node.high_watermark
        fetching = asyncio.create_task(lab.fetch(end, wait_ms=30_000))
        await asyncio.sleep(0.05)
        lab.replica.driver.resign("a test")
        assert (await fetching).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        part = await lab.produce(batch_of(b"a"))
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_offsets_of_times(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        before = await lab.offset_at(2**60)
        assert (before.error_code, before.offset, before.timestamp) == (0, -1, -1)
        offsets, times = [], []
        for key in (b"a", b"b", b"c"):
            part = await lab.produce(batch_of(key, key))
            offsets.append(part.base_offset)
            times.append(round(part.log_append_time.timestamp() * 1000))
            await asyncio.sleep(0.005)
        for offset, time_ms in zip(offsets, times, strict=True):
            found = await lab.offset_at(time_ms)
            assert (found.offset, found.timestamp) == (offset, time_ms)
            assert (await lab.offset_at(time_ms - 1)).offset == offset
        assert (await lab.offset_at(times[-1] + 1)).offset == -1
        assert (await lab.offset_at(-2)).offset == 0
        assert (await lab.offset_at(-1)).offset == offsets[-1] + 2
        assert (await lab.offset_at(-3)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_long_range_without_records_is_skipped_step_by_step(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        large = build_data_batch([(None, encode(NoOpRecord(), 0) + bytes(300_000))], 1_000)
        for _ in range(3):
            await lab.replica.driver.append(1, bytearray(large), 5_000)
        end = lab.replica.node.high_watermark
        last = await lab.produce(batch_of(b"a"))
        ((header, _),) = batches(await lab.fetch(0))
        assert 0 < header.end_offset < end, "without a wait, one step"
        part = await lab.fetch(0, wait_ms=20_000)
        assert [header.base_offset for header, _ in batches(part)] == [last.base_offset]


async def test_one_partition_is_answered_once(tmp_path: Path) -> None:
    async with leading(tmp_path) as lab:
        module = s.request_module(LIST_OFFSETS, 7)
        part = module.ListOffsetsPartition(partition_index=0, timestamp=0, current_leader_epoch=-1)
        body = await lab.ask(
            LIST_OFFSETS, 7, replica_id=NOBODY, isolation_level=0,
            topics=(module.ListOffsetsTopic(name=TOPIC, partitions=(part, part)),),
        )  # fmt: skip
        ((first, second),) = (each.partitions for each in body.topics)
        assert (first.error_code, second.error_code) == (0, ErrorCode.INVALID_REQUEST)


async def test_a_fetch_does_not_wait_for_memory_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "RESERVE_S", 0.05)
    async with leading(tmp_path) as lab:
        first = await lab.produce(batch_of(b"a"))
        memory = ResponseMemory()
        memory.end = lambda _connection, _reason: None
        holder = memory.hold("another connection")
        await holder.reserve(ROOM_BYTES)
        lab.connection.room = memory.hold("this one")
        part = await lab.fetch(first.base_offset)
        assert batches(part) == []
        assert part.high_watermark > first.base_offset, "it is not at the end"
        holder.release()
        assert keys(await lab.fetch(first.base_offset)) == [b"a"]


# --- authorization --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "may_write", "may_read", "may_see"),
    [
        ((), False, False, False),
        ((Operation.DESCRIBE,), False, False, True),
        ((Operation.READ,), False, True, True),
        ((Operation.WRITE,), True, False, True),
    ],
)
async def test_each_request_is_authorized(
    tmp_path: Path,
    allowed: tuple[Operation, ...],
    may_write: bool,
    may_read: bool,
    may_see: bool,
) -> None:
    image = MetadataImage()
    for number, operation in enumerate(allowed):
        entry = rec.AccessControlEntryRecord(
            bytes([number] * 16), int(ResourceType.TOPIC), TOPIC, 3, "User:alice", "*",
            int(operation), 3,
        )  # fmt: skip
        image.apply(entry, number)
    authorizer = NodeAuthorizer(authorizer=AclAuthorizer(["User:root"]))
    loader = SimpleNamespace(image=image, has_caught_up=True, add_listener=lambda _: None)
    authorizer.follow(cast(MetadataLoader, loader))
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with leading(tmp_path, authorizer) as lab:
        lab.connection.caller = Caller("User:alice", "10.0.0.1", used_sasl=True)
        part = await lab.produce(batch_of(b"k"))
        assert part.error_code == (ErrorCode.NONE if may_write else denied)
        part = await lab.fetch(0)
        assert part.error_code == (ErrorCode.NONE if may_read else denied)
        part = await lab.offset_at(-1)
        assert part.error_code == (ErrorCode.NONE if may_see else denied)
        module = s.request_module(METADATA, 9)
        for topics in (None, (module.MetadataRequestTopic(name=TOPIC),)):
            body = await lab.ask(
                METADATA, 9, topics=topics, allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )  # fmt: skip
            named = [(each.name, each.error_code) for each in body.topics]
            expected = [(TOPIC, ErrorCode.NONE if may_see else denied)]
            assert named == ([] if topics is None and not may_see else expected)
        body = await lab.ask(
            INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=s.milliseconds(1),
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        assert (body.error_code == ErrorCode.NONE) == may_write
        longest = lab.topic.frame_bytes_max(lab.connection)
        assert (longest == STRANGERS_FRAME_BYTES_MAX) == (not may_write)
