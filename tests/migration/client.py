"""A client of real brokers over Kafka's protocol, as small as it can be: kio's messages, a socket
for each request. `Load` writes and reads through a migration, as a producer with `acks=all` and a
consumer.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.records.batch import build_data_batch, iter_batches, iter_records, stamp
from quorate.rpc.errors import BadMessageError

from tests.processes import until

PRODUCE, METADATA = 0, 3
VERSIONS = {
    PRODUCE: 9,
    s.FETCH: 12,
    METADATA: 12,
    s.CREATE_TOPICS: 7,
    s.DELETE_TOPICS: 6,
    s.ALTER_PARTITION_REASSIGNMENTS: 0,
}
TIMEOUT_S = 10.0
LEADS_S = 90.0
NOT_LEADER = "6"
"""Kafka's error code NOT_LEADER_OR_FOLLOWER, as `KafkaClient` tells it."""


class KafkaClient:
    """addresses: of brokers, any of which is asked for the leader of a partition."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.addresses = list(addresses)

    def call(
        self,
        address: str,
        api_key: int,
        body: Any,
        version: int | None = None,
        client_id: str = "test",
    ) -> Any:
        """OSError, BadMessageError."""
        version = VERSIONS[api_key] if version is None else version
        data = s.write_header(api_key, version, 7, client_id) + s.write(body)
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            connection.sendall(len(data).to_bytes(4, "big") + data)
            stream = connection.makefile("rb")
            head = stream.read(4)
            if len(head) < 4:
                raise ConnectionResetError(f"{address} closed the connection")
            return s.read_response(api_key, version, stream.read(int.from_bytes(head, "big")))[1]

    def metadata(self, address: str, *topics: str) -> Any:
        """Of these topics, of all without any."""
        module = s.request_module(METADATA, VERSIONS[METADATA])
        named = tuple(module.MetadataRequestTopic(topic_id=None, name=t) for t in topics) or None
        body = module.MetadataRequest(
            topics=named,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return self.call(address, METADATA, body)

    def topics(self, address: str) -> dict[str, dict[int, Any]]:
        """What one broker says: its partitions by topic and number."""
        found = self.metadata(address)
        return {
            topic.name: {p.partition_index: p for p in topic.partitions} for topic in found.topics
        }

    def leader(self, topic: str, partition: int = 0) -> str:
        """Where the leader is, by the first broker that knows one. LookupError."""
        for address in self.addresses:
            try:
                found = self.metadata(address, topic)
            except OSError:
                continue
            brokers = {b.node_id: f"{b.host}:{b.port}" for b in found.brokers}
            for told in found.topics:
                for each in told.partitions:
                    if each.partition_index == partition and each.leader_id in brokers:
                        return brokers[each.leader_id]
        raise LookupError(f"no leader of {topic}-{partition}")

    def create_topic(self, address: str, name: str, partitions: int = 1, factor: int = 1) -> int:
        """The error's number."""
        module = s.request_module(s.CREATE_TOPICS, VERSIONS[s.CREATE_TOPICS])
        body = module.CreateTopicsRequest(
            topics=(
                module.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=factor,
                    assignments=(),
                    configs=(),
                ),
            ),
            timeout=s.milliseconds(20_000),
        )
        return int(self.call(address, s.CREATE_TOPICS, body).topics[0].error_code)

    def delete_topic(self, address: str, name: str) -> int:
        """The error's number."""
        module = s.request_module(s.DELETE_TOPICS, VERSIONS[s.DELETE_TOPICS])
        body = module.DeleteTopicsRequest(
            topics=(module.DeleteTopicState(name=name, topic_id=uuid.UUID(int=0)),),
            timeout=s.milliseconds(20_000),
        )
        return int(self.call(address, s.DELETE_TOPICS, body).responses[0].error_code)

    def reassign(self, address: str, topic: str, *replicas: int) -> int:
        """Let partition 0 move to these brokers; the error's number."""
        module = s.request_module(s.ALTER_PARTITION_REASSIGNMENTS, 0)
        partition = module.ReassignablePartition(partition_index=0, replicas=replicas)
        body = module.AlterPartitionReassignmentsRequest(
            topics=(module.ReassignableTopic(name=topic, partitions=(partition,)),)
        )
        answer = self.call(address, s.ALTER_PARTITION_REASSIGNMENTS, body)
        return int(answer.error_code) or int(answer.responses[0].partitions[0].error_code)

    def produce(self, topic: str, values: list[bytes], partition: int = 0) -> int:
        """acks=all; the offset of the first. OSError, LookupError, AssertionError."""
        module = s.request_module(PRODUCE, VERSIONS[PRODUCE])
        batch = build_data_batch([(None, value) for value in values], time.time_ns() // 10**6)
        stamp(batch, 0, 0)
        body = module.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=s.milliseconds(5_000),
            topic_data=(
                module.TopicProduceData(
                    name=topic,
                    partition_data=(
                        module.PartitionProduceData(index=partition, records=bytes(batch)),
                    ),
                ),
            ),
        )
        answer = self.call(self.leader(topic, partition), PRODUCE, body)
        answered = answer.responses[0].partition_responses[0]
        assert int(answered.error_code) == 0, answered.error_code
        return int(answered.base_offset)

    def produce_first(self, topic: str, values: list[bytes], partition: int = 0) -> int:
        """As soon as the broker leads: it says who leads a moment before it does."""
        offsets: list[int] = []

        def is_written() -> bool:
            try:
                offsets.append(self.produce(topic, values, partition=partition))
            except AssertionError as error:
                if str(error) != NOT_LEADER:
                    raise
            return bool(offsets)

        until("it leads", is_written, LEADS_S)
        return offsets[0]

    def fetch(self, topic: str, offset: int, partition: int = 0) -> list[tuple[int, bytes]]:
        """(offset, value) from there on. OSError, LookupError, AssertionError."""
        module = s.request_module(s.FETCH, VERSIONS[s.FETCH])
        body = module.FetchRequest(
            max_wait=s.milliseconds(300),
            min_bytes=1,
            topics=(
                module.FetchTopic(
                    topic=topic,
                    partitions=(
                        module.FetchPartition(
                            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
                        ),
                    ),
                ),
            ),
            forgotten_topics_data=(),
        )
        answer = self.call(self.leader(topic, partition), s.FETCH, body)
        assert int(answer.error_code) == 0, answer.error_code
        answered = answer.responses[0].partitions[0]
        assert int(answered.error_code) == 0, answered.error_code
        return [
            (record.offset, bytes(record.value or b""))
            for header, batch in iter_batches(answered.records or b"")
            for record in iter_records(batch, header)
            if record.offset >= offset
        ]


@dataclass
class Load:
    """Writes numbers to a topic and reads them, each in a thread, until it is stopped.

    longest_s: the longest time from the first attempt to write a number to its acknowledgement.
    """

    client: KafkaClient
    topic: str
    acknowledged: list[bytes] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> Load:
        for run in (self._write, self._read):
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def stop(self) -> None:
        """Write no more, and read what is left."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60.0)

    def _attempt(self, what: Any) -> Any:
        try:
            return what()
        except (OSError, LookupError, AssertionError, BadMessageError) as error:
            self.faults.append(f"{type(error).__name__}: {error}")
            time.sleep(0.1)
            return None

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d" % number
            began = time.monotonic()
            while (
                self._attempt(lambda value=value: self.client.produce(self.topic, [value])) is None
            ):
                if self._stop.is_set():
                    return
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            self.acknowledged.append(value)
            number += 1
            time.sleep(0.1)

    def _read(self) -> None:
        offset = 0
        while not self._stop.is_set() or len(set(self.read)) < len(self.acknowledged):
            found = self._attempt(lambda offset=offset: self.client.fetch(self.topic, offset))
            if found:
                self.read += [value for _, value in found]
                offset = found[-1][0] + 1
