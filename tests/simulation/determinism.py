"""Same seed, same run: the digest of a seed's whole trace, and its comparison between processes.

What may leak into a run is what differs between processes: the seed of Python's hashes (the order
of sets), the addresses of objects, the core, the time. So the same seeds run in one process for
each hash seed and core, pinned to that core, and the digests of their traces must be equal. The
trace is everything that `--trace` prints, unabridged: every input, output, fault and time.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.plan import draw
from tests.simulation.runner import run_scenario

if TYPE_CHECKING:
    from tests.simulation.node import SimNode

ROOT = Path(__file__).parents[2]
HASH_SEEDS = ("0", "1", "4242")


@dataclass(frozen=True, slots=True)
class Traced:
    """What one process found. core: None where processes cannot be pinned."""

    hash_seed: str
    core: int | None
    digest: str


def trace_digest(seeds: Iterable[int]) -> str:
    """SHA-256 of the traces of these seeds, one after the other, with what came of each."""
    digest = hashlib.sha256()

    def trace(time_us: int, node: SimNode | None, text: str) -> None:
        who = node.id if node is not None else 0
        digest.update(f"{time_us} {who} {text}\n".encode())

    for seed in seeds:
        result = run_scenario(draw(seed), trace)
        digest.update(f"{result.events} {result.time_us} {result.violation}\n".encode())
    return digest.hexdigest()


def cores() -> list[int | None]:
    """The cores that this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return [None]
    return [*sorted(os.sched_getaffinity(0))]


def compare(first: int, count: int) -> Iterator[Traced]:
    """Trace these seeds under every hash seed on every core, each in a process of its own."""
    command = [sys.executable, "-m", "tests.simulation", "digest"]
    command += ["--first", str(first), "--seeds", str(count)]
    paths = os.pathsep.join([str(ROOT / "services"), *sys.path])
    for hash_seed in HASH_SEEDS:
        for core in cores():
            pin = [] if core is None else ["--core", str(core)]
            environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
            done = subprocess.run(
                command + pin,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            yield Traced(hash_seed, core, done.stdout.split()[-1])
