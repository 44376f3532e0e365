"""Manages the replicas of this broker, with their metadata updates, fetchers and checkpoints.

1. No metadata is applied before the broker's own registration has been replayed. Earlier records
   refer to an earlier process, whose unflushed tail may be lost (KIP-841).
2. A metadata change names the partitions that it affects. Logs that are not open yet are opened in
   worker threads; then each partition gets its current state in the image.
3. When a partition is reassigned to other brokers, or its topic is deleted, its log is closed and
   its directory removed. A directory that is found at startup and belongs to no partition of this
   broker is renamed and kept: it may hold the only copy of its records.
4. Followers are grouped by leader, with one `Fetcher` each.
5. High watermarks are written to `replication-offset-checkpoint` periodically and at shutdown, so
   that a restarted broker knows which records readers could see.

Source: Kafka's ReplicaManager and BrokerMetadataPublisher.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from quorate.broker.alter_partition_manager import AlterPartitionManager
from quorate.broker.checkpoints import read_high_watermarks, write_high_watermarks
from quorate.broker.config import BrokerConfig
from quorate.broker.fetcher import Fetcher, FetchLimits
from quorate.broker.metadata_view import MetadataView
from quorate.broker.partition import PartitionConfig, PartitionReplica
from quorate.broker.replica import LocalReplica
from quorate.broker.replica_log import (
    DELETED_SUFFIX,
    STRAY_SUFFIX,
    ReplicaLog,
    read_topic_id,
    set_aside,
)
from quorate.broker.values import ProposeIsr, ReplicaRoleChanged
from quorate.common.error_codes import ErrorCode
from quorate.log.errors import LogError
from quorate.log.offset_files import METADATA_TOPIC
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.partition_client import BrokerConnections
from quorate.rpc.wire.partition_values import PartitionKey
from quorate.runtime.clock import Clock

LOGGER = logging.getLogger(__name__)

OPENED_AT_ONCE_MAX = 4
"""The most logs that are opened concurrently."""


class ReplicaManager:
    """Implements `replica.Host`. view: the committed metadata.

    fail: called with a fatal error. check_eligibility: see `PartitionConfig`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        view: MetadataView,
        alter_partition_manager: AlterPartitionManager,
        connections: BrokerConnections,
        *,
        fail: Callable[[BaseException], None],
        check_eligibility: bool = True,
    ) -> None:
        self.config = config
        self.view = view
        self.replicas: dict[PartitionKey, LocalReplica] = {}
        self.broker_epoch = -1
        self._clock = clock
        self._alter_partition_manager = alter_partition_manager
        self._connections = connections
        self._fail = fail
        self._check_eligibility = check_eligibility
        self._fetchers: dict[int, Fetcher] = {}
        self._following: dict[PartitionKey, int] = {}
        self._marks: dict[tuple[str, int], int] = {}
        self._pending: dict[PartitionKey, None] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # --- lifecycle --------------------------------------------------------------------------------

    def start(self, broker_epoch: int) -> None:
        """Start with the whole image, which contains this broker's registration with this epoch."""
        self.broker_epoch = broker_epoch
        self._marks = read_high_watermarks(self.config.log_dirs)
        self._set_strays_aside()
        self._pending.update(dict.fromkeys(self.view.partitions_of(self.config.node_id)))
        self._wake.set()
        self._tasks = [
            asyncio.create_task(self._guarded(self._apply_changes()), name="replicas"),
            asyncio.create_task(self._guarded(self._tick()), name="isr-expiry"),
            asyncio.create_task(self._guarded(self._checkpoint()), name="checkpoints"),
        ]

    async def settled(self) -> None:
        """Wait until all pending metadata changes have been applied."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Stop fetching, flush and close all logs, write the high watermarks."""
        await cancel_tasks(*self._tasks)
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        for replica in self.replicas.values():
            try:
                await replica.close()
            except (LogError, OSError) as error:
                self.fail(error)
        if self._tasks:
            await asyncio.to_thread(write_high_watermarks, self.config.log_dirs, self._by_dir())

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.fail(error)

    # --- use by other components ------------------------------------------------------------------

    def find(self, key: PartitionKey) -> LocalReplica | ErrorCode:
        """Return the local replica of a partition, or the error to answer with."""
        replica = self.replicas.get(key)
        if replica is not None:
            return replica
        if not self.view.has_topic(key.topic_id):
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def propose(self, replica: LocalReplica, proposal: ProposeIsr) -> None:
        self._alter_partition_manager.add(replica, proposal)

    def fail(self, error: BaseException) -> None:
        self._fail(error)

    def may_fetch(self, replica: LocalReplica) -> None:
        fetcher = self._fetchers.get(replica.machine.leader_id)
        if fetcher is not None:
            fetcher.poke()

    def role_changed(self, replica: LocalReplica, change: ReplicaRoleChanged) -> None:
        LOGGER.info(
            "%s: %s in epoch %d, leader %d, log end %d, high watermark %d",
            replica.name,
            change.role,
            change.leader_epoch,
            change.leader_id,
            replica.machine.log.end_offset,
            replica.machine.high_watermark,
        )
        self._unfollow(replica.key)
        if change.role == "follower":
            self._follow(replica, change.leader_id)

    # --- metadata ---------------------------------------------------------------------------------

    def partitions_changed(self, keys: Iterable[PartitionKey]) -> None:
        """Schedule an update of partitions that changed in the image."""
        if not self._tasks:
            return
        self._pending.update(dict.fromkeys(keys))
        self._idle.clear()
        self._wake.set()

    def brokers_changed(self) -> None:
        """Update all replicas after broker registrations, removals, moves or fencing."""
        brokers = self.view.brokers
        for replica in self.replicas.values():
            replica.machine.brokers_changed(brokers)

    def configs_changed(self) -> None:
        """Apply changed topic settings to all replicas."""
        for replica in self.replicas.values():
            replica.configure(self._partition_config(replica.key.topic_id))

    async def _apply_changes(self) -> None:
        while True:
            self._wake.clear()
            pending, self._pending = self._pending, {}
            hosted = [key for key in pending if self._is_here(key)]
            missing = [key for key in hosted if key not in self.replicas]
            for first in range(0, len(missing), OPENED_AT_ONCE_MAX):
                # A failure waits for the other logs: none may be added while the broker stops.
                opened = await asyncio.gather(
                    *(self._open(key) for key in missing[first : first + OPENED_AT_ONCE_MAX]),
                    return_exceptions=True,
                )
                for error in opened:
                    if error is not None:
                        raise error
            for key in pending:
                if not self._is_here(key):
                    await self._remove(key)
                    continue
                state = self.view.partition(key)
                if state is not None and key in self.replicas:
                    self.replicas[key].apply(state, self.view.brokers)
            if not self._pending:
                self._idle.set()
                await self._wake.wait()

    def _is_here(self, key: PartitionKey) -> bool:
        state = self.view.partition(key)
        return state is not None and self.config.node_id in state.replicas

    async def _open(self, key: PartitionKey) -> None:
        topic = self.view.topic_name(key.topic_id)
        if topic is None:
            return
        name = f"{topic}-{key.index}"
        directory = self._directory(name)
        if directory.exists() and read_topic_id(directory) not in (None, key.topic_id):
            # The topic was deleted and recreated while this broker was down.
            stray = await asyncio.to_thread(set_aside, directory)
            LOGGER.warning(
                "%s belongs to a deleted topic of the same name: renamed to %s", directory, stray
            )
        log = await asyncio.to_thread(
            lambda: ReplicaLog(
                directory, key.topic_id, segment_bytes_max=self.config.segment_bytes_max
            )
        )
        if log.torn_bytes:
            LOGGER.warning(
                "%s: truncated %d bytes that were never flushed, the log ends at offset %d",
                name,
                log.torn_bytes,
                log.end_offset,
            )
        mark = self._marks.get((topic, key.index), 0)
        machine = PartitionReplica(
            self.config.node_id, log.state, self._partition_config(key.topic_id), mark
        )
        self.replicas[key] = LocalReplica(
            key,
            name,
            machine,
            log,
            self,
            flush_messages=self.config.flush_interval_messages,
        )

    def _directory(self, name: str) -> Path:
        for root in self.config.log_dirs:
            if (root / name).is_dir():
                return root / name
        return self.config.log_dirs[0] / name

    def _partition_config(self, topic_id: str) -> PartitionConfig:
        return PartitionConfig(
            min_insync_replicas=self.view.min_insync(topic_id, self.config.min_insync_replicas),
            lag_time_max_ms=self.config.lag_time_max_ms,
            flush_before_ack=self.config.flush_before_ack,
            check_eligibility=self._check_eligibility,
        )

    async def _remove(self, key: PartitionKey) -> None:
        replica = self.replicas.pop(key, None)
        if replica is not None:
            LOGGER.info("%s is no longer on this broker: deleting it", replica.name)
            self._unfollow(key)
            await replica.close(delete=True)

    def _set_strays_aside(self) -> None:
        """Finish interrupted deletions; rename directories that belong to no local partition."""
        expected = {
            f"{self.view.topic_name(key.topic_id)}-{key.index}"
            for key in self.view.partitions_of(self.config.node_id)
        }
        for root in self.config.log_dirs:
            for directory in tuple(root.iterdir()):
                if not directory.is_dir() or directory.name.startswith(METADATA_TOPIC):
                    continue
                if directory.name.endswith(DELETED_SUFFIX):
                    shutil.rmtree(directory, ignore_errors=True)
                elif directory.name.endswith(STRAY_SUFFIX) or read_topic_id(directory) is None:
                    continue
                elif directory.name not in expected:
                    stray = set_aside(directory)
                    LOGGER.warning(
                        "%s belongs to no partition of this broker: renamed to %s", directory, stray
                    )

    # --- fetchers ---------------------------------------------------------------------------------

    def _follow(self, replica: LocalReplica, leader_id: int) -> None:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            limits = FetchLimits(
                self.config.fetch_wait_max_ms,
                self.config.fetch_bytes_max,
                self.config.fetch_partition_bytes_max,
                self.config.fetch_backoff_ms,
            )
            fetcher = self._fetchers[leader_id] = Fetcher(
                leader_id,
                self.config.node_id,
                self._connections,
                limits,
                address=lambda broker: self.view.address(broker, self.config.endpoints[0].name),
                broker_epoch=lambda: self.broker_epoch,
                fail=self.fail,
            )
        self._following[replica.key] = leader_id
        fetcher.add(replica)

    def _unfollow(self, key: PartitionKey) -> None:
        leader_id = self._following.pop(key, None)
        if leader_id is not None:
            self._fetchers[leader_id].remove(key)

    # --- periodic tasks ---------------------------------------------------------------------------

    async def _tick(self) -> None:
        period_s = self.config.lag_time_max_ms / 2 / 1000
        while True:
            await asyncio.sleep(period_s)
            for replica in tuple(self.replicas.values()):
                replica.tick()

    async def _checkpoint(self) -> None:
        last_flush_ms = self.now_ms()
        interval_ms = self.config.flush_interval_ms
        wait_ms = min(self.config.checkpoint_interval_ms, interval_ms or (1 << 31))
        while True:
            await asyncio.sleep(wait_ms / 1000)
            await asyncio.to_thread(write_high_watermarks, self.config.log_dirs, self._by_dir())
            if interval_ms is not None and self.now_ms() - last_flush_ms >= interval_ms:
                last_flush_ms = self.now_ms()
                for replica in tuple(self.replicas.values()):
                    replica.flush_soon()

    def _by_dir(self) -> dict[Path, list[tuple[str, int, int]]]:
        """Topic, index and high watermark of each replica, by log directory."""
        found: dict[Path, list[tuple[str, int, int]]] = {root: [] for root in self.config.log_dirs}
        for replica in self.replicas.values():
            topic, _, index = replica.name.rpartition("-")
            entry = (topic, int(index), replica.machine.high_watermark)
            found.setdefault(replica.log.directory.parent, []).append(entry)
        return found
