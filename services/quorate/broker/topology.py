"""A client's cache of partition leaders and broker addresses, refreshed when it is stale."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.rpc.client.partition_client import BrokerConnections, address_of
from quorate.rpc.client.routing import Address
from quorate.rpc.errors import AdminError, TransportError, UnreachableError
from quorate.rpc.wire.limits import format_address, parse_address
from quorate.rpc.wire.partition_values import LocatedPartition, LocatedTopic, PartitionKey

REFRESH_PAUSE_S = 0.05
"""The minimum time between two refreshes, seconds."""
ASK_TIMEOUT_MS = 2_000


class Topology:
    """Topics, leaders and addresses. bootstrap: `host:port` of some brokers."""

    def __init__(self, bootstrap: Sequence[str], connections: BrokerConnections) -> None:
        self._bootstrap = [parse_address(text) for text in bootstrap]
        self._connections = connections
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, LocatedTopic] = {}
        self._leaders: dict[PartitionKey, tuple[int, int]] = {}
        self._asking = asyncio.Lock()
        self._asked_at = -1.0
        self._version = 0
        self._next = 0

    @property
    def version(self) -> int:
        """Incremented by each response, so `refresh(topic, since=version)` asks at most once."""
        return self._version

    def topic(self, name: str) -> LocatedTopic | None:
        return self._topics.get(name)

    def partition(self, topic: str, index: int) -> LocatedPartition | None:
        found = self._topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def leader(self, key: PartitionKey) -> Address | None:
        """The leader's address, None if it is unknown."""
        known = self._leaders.get(key)
        return None if known is None else self._brokers.get(known[1])

    def note_leader(self, key: PartitionKey, leader_id: int, epoch: int) -> bool:
        """Note the leader that a broker reported; True if it is new and its address is known."""
        known = self._leaders.get(key, (-1, -1))
        if leader_id < 0 or epoch < known[0] or (epoch, leader_id) == known:
            return False
        self._leaders[key] = (epoch, leader_id)
        return leader_id in self._brokers

    def addresses(self) -> list[Address]:
        """The addresses of all known brokers, rotated on each call."""
        known = list(dict.fromkeys((*self._brokers.values(), *self._bootstrap)))
        self._next = (self._next + 1) % len(known)
        return known[self._next :] + known[: self._next]

    async def refresh(self, topic: str, *, since: int) -> None:
        """Ask a broker about a topic, unless another caller did so after version `since`.

        UnreachableError if no broker answers; AdminError if the topic does not exist, or the caller
        may not describe it.
        """
        async with self._asking:
            if self._version > since and topic in self._topics:
                return
            loop = asyncio.get_running_loop()
            pause_s = self._asked_at + REFRESH_PAUSE_S - loop.time()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            self._asked_at = loop.time()
            attempts: dict[str, str] = {}
            for host, port in self.addresses():
                try:
                    found = await self._connections.locate(host, port, [topic], ASK_TIMEOUT_MS)
                    if found.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                        raise AdminError(found.error, found.message)
                    if found.error is not ErrorCode.NONE:
                        attempts[format_address(host, port)] = found.error.name
                        continue
                    self._brokers |= {b.id: address_of(b.endpoints) for b in found.brokers}
                except (TransportError, ViolationError) as error:
                    attempts[format_address(host, port)] = str(error)
                    continue
                self._version += 1
                for each in found.topics:
                    self._learn(each)
                return
            raise UnreachableError(attempts)

    def _learn(self, topic: LocatedTopic) -> None:
        if topic.error is not ErrorCode.NONE:
            self._topics.pop(topic.name, None)
            raise AdminError(topic.error, topic.name)
        self._topics[topic.name] = topic
        for each in topic.partitions:
            key = PartitionKey(topic.topic_id, each.index)
            if each.leader_epoch >= self._leaders.get(key, (-1, -1))[0]:
                self._leaders[key] = (each.leader_epoch, each.leader_id)
