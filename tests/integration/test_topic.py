"""The topic of the applications' records, with librdkafka and kafka-python as its clients."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as rdkafka
import kafka
import kafka.errors
import pytest
import quorate

from tests.integration.embedded_support import Trio, until
from tests.tools.documents import block

TOPIC = "records"
LEVEL_1 = {"application.version": 1}

Sent = tuple[int, bytes]
"""The offset and the key of a record."""


class Writing:
    """An idempotent producer of librdkafka. acknowledged: in the order of the responses."""

    def __init__(self, addresses: Sequence[str], **settings: Any) -> None:
        self.acknowledged: list[Sent] = []
        self.errors: list[rdkafka.KafkaError] = []
        known = {"bootstrap.servers": ",".join(addresses), "linger.ms": 1, "log_level": 0}
        self._producer = rdkafka.Producer(known | {"enable.idempotence": True} | settings)

    def send(self, key: bytes | None, value: bytes | None = b"value") -> None:
        self._producer.produce(TOPIC, key=key, value=value, callback=self._done)
        self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(30)
        assert left == 0, f"{left} records have no outcome"

    def _done(self, error: rdkafka.KafkaError | None, message: rdkafka.Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append((message.offset(), message.key()))


def read_all(addresses: Sequence[str], end_offset: int) -> list[rdkafka.Message]:
    """The records before `end_offset` that a consumer of librdkafka gets from the beginning."""
    consumer = rdkafka.Consumer(
        {
            "bootstrap.servers": ",".join(addresses),
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[rdkafka.Message] = []
    try:
        consumer.assign([rdkafka.TopicPartition(TOPIC, 0, 0)])
        until_s = time.monotonic() + 20
        while time.monotonic() < until_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                found.append(message)
            elif message.error().code() != rdkafka.KafkaError._PARTITION_EOF:
                raise AssertionError(message.error())
            elif message.offset() >= end_offset:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"no end of the topic at {end_offset} or later")


async def test_clients_of_both_protocols_share_the_log(tmp_path: Path) -> None:
    trio = Trio(tmp_path, features=LEVEL_1, has_topic=True)
    async with trio.running() as nodes:
        await trio.leader()
        ours = await nodes[0].append([(b"ours", b"1"), (b"ours", b"2")])
        writing = Writing(trio.topic_addresses)

        def write() -> None:
            for number in range(300):
                writing.send(b"%d" % number)
            writing.send(b"deleted", None)
            writing.flush()

        await asyncio.to_thread(write)
        assert not writing.errors
        theirs = [*(b"%d" % number for number in range(300)), b"deleted"]
        assert [key for _, key in writing.acknowledged] == theirs
        last = await nodes[1].append([(b"ours", b"3")])
        read = await asyncio.to_thread(read_all, trio.topic_addresses, last.base_offset + 1)
        expected = [
            (ours.base_offset, b"ours"), (ours.base_offset + 1, b"ours"),
            *writing.acknowledged,
            (last.base_offset, b"ours"),
        ]  # fmt: skip
        assert [(each.offset(), each.key()) for each in read] == expected
        assert read[-2].value() is None
        times = [each.timestamp()[1] for each in read]
        assert times == sorted(times)
        async with quorate.Client(trio.addresses) as client:
            records = [each async for each in client.read() if each.key is not None]
        assert [(each.offset, each.key) for each in records] == expected
        assert [each.timestamp for each in records] == times
        machine = trio.machines[0]
        await until("applied", lambda: machine.offsets == [offset for offset, _ in expected])


@pytest.mark.slow
async def test_each_record_is_appended_once_while_leadership_moves(tmp_path: Path) -> None:
    trio = Trio(tmp_path, features=LEVEL_1, has_topic=True)
    async with trio.running() as nodes:
        await trio.leader()
        writing = Writing(trio.topic_addresses, **{"retry.backoff.ms": 20})
        sent = 0
        stop = asyncio.Event()

        def write(count: int) -> None:
            for number in range(count, count + 20):
                writing.send(b"%d" % number)

        async def keep_writing() -> None:
            nonlocal sent
            while not stop.is_set():
                await asyncio.to_thread(write, sent)
                sent += 20
                await asyncio.sleep(0.005)

        task = asyncio.create_task(keep_writing())
        moves = 0
        while moves < 5:
            before = len(writing.acknowledged)
            await until("progress", lambda known=before: len(writing.acknowledged) > known + 100)
            target = nodes[(await trio.leader() + 1) % 3]
            with contextlib.suppress(quorate.ClientError):
                await target.client.transfer_leadership(target.key)
                moves += 1
        stop.set()
        await task
        await asyncio.to_thread(writing.flush)
        assert not writing.errors
        assert [key for _, key in writing.acknowledged] == [b"%d" % i for i in range(sent)]
        end = writing.acknowledged[-1][0] + 1
        read = await asyncio.to_thread(read_all, trio.topic_addresses, end)
        assert [(each.offset(), each.key()) for each in read] == writing.acknowledged


def fault_of(writing: Writing, key: bytes | None = b"key", value: bytes = b"value") -> str:
    writing.send(key, value)
    writing.flush()
    (error,) = writing.errors
    name: str = error.name()
    return name


async def test_what_the_log_cannot_have_is_rejected(tmp_path: Path) -> None:
    trio = Trio(tmp_path, has_topic=True)
    plain = {"enable.idempotence": False}
    async with trio.running():
        await trio.leader()

        def fault(key: bytes | None = b"key", value: bytes = b"value", **more: Any) -> str:
            return fault_of(Writing(trio.topic_addresses, **plain, **more), key, value)

        assert await asyncio.to_thread(fault, None) == "INVALID_RECORD"
        compressed = {"compression.type": "zstd"}
        found = await asyncio.to_thread(fault, value=b"v" * 1000, **compressed)
        assert found == "UNSUPPORTED_COMPRESSION_TYPE"
        tombstone = Writing(trio.topic_addresses, **plain)
        tombstone.send(b"key", None)
        await asyncio.to_thread(tombstone.flush)
        assert [each.name() for each in tombstone.errors] == ["UNSUPPORTED_VERSION"]

        def read_elsewhere() -> str:
            consumer = kafka.KafkaConsumer(
                bootstrap_servers=trio.topic_addresses, group_id=None, api_version=(2, 5)
            )
            try:
                return str(consumer.partitions_for_topic("elsewhere"))
            finally:
                consumer.close()

        assert await asyncio.to_thread(read_elsewhere) in ("None", "set()")


async def test_a_producer_goes_on_after_a_rejected_record(tmp_path: Path) -> None:
    """It begins a new epoch of its session by itself."""
    trio = Trio(tmp_path, features=LEVEL_1, has_topic=True)
    async with trio.running():
        await trio.leader()
        writing = Writing(trio.topic_addresses)

        def write() -> None:
            for key in (b"a", None, b"b", None, b"c"):
                writing.send(key)
                writing.flush()

        await asyncio.to_thread(write)
        assert [each.name() for each in writing.errors] == ["INVALID_RECORD"] * 2
        assert [key for _, key in writing.acknowledged] == [b"a", b"b", b"c"]
        end = writing.acknowledged[-1][0] + 1
        read = await asyncio.to_thread(read_all, trio.topic_addresses, end)
        assert [(each.offset(), each.key()) for each in read] == writing.acknowledged


async def test_a_producer_whose_session_has_ended_fails_at_once(tmp_path: Path) -> None:
    expires = {"quorate.topic.producer.expiration.ms": 1_000}
    trio = Trio(tmp_path, features=LEVEL_1, has_topic=True, **expires)
    async with trio.running() as nodes:
        await trio.leader()
        writing = Writing(trio.topic_addresses)
        writing.send(b"a")
        await asyncio.to_thread(writing.flush)
        await asyncio.sleep(1.1)
        await nodes[0].append([(b"ours", b"the time of the log goes on")])
        writing.send(b"b")
        await asyncio.to_thread(writing.flush)
        assert [key for _, key in writing.acknowledged] == [b"a"]
        assert len(writing.errors) == 1


@pytest.mark.slow
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_kafka_python_appends_and_reads(tmp_path: Path, acks: int | str) -> None:
    trio = Trio(tmp_path, features=LEVEL_1, has_topic=True)
    async with trio.running():
        await trio.leader()

        def write_and_read() -> list[tuple[bytes, bytes]]:
            producer = kafka.KafkaProducer(
                bootstrap_servers=trio.topic_addresses,
                acks=acks,
                enable_idempotence=acks == "all",
            )
            for number in range(50):
                producer.send(TOPIC, key=b"%d" % number, value=b"v")
            producer.flush(20)
            producer.close()
            consumer = kafka.KafkaConsumer(
                bootstrap_servers=trio.topic_addresses, group_id=None, consumer_timeout_ms=5_000
            )
            try:
                place = kafka.TopicPartition(TOPIC, 0)
                consumer.assign([place])
                consumer.seek_to_beginning(place)
                found = []
                for record in consumer:
                    found.append((record.key, record.value))
                    if len(found) == 50:
                        break
                return found
            finally:
                consumer.close()

        expected = [(b"%d" % number, b"v") for number in range(50)]
        assert await asyncio.to_thread(write_and_read) == expected


async def test_the_program_of_the_page(tmp_path: Path) -> None:
    shown = block("docs/kafka-clients.md", "confluent_kafka")
    trio = Trio(tmp_path, features=LEVEL_1, has_topic=True)
    async with trio.running():
        leader = await trio.leader()
        program = shown.replace("controller-1:9095", trio.topic_addresses[leader])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (0, b"b'hello'\n"), errors.decode()
