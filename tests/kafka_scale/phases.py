"""The phases of a measurement, each with its figures. `measure` runs all of them on one kind."""

from __future__ import annotations

import asyncio
import gc
import itertools
import resource
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.partitions import Partition

from tests.kafka import KAFKA_4_3
from tests.kafka_scale.brokers import HEARTBEAT_S, SESSION_S, SimulatedBroker
from tests.kafka_scale.connection import Connection
from tests.kafka_scale.measuring import MIB, CpuWatch, Figures, quantiles, resident_mib
from tests.kafka_scale.observer import Observer
from tests.kafka_soak.clusters import (
    CONTROLLERS,
    Controllers,
    KafkaControllers,
    QuorateControllers,
)

RELEASE = "4.3"
KAFKA_JVM = (
    "-Xmx1g",
    "-XX:TieredStopAtLevel=4",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)
"""The heap and the collector of Kafka's own start script."""
TOPIC_PARTITIONS = 50
REQUEST_TOPICS = 20
"""1,020 records: a tenth of what a request may create."""
REPLICAS = 3
CREATE_TOPICS_VERSION = 7
SILENT_BROKERS = 10
ISR_PARTITIONS = 20_000
ISR_LEADERS_AT_ONCE = 50
WAIT_S = 180.0
POLL_S = 0.005
RETRY_S = 0.05
OBSERVER_ID = 99_999
FILES_MAX = 16_384
SOURCE = "127.2.0.2"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything. steady_s: how long the steady state is measured, seconds."""

    partitions: int
    brokers: int
    steady_s: float = 60.0
    kills: int = 3

    @property
    def silent(self) -> int:
        """How many brokers stop their heartbeats."""
        return max(1, min(SILENT_BROKERS, self.brokers // 10))


class Run:
    """One cluster under measurement. figures: the results so far, by name."""

    def __init__(self, scale: Scale, controllers: Controllers, say: Callable[[str], None]) -> None:
        self.figures: Figures = {}
        self._scale = scale
        self._controllers = controllers
        self._say = say
        self._observer = Observer(controllers.ports, OBSERVER_ID, controllers.cluster_id)
        self._brokers = {
            each: SimulatedBroker(each, controllers.cluster_id, controllers.ports, self._observer)
            for each in range(1, scale.brokers + 1)
        }
        self._tasks: set[asyncio.Task[None]] = set()
        self._topic_numbers = itertools.count()
        self._silent: set[int] = set()
        """The brokers that send no heartbeats."""
        self._wrongly = 0

    async def run(self) -> None:
        """All phases. Raises AssertionError if one does not end."""
        self._spawn(self._observer.run())
        try:
            for phase in (
                self._register,
                self._create,
                self._steady,
                self._fence,
                self._change_isrs,
                self._fail_over,
            ):
                began = time.monotonic()
                watch = CpuWatch(self._controllers)
                await phase()
                self._check()
                name = phase.__name__.strip("_").replace("_", " ")
                used = watch.used_s()
                self.figures[f"{name}: processor time of all controllers, s"] = round(used, 1)
                self._say(
                    f"{name}: {time.monotonic() - began:.1f} s, controllers' processors "
                    f"{used:.1f} s, {self._wrongly} fenced wrongly so far"
                )
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for broker in self._brokers.values():
                broker.disconnect()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run beside the phases, until the end; an error ends the measurement."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._observer.fail(error)

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
        fenced_s = self._observer.fenced_s
        for broker_id in fenced_s.keys() - self._silent:
            del fenced_s[broker_id]
            self._wrongly += 1
        self.figures["brokers fenced wrongly"] = self._wrongly
        leaderless = len(self._observer.index.leaderless)
        self.figures["partitions without a leader"] = leaderless

    def _note_sizes(self, when: str) -> None:
        for node_id in CONTROLLERS:
            role = "leader" if node_id == self._observer.leader else "follower"
            size = resident_mib(self._controllers.process(node_id).pid)
            name = f"{when}: memory of {'the' if role == 'leader' else 'a'} {role}, MiB"
            self.figures[name] = max(size, float(self.figures.get(name, 0.0)))  # type: ignore[arg-type]

    def _leading(self) -> int:
        assert self._observer.leader is not None, "no controller leads"
        return self._observer.leader

    # --- phases -----------------------------------------------------------------------------------

    async def _register(self) -> None:
        await self._observer.until(lambda: self._observer.leader is not None, WAIT_S, "a leader")
        latencies: list[float] = []
        began = time.monotonic()
        for broker in self._brokers.values():
            self._spawn(broker.run(latencies))
        cluster = self._observer.image.cluster
        ended = await self._observer.until(
            lambda: (
                len(cluster.brokers) == len(self._brokers)
                and not any(each.fenced for each in cluster.brokers.values())
            ),
            WAIT_S,
            "all brokers are unfenced",
        )
        self.figures["register: until all are unfenced, s"] = round(ended - began, 2)
        self.figures["register: response, ms"] = quantiles(latencies)
        self._note_sizes("register")

    async def _create(self) -> None:
        wanted = self._scale.partitions
        latencies = []
        began = time.monotonic()
        created = 0
        while created < wanted:
            sizes: list[int] = []
            while len(sizes) < REQUEST_TOPICS and created < wanted:
                sizes.append(min(TOPIC_PARTITIONS, wanted - created))
                created += sizes[-1]
            sent = time.monotonic()
            await self._create_topics(sizes)
            latencies.append(time.monotonic() - sent)
        ended = time.monotonic()
        topics = self._observer.image.topics
        await self._observer.until(lambda: topics.partition_count >= wanted, WAIT_S, "partitions")
        gc.collect()
        gc.freeze()
        self.figures["create: s"] = round(ended - began, 2)
        self.figures["create: partitions/s"] = round(wanted / (ended - began))
        self.figures["create: response to 1,000 partitions, ms"] = quantiles(latencies)
        self._note_sizes("create")
        self.figures["create: log, MiB"] = round(self._observer.bytes / MIB, 1)

    async def _create_topics(self, sizes: list[int]) -> None:
        """Create topics with these numbers of partitions, at whoever leads, until it succeeds."""
        module = s.request_module(s.CREATE_TOPICS, CREATE_TOPICS_VERSION)
        names = [f"scale-{next(self._topic_numbers)}" for _ in sizes]
        body = module.CreateTopicsRequest(
            topics=tuple(
                module.CreatableTopic(
                    name=name,
                    num_partitions=size,
                    replication_factor=min(REPLICAS, self._scale.brokers),
                    assignments=(),
                    configs=(),
                )
                for name, size in zip(names, sizes, strict=True)
            ),
            timeout=s.milliseconds(30_000),
        )
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            leader = self._observer.leader
            if leader is not None and await self._is_created(leader, body):
                return
            await asyncio.sleep(RETRY_S)
        raise AssertionError(f"no topics within {WAIT_S:g} s")

    async def _is_created(self, leader: int, body: Any) -> bool:
        try:
            connection = await Connection.open(self._controllers.ports[leader], SOURCE)
        except (OSError, TimeoutError):
            return False
        try:
            response = await connection.send(s.CREATE_TOPICS, CREATE_TOPICS_VERSION, body)
        except OSError:
            return False
        finally:
            connection.close()
        codes = {int(each.error_code) for each in response.topics}
        return codes <= {0, int(ErrorCode.TOPIC_ALREADY_EXISTS)}

    async def _steady(self) -> None:
        await asyncio.sleep(HEARTBEAT_S)
        for broker in self._brokers.values():
            broker.latencies.clear()
        watch = CpuWatch(self._controllers)
        await asyncio.sleep(self._scale.steady_s)
        shares = watch.shares()
        leader = shares.pop(self._leading())
        found = [each for broker in self._brokers.values() for each in broker.latencies]
        self.figures["steady: heartbeats/s"] = round(len(found) / self._scale.steady_s)
        self.figures["steady: heartbeat, ms"] = quantiles(found)
        self.figures["steady: processors of the leader"] = leader
        self.figures["steady: processors of a follower"] = max(shares.values())

    async def _fence(self) -> None:
        silent = [self._brokers[each] for each in range(1, self._scale.silent + 1)]
        ids = {each.id for each in silent}
        self._check()
        self._silent |= ids
        for broker in silent:
            broker.is_silent = True
        index = self._observer.index
        self.figures["fence: leaderships to move"] = sum(index.led[each] for each in ids)
        fenced_s = self._observer.fenced_s
        await self._observer.until(lambda: ids <= fenced_s.keys(), WAIT_S, "they are fenced")
        moved = await self._observer.until(
            lambda: not any(index.leads_any(each) for each in ids), WAIT_S, "others lead"
        )
        delays = [fenced_s[each.id] - each.answered_s - SESSION_S for each in silent]
        assert min(delays) > -0.5, f"fenced within a session: {delays}"
        self.figures["fence: after the session's end, ms"] = quantiles(delays)
        last_s = max(each.answered_s for each in silent) + SESSION_S
        self.figures["fence: until others lead, s"] = round(moved - last_s, 2)
        for broker in silent:
            broker.is_silent = False
        cluster = self._observer.image.cluster
        await self._observer.until(
            lambda: not any(cluster.brokers[each].fenced for each in ids), WAIT_S, "unfenced"
        )
        for each in ids:
            del fenced_s[each]
        self._silent -= ids

    async def _change_isrs(self) -> None:
        chosen = self._full_partitions()
        for name, isr_of in (
            ("shrink", lambda each: each.isr[:-1]),
            ("expand", lambda each: each.replicas),
        ):
            latencies, seconds = await self._alter(chosen, isr_of)
            self.figures[f"isr {name}: partitions/s"] = round(len(chosen) / seconds)
            self.figures[f"isr {name}: response, ms"] = quantiles(latencies)

    def _full_partitions(self) -> list[tuple[str, int]]:
        """Partitions with all replicas in sync, leaders in turn."""
        by_leader: dict[int, list[tuple[str, int]]] = {}
        for each in self._observer.image.topics.all_partitions():
            if len(each.isr) == len(each.replicas):
                by_leader.setdefault(each.leader, []).append((each.topic_id, each.partition_id))
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*by_leader.values()))
        return [each for each in in_turn if each is not None][:ISR_PARTITIONS]

    async def _alter(
        self, keys: list[tuple[str, int]], isr_of: Callable[[Partition], tuple[int, ...]]
    ) -> tuple[list[float], float]:
        """Each leader proposes the ISRs of its partitions in one request: (latencies, seconds)."""
        topics = self._observer.image.topics
        by_leader: dict[int, list[tuple[Partition, tuple[int, ...]]]] = {}
        for key in keys:
            partition = topics.partition(*key)
            assert partition is not None, "no topic is deleted"
            by_leader.setdefault(partition.leader, []).append((partition, isr_of(partition)))
        room = asyncio.Semaphore(ISR_LEADERS_AT_ONCE)
        offsets_before = self._observer.end_offset

        async def propose(leader: int) -> float:
            async with room:
                seconds, rejected = await self._brokers[leader].alter_partitions(by_leader[leader])
            assert rejected == 0, f"{rejected} ISRs of broker {leader} are rejected"
            return seconds

        began = time.monotonic()
        latencies = await asyncio.gather(*map(propose, by_leader))
        seconds = time.monotonic() - began
        expected = offsets_before + len(keys)
        await self._observer.until(
            lambda: self._observer.end_offset >= expected, WAIT_S, "the changes are replayed"
        )
        return latencies, seconds

    async def _fail_over(self) -> None:
        heartbeats, creations, everyone, loads = [], [], [], []
        for _ in range(self._scale.kills):
            killed = self._leading()
            process = self._controllers.process(killed)
            killed_s = time.monotonic()
            process.kill()
            creation = asyncio.create_task(self._creation(killed_s))
            first, last = await self._answered(killed_s)
            heartbeats.append(first)
            everyone.append(last)
            creations.append(await creation)
            rest = asyncio.create_task(asyncio.sleep(SESSION_S + HEARTBEAT_S))
            loads.append(await self._restart(killed))
            await rest
            self._check()
        self.figures["failover: first heartbeat, ms"] = quantiles(heartbeats)
        self.figures["failover: heartbeats of all brokers, ms"] = quantiles(everyone)
        self.figures["failover: a topic created, ms"] = quantiles(creations)
        self.figures["restart: until loaded, ms"] = quantiles(loads)
        self._note_sizes("end")

    async def _creation(self, killed_s: float) -> float:
        await self._create_topics([1])
        return time.monotonic() - killed_s

    async def _answered(self, killed_s: float) -> tuple[float, float]:
        """Seconds until a heartbeat sent after the kill is answered, and until all brokers' are."""
        first = 0.0
        waiting = set(self._brokers.values())
        while waiting:
            await asyncio.sleep(POLL_S)
            waiting = {each for each in waiting if each.answered_s <= killed_s}
            passed_s = time.monotonic() - killed_s
            if not first and len(waiting) < len(self._brokers):
                first = passed_s
            assert passed_s < WAIT_S, f"{len(waiting)} brokers have no controller"
        return first, passed_s

    async def _restart(self, node_id: int) -> float:
        """Seconds from a controller's start until its image has everything committed before."""
        target = self._observer.end_offset - 1
        began = time.monotonic()
        self._controllers.process(node_id).start()
        while time.monotonic() - began < WAIT_S:
            try:
                connection = await Connection.open(self._controllers.ports[node_id], SOURCE)
            except (OSError, TimeoutError):
                await asyncio.sleep(POLL_S)
                continue
            connection.close()
            if connection.api_versions.finalized_features_epoch >= target:
                return time.monotonic() - began
            await asyncio.sleep(RETRY_S)
        raise AssertionError(f"controller {node_id} has not loaded within {WAIT_S:g} s")


def measure(
    kind: str, scale: Scale, folder: Path, say: Callable[[str], None] = lambda _line: None
) -> Figures:
    """Start controllers of a kind, and run all phases on them. kind: quorate or kafka."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES_MAX), hard))
    controllers: Controllers
    if kind == "quorate":
        controllers = QuorateControllers(folder)
    else:
        controllers = KafkaControllers(folder, KAFKA_4_3, KAFKA_JVM)
    with ExitStack() as stack:
        stack.callback(controllers.kill)
        controllers.start(RELEASE)
        run = Run(scale, controllers, say)
        try:
            uvloop.run(run.run())
        finally:
            gc.unfreeze()
        return run.figures
