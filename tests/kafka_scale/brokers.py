"""Simulated brokers: registration, heartbeats and ISR changes, as Kafka's brokers send them.

Each has an address of its own on the loopback and one connection to the leading controller. It does
not fetch the metadata log; it reports the offset of the process's `Observer`, from which it also
learns who leads.

Source: KIP-631, KIP-497, KIP-903; Kafka's BrokerLifecycleManager and AlterPartitionManager.
"""

from __future__ import annotations

import asyncio
import struct
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.metadata.image.partitions import Partition

from tests.kafka_scale.connection import Connection, request_frame
from tests.kafka_scale.observer import Observer

REGISTRATION_VERSION = 4
HEARTBEAT_VERSION = 2
ALTER_PARTITION_VERSION = 3
HEARTBEAT_S = 2.0
"""Kafka's default of broker.heartbeat.interval.ms."""
SESSION_S = 9.0
"""Kafka's default of broker.session.timeout.ms."""
REQUEST_S = 4.5
"""Half a session: how long Kafka's broker waits for a response."""
RETRY_S = 0.1
"""The first pause after a failure. Kafka's broker doubles it each time when it registers."""
GOLDEN_RATIO = 0.618_034
"""Multiples of it are spread evenly between whole numbers."""
NOT_CONTROLLER = 41
UNSET_OFFSET = 0x0123_4567_89AB_CDEF
HEARTBEAT_RESPONSE = struct.Struct(">9xh??")
"""After header and throttle time: the error, and whether the broker is caught up and fenced."""


class SimulatedBroker:
    """latencies: of its successful heartbeats, seconds. answered_s: when the last of them was sent,
    a time of time.monotonic. is_silent: it sends no heartbeats.
    """

    def __init__(
        self, broker_id: int, cluster_id: str, ports: Mapping[int, int], observer: Observer
    ) -> None:
        self.id = broker_id
        self.epoch = -1
        self.is_fenced = True
        self.is_silent = False
        self.answered_s = 0.0
        self.latencies: list[float] = []
        self._cluster_id = cluster_id
        self._ports = ports
        self._observer = observer
        self._source = f"127.1.{broker_id >> 8}.{broker_id & 255}"
        self._incarnation = uuid.uuid4()
        self._directory = uuid.uuid4()
        self._connection: Connection | None = None
        self._connected_to: int | None = None
        self._connecting = asyncio.Lock()
        self._frame: bytearray | None = None
        self._offset_at = 0

    async def run(self, latencies: list[float]) -> None:
        """Register, then send heartbeats until cancelled. latencies: of the registrations."""
        started = time.monotonic()
        pause_s = RETRY_S
        while self.epoch < 0:
            response = await self._ask(s.BROKER_REGISTRATION, REGISTRATION_VERSION, None)
            if response is None or int(response.error_code):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, SESSION_S)
            else:
                self.epoch = response.broker_epoch
        latencies.append(time.monotonic() - started)
        while True:
            if self._observer.end_offset > self.epoch and await self._heartbeat():
                break
            await asyncio.sleep(RETRY_S)
        # Brokers of a real cluster do not start together, so their heartbeats are spread.
        await asyncio.sleep(HEARTBEAT_S * (self.id * GOLDEN_RATIO % 1))
        while True:
            succeeded = self.is_silent or await self._heartbeat()
            await asyncio.sleep(HEARTBEAT_S if succeeded else RETRY_S)

    async def _heartbeat(self) -> bool:
        """Send a heartbeat; whether it succeeded. There are so many that they are not rebuilt."""
        if self._frame is None:
            self._frame = self._heartbeat_frame()
            self._offset_at = self._frame.index(UNSET_OFFSET.to_bytes(8, "big"))
        offset = self._observer.end_offset - 1
        self._frame[self._offset_at : self._offset_at + 8] = offset.to_bytes(8, "big", signed=True)
        sent_s = time.monotonic()
        try:
            connection = await self._connect(self._observer.leader)
            async with asyncio.timeout(REQUEST_S):
                response = await connection.exchange(self._frame)
        except (OSError, TimeoutError):
            self.disconnect()
            return False
        error, _, self.is_fenced = HEARTBEAT_RESPONSE.unpack_from(response)
        if error:
            self.disconnect()
            return False
        self.latencies.append(time.monotonic() - sent_s)
        self.answered_s = sent_s
        return True

    def _heartbeat_frame(self) -> bytearray:
        body = s.make(
            s.request_type(s.BROKER_HEARTBEAT, HEARTBEAT_VERSION),
            broker_id=self.id,
            broker_epoch=self.epoch,
            current_metadata_offset=UNSET_OFFSET,
            want_fence=False,
            want_shut_down=False,
            offline_log_dirs=(),
            cordoned_log_dirs=(),
        )
        return request_frame(s.BROKER_HEARTBEAT, HEARTBEAT_VERSION, body)

    async def alter_partitions(
        self, changes: Iterable[tuple[Partition, tuple[int, ...]]]
    ) -> tuple[float, int]:
        """Propose ISRs: (seconds, number of rejected partitions). Raises ConnectionError."""
        module = s.request_module(s.ALTER_PARTITION, ALTER_PARTITION_VERSION)
        brokers = self._observer.image.cluster.brokers
        by_topic: dict[str, list[Any]] = {}
        for partition, isr in changes:
            by_topic.setdefault(partition.topic_id, []).append(
                module.PartitionData(
                    partition_index=partition.partition_id,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=tuple(
                        module.BrokerState(broker_id=each, broker_epoch=brokers[each].broker_epoch)
                        for each in isr
                    ),
                    leader_recovery_state=0,
                    partition_epoch=partition.partition_epoch,
                )
            )
        body = module.AlterPartitionRequest(
            broker_id=self.id,
            broker_epoch=self.epoch,
            topics=tuple(
                module.TopicData(topic_id=s.uuid_field(topic_id), partitions=tuple(partitions))
                for topic_id, partitions in by_topic.items()
            ),
        )
        sent_s = time.monotonic()
        response = await self._ask(s.ALTER_PARTITION, ALTER_PARTITION_VERSION, body, timeout_s=60.0)
        if response is None:
            raise ConnectionError(f"broker {self.id}: no response to AlterPartition")
        assert not int(response.error_code), f"broker {self.id}: {response.error_code!r}"
        seconds = time.monotonic() - sent_s
        rejected = sum(bool(p.error_code) for t in response.topics for p in t.partitions)
        return seconds, rejected

    async def _ask(
        self, api_key: int, version: int, body: Any, timeout_s: float = REQUEST_S
    ) -> Any:
        """The leader's response; None if there is no leader, or it does not answer in time.

        body: None for a registration, which names the features that the controller supports.
        """
        leader = self._observer.leader
        try:
            connection = await self._connect(leader)
            if body is None:
                body = self._registration(connection.api_versions)
            async with asyncio.timeout(timeout_s):
                response = await connection.send(api_key, version, body)
        except (OSError, TimeoutError):
            self.disconnect()
            return None
        if int(response.error_code) == NOT_CONTROLLER:
            self.disconnect()
            return None
        return response

    async def _connect(self, leader: int | None) -> Connection:
        """The connection to the leader. Raises OSError, TimeoutError."""
        async with self._connecting:
            connection = self._connection
            if connection is not None and connection.is_open and self._connected_to == leader:
                return connection
            self.disconnect()
            if leader is None:
                raise ConnectionError("no leader is known")
            connection = await Connection.open(self._ports[leader], self._source)
            self._connection, self._connected_to = connection, leader
            return connection

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _registration(self, api_versions: Any) -> Any:
        module = s.request_module(s.BROKER_REGISTRATION, REGISTRATION_VERSION)
        return s.make(
            module.BrokerRegistrationRequest,
            broker_id=self.id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation,
            listeners=(
                module.Listener(
                    name="PLAINTEXT", host=self._source, port=9092, security_protocol=0
                ),
            ),
            features=tuple(
                module.Feature(
                    name=each.name,
                    min_supported_version=each.min_version,
                    max_supported_version=each.max_version,
                )
                for each in api_versions.supported_features
            ),
            rack=None,
            is_migrating_zk_broker=False,
            log_dirs=(self._directory,),
            previous_broker_epoch=-1,
        )
