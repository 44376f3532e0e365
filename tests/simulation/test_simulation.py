"""The simulation in `poe test`: saved seeds, some fresh ones, and that a seed is one run.

QUORATE_SIMULATION_SEED fixes the first fresh seed, QUORATE_SIMULATION_SEEDS how many there are.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import saved_seeds
from tests.simulation.determinism import HASH_SEEDS, compare
from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.patching import mutated_sources
from tests.simulation.node import SimNode
from tests.simulation.plan import FAULTS, TARGETED, Action, Scenario, draw
from tests.simulation.runner import Summary, run_scenario, run_seed
from tests.simulation.scheduler import SECOND
from tests.simulation.shrink import Reduced

ROOT = Path(__file__).parents[2]
FRESH = int(os.environ.get("QUORATE_SIMULATION_SEEDS", "40"))
FIRST = int(os.environ.get("QUORATE_SIMULATION_SEED", random.randrange(10_000, 1 << 31)))


def environment() -> dict[str, str]:
    """That of a process which imports the same packages."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "services"), *sys.path])}


def run_all(seeds: list[int]) -> Summary:
    summary = Summary()
    for seed in seeds:
        summary.add(run_seed(seed))
    failed = [f"{Reduced(r.seed).command()}\n    {r.violation}" for r in summary.failed]
    assert not failed, "\n".join(["", *failed])
    return summary


def test_saved_seeds() -> None:
    run_all(saved_seeds())


def test_fresh_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nsimulation: seeds {FIRST} to {FIRST + FRESH - 1}", file=sys.stderr)
    summary = run_all(list(range(FIRST, FIRST + FRESH)))
    assert summary.commits > 0
    assert summary.with_change > 0
    assert summary.with_lost_disk > 0


def test_every_kind_of_fault_is_in_the_default_mix() -> None:
    drawn = {action.kind for seed in range(200) for action in draw(seed).actions}
    assert drawn == {*FAULTS, *TARGETED}


def test_a_calm_cluster_keeps_its_leader_while_a_minority_is_cut_off() -> None:
    """StableLeadership: pre-vote keeps who is cut off, and comes back, from disturbing."""
    for seed in range(2):
        cut = Action(8 * SECOND, "cut_off_minority", (seed / 2, 0.99))
        calm = Scenario(seed, 5, 5, faults_us=25 * SECOND, stable=True, actions=(cut,))
        result = run_scenario(calm)
        assert result.violation is None
        assert result.faults["cut_off_minority"] == 1


def test_what_the_time_asks_for_is_never_overlooked() -> None:
    """`Core.due_ms` may be early, never late, for every node before every one of its inputs."""

    def look(_: int, node: SimNode | None, text: str) -> None:
        if node is not None and node.raft is not None and text.startswith("<-"):
            due_ms, deadline_ms = node.core.due_ms, node.raft.next_deadline_ms()
            assert due_ms <= deadline_ms, f"{node.key}, {node.raft.role}: {due_ms}, {deadline_ms}"

    for seed in range(FIRST, FIRST + 10):
        assert run_scenario(draw(seed), look).violation is None


def test_a_seed_is_one_run_whatever_the_hashes() -> None:
    """The same trace in processes with different hash seeds, on every core."""
    found = list(compare(33, 1))
    assert len(found) >= len(HASH_SEEDS)
    assert len({traced.digest for traced in found}) == 1, found


def test_mutants_of_the_protocol_are_killed() -> None:
    """Every mutant still applies; a few are killed here, all by `tests.simulation.mutants run`."""
    for mutant in MUTANTS:
        for source in mutated_sources(mutant).values():
            compile(source, mutant.name, "exec")
    names = ["fetch_before_durable", "divergence_ignored", "commit_by_counting_old_epochs"]
    command = [sys.executable, "-m", "tests.simulation.mutants", "run", *names, "--seeds", "20"]
    command += ["--fresh", "--no-keep"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
