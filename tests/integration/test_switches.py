"""How often the threads of each process wait for a single commit, against what is kept of it.

A voluntary context switch is a thread that waits: for a message, another thread or the disk. Unlike
times, their number hardly depends on the machine or on what else it does, and each one costs a
single commit some ten microseconds. On a busy machine they are fewer, so only more is an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.processes import QUORATE

TOLERANCE = 0.10
COMMITS = 800
KEPT = {
    ("--peer-protocol", "kafka"): {"client": 1.1, "leader": 8.5, "a follower": 6.7},
    ("--transport", "grpc"): {"client": 7.6, "leader": 24.5, "a follower": 12.8},
}
"""Context switches per commit of W1: without gRPC on either way, and with it on both."""


@pytest.mark.slow
@pytest.mark.parametrize("options", KEPT, ids=["frames", "grpc"])
def test_a_commit_waits_as_often_as_it_did(options: tuple[str, ...]) -> None:
    command = [sys.executable, *QUORATE, "bench", "W1", "--json", "--repeat", "2", *options]
    done = subprocess.run(
        [*command, "--commits", str(COMMITS)], check=True, capture_output=True, text=True
    )
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    for who, kept in KEPT[options].items():
        found = [line["value"] for line in lines if line["metric"] == f"{who}, switches"]
        assert len(found) == 2
        now = min(found)
        print(f"{who}: {now:.2f} a commit, {kept} are kept")
        assert now <= kept * (1 + TOLERANCE), f"{who} waits {now:.2f} times, not {kept}: why?"
