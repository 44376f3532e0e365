"""The follower's side of replication: one task and one stream for each broker that it follows.

1. The first request of a stream names all partitions; later ones name those whose position changed.
2. A response's records are checked and appended, and the next request acknowledges them.
3. A rejected partition (one of the two brokers has not replayed the newest epoch yet) is left out
   for `fetch_backoff_ms`.
4. When partitions are added or removed, a new stream replaces the old one, so that no parked fetch
   delays the change.
5. An unreachable leader is retried after `fetch_backoff_ms`. The metadata log alone determines the
   leader; the fetcher never guesses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from quorate.broker.replica import LocalReplica
from quorate.broker.values import FetchAnswer, ReplicaPosition
from quorate.common.error_codes import ErrorCode
from quorate.raft.batches import Batch
from quorate.raft.errors import ViolationError
from quorate.records.batch import parse_batches
from quorate.records.errors import RecordsError
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.partition_client import BrokerConnections, PartitionFetchStream
from quorate.rpc.errors import RpcError
from quorate.rpc.wire.partition_values import (
    FetchedPartition,
    FetchPosition,
    PartitionFetch,
    PartitionKey,
)
from quorate.runtime.tasks import OnFailure, supervise

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one fetch request, in milliseconds and bytes."""

    wait_max_ms: int
    bytes_max: int
    partition_bytes_max: int
    backoff_ms: int


class Fetcher:
    """Fetches from broker `leader_id`. address: returns its address, None while it is unknown.

    broker_epoch: returns this broker's epoch. fail: called with a fatal error.
    """

    def __init__(
        self,
        leader_id: int,
        local_id: int,
        connections: BrokerConnections,
        limits: FetchLimits,
        *,
        address: Callable[[int], tuple[str, int] | None],
        broker_epoch: Callable[[], int],
        fail: OnFailure,
    ) -> None:
        self.leader_id = leader_id
        self._local_id = local_id
        self._connections = connections
        self._limits = limits
        self._address = address
        self._broker_epoch = broker_epoch
        self._replicas: dict[PartitionKey, LocalReplica] = {}
        self._refused_until: dict[PartitionKey, float] = {}
        self._changed = asyncio.Event()
        self._is_unreached = False
        self._task = supervise(self._run(), f"fetcher-{leader_id}", fail)

    def add(self, replica: LocalReplica) -> None:
        """Add a partition and fetch it immediately."""
        self._replicas[replica.key] = replica
        self._refused_until.pop(replica.key, None)
        self._changed.set()

    def remove(self, key: PartitionKey) -> None:
        if self._replicas.pop(key, None) is not None:
            self._refused_until.pop(key, None)
            self._changed.set()

    def poke(self) -> None:
        """Wake the task: a partition may be fetched again, or the leader's address changed."""
        self._changed.set()

    @property
    def is_idle(self) -> bool:
        return not self._replicas

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    # --- the task ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if not self._wanted():
                await self._wait(self._next_retry_s())
                continue
            address = self._address(self.leader_id)
            if address is None:
                await self._wait(self._limits.backoff_ms / 1000)
                continue
            try:
                stream = await self._connections.open_fetch(*address)
            except RpcError as error:
                self._unreached(error)
                await self._wait(self._limits.backoff_ms / 1000)
                continue
            try:
                await self._follow(stream)
            except (RpcError, ViolationError, RecordsError) as error:
                self._unreached(error)
                await asyncio.sleep(self._limits.backoff_ms / 1000)
            finally:
                stream.close()

    def _unreached(self, error: Exception) -> None:
        if not self._is_unreached:
            LOGGER.info("cannot fetch from broker %d, will retry: %s", self.leader_id, error)
        self._is_unreached = True

    async def _wait(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _next_retry_s(self) -> float | None:
        """Seconds until the first rejected partition is retried; None if there is none."""
        if not self._refused_until:
            return None
        now = asyncio.get_running_loop().time()
        return max(0.0, min(self._refused_until.values()) - now)

    def _wanted(self) -> dict[PartitionKey, ReplicaPosition]:
        """The partitions to fetch, with their positions."""
        now = asyncio.get_running_loop().time()
        found: dict[PartitionKey, ReplicaPosition] = {}
        for key, replica in self._replicas.items():
            if self._refused_until.get(key, 0.0) > now:
                continue
            self._refused_until.pop(key, None)
            position = replica.machine.position()
            if position is not None and replica.machine.leader_id == self.leader_id:
                found[key] = position
        return found

    async def _follow(self, stream: PartitionFetchStream) -> None:
        """Fetch over one stream until the wanted partitions change while a fetch is in flight."""
        asked: dict[PartitionKey, ReplicaPosition] = {}
        while self._replicas:
            self._changed.clear()
            wanted = self._wanted()
            if not wanted:
                # All partitions are backing off or waiting for a flush.
                await self._wait(self._next_retry_s())
                continue
            request = PartitionFetch(
                self._local_id,
                self._broker_epoch(),
                self._limits.wait_max_ms,
                self._limits.bytes_max,
                tuple(
                    FetchPosition(
                        key,
                        position.offset,
                        position.leader_epoch,
                        position.last_epoch,
                        self._limits.partition_bytes_max,
                    )
                    for key, position in wanted.items()
                    if asked.get(key) != position
                ),
                tuple(asked.keys() - wanted.keys()),
            )
            asked = wanted
            response = await self._or_changed(stream, request)
            if response is None:
                return
            if self._is_unreached:
                LOGGER.info("fetching from broker %d again", self.leader_id)
                self._is_unreached = False
            for found in response:
                self._take(found, asked.get(found.partition))

    async def _or_changed(
        self, stream: PartitionFetchStream, request: PartitionFetch
    ) -> tuple[FetchedPartition, ...] | None:
        """Return the response, or None if the wanted partitions changed meanwhile."""
        fetch = asyncio.ensure_future(stream.fetch(request))
        changed = asyncio.ensure_future(self._changed.wait())
        retry_s = self._next_retry_s()
        try:
            await asyncio.wait(
                (fetch, changed), timeout=retry_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not fetch.done():
                return None
            response = fetch.result()
        finally:
            changed.cancel()
            if not fetch.done():
                fetch.cancel()
                await asyncio.wait([fetch])
        if response.error is not ErrorCode.NONE:
            raise ViolationError(f"{response.error.name} {response.message}".rstrip())
        return response.partitions

    def _take(self, found: FetchedPartition, asked: ReplicaPosition | None) -> None:
        replica = self._replicas.get(found.partition)
        if replica is None or asked is None:
            return
        answer = FetchAnswer(
            found.error,
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            found.log_start,
            found.log_end,
            diverging=found.diverging,
        )
        try:
            batches: list[Batch] = []
            for part in found.records:
                batches.extend(parse_batches(memoryview(part)))
            error = replica.fetched(asked, answer, batches)
        except (RecordsError, ViolationError) as broken:
            LOGGER.warning(
                "%s: invalid fetch response from broker %d: %s",
                replica.name,
                self.leader_id,
                broken,
            )
            error = ErrorCode.CORRUPT_MESSAGE
        if error is not ErrorCode.NONE:
            now = asyncio.get_running_loop().time()
            self._refused_until[found.partition] = now + self._limits.backoff_ms / 1000
        else:
            self._refused_until.pop(found.partition, None)
