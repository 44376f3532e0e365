"""The workloads by name; see `workloads` and `many_partitions`."""

from __future__ import annotations

from quorate.cli.bench.many_partitions import many_partitions
from quorate.cli.bench.workloads import (
    Workload,
    batches,
    follower_restarted,
    growing_log,
    idle_memory,
    leader_killed,
    leader_stopped,
    machine,
    many_callers,
    many_processes,
    more_voters,
    one_call_a_commit,
    one_caller,
    voter_added,
)

WORKLOADS: dict[str, Workload] = {
    "W1": one_caller,
    "W2": many_callers,
    "W2p": many_processes,
    "W2u": one_call_a_commit,
    "W3": batches,
    "W4": leader_killed,
    "W4g": leader_stopped,
    "W5": follower_restarted,
    "W6": voter_added,
    "W7": idle_memory,
    "W8": growing_log,
    "W9": more_voters,
    "metadata": many_partitions,
    "machine": machine,
}
DEFAULT = ("W1", "W2", "W2p", "W2u", "W3", "W4", "W4g", "W7")
"""The workloads that run by default; they end within a few minutes."""
HARMLESS = frozenset({"W1", "W2", "W2p", "W2u", "W3", "machine"})
"""The workloads that are safe on a quorum that runs already."""
