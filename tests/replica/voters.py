"""Voter sets of kraft.version 0."""

from __future__ import annotations

from dataclasses import replace

from quorate.raft.types import ReplicaKey, VoterSet


def without_directories(voters: VoterSet) -> VoterSet:
    """The same voters with their ids alone, as controller.quorum.voters names them."""
    return VoterSet.of(replace(voter, key=ReplicaKey(voter.id)) for voter in voters)
