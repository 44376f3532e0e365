"""A few seeds of each mode, and that the harness finds what it is for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.durability.mutants.catalogue import MUTANTS
from tests.durability.mutants.patching import mutated_sources

ROOT = Path(__file__).parents[2]


def run(mode: str, *options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the writer without a thread is for good."""
    command = [sys.executable, "-m", "tests.durability", mode, "--jobs", "1", *options]
    return subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}/services"}, capture_output=True, text=True
    )


@pytest.mark.parametrize("mode", ["power", "sectors"])
def test_nothing_acknowledged_is_lost(mode: str) -> None:
    done = run(mode, "--count", "25")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 seeds with violations" in done.stdout


@pytest.mark.parametrize(
    ("mode", "mutant"), [("power", "quorum_state_is_not_synced"), ("power", "commit_is_not_synced")]
)
def test_a_missing_sync_is_found(mode: str, mutant: str) -> None:
    done = run(mode, "--count", "25", "--mutant", mutant)
    assert done.returncode == 1, done.stdout + done.stderr


def test_every_mutant_applies() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    for mutant in MUTANTS:
        for source in mutated_sources(mutant).values():
            compile(source, mutant.name, "exec")
