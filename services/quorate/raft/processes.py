"""Which process of a replica fetches from the leader: one that lost records, or two at once.

A process names itself by its incarnation, a random number; 0 is a process that has none.
- A new incarnation that fetches below what an earlier one acknowledged in this epoch runs on a
  directory that lost records. The answer tells it what was acknowledged (`FetchResponse`).
- An incarnation that fetches again and again after a later one did: two processes run with one id
  and directory id. One late Fetch of a process that ended is no such sign.

The leader knows only what it saw in its own epoch. A directory that was restored while nobody led,
or together with those of a majority, cannot be detected here.
"""

from __future__ import annotations

from quorate.raft.core import Core
from quorate.raft.messages import FetchRequest
from quorate.raft.roles import Leader, ReplicaProgress
from quorate.raft.types import OffsetAndEpoch

FORMER_MAX = 4
"""How many earlier incarnations of a replica are remembered."""

RETURNS_MIN = 2
"""How many Fetches of an earlier process are a sign that it still runs."""

REPORT_PERIOD_MS = 60_000
"""How often a replica with two processes is reported at most."""


def note_incarnation(core: Core, progress: ReplicaProgress, request: FetchRequest) -> None:
    """Another process than last time fetches for this replica."""
    incarnation = request.incarnation
    if incarnation and incarnation in progress.former:
        progress.returned += 1
        if progress.returned >= RETURNS_MIN and not _was_reported(core, progress):
            progress.reported_ms = core.now_ms
            core.notice(_two_processes(progress), warning=True)
        return
    if progress.incarnation:
        progress.former = (*progress.former[1 - FORMER_MAX :], progress.incarnation)
        progress.promised = max(progress.promised, progress.end_offset)
    progress.incarnation = incarnation
    progress.returned = 0


def _was_reported(core: Core, progress: ReplicaProgress) -> bool:
    age_ms = core.now_ms - progress.reported_ms
    return progress.reported_ms >= 0 and age_ms < REPORT_PERIOD_MS


def _two_processes(progress: ReplicaProgress) -> str:
    return (
        f"two processes run as replica {progress.key}: stop one of them; if its directory is a "
        "copy, format another one for it"
    )


def reported(core: Core, leader: Leader) -> list[str]:
    """What an operator should know now of the processes that fetch, a line for each replica."""
    return [
        _two_processes(progress)
        for progress in leader.replicas.values()
        if _was_reported(core, progress)
    ]


def promise(core: Core, progress: ReplicaProgress, request: FetchRequest) -> OffsetAndEpoch | None:
    """What earlier processes of this replica acknowledged, for a Fetch below it."""
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
