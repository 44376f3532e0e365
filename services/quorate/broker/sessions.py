"""The leader's side of one Fetch stream, of a follower broker or of a reader.

A session keeps the last position that its requests gave for each partition. Each request of a
follower acknowledges the records before all these positions, so the session first checks every
partition. Then it parks the request and checks only partitions that have changed. It responds as
soon as there are records, an error or a divergence, and after `max_wait_ms` at the latest. An
advanced high watermark is included in the response but does not trigger it.

Records are read once there is room for them (`rpc.server.response_memory`). Acknowledgements do not
wait for that: clients that read slowly must not delay producers.

Partitions whose records were returned move to the end of the order, so that a size-limited response
starves none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from quorate.broker.replica import LocalReplica
from quorate.broker.values import FetchAnswer, ReplicaPosition
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE
from quorate.log.errors import LogError
from quorate.raft.errors import ViolationError
from quorate.rpc.server.response_memory import MemoryReservation
from quorate.rpc.wire.limits import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX, POSITIONS_MAX
from quorate.rpc.wire.partition_values import (
    NO_EPOCH,
    FetchedPartition,
    FetchPosition,
    PartitionFetch,
    PartitionFetchResponse,
    PartitionKey,
)

WAIT_MS_MAX = 30_000
ROOM_BYTES = 1 << 20
"""The part of the message size limit that is reserved for other fields than records, bytes."""


_Found = dict[PartitionKey, FetchedPartition]
_UNREAD = [memoryview(b"")]


def _records_max(request: PartitionFetch) -> int:
    return min(request.max_bytes, MESSAGE_BYTES_MAX - ROOM_BYTES)


class BrokerFetchSession:
    """One Fetch stream. find: returns the replica of a partition, or an error.

    refuse: returns why the reader may not read a topic, NONE if it may. It does not apply to
    followers.
    """

    def __init__(
        self,
        find: Callable[[PartitionKey], LocalReplica | ErrorCode],
        refuse: Callable[[str], ErrorCode],
    ) -> None:
        self._find = find
        self._refuse = refuse
        self._positions: dict[PartitionKey, FetchPosition] = {}
        self._watched: dict[PartitionKey, LocalReplica] = {}
        self._last_sent: dict[PartitionKey, int] = {}
        self._touched: dict[PartitionKey, None] = {}
        self._wake = asyncio.Event()

    def touch(self, key: PartitionKey) -> None:
        """Note that a partition has changed, and wake a parked request."""
        if key in self._positions:
            self._touched[key] = None
            self._wake.set()

    async def fetch(
        self, request: PartitionFetch, room: MemoryReservation
    ) -> PartitionFetchResponse:
        """See `rpc.server.partition_servicer.FetchSession`."""
        for key in request.forgotten:
            self._forget(key)
        for position in request.positions:
            self._positions[position.partition] = position
        if len(self._positions) > POSITIONS_MAX:
            raise ViolationError(f"{len(self._positions)} partitions on one stream are too many")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(request.max_wait_ms, WAIT_MS_MAX) / 1000
        self._touched.clear()
        found, has_news = await self._look_in_room(request, tuple(self._positions), room)
        while not has_news:
            self._wake.clear()
            if not self._touched:
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._wake.wait()
                except TimeoutError:
                    break
            touched, self._touched = self._touched, {}
            news, has_news = await self._look_in_room(request, touched, room)
            found |= news
        for key, answer in found.items():
            self._last_sent[key] = answer.high_watermark
            if answer.records and key in self._positions:
                self._positions[key] = self._positions.pop(key)
        return PartitionFetchResponse(ErrorCode.NONE, tuple(found.values()))

    async def _look_in_room(
        self, request: PartitionFetch, keys: Iterable[PartitionKey], room: MemoryReservation
    ) -> tuple[_Found, bool]:
        """See `_look`. The records of the news have room; without news, none is held."""
        size = max(_records_max(request), BATCH_BYTES_MAX)  # at least one batch is read
        if not room.try_reserve(size):
            found, has_news = self._look(request, keys, reads=False)
            if not has_news:
                return found, False
            await room.reserve(size)
        found, has_news = self._look(request, keys)
        if not has_news:
            room.release()
        return found, has_news

    def _look(
        self, request: PartitionFetch, keys: Iterable[PartitionKey], *, reads: bool = True
    ) -> tuple[_Found, bool]:
        """Collect news of these partitions; also return whether to respond immediately.

        reads: whether to read the records, which are `_UNREAD` otherwise.
        """
        found: _Found = {}
        has_news = False
        room = _records_max(request)
        for key in keys:
            position = self._positions[key]
            answer = self._one(request, position, room if reads else None, is_first=not has_news)
            room -= sum(map(len, answer.records))
            if answer.records or answer.diverging or answer.error is not ErrorCode.NONE:
                has_news = True
                found[key] = answer
            elif self._last_sent.get(key) != answer.high_watermark:
                found[key] = answer
        return found, has_news

    def _one(
        self, request: PartitionFetch, position: FetchPosition, room: int | None, *, is_first: bool
    ) -> FetchedPartition:
        """News of one partition. room: for records, bytes; None to read none."""
        key = position.partition
        is_reader = request.replica_id == NO_NODE
        if is_reader and (refused := self._refuse(key.topic_id)) is not ErrorCode.NONE:
            return FetchedPartition(key, refused)
        replica = self._find(key)
        if isinstance(replica, ErrorCode):
            return FetchedPartition(key, replica)
        self._watch(key, replica)
        if is_reader:
            expected = None if position.leader_epoch == NO_EPOCH else position.leader_epoch
            answer = replica.machine.read(position.offset, expected)
        else:
            at = ReplicaPosition(position.leader_epoch, position.offset, position.last_epoch)
            answer = replica.fetch(request.replica_id, request.broker_epoch, at)
        return self._with_records(replica, answer, position, room, is_first=is_first)

    def _with_records(
        self,
        replica: LocalReplica,
        answer: FetchAnswer,
        position: FetchPosition,
        room: int | None,
        *,
        is_first: bool,
    ) -> FetchedPartition:
        """Add the records: at least one batch for the first partition of the response."""
        records: list[memoryview] = []
        if room is None:
            records = [] if answer.read_from is None else _UNREAD
        elif answer.read_from is not None and (room > 0 or is_first):
            wanted = max(1, min(position.max_bytes, room))
            try:
                records = replica.log.read(answer.read_from, wanted, answer.read_end)
            except (LogError, OSError):
                return FetchedPartition(position.partition, ErrorCode.KAFKA_STORAGE_ERROR)
            if not is_first and sum(map(len, records)) > room:
                records = []
        return FetchedPartition(
            position.partition,
            answer.error,
            answer.leader_id,
            answer.leader_epoch,
            answer.high_watermark,
            answer.log_start,
            answer.log_end,
            answer.diverging,
            records,
        )

    def _watch(self, key: PartitionKey, replica: LocalReplica) -> None:
        # A partition that left this broker and returned has another replica object.
        if self._watched.get(key) is not replica:
            self._unwatch(key)
            self._watched[key] = replica
            replica.watchers.add(self)

    def _unwatch(self, key: PartitionKey) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.watchers.discard(self)

    def _forget(self, key: PartitionKey) -> None:
        self._positions.pop(key, None)
        self._last_sent.pop(key, None)
        self._touched.pop(key, None)
        self._unwatch(key)

    def close(self) -> None:
        """Release all watched replicas when the stream ends."""
        for replica in self._watched.values():
            replica.watchers.discard(self)
        self._watched.clear()
        self._positions.clear()
