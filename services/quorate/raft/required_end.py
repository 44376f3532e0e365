"""Votes of a replica that may have lost acknowledged records: the log end that it must reach again.

While a `RequiredEnd` is set and the replica's durable log is below its end:
1. It votes only for candidates whose log reaches the end. Any other candidate with a log at least
   as long as its own gets a conditional vote (`granted_if_all`), which counts only if all voters of
   the candidate's voter set vote for it.
2. It wins an election only with the votes of all voters.
3. If what it lost may hold a voter set (`may_stand` is False), it neither stands nor gives a
   conditional vote.
Once its durable log reaches the end, it votes and stands as others do, whatever its role.

Logs compare by (epoch of the last record, end offset).

Why this is safe: by rule 1 the replica votes as it would with its lost records, so a majority of
votes proves what it always proves. In an election with the votes of all voters, the candidate's log
is at least as long as every log that is left, so it has each committed record that any voter still
has. That argument needs the candidate to know all voters, which is rule 3: a voter set that it does
not know was appended by replicas that voted for it, and one that lost it gave no conditional vote.
A log reaches the end only by records of a leader, whose log has what was committed (KIP-595).
Without the conditional vote, a power failure of all replicas could leave each of them below the end
of another, and none electable.
"""

from __future__ import annotations

from quorate.raft.core import Core
from quorate.raft.messages import VoteRequest
from quorate.raft.roles import Ballot
from quorate.raft.types import OffsetAndEpoch, RequiredEnd


def _is_below(epoch: int, offset: int, end: OffsetAndEpoch) -> bool:
    """Whether a log that ends like this is below `end`."""
    return (epoch, offset) < (end.epoch, end.offset)


def describe(required_end: RequiredEnd) -> str:
    """Describe the restriction of a required end."""
    stands = "stands only with the votes of all voters"
    if not required_end.may_stand:
        stands = "does not stand, because it may have lost a voter set"
    return (
        f"until its log reaches {required_end.end}, this replica votes only for logs that reach it "
        f"and {stands}"
    )


def warn_of_required_end(core: Core) -> None:
    """At the start: say what is restricted, unless the log has reached the end already."""
    clear_if_reached(core)
    if core.required_end is not None:
        text = f"acknowledged records may be lost: {describe(core.required_end)}"
        core.notice(text, warning=True)


def new_ballot(core: Core) -> Ballot:
    """The ballot of an election that this replica stands in."""
    return Ballot(core.voters, core.local, needs_all=core.required_end is not None)


def restricts_vote(core: Core, request: VoteRequest) -> bool:
    """Whether the candidate's log is below the required end."""
    required = core.required_end
    if required is None:
        return False
    return _is_below(request.last_epoch, request.last_offset, required.end)


def adopt(core: Core, end: OffsetAndEpoch) -> None:
    """The leader of this epoch has records of this replica acknowledged up to `end`.

    A late answer changes nothing, because it is compared with the log as it is. What lies between
    the log and a known end that is later is covered by that.
    """
    if end.epoch > core.epoch or not _is_below(core.log.last_epoch, core.log.end_offset, end):
        return
    known = core.required_end
    if known is not None and not _is_below(known.end.epoch, known.end.offset, end):
        return
    core.require_end(RequiredEnd(end, may_stand=False))
    core.notice(
        f"this replica acknowledged records up to {end}, and its log ends at "
        f"{core.log.end_offset}@{core.log.last_epoch}: its directory lost records or is an older "
        f"copy; {describe(RequiredEnd(end, may_stand=False))}. If it is a copy, remove this voter, "
        "format an empty directory and add it again",
        warning=True,
    )


def clear_if_reached(core: Core) -> None:
    """Lift the restrictions if what is durable reaches the required end."""
    required, log = core.required_end, core.log
    if required is None or log.durable_end < log.start.offset:
        return
    if _is_below(log.epoch_before(log.durable_end), log.durable_end, required.end):
        return
    core.require_end(None)
    core.notice(f"the log has reached the required end {required.end}: no restrictions on votes")
