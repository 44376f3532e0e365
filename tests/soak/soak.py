"""The soak: faults in random order on a quorum of real processes, under load, as long as wanted.

1. Kinds of faults come from a deck that is shuffled anew when it is empty: each comes as often.
2. One node at a time suffers, half of the time the leader. Before the next fault all voters have
   caught up and some calm seconds have passed.
3. In each third of the run (with three nodes) one node is spared from what ends its process, so
   that some lives are long enough to tell whether memory and descriptors stay flat.
4. What is written besides the checked values fills a tail cache in a third of such a life.

A run is good if the checker found nothing, every fault did what it was to do and was recovered
from, no process said anything unexplained, and what lived long enough was flat.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.support import CLUSTER, assert_clean, quorate
from tests.soak.lives import WARM_UP_BYTES, Life, Trend
from tests.soak.load import Load
from tests.soak.nodes import (
    DISK_FULL,
    FSYNC_FAILS,
    FaultyNode,
    FaultyQuorum,
    NotWithinTimeError,
)

SAMPLE_PERIOD_S = 3.0
PROGRESS_PERIOD_S = 30.0
CALM_S = (1.0, 3.0)
PAUSE_S = (1.0, 10.0)
JUMP_S = (60, 600)
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": 2 << 20,
    "metadata.max.retention.bytes": 8 << 20,
}
"""Snapshots are written and sent to replaced voters, and the log's beginning is in them only."""

KILL = "kill -9"
STOP = "SIGTERM"
PAUSE = "SIGSTOP"
SYNC = "failing fsync"
FULL = "disk full"
JUMP = "clock jump"
REPLACE = "voter replaced"
GENTLE = (PAUSE, JUMP)
"""These leave the process alive."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Report:
    """What became of a run. injected: the failures that the library returned, by fault."""

    seed: int
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
    """One run below a folder. `run` is its whole life."""

    def __init__(
        self, folder: Path, library: Path, *, nodes: int, seconds: float, seed: int, say: Say
    ) -> None:
        self._folder = folder
        self._seconds = seconds
        self._say = say
        self._random = random.Random(seed)
        self._quorum = FaultyQuorum(folder, library, range(1, nodes + 1), **SETTINGS)
        self._spared_s = seconds / nodes
        bulk = int(WARM_UP_BYTES / (self._spared_s / 3))
        self._load = Load(self._quorum.addresses, bulk_bytes_per_s=bulk)
        self._lives: list[Life] = []
        self._deck: list[str] = []
        self._faults: Counter[str] = Counter()
        self._began_s = 0.0
        self.report = Report(seed)
        self._do: dict[str, Callable[[FaultyNode], Awaitable[None]]] = {
            KILL: self._kill,
            STOP: self._stop,
            PAUSE: self._pause,
            SYNC: self._fail_sync,
            FULL: self._fill_disk,
            JUMP: self._jump,
            REPLACE: self._replace,
        }

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
            while time.monotonic() - self._began_s < self._seconds:
                await self._next_fault()
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

    async def _next_fault(self) -> None:
        if not self._deck:
            self._deck = list(self._do)
            self._random.shuffle(self._deck)
        kind = self._deck.pop()
        victim, leads = await self._victim(kind)
        self._faults[kind] += 1
        self.report.faults_at_leader += leads
        try:
            await self._do[kind](victim)
            await self._quorum.whole()
        except (NotWithinTimeError, AssertionError) as error:
            where = f"{kind} at {victim.id}{' (leader)' if leads else ''}"
            raise NotWithinTimeError(f"{where}: {error}") from error
        await asyncio.sleep(self._random.uniform(*CALM_S))

    async def _victim(self, kind: str) -> tuple[FaultyNode, bool]:
        nodes = dict(self._quorum.nodes)
        if kind not in GENTLE:
            ids = sorted(nodes)
            period = int((time.monotonic() - self._began_s) / self._spared_s)
            nodes.pop(ids[period % len(ids)])
        leader, _ = await self._quorum.leader()
        if leader.id in nodes and self._random.random() < 0.5:
            return leader, True
        victim = self._random.choice(list(nodes.values()))
        return victim, victim is leader

    async def _kill(self, node: FaultyNode) -> None:
        node.kill()
        await asyncio.sleep(self._random.uniform(0.1, 2.0))
        node.start()

    async def _stop(self, node: FaultyNode) -> None:
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        assert await node.ended() == 0, node.recently()
        assert_clean(node.recently())
        node.start()

    async def _pause(self, node: FaultyNode) -> None:
        node.pause()
        try:
            await asyncio.sleep(self._random.uniform(*PAUSE_S))
        finally:
            node.resume()

    async def _fail_sync(self, node: FaultyNode) -> None:
        node.faults.begin(FSYNC_FAILS)
        assert await node.ended() == 1, node.recently()
        node.faults.end(FSYNC_FAILS)
        node.start()

    async def _fill_disk(self, node: FaultyNode) -> None:
        node.faults.begin(DISK_FULL)
        assert await node.ended() == 1, node.recently()
        if self._random.random() < 0.5:
            node.start()
            assert await node.ended() == 1, node.recently()
        node.faults.end(DISK_FULL)
        node.start()

    async def _jump(self, node: FaultyNode) -> None:
        for _ in range(2):
            seconds = self._random.choice((-1, 1)) * self._random.randint(*JUMP_S)
            node.faults.shift_clock(seconds)
            await asyncio.sleep(self._random.uniform(1.0, 3.0))
        node.faults.shift_clock(0)

    async def _replace(self, node: FaultyNode) -> None:
        """Remove a voter, give it an empty directory, add it again: with the commands."""
        ask = ("metadata-quorum", "--bootstrap-controller", ",".join(self._quorum.addresses))
        gone = ("-i", node.id, "-d", node.directory_id)
        await self._command(*ask, "remove-controller", *gone)
        node.kill()
        shutil.rmtree(node.data)
        config = ("-c", node.properties)
        how = ("-t", CLUSTER, *config, "--no-initial-controllers")
        await self._command("storage", "format", *how)
        node.start()
        await self._command(*ask, "add-controller", *config)

    async def _command(self, *arguments: object) -> None:
        ran = await asyncio.to_thread(quorate, *arguments)
        assert ran.status == 0, ran

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
        if not report.trends:
            report.failures.append("no process lived long enough to judge its memory: run longer")
        nodes = self._quorum.nodes.values()
        report.injected = {
            SYNC: sum(node.faults.count("fsync", "fdatasync") for node in nodes),
            FULL: sum(node.faults.count("write", "pwrite", "posix_fallocate") for node in nodes),
            JUMP: sum(node.faults.count("clock") for node in nodes),
        }
        for kind, count in report.injected.items():
            if count < self._faults[kind]:
                report.failures.append(f"{kind}: {count} injected, {self._faults[kind]} wanted")
        for node in nodes:
            if "Traceback" in node.said():
                report.failures.append(f"controller {node.id} said a traceback: {node.log_file}")
