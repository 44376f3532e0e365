"""Runs seeds, one after the other or on several cores, and adds up what they did."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.simulation.cluster import Cluster, Result, Trace
from tests.simulation.plan import MEMBERSHIP, Scenario, draw
from tests.simulation.scheduler import SECOND


def run_scenario(scenario: Scenario, trace: Trace | None = None) -> Result:
    """Run one scenario. A run that commits nothing has tested nothing: NoCommit."""
    result = Cluster(scenario, trace).run()
    if result.violation is None and result.commits == 0:
        result.violation = "NoCommit: the run passed without an acknowledged append"
    return result


def run_seed(seed: int) -> Result:
    """Run the default mix for a seed."""
    # A run makes little garbage that has cycles, and ends soon: collecting it costs a fifth.
    gc.disable()
    try:
        return run_scenario(draw(seed))
    finally:
        gc.enable()
        gc.collect(0)


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Result]:
    """The results in the order of the seeds."""
    if jobs <= 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs) as executor:
        yield from executor.map(run_seed, seeds, chunksize=4)


@dataclass(slots=True)
class Summary:
    """The sum of many runs. cpu_s: what the runs took, added over the cores."""

    seeds: int = 0
    events: int = 0
    time_us: int = 0
    cpu_s: float = 0.0
    commits: int = 0
    changes: int = 0
    elections: int = 0
    snapshots: int = 0
    with_lost_disk: int = 0
    with_change: int = 0
    without_commit: int = 0
    leaderless: int = 0
    slowest_leader_us: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[Result] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.events += result.events
        self.time_us += result.time_us
        self.cpu_s += result.cpu_s
        self.commits += result.commits
        self.changes += result.changes
        self.elections += result.elections
        self.snapshots += result.snapshots
        self.with_lost_disk += result.lost_disks > 0
        self.with_change += result.changes > 0
        self.without_commit += result.commits == 0
        self.leaderless += result.is_leaderless
        self.slowest_leader_us = max(self.slowest_leader_us, result.leader_after_us)
        self.faults.update(result.faults)
        if result.violation is not None:
            self.failed.append(result)

    @property
    def events_per_second(self) -> int:
        """Events a second on one core."""
        return int(self.events / self.cpu_s) if self.cpu_s else 0

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as (name, value)."""
        share = 100 / max(1, self.seeds)
        return [
            ("seeds", f"{self.seeds:,}"),
            ("violations", f"{len(self.failed):,}"),
            ("events", f"{self.events:,}"),
            ("events per second and core", f"{self.events_per_second:,}"),
            ("wall clock", f"{time.monotonic() - self.begun:,.1f} s"),
            ("simulated time", f"{self.time_us / SECOND / 3600:,.2f} h"),
            ("acknowledged appends", f"{self.commits:,}"),
            ("elections", f"{self.elections:,}"),
            ("changes of the voters committed", f"{self.changes:,}"),
            ("snapshots installed", f"{self.snapshots:,}"),
            ("seeds that lose a disk", f"{self.with_lost_disk * share:.0f} %"),
            ("seeds that change the voters", f"{self.with_change * share:.0f} %"),
            ("seeds without a commit", f"{self.without_commit:,}"),
            ("seeds that lost too much to elect", f"{self.leaderless:,}"),
            ("slowest leader after the faults", f"{self.slowest_leader_us / SECOND:.2f} s"),
        ]

    def fault_rows(self) -> list[tuple[str, str]]:
        """Every kind of fault with its count; membership changes are faults here."""
        kinds = sorted(self.faults, key=lambda kind: (kind in MEMBERSHIP, kind))
        return [(kind.replace("_", " "), f"{self.faults[kind]:,}") for kind in kinds]
