"""Clients of brokers: an idempotent producer and a reader of committed records.

Rules:
1. A producer has a producer id and numbers its batches to each partition. A batch whose outcome is
   unknown is sent again unchanged, and a leader that already has it answers with its offset
   (KIP-98). Every retry is therefore safe and keeps the order.
2. One batch per partition is in flight; records that are sent meanwhile form the next batches.
3. A batch is retried until it is acknowledged or `delivery_timeout_ms` has passed. Then its outcome
   is unknown (`OutcomeUnknownError`), and the partition continues with a new producer id.
4. A permanent rejection by the leader (too large, invalid record) raises `AdminError`.
5. Readers see records below the high watermark.

Source: Kafka's producer, with idempotence and without transactions.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from quorate.broker.topology import Topology
from quorate.common.batch_layout import PRODUCER_AT, SEQUENCE_MODULUS
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import MisuseError
from quorate.records.batch import StoredRecord, build_data_batch, iter_batches, iter_records, seal
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.leader_client import AsyncClosing
from quorate.rpc.client.partition_client import (
    BrokerConnections,
    PartitionFetchStream,
    ProduceStream,
)
from quorate.rpc.client.routing import Address
from quorate.rpc.errors import (
    AdminError,
    ClientError,
    OutcomeUnknownError,
    TransportError,
    TransportKind,
    UnreachableError,
    renewed,
)
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import BATCH_BYTES_MAX
from quorate.rpc.wire.partition_values import (
    FetchPosition,
    LocatedTopic,
    PartitionFetch,
    PartitionKey,
    ProduceRequest,
    ProducerIdentity,
)

RETRY_MIN_S = 0.02
RETRY_MAX_S = 0.25
RECORD_BYTES = 24
"""The most bytes that a record takes in addition to its key and value."""
_PRODUCER = struct.Struct(">qhi")

REFUSED_FOR_GOOD = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
FETCH_REFUSED_FOR_GOOD = REFUSED_FOR_GOOD | {
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The partition and offset of an acknowledged record."""

    partition: int
    offset: int


@dataclass(slots=True)
class _WaitingRecord:
    key: bytes | None
    value: bytes | None
    done: asyncio.Future[Acknowledged]

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + RECORD_BYTES


def sequenced(batch: bytearray, identity: ProducerIdentity, sequence: int) -> bytearray:
    """Write the producer's id and the first sequence number into a batch; update its checksum."""
    _PRODUCER.pack_into(batch, PRODUCER_AT, identity.producer_id, identity.producer_epoch, sequence)
    seal(batch)
    return batch


class _Client(AsyncClosing):
    """The common base of producers and readers."""

    def __init__(self, bootstrap: Sequence[str], tls: TlsConfig | None) -> None:
        if not bootstrap:
            raise MisuseError("a client needs the address of at least one broker")
        self._connections = BrokerConnections(tls, "quorate-client")
        self._topology = Topology(bootstrap, self._connections)

    async def close(self) -> None:
        await self._connections.close()

    async def topic(self, name: str, timeout_s: float = 10.0) -> LocatedTopic:
        """Look up a topic's partitions.

        AdminError (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED), UnreachableError.
        """
        deadline = time.monotonic() + timeout_s
        while (found := self._topology.topic(name)) is None:
            try:
                await self._topology.refresh(name, since=self._topology.version)
            except (AdminError, UnreachableError) as error:
                # A broker may not have replayed the creation of a new topic yet.
                is_refused = isinstance(error, AdminError) and error.code in REFUSED_FOR_GOOD
                if is_refused or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(RETRY_MIN_S)
        return found

    async def _refresh(self, topic: str, since: int) -> None:
        """Refresh the topic's leaders. Errors are ignored: the next attempt reports them."""
        try:
            await self._topology.refresh(topic, since=since)
        except ClientError:
            return


class Producer(_Client):
    """Sends records. acks_all: a record is acknowledged when all in-sync replicas have it.

    request_timeout_ms: the timeout of one request to a broker.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        acks_all: bool = True,
        tls: TlsConfig | None = None,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 10_000,
        batch_bytes_max: int = 256 * 1024,
    ) -> None:
        super().__init__(bootstrap, tls)
        self.acks_all = acks_all
        self.delivery_timeout_ms = delivery_timeout_ms
        self.request_timeout_ms = request_timeout_ms
        self.batch_bytes_max = min(batch_bytes_max, BATCH_BYTES_MAX)
        self.retries = 0
        self._lanes: dict[PartitionKey, _Lane] = {}
        self._streams: dict[Address, ProduceStream] = {}
        self._round_robin = 0

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
    ) -> Acknowledged:
        """Append one record and return its partition and offset.

        Records with the same key go to the same partition; those without a key are distributed
        round-robin. AdminError; OutcomeUnknownError; UnreachableError if no broker was reached to
        look up the topic or to get a producer id, so that nothing was sent.
        """
        located = await self.topic(topic)
        if partition is None:
            partition = self._choose(located, key)
        if not 0 <= partition < len(located.partitions):
            raise MisuseError(
                f"{topic} has {len(located.partitions)} partitions, and no partition {partition}"
            )
        at = PartitionKey(located.topic_id, partition)
        lane = self._lanes.get(at)
        if lane is None:
            lane = self._lanes[at] = _Lane(self, topic, at)
        return await lane.add(key, value)

    def _choose(self, topic: LocatedTopic, key: bytes | None) -> int:
        if key is not None:
            return int(crc32c(key)) % len(topic.partitions)
        self._round_robin += 1
        return self._round_robin % len(topic.partitions)

    async def identity(self) -> ProducerIdentity:
        """Get a new producer id from any broker. AdminError, UnreachableError."""
        attempts: dict[str, str] = {}
        for host, port in self._topology.addresses():
            try:
                found = await self._connections.init_producer_id(host, port)
            except TransportError as error:
                attempts[error.address] = error.text
                continue
            if found.error is ErrorCode.NONE:
                return found
            if found.error in REFUSED_FOR_GOOD:
                raise AdminError(found.error, found.message)
            attempts[f"{host}:{port}"] = f"{found.error.name} {found.message}".rstrip()
        raise UnreachableError(attempts)

    async def deliver(self, lane: _Lane, request: ProduceRequest) -> int:
        """Send one batch until it is acknowledged; return the offset of its first record."""
        deadline = time.monotonic() + self.delivery_timeout_ms / 1000
        pause_s = RETRY_MIN_S
        reason = "no leader is known"
        while True:
            version = self._topology.version
            address = self._topology.leader(request.partition)
            if address is not None:
                try:
                    stream = await self._stream(address)
                    answer = await stream.produce(request, self.request_timeout_ms + 1_000)
                except TransportError as error:
                    reason = str(error)
                else:
                    if answer.error is ErrorCode.NONE:
                        return answer.base_offset
                    reason = f"{answer.error.name} {answer.message}".rstrip()
                    if answer.error in REFUSED_FOR_GOOD:
                        raise AdminError(answer.error, answer.message)
                    if self._topology.note_leader(
                        request.partition, answer.leader_id, answer.leader_epoch
                    ):
                        continue
            if time.monotonic() + pause_s > deadline:
                raise OutcomeUnknownError(
                    f"a batch for {lane.topic}-{request.partition.index} may or may not have been "
                    f"appended: {reason}"
                )
            self.retries += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            await self._refresh(lane.topic, version)
            known = self._topology.topic(lane.topic)
            if reason.startswith("UNKNOWN_TOPIC") and (
                known is None or known.topic_id != request.partition.topic_id
            ):
                raise AdminError(ErrorCode.UNKNOWN_TOPIC_ID, f"{lane.topic} was deleted")

    async def _stream(self, address: Address) -> ProduceStream:
        known = self._streams.get(address)
        if known is not None and known.is_open:
            return known
        stream = await self._connections.open_produce(*address)
        known = self._streams.get(address)
        if known is not None and known.is_open:
            await stream.close()
            return known
        self._streams[address] = stream
        return stream

    async def close(self) -> None:
        """Close the producer. Unacknowledged records fail with OutcomeUnknownError."""
        # A batch in flight may open a stream to another broker meanwhile.
        for lane in list(self._lanes.values()):
            await lane.close()
        for stream in list(self._streams.values()):
            await stream.close()
        await super().close()


class _Lane:
    """The pending records of one partition, in order."""

    def __init__(self, producer: Producer, topic: str, key: PartitionKey) -> None:
        self.topic = topic
        self._producer = producer
        self._key = key
        self._waiting: deque[_WaitingRecord] = deque()
        self._identity: ProducerIdentity | None = None
        self._sequence = 0
        self._task: asyncio.Task[None] | None = None

    async def add(self, key: bytes | None, value: bytes | None) -> Acknowledged:
        waiting = _WaitingRecord(key, value, asyncio.get_running_loop().create_future())
        if waiting.size > self._producer.batch_bytes_max:
            text = (
                f"the record is {waiting.size} bytes; a batch is at most "
                f"{self._producer.batch_bytes_max}"
            )
            raise AdminError(ErrorCode.MESSAGE_TOO_LARGE, text)
        self._waiting.append(waiting)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await waiting.done

    async def _run(self) -> None:
        try:
            while self._waiting:
                # Callers that were woken by the same response share the next batch.
                await asyncio.sleep(0)
                await self._carry(self._take())
        finally:
            self._task = None

    def _take(self) -> list[_WaitingRecord]:
        taken: list[_WaitingRecord] = []
        size = 0
        while self._waiting:
            size += self._waiting[0].size
            if taken and size > self._producer.batch_bytes_max:
                break
            taken.append(self._waiting.popleft())
        return taken

    async def _carry(self, taken: list[_WaitingRecord]) -> None:
        try:
            if self._identity is None:
                self._identity = await self._new_identity()
                self._sequence = 0
            batch = build_data_batch(
                [(each.key, each.value) for each in taken], time.time_ns() // 1_000_000
            )
            sequenced(batch, self._identity, self._sequence)
            request = ProduceRequest(
                self._key,
                bytes(batch),
                self._producer.acks_all,
                self._producer.request_timeout_ms,
            )
            base = await self._producer.deliver(self, request)
        except BaseException as error:
            self._identity = None
            self._refuse(taken, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._sequence = (self._sequence + len(taken)) % SEQUENCE_MODULUS
            for offset, each in enumerate(taken, base):
                if not each.done.done():
                    each.done.set_result(Acknowledged(self._key.index, offset))

    async def _new_identity(self) -> ProducerIdentity:
        deadline = time.monotonic() + self._producer.delivery_timeout_ms / 1000
        while True:
            try:
                return await self._producer.identity()
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(RETRY_MAX_S)

    def _refuse(self, taken: Sequence[_WaitingRecord], error: BaseException) -> None:
        if not isinstance(error, AdminError | UnreachableError):
            error = OutcomeUnknownError(str(error) or "the producer was closed")
        for each in taken:
            if not each.done.done():
                each.done.set_exception(renewed(error))

    async def close(self) -> None:
        await cancel_tasks(self._task)
        self._refuse(tuple(self._waiting), OutcomeUnknownError("the producer was closed"))
        self._waiting.clear()


class RecordReader(_Client):
    """Reads committed records."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        tls: TlsConfig | None = None,
        max_wait_ms: int = 500,
        partition_bytes_max: int = 1 << 20,
    ) -> None:
        super().__init__(bootstrap, tls)
        self._max_wait_ms = max_wait_ms
        self._bytes_max = partition_bytes_max

    async def end_offset(self, topic: str, partition: int, timeout_s: float = 30.0) -> int:
        """Return the end offset of the readable records.

        AdminError if the caller may not read them; UnreachableError if no leader answers in time.
        """
        key = await self._key(topic, partition)
        deadline = time.monotonic() + timeout_s
        while True:
            version = self._topology.version
            address = self._topology.leader(key)
            reason = "no leader is known"
            if address is not None:
                try:
                    found = await self._connections.list_offsets(*address, key)
                except TransportError as error:
                    reason = str(error)
                else:
                    if found.error is ErrorCode.NONE:
                        return found.high_watermark
                    if found.error in REFUSED_FOR_GOOD:
                        raise AdminError(found.error, found.message or topic)
                    reason = found.error.name
                    self._topology.note_leader(key, found.leader_id, found.leader_epoch)
            if time.monotonic() > deadline:
                raise UnreachableError({f"{topic}-{partition}": reason})
            await asyncio.sleep(RETRY_MIN_S)
            await self._refresh(topic, version)

    async def records(
        self, topic: str, partition: int, offset: int = 0, until: int | None = None
    ) -> AsyncIterator[StoredRecord]:
        """Yield records from `offset` on, before `until` or forever, across leader changes.

        AdminError (OFFSET_OUT_OF_RANGE and other errors that a retry does not resolve).
        """
        key = await self._key(topic, partition)
        stream: PartitionFetchStream | None = None
        try:
            while until is None or offset < until:
                version = self._topology.version
                try:
                    if stream is None or not stream.is_open:
                        stream = await self._open(key)
                    if stream is not None:
                        data = await self._fetch(stream, key, offset)
                        for record in _decoded(data, offset, until):
                            offset = record.offset + 1
                            yield record
                        continue
                except TransportError:
                    pass
                await asyncio.sleep(RETRY_MIN_S)
                await self._refresh(topic, version)
                if stream is not None:
                    stream.close()
        finally:
            if stream is not None:
                stream.close()

    async def _key(self, topic: str, partition: int) -> PartitionKey:
        return PartitionKey((await self.topic(topic)).topic_id, partition)

    async def _open(self, key: PartitionKey) -> PartitionFetchStream | None:
        address = self._topology.leader(key)
        return None if address is None else await self._connections.open_fetch(*address)

    async def _fetch(
        self, stream: PartitionFetchStream, key: PartitionKey, offset: int
    ) -> Sequence[bytes]:
        """Fetch the batches from `offset` on, () if there are none yet. TransportError to retry."""
        position = FetchPosition(key, offset, max_bytes=self._bytes_max)
        request = PartitionFetch(-1, -1, self._max_wait_ms, 4 * self._bytes_max, (position,))
        response = await stream.fetch(request)
        if response.error in REFUSED_FOR_GOOD:
            raise AdminError(response.error, response.message)
        if response.error is not ErrorCode.NONE:
            raise TransportError(TransportKind.FAILED, str(key), response.error.name)
        for found in response.partitions:
            if found.error in FETCH_REFUSED_FOR_GOOD:
                raise AdminError(found.error, f"offset {offset} of {key}")
            if found.error is not ErrorCode.NONE:
                self._topology.note_leader(key, found.leader_id, found.leader_epoch)
                raise TransportError(TransportKind.FAILED, str(key), found.error.name)
            return tuple(bytes(part) for part in found.records)
        return ()


def _decoded(data: Sequence[bytes], offset: int, until: int | None) -> list[StoredRecord]:
    """Decode the records from `offset` on; the first batch may begin before it."""
    return [
        record
        for part in data
        for header, batch in iter_batches(part)
        for record in iter_records(batch, header)
        if record.offset >= offset and (until is None or record.offset < until)
    ]
