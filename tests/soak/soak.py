"""The soak: faults in random order on a quorum of real processes, under load, as long as wanted.

1. Kinds of faults come from a deck that is shuffled anew when it is empty: each comes as often.
   The deck and each fault's own choices follow from the seed.
2. One node or several suffer, half of the time with the leader among them; damaged files at most a
   minority. Before the next fault all voters have caught up and some calm seconds have passed.
3. In each third of the run (with three nodes) one node is spared from what ends its process, so
   that some lives are long enough to tell whether memory and descriptors stay flat. All processes
   end together only between two thirds.
4. What is written besides the checked values fills a tail cache in a third of such a life.

A run is good if the checker found nothing, every fault did what it was to do and was recovered
from, no process said anything unexplained, and what lived long enough was flat.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak import file_kinds as files
from tests.soak import network_kinds as network
from tests.soak import process_kinds as process
from tests.soak.kinds import Kind, Scene, Victims, select
from tests.soak.lives import WARM_UP_BYTES, Life, Trend
from tests.soak.load import Load
from tests.soak.network import Network
from tests.soak.nodes import FaultyNode, FaultyQuorum, NotWithinTimeError

SAMPLE_PERIOD_S = 3.0
PROGRESS_PERIOD_S = 30.0
CALM_S = (1.0, 3.0)
APPLIES_WAIT_S = 300.0
BULK_BYTES_PER_S = 100_000
SETTINGS = {
    "metadata.log.segment.bytes": 8 << 20,
    "metadata.log.max.record.bytes.between.snapshots": 2 << 20,
    "metadata.max.retention.bytes": 8 << 20,
}
"""Snapshots are written and sent to replaced voters, and the log's beginning is in them only."""

WRITES = ("write", "pwrite", "posix_fallocate")

KINDS = {kind.name: kind for kind in (*process.KINDS, *network.KINDS, *files.KINDS)}

Say = Callable[[str], None]


@dataclass(slots=True)
class Report:
    """What became of a run. peer_protocol: between the controllers. kinds: those that were chosen.
    steps: each fault, its victims and when it began. injected: the failures that the library
    returned, by fault.
    """

    seed: int
    peer_protocol: str = "grpc"
    kinds: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    faults_at_leader: int = 0
    injected: dict[str, int] = field(default_factory=dict)
    appended: int = 0
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    reads: int = 0
    bulk_mib: float = 0.0
    longest_gap_ms: float = 0.0
    elections: int = 0
    lives: int = 0
    trends: list[Trend] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def is_flat(self) -> bool:
        """Whether all lives that were long enough are; that there is one is seen to elsewhere."""
        return all(trend.is_flat for trend in self.trends)

    @property
    def is_good(self) -> bool:
        return not self.violations and not self.failures and self.is_flat

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"flat": self.is_flat, "good": self.is_good}


class Soak:
    """One run below a folder. `run` is its whole life.

    seconds: when no further fault begins, if there were `faults_min` by then, which takes longer
    on a busy machine. peer_protocol: see `FaultyQuorum`.
    """

    def __init__(
        self,
        folder: Path,
        library: Path,
        *,
        nodes: int,
        seconds: float,
        seed: int,
        say: Say,
        kinds: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        judges_lives: bool = True,
        peer_protocol: str = "grpc",
        faults_min: int = 0,
    ) -> None:
        self._folder = folder
        self._library = library
        self._seconds = seconds
        self._faults_min = faults_min
        self._say = say
        self._random = random.Random(seed)
        self._kinds = select(KINDS, kinds)
        self._judges_lives = judges_lives and any(k.victims is not Victims.ALL for k in self._kinds)
        self._network = Network(seed)
        self._quorum = FaultyQuorum(
            folder,
            library,
            range(1, nodes + 1),
            network=self._network,
            peer_protocol=peer_protocol,
            **SETTINGS | dict(settings or {}),
        )
        self._spared_s = seconds / nodes
        bulk = int(WARM_UP_BYTES / (self._spared_s / 3)) if judges_lives else BULK_BYTES_PER_S
        self._load = Load(self._quorum.addresses, bulk_bytes_per_s=bulk)
        self._lives: list[Life] = []
        self._deck: list[Kind] = []
        self._number = 0
        self._faults: Counter[str] = Counter()
        self._began_s = 0.0
        self.report = Report(seed, peer_protocol, kinds=[kind.name for kind in self._kinds])

    async def run(self) -> Report:
        """Until the time is up or something does not recover; then the verdict."""
        await self._quorum.start()
        _, first_epoch = await self._quorum.leader()
        self._began_s = time.monotonic()
        await self._load.start()
        watching = [
            asyncio.create_task(self._repeat(SAMPLE_PERIOD_S, self._sample)),
            asyncio.create_task(self._repeat(PROGRESS_PERIOD_S, self._tell)),
        ]
        try:
            await self._load.progress(100)
            self._load.writes.measure()
            await self._until_the_end()
            _, epoch = await self._quorum.leader()
            self.report.elections = epoch - first_epoch
        except (NotWithinTimeError, AssertionError) as error:
            self.report.failures.append(str(error))
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            self.report.seconds = round(time.monotonic() - self._began_s, 1)
            try:
                await self._judge()
            finally:
                await self._quorum.close()
        return self.report

    # --- faults -----------------------------------------------------------------------------------

    async def _next_fault(self, kind: Kind | None = None) -> None:
        """Inject a fault, the next of the deck by default, and see the quorum whole again."""
        kind = kind or await self._draw()
        self._number += 1
        choices = random.Random(f"{self.report.seed} {self._number} {kind.name}")
        victims, leads = await self._victims(kind, choices)
        self._faults[kind.name] += 1
        self.report.faults_at_leader += leads
        where = f"{kind.name} at {','.join(str(node.id) for node in victims)}"
        where += " (with the leader)" if leads else ""
        began_s = time.monotonic()
        self.report.steps.append(f"{began_s - self._began_s:.1f} s: {where}")
        scene = Scene(
            self._quorum, self._network, self._load, self._library, self._folder, choices, victims
        )
        try:
            await kind.act(scene)
            await self._quorum.whole()
            await self._load.progress(1)
        except (NotWithinTimeError, AssertionError) as error:
            raise NotWithinTimeError(f"fault {self._number}, {where}: {error}") from error
        await asyncio.sleep(choices.uniform(*CALM_S))

    async def _draw(self) -> Kind:
        """The next kind that is possible now; the others stay in the deck."""
        nodes = self._quorum.nodes.values()
        deadline = time.monotonic() + APPLIES_WAIT_S
        while True:
            possible = [kind for kind in self._deck if kind.applies(nodes)]
            if possible:
                self._deck.remove(possible[0])
                return possible[0]
            if time.monotonic() > deadline:
                left = ", ".join(kind.name for kind in self._deck)
                raise NotWithinTimeError(f"not possible within {APPLIES_WAIT_S:.0f} s: {left}")
            if not any(kind.applies(nodes) for kind in self._deck_kinds()):
                await asyncio.sleep(1.0)
                continue
            self._deck = self._deck_kinds()
            self._random.shuffle(self._deck)

    def _deck_kinds(self) -> list[Kind]:
        return [kind for kind in self._kinds if not self._waits_for_period(kind)]

    def _waits_for_period(self, kind: Kind) -> bool:
        """What ends all processes comes between two periods, when lives are to be judged."""
        return kind.victims is Victims.ALL and self._judges_lives

    async def _victims(self, kind: Kind, choices: random.Random) -> tuple[list[FaultyNode], bool]:
        """Whom to hit, the leader first if it is among them, and whether it is."""
        nodes = dict(self._quorum.nodes)
        wants_leader = choices.random() < 0.5
        order = choices.sample(sorted(nodes), len(nodes))
        leader, _ = await self._quorum.leader()
        if kind.ends_process and kind.victims is not Victims.ALL and self._judges_lives:
            order.remove(self._spared())
        if wants_leader and leader.id in order:
            order.remove(leader.id)
            order.insert(0, leader.id)
        count = kind.count(len(nodes), len(order), choices)
        victims = [nodes[i] for i in order[:count]]
        return victims, leader in victims

    def _period(self) -> int:
        return int((time.monotonic() - self._began_s) / self._spared_s)

    def _spared(self) -> int:
        ids = sorted(self._quorum.nodes)
        return ids[self._period() % len(ids)]

    async def _until_the_end(self) -> None:
        """Faults until the time is up; between two periods, those that end all processes."""
        period = 0
        while self._goes_on():
            await self._next_fault()
            if self._period() != period:
                period = self._period()
                for kind in self._kinds:
                    if self._waits_for_period(kind):
                        await self._next_fault(kind)

    def _goes_on(self) -> bool:
        is_in_time = time.monotonic() - self._began_s < self._seconds
        return is_in_time or sum(self._faults.values()) < self._faults_min

    # --- watching ---------------------------------------------------------------------------------

    async def _repeat(self, period_s: float, act: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(period_s)
            act()

    def _sample(self) -> None:
        known = {life.pid: life for life in self._lives}
        for node in self._quorum.nodes.values():
            if node.status is not None:
                continue
            life = known.get(node.pid)
            if life is None:
                life = Life(node.id, node.pid)
                self._lives.append(life)
            life.sample(self._load.bulk_bytes)

    def _tell(self) -> None:
        seconds = time.monotonic() - self._began_s
        newest = {life.node_id: life.samples[-1] for life in self._lives if life.samples}
        rss = " ".join(f"{newest[i].rss_mib:.0f}" for i in sorted(newest))
        fds = " ".join(str(newest[i].fds) for i in sorted(newest))
        self._say(
            f"{seconds:5.0f} s: {sum(self._faults.values())} faults, "
            f"{self._load.acknowledged} acknowledged, {self._load.writes.unknown_count} unknown, "
            f"longest gap {self._load.writes.longest_gap_s * 1000:.0f} ms, "
            f"RSS {rss} MiB, descriptors {fds}"
        )

    # --- the end ----------------------------------------------------------------------------------

    async def _judge(self) -> None:
        report, writes = self.report, self._load.writes
        report.longest_gap_ms = round(writes.longest_gap_s * 1000, 1)
        try:
            report.violations = [str(violation) for violation in await self._load.verify()]
        except Exception as error:
            report.failures.append(f"the log could not be checked: {error!r}")
        report.faults = dict(sorted(self._faults.items()))
        report.appended, report.acknowledged = self._load.appended, self._load.acknowledged
        report.refused = writes.refused_count
        report.unknown = report.appended - report.acknowledged - report.refused
        report.reads = self._load.read_count
        report.bulk_mib = round(self._load.bulk_bytes / (1 << 20), 1)
        report.lives = len(self._lives)
        report.trends = [trend for life in self._lives if (trend := life.trend) is not None]
        if self._judges_lives and not report.trends:
            report.failures.append("no process lived long enough to judge its memory: run longer")
        nodes = self._quorum.nodes.values()
        report.injected = {
            process.SYNC: sum(node.faults.count("fsync", "fdatasync") for node in nodes),
            process.FULL: sum(node.faults.count(*WRITES) for node in nodes),
            process.JUMP: sum(node.faults.count("clock") for node in nodes),
        }
        for kind, count in report.injected.items():
            if count < self._faults[kind]:
                report.failures.append(f"{kind}: {count} injected, {self._faults[kind]} wanted")
        for node in nodes:
            if "Traceback" in node.said():
                report.failures.append(f"controller {node.id} said a traceback: {node.log_file}")
