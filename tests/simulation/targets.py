"""Whom faults may hit: nodes by number, and what the protocol tolerates.

Faults never exceed what the protocol tolerates: a disk is lost, and a voter removed, only while
every voter set that is in force anywhere, and every one that pending requests may make of it, keeps
a majority of voters whose disks are whole (`Targets.tolerates`). Volatile data may be lost
everywhere at once.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from quorate.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
)
from quorate.raft.types import ReplicaKey, Voter, VoterSet, same_replica

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.node import SimNode


Numbers = tuple[float, ...]
"""What a plan gives an action, uniform in [0, 1)."""


class Targets:
    """Picks nodes and voters. healed: no more faults from now on."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.network = cluster.network
        self.random = random
        self.counts: Counter[str] = Counter()
        self.lost_disks = 0
        self.healed = False
        self._disks = 0
        self.at_install: Numbers | None = None
        self._at_election: list[Numbers] = []

    # --- whom -------------------------------------------------------------------------------------

    def _node(self, number: float) -> SimNode:
        """A node: one time in three the leader, if there is one."""
        nodes = self.cluster.nodes
        if number < 1 / 3:
            leader = self.cluster.leader()
            if leader is not None:
                return leader
            return nodes[int(number * 3 * len(nodes))]
        return nodes[int((number - 1 / 3) * 1.5 * len(nodes))]

    def _voter(self, number: float) -> ReplicaKey | None:
        voters = self._believed_voters()
        return voters.voters[int(number * len(voters))].key if len(voters) else None

    def _believed_voters(self) -> VoterSet:
        leader = self.cluster.leader()
        return leader.voters if leader is not None else self.cluster.oracle.membership.voters

    @staticmethod
    def _span(number: float, low_us: int, high_us: int) -> int:
        """A duration, the short ones more often."""
        return low_us + int(number * number * (high_us - low_us))

    # --- what is tolerated ------------------------------------------------------------------------

    def tolerates(
        self, *, lost: ReplicaKey | None = None, removed: ReplicaKey | None = None
    ) -> bool:
        """Whether every voter set keeps a majority of whole disks after this, whichever of the
        pending changes are made.

        The worst that they can do: those leave that are there, those join that are not.
        """
        gone = [node.id for node in self.cluster.nodes if not self._is_whole(node)]
        if lost is not None:
            gone.append(lost.id)
        pending = list(self.cluster.pending_changes.values())
        leaving = [r.voter for r in pending if isinstance(r, RemoveVoterRequest)]
        if removed is not None:
            leaving.append(removed)
        joining = [Voter(r.voter, r.endpoints) for r in pending if isinstance(r, AddVoterRequest)]
        for voters in self._sets_in_force():
            now = list(voters)
            if lost is not None and any(voter.key.directory_id is None for voter in now):
                return False  # at kraft.version 0 nobody can tell the new disk from the old one
            held = [voter for voter in now if self._is_there(voter, gone)]
            stay = [voter for voter in held if voter.key not in leaving]
            ids = [voter.id for voter in now]
            late = {v.id for v in joining if v.id not in ids and not self._is_there(v, gone)}
            size = len(now) - len(held) + len(stay) + len(late)
            # The last voter never leaves: a set without anyone is none.
            if len(held) < len(now) // 2 + 1 or (size and len(stay) < size // 2 + 1):
                return False
        return True

    @staticmethod
    def _is_whole(node: SimNode) -> bool:
        """Whether it has all that it acknowledged, and may vote."""
        disk = node.disk
        return node.can_vote and not disk.is_damaged and disk.required_end is None

    def _is_there(self, voter: Voter, gone: list[int]) -> bool:
        """Whether that replica has its disk, and listens where others look for it."""
        if voter.id > len(self.cluster.nodes):
            return False
        if voter.id in gone or not same_replica(voter.key, self.cluster.nodes[voter.id - 1].key):
            return False
        port = self.cluster.nodes[voter.id - 1].port
        return not voter.endpoints or voter.endpoints[0] == self.cluster.endpoint(voter.id, port)

    def _sets_in_force(self) -> list[VoterSet]:
        """Every voter set that a node may act on, now or after a crash."""
        sets: list[VoterSet] = [self.cluster.oracle.membership.voters]
        for node in self.cluster.nodes:
            committed = self.cluster.oracle.committed_end
            sets += [voters for offset, voters in node.voter_sets if offset >= committed]
            if node.voter_sets:
                sets.append(node.voter_sets[-1][1])
            elif node.key in node.disk.static_voters:
                sets.append(node.disk.static_voters)
        return [voters for i, voters in enumerate(sets) if len(voters) and voters not in sets[:i]]

    # --- processes --------------------------------------------------------------------------------

    def start(self, node: SimNode) -> None:
        if node.raft is None and not node.disk.is_damaged:
            node.start()

    def _start_later(self, node: SimNode, delay_us: int) -> None:
        self.scheduler.after(delay_us, self._start_if, node, node.life)

    def _start_if(self, node: SimNode, life: int) -> None:
        if node.life == life:
            self.start(node)
