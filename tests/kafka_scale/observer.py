"""An observer of the metadata log: it knows the leader, the committed image and who is fenced.

It fetches as a broker does: it finds the leader through the responses, truncates what diverges, and
replays what is committed. Its clock tells when a change reached the brokers.

Source: KIP-595, KIP-1166.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.fetch_messages import TOPIC_ID
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partition_index import PartitionIndex
from quorate.records.batch import BatchHeader, iter_batches
from quorate.records.errors import TruncatedBatchError
from quorate.runtime.metadata_batches import apply_batch, holds_metadata

from tests.kafka_scale.connection import Connection

FETCH_VERSION = 18
MAX_WAIT_MS = 500
FETCH_BYTES_MAX = 256 * 1024
"""Small, so that no response keeps the brokers of this process waiting for long."""
RETRY_S = 0.05
FETCH_S = 5.0
SOURCE = "127.2.0.1"
NONE, NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH = 0, 6, 74, 75


class Observer:
    """leader: the leading controller, None if unknown. image: the committed metadata. fenced_s: the
    time of each change of an unfenced broker to fenced, by broker; times are of time.monotonic.
    bytes: the size of the log that it fetched.
    """

    def __init__(self, ports: Mapping[int, int], node_id: int, cluster_id: str) -> None:
        self.leader: int | None = None
        self.image = MetadataImage()
        self.index = PartitionIndex()
        self.image.topics.index = self.index
        self.fenced_s: dict[int, float] = {}
        self.bytes = 0
        self._ports = ports
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._directory = uuid.uuid4()
        self._epoch = 0
        self._fetched: deque[tuple[BatchHeader, bytes]] = deque()
        """Batches that may not be committed yet."""
        self._offset = 0
        self._last_epoch = 0
        self._high_watermark = -1
        self._unfenced: set[int] = set()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._asked = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last replayed record."""
        return self.image.offset + 1

    async def until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> float:
        """Wait until the image fulfils a condition; the time.

        Raises AssertionError, and what `fail` was called with.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    if self._failure is not None:
                        raise self._failure
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s:g} s: {what}") from None
        return time.monotonic()

    def fail(self, error: BaseException) -> None:
        """Let `until` raise this error."""
        self._failure = error
        self._changed.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        nodes = list(self._ports)
        while True:
            asked = self.leader
            if asked is None:
                asked = nodes[self._asked % len(nodes)]
                self._asked += 1
            try:
                connection = await Connection.open(self._ports[asked], SOURCE)
            except (OSError, TimeoutError):
                self._lost(asked)
                await asyncio.sleep(RETRY_S)
                continue
            try:
                while await self._fetch(connection, asked):
                    pass
            except (OSError, TimeoutError):
                self._lost(asked)
            finally:
                connection.close()
            await asyncio.sleep(RETRY_S)

    def _lost(self, asked: int) -> None:
        if self.leader == asked:
            self.leader = None

    async def _fetch(self, connection: Connection, asked: int) -> bool:
        """One Fetch; False if another controller must be asked."""
        async with asyncio.timeout(FETCH_S):
            found = await connection.send(s.FETCH, FETCH_VERSION, self._request())
        if not found.responses or int(found.error_code):
            return False
        ((partition,),) = (each.partitions for each in found.responses)
        error = int(partition.error_code)
        named = partition.current_leader
        if named.leader_epoch > self._epoch or (
            named.leader_epoch == self._epoch and named.leader_id >= 0
        ):
            self._epoch = named.leader_epoch
            self.leader = named.leader_id if named.leader_id >= 0 else None
        if error in (FENCED_EPOCH, UNKNOWN_EPOCH, NOT_LEADER):
            return self.leader == asked and error == FENCED_EPOCH
        if error != NONE:
            return False
        if self.leader is None:
            self.leader = asked
        assert partition.snapshot_id.end_offset < 0, "the observer fell behind the log's start"
        await self._take(partition)
        return True

    def _request(self) -> Any:
        module = s.request_module(s.FETCH, FETCH_VERSION)
        partition = s.make(
            module.FetchPartition,
            partition=0,
            current_leader_epoch=self._epoch,
            fetch_offset=self._offset,
            last_fetched_epoch=self._last_epoch,
            log_start_offset=0,
            partition_max_bytes=0,
            replica_directory_id=self._directory,
            high_watermark=self._high_watermark,
        )
        return s.make(
            module.FetchRequest,
            cluster_id=self._cluster_id,
            replica_state=module.ReplicaState(replica_id=self._node_id),
            max_wait=s.milliseconds(MAX_WAIT_MS),
            min_bytes=0,
            max_bytes=FETCH_BYTES_MAX,
            topics=(module.FetchTopic(topic_id=s.uuid_field(TOPIC_ID), partitions=(partition,)),),
            forgotten_topics_data=(),
        )

    async def _take(self, partition: Any) -> None:
        diverging = partition.diverging_epoch
        if diverging.end_offset >= 0:
            self._truncate(diverging.end_offset, diverging.epoch)
            return
        data = bytes(partition.records or b"")
        with contextlib.suppress(TruncatedBatchError):  # Kafka cuts the last batch of a response
            for header, batch in iter_batches(data):
                self.bytes += header.size_bytes
                self._fetched.append((header, bytes(batch)))
                self._offset = header.last_offset + 1
                self._last_epoch = header.epoch
        self._high_watermark = max(self._high_watermark, partition.high_watermark)
        while self._fetched and self._fetched[0][0].last_offset < self._high_watermark:
            header, batch = self._fetched.popleft()
            self._replay(header, batch)
            await asyncio.sleep(0)

    def _truncate(self, end_offset: int, epoch: int) -> None:
        while self._fetched and self._fetched[-1][0].last_offset >= end_offset:
            self._fetched.pop()
        self._offset = self._fetched[-1][0].last_offset + 1 if self._fetched else end_offset
        self._last_epoch = self._fetched[-1][0].epoch if self._fetched else epoch
        assert self._offset >= self.end_offset, "a committed record was truncated"

    def _replay(self, header: BatchHeader, batch: bytes) -> None:
        view = memoryview(batch)
        if not holds_metadata(view, header):
            return
        changes = apply_batch(self.image, header, view)
        now_s = time.monotonic()
        for broker_id in changes.brokers:
            broker = self.image.cluster.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                self._unfenced.add(broker_id)
            elif broker_id in self._unfenced:
                self._unfenced.discard(broker_id)
                self.fenced_s[broker_id] = now_s
        self._changed.set()
