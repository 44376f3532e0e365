"""What the leader would reject of a voter change, for `--dry-run`: judged by its own view.

A dry run that succeeds means that the change would be accepted now. The leader itself judges again.
"""

from __future__ import annotations

from quorate.cli.quorum.describe import silent_voters
from quorate.raft.messages import DescribeQuorumResponse
from quorate.raft.types import ReplicaKey

STATIC = "voters can be changed at kraft.version 1 and above: upgrade the feature first"


def addition_problem(found: DescribeQuorumResponse, key: ReplicaKey) -> str | None:
    """Why this replica cannot be added to the voters, None if it can."""
    if found.kraft_version < 1:
        return STATIC
    known = found.voter_set.get(key.id)
    if known is not None and known.key != key:
        return f"{known.key} is the voter of that id: remove it first"
    if known is not None:
        return f"{known.key} is a voter already"
    if key not in {observer.replica for observer in found.observers}:
        return (
            f"controller {key} does not fetch from this quorum: start it, and check its "
            "controller.quorum.bootstrap.servers"
        )
    return None


def removal_problem(
    found: DescribeQuorumResponse, key: ReplicaKey, *, is_forced: bool
) -> str | None:
    """Why this replica cannot be removed from the voters, None if it can."""
    if found.kraft_version < 1:
        return STATIC
    if found.voter_set.find(key) is None:
        return f"{key} is not in {found.voter_set}"
    if len(found.voter_set) == 1:
        return f"{key} is the last voter: without it nobody could commit"
    missing = missing_after_removal(found, key)
    if missing > 0 and not is_forced:
        return f"without {key}, {missing} more of the remaining voters must run to commit anything"
    return None


def missing_after_removal(found: DescribeQuorumResponse, key: ReplicaKey) -> int:
    """How many silent voters must return before the voters without this one can commit."""
    remaining = [voter for voter in found.voter_set if voter.key != key]
    silent = [voter for voter in silent_voters(found) if voter != key]
    return len(remaining) // 2 + 1 - (len(remaining) - len(silent))
