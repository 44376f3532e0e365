"""Which process of a replica fetches from the leader: one that lost records, or two at once.

A process names itself by its incarnation, a random number; 0 is a process that has none.
- A new incarnation that fetches below what an earlier one acknowledged in this epoch runs on a
  directory that lost records. The answer tells it what was acknowledged (`FetchResponse`).
- Two incarnations that each hold records appended after the other had first fetched: two processes
  run with one id and directory id. Neither can have ended before the other began, however late its
  Fetches arrive. What one of them holds, the other may not: neither counts any longer for commits,
  reads, removals and transfers while this process leads. A process that starts later counts.

The leader knows only what it saw itself. A directory that was restored while nobody led, or
together with those of a majority, cannot be detected here; nor can what a copy acknowledged before
it was seen, or while this process did not lead.
"""

from __future__ import annotations

from quorate.raft.core import Core
from quorate.raft.messages import FetchRequest
from quorate.raft.roles import Leader, ReplicaProcess, ReplicaProgress
from quorate.raft.types import OffsetAndEpoch

PROCESSES_MAX = 5
"""How many of a replica's latest incarnations are remembered."""

CONCURRENT_MAX = 256
"""How many incarnations that ran at the same time as another are remembered."""

REPORT_PERIOD_MS = 60_000
"""How often a replica with two processes is reported at most."""


def note_process(
    core: Core, leader: Leader, progress: ReplicaProgress, request: FetchRequest
) -> None:
    """Another process than last time fetches for this replica, or one of several."""
    incarnation = request.incarnation
    process = progress.processes.get(incarnation)
    if process is None:
        process = _note_new(core, progress, incarnation)
    if request.last_epoch == leader.epoch:
        process.reached = max(process.reached, request.offset)
        for other, seen in progress.processes.items():
            overlap = process.reached > seen.first_end and seen.reached > process.first_end
            if overlap and incarnation and other and seen is not process:
                _note_concurrent(core, incarnation, other)
    is_copied = incarnation in core.concurrent
    if is_copied is not progress.is_copied:
        progress.is_copied = is_copied
        leader.tracked_set = None
    if is_copied:
        _report(core, progress)


def _note_new(core: Core, progress: ReplicaProgress, incarnation: int) -> ReplicaProcess:
    if progress.incarnation:
        # A late Fetch may have lowered `end_offset` since.
        progress.promised = max(progress.promised, progress.reached)
    progress.incarnation = incarnation
    process = progress.processes[incarnation] = ReplicaProcess(core.log.end_offset)
    if len(progress.processes) > PROCESSES_MAX:
        del progress.processes[next(iter(progress.processes))]
    return process


def _note_concurrent(core: Core, *incarnations: int) -> None:
    for incarnation in incarnations:
        core.concurrent[incarnation] = None
    while len(core.concurrent) > CONCURRENT_MAX:
        del core.concurrent[next(iter(core.concurrent))]


def _report(core: Core, progress: ReplicaProgress) -> None:
    age_ms = core.now_ms - progress.reported_ms
    if progress.reported_ms < 0 or age_ms >= REPORT_PERIOD_MS:
        progress.reported_ms = core.now_ms
        core.notice(two_processes(progress), warning=True)


def two_processes(progress: ReplicaProgress) -> str:
    """Describe two processes that run as one replica, and the remedy."""
    return (
        f"two processes run as replica {progress.key}, so neither counts towards a majority: "
        "stop both and start the one with the original directory; format another directory for "
        "the other"
    )


def reported(leader: Leader) -> list[str]:
    """Return a line for each replica id that two processes use."""
    return [two_processes(p) for p in leader.replicas.values() if p.is_copied]


def promise(core: Core, progress: ReplicaProgress, request: FetchRequest) -> OffsetAndEpoch | None:
    """Return what earlier processes of this replica acknowledged, if the Fetch is below it."""
    if request.incarnation != progress.incarnation:
        return None  # a late Fetch of a process that ended
    promised = progress.promised
    end = OffsetAndEpoch(promised, core.log.epoch_before(promised))
    progress.end_offset = min(progress.end_offset, request.offset)
    if progress.reported_promise != promised:
        progress.reported_promise = promised
        core.notice(
            f"replica {progress.key} acknowledged records up to {end} and fetches from "
            f"{request.offset} after a restart: its directory lost records or is an older copy. It "
            "gets them again; if its directory is a copy, remove this voter, format an empty "
            "directory and add it again",
            warning=True,
        )
    return end
