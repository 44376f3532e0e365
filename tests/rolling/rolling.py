"""Rolling restarts of three brokers under a producer with acks=all, and what became of its records.

A `Rolling` is a cluster of three controllers and three brokers, a topic with min.insync.replicas=2
and an idempotent producer that counts what it was told. A round restarts each broker in one of
four ways and waits until every ISR is whole again:

    controlled   SIGTERM: leaderships move first, logs are flushed
    kill         kill -9: what the process had written stays
    wiped        kill -9, and everything that was not flushed goes, as with the machine
    paused       SIGSTOP until the controller has fenced it, then it goes on as if nothing had been

After the rounds everything is read back: each acknowledged record must be there, at the offset that
it was acknowledged with, once.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quorate.broker.client import Producer, RecordReader
from quorate.broker.replica_log import read_recovery_point, read_topic_id
from quorate.cli.local.local_cluster import LocalCluster
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE
from quorate.metadata.requests import CreateTopics, NewTopic
from quorate.records.batch import read_header
from quorate.rpc.client.partition_client import BrokerConnections
from quorate.rpc.errors import ClientError, OutcomeUnknownError, RpcError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.partition_values import Located

from tests.launcher import launched_by

TOPIC = "rolling"
BROKERS = (101, 102, 103)
WAYS = ("controlled", "kill", "wiped", "paused")
HEADER_BYTES = 61
WAIT_S = 60.0

QUICK: Mapping[str, object] = {
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 2_000,
    "replica.lag.time.max.ms": 3_000,
}
"""Settings with which a round takes seconds: the same behaviour on a shorter clock."""


@dataclass(slots=True)
class Load:
    """Callers that send one numbered record after the other, each to one partition."""

    producer: Producer
    partitions: int
    callers: int = 6
    pause_s: float = 0.01
    acknowledged: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    longest_gap_s: float = 0.0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    is_stopping: bool = False

    def start(self) -> None:
        self.tasks = [asyncio.create_task(self._call(number)) for number in range(self.callers)]

    async def stop(self) -> None:
        """Let every caller have its last answer."""
        self.is_stopping = True
        await asyncio.gather(*self.tasks)

    async def _call(self, number: int) -> None:
        sent = 0
        last = time.monotonic()
        while not self.is_stopping:
            value = f"{number}-{sent}".encode()
            sent += 1
            try:
                done = await self.producer.send(TOPIC, value, partition=number % self.partitions)
            except OutcomeUnknownError:
                self.unknown.add(value)
            except ClientError as error:
                self.refused[str(error)[:80]] += 1
            else:
                self.acknowledged[value] = (done.partition, done.offset)
                now = time.monotonic()
                self.longest_gap_s = max(self.longest_gap_s, now - last)
                last = now
            await asyncio.sleep(self.pause_s)


@dataclass(slots=True)
class Figures:
    """What a run came to."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    moved: int = 0
    unknown: int = 0
    refused: int = 0
    wiped_records: int = 0
    longest_gap_s: float = 0.0
    odd_isrs: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds: {self.acknowledged} acknowledged, {self.lost} lost, "
            f"{self.doubled} doubled, {self.moved} elsewhere, {self.unknown} unknown, "
            f"{self.refused} refused, {self.wiped_records} records wiped from unflushed tails, "
            f"longest gap of a caller {self.longest_gap_s:.2f} s, "
            f"{len(self.odd_isrs)} looks at an ISR with a fenced or stopping replica"
        )


class Rolling:
    """A cluster in `folder`. safe: whether KIP-841's checks are on."""

    def __init__(
        self,
        folder: Path,
        *,
        partitions: int = 3,
        controllers: int = 3,
        safe: bool = True,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        changed = {} if safe else {"launcher": launched_by("--unsafe-isr")}
        self.cluster = LocalCluster(
            folder, broker_settings={**QUICK, **(settings or {})}, **changed
        )
        self.cluster.create(range(1, controllers + 1), BROKERS)
        for node in self.cluster.nodes.values():
            text = node.properties.read_text()
            node.properties.write_text(text + "broker.session.timeout.ms=2000\n")
        self.partitions = partitions
        self.figures = Figures()
        self.connections = BrokerConnections()
        self.producer = Producer(self.cluster.broker_addresses, delivery_timeout_ms=60_000)
        self.load = Load(self.producer, partitions)
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start everything, create the topic, begin to produce."""
        self.cluster.start()
        async with MetadataClient(self.cluster.addresses) as client:
            await self.until("three active brokers", self._all_active)
            topic = NewTopic(
                TOPIC,
                assignments=tuple(
                    tuple(BROKERS[(p + i) % len(BROKERS)] for i in range(len(BROKERS)))
                    for p in range(self.partitions)
                ),
                configs=(("min.insync.replicas", "2"),),
            )
            made = await client.ask(CreateTopics((topic,)), timeout_ms=20_000)
            assert made.topics[0].error is ErrorCode.NONE, made
        await self.until("whole ISRs", self._is_whole)
        self.load.start()
        self._watcher = asyncio.create_task(self._watch())

    async def restart(self, broker: int, way: str) -> None:
        """Restart one broker and wait until its new process is back in every ISR."""
        located = await self.locate()
        assert located is not None
        before = epochs(located)
        if way == "paused":
            await self._pause(broker)
            return
        if way == "controlled":
            await asyncio.to_thread(self.cluster.stop, [broker])
        else:
            self.cluster.kill(broker)
            if way == "wiped":
                self.figures.wiped_records += wipe_unflushed(self.cluster.brokers[broker].data)
        self.cluster.start([broker])

        def is_back(located: Located) -> bool:
            return epochs(located).get(broker, -1) > before[broker] and self._is_whole(located)

        await self.until(f"broker {broker} back in the ISRs", is_back)

    async def _pause(self, broker: int) -> None:
        """Let a broker miss its heartbeats; it does not know of it."""
        process = self.cluster.processes[broker]
        process.send_signal(signal.SIGSTOP)
        try:
            await self.until(
                f"broker {broker} is fenced",
                lambda located: any(b.id == broker and b.fenced for b in located.brokers),
            )
        finally:
            process.send_signal(signal.SIGCONT)
        await self.until(f"broker {broker} back in the ISRs", self._is_whole)

    async def round(self, way: str) -> None:
        """Restart each broker in its turn."""
        for broker in BROKERS:
            await self.restart(broker, way)
        self.figures.rounds += 1

    async def finish(self) -> Figures:
        """Stop producing, read everything back, stop."""
        await self.load.stop()
        await self.until("whole ISRs", self._is_whole)
        await self.verify()
        return self.figures

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        await self.producer.close()
        await self.load.stop()
        await self.connections.close()
        await asyncio.to_thread(self.cluster.stop)

    async def verify(self) -> None:
        """Compare what is there with what was acknowledged."""
        found: dict[bytes, list[tuple[int, int]]] = {}
        async with RecordReader(self.cluster.broker_addresses) as reader:
            for partition in range(self.partitions):
                end = await reader.end_offset(TOPIC, partition)
                async for record in reader.records(TOPIC, partition, 0, end):
                    assert record.value is not None
                    found.setdefault(record.value, []).append((partition, record.offset))
        figures, load = self.figures, self.load
        figures.acknowledged = len(load.acknowledged)
        figures.unknown, figures.refused = len(load.unknown), sum(load.refused.values())
        figures.longest_gap_s = load.longest_gap_s
        for value, place in load.acknowledged.items():
            places = found.get(value, [])
            figures.lost += not places
            figures.moved += bool(places) and place not in places
        figures.doubled = sum(len(places) > 1 for places in found.values())

    # --- watching ---------------------------------------------------------------------------------

    async def locate(self) -> Located | None:
        """What the first broker that answers knows."""
        for broker, node in self.cluster.brokers.items():
            if broker not in self.cluster.running:
                continue
            try:
                return await self.connections.locate("127.0.0.1", node.port, (TOPIC,), 1_000)
            except RpcError:
                continue
        return None

    async def _watch(self) -> None:
        """Note every ISR that holds a fenced or stopping replica beside others."""
        while True:
            located = await self.locate()
            if located is not None:
                self.figures.odd_isrs += odd_isrs(located)
            await asyncio.sleep(0.05)

    async def until(
        self, what: str, condition: Callable[[Located], bool], timeout_s: float = WAIT_S
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            self.cluster.check_running()
            located = await self.locate()
            if located is not None and condition(located):
                return
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}; {located}"
            await asyncio.sleep(0.05)

    @staticmethod
    def _all_active(located: Located) -> bool:
        active = {broker.id for broker in located.brokers if not broker.fenced}
        return active >= set(BROKERS)

    @classmethod
    def _is_whole(cls, located: Located) -> bool:
        partitions = [each for topic in located.topics for each in topic.partitions]
        return (
            cls._all_active(located)
            and bool(partitions)
            and all(set(p.isr) == set(BROKERS) and p.leader_id != NO_NODE for p in partitions)
        )


def epochs(located: Located) -> dict[int, int]:
    """The epoch of each broker's registration."""
    return {broker.id: broker.epoch for broker in located.brokers}


def odd_isrs(located: Located) -> list[str]:
    """ISRs of more than one member with one in it that is fenced or shutting down."""
    odd = {b.id for b in located.brokers if b.fenced or b.in_controlled_shutdown}
    return [
        f"{topic.name}-{each.index} {each.isr}, fenced or shutting down {sorted(odd)}"
        for topic in located.topics
        for each in topic.partitions
        if len(each.isr) > 1 and odd & set(each.isr)
    ]


def wipe_unflushed(data: Path) -> int:
    """Take from a stopped broker's logs what its machine would have lost; how many records."""
    return sum(_wipe(directory) for directory in partition_directories(data))


def partition_directories(data: Path) -> Iterable[Path]:
    return (p for p in data.iterdir() if p.is_dir() and read_topic_id(p) and p.name[0] != "_")


def _wipe(directory: Path) -> int:
    point = read_recovery_point(directory)
    wiped = 0
    for path in sorted(directory.glob("*.log"), reverse=True):
        content = path.read_bytes()
        position = keep = 0
        while len(content) - position >= HEADER_BYTES:
            header = read_header(content, position)
            position += header.size_bytes
            if header.end_offset <= point:
                keep = position
            else:
                wiped += header.count
        with path.open("r+b") as file:
            file.truncate(keep)
    return wiped
