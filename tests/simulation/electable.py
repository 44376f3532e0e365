"""Whether any log that is left can win an election, by the rules of `raft.required_end`.

A voter that lost records, a voter set possibly among them, does not stand and votes for no log that
is shorter than its own was: what it lost may be committed. If the other logs do not suffice for a
majority, the quorum waits for an operator. That is the price of losing nothing, and no violation.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.raft.core import Core
from quorate.raft.types import same_replica

from tests.simulation.node import SimNode


def nobody_can_win(nodes: Iterable[SimNode]) -> bool:
    """Whether a lost voter set is the reason that no replica that runs can be elected."""
    cores = [node.core for node in nodes if node.raft is not None]
    lost = (core.required_end for core in cores)
    if all(required is None or required.may_stand for required in lost):
        return False
    return not any(_wins(core, cores) for core in cores if _stands(core, cores))


def _stands(core: Core, cores: list[Core]) -> bool:
    """Whether it elects of its own accord, or is asked by one that does and has an older log."""
    if core.may_elect or not (core.config.can_vote and core.may_stand):
        return core.may_elect
    end = (core.log.last_epoch, core.log.end_offset)
    return any(
        (other.log.last_epoch, other.log.end_offset) < end
        for other in cores
        if other.may_elect and core.local in other.voters
    )


def _wins(candidate: Core, cores: list[Core]) -> bool:
    end = (candidate.log.last_epoch, candidate.log.end_offset)
    votes = conditional = 0
    for voter in candidate.voters:
        core = next((core for core in cores if same_replica(voter.key, core.local)), None)
        if core is None:
            continue
        if (core.log.last_epoch, core.log.end_offset) > end:
            continue
        required = core.required_end if core is not candidate else None
        if required is None or end >= (required.end.epoch, required.end.offset):
            votes += 1
        elif required.may_stand:
            conditional += 1
    if votes + conditional == len(candidate.voters):
        return True
    return votes >= candidate.voters.majority and candidate.required_end is None
