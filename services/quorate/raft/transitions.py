"""Every legal transition between roles. `Core.become` obeys this table: an illegal one raises and
changes nothing.

    from          to            when
    unattached    unattached    a higher epoch, or a vote granted in this one
                  prospective   the election timeout passed (voters, or a replica asked to vote)
                  follower      a leader of this or a higher epoch is known
    prospective   unattached    a higher epoch, a vote granted, or the pre-vote lost with no leader
                                known that has answered
                  candidate     a majority would vote for it, or the leader asked it to elect
                  follower      a leader is known, or the pre-vote was lost and one has answered
                  prospective   it tries again
    candidate     unattached    a higher epoch
                  prospective   lost or timed out
                  leader        a majority voted for it
                  follower      another leader of this or a higher epoch
    leader        unattached    a higher epoch
                  follower      a leader of a higher epoch
                  resigned      shut down, removed, transferred, or cut off from the majority
    follower      unattached    a higher epoch
                  prospective   the fetch timeout passed, the connection broke, or the leader
                                resigned (voters), or a replica asked to vote stands
                  follower      a leader of a higher epoch
    resigned      unattached    a higher epoch, or the election timeout passed
                  follower      a leader of a higher epoch

Source: KIP-595 "State machine", KIP-996, KIP-853.
"""

from __future__ import annotations

from quorate.raft.errors import FatalError
from quorate.raft.outputs import RoleName

_U, _P, _C = RoleName.UNATTACHED, RoleName.PROSPECTIVE, RoleName.CANDIDATE
_L, _F, _R = RoleName.LEADER, RoleName.FOLLOWER, RoleName.RESIGNED

SAME_EPOCH: dict[RoleName, frozenset[RoleName]] = {
    _U: frozenset({_U, _P, _F}),
    _P: frozenset({_U, _P, _F}),
    _C: frozenset({_P, _L, _F}),
    _L: frozenset({_R}),
    _F: frozenset({_P}),
    _R: frozenset({_U}),
}
"""Legal without a change of epoch."""

HIGHER_EPOCH: dict[RoleName, frozenset[RoleName]] = {
    _U: frozenset({_U, _F}),
    _P: frozenset({_U, _F, _C}),
    _C: frozenset({_U, _F}),
    _L: frozenset({_U, _F}),
    _F: frozenset({_U, _F}),
    _R: frozenset({_U, _F}),
}
"""Legal into a higher epoch."""


def check_transition(old: RoleName, old_epoch: int, new: RoleName, new_epoch: int) -> None:
    """Raise FatalError unless the table allows it."""
    legal = (new_epoch == old_epoch and new in SAME_EPOCH[old]) or (
        new_epoch > old_epoch and new in HIGHER_EPOCH[old]
    )
    if not legal:
        raise FatalError(f"no transition from {old} in epoch {old_epoch} to {new} in {new_epoch}")
