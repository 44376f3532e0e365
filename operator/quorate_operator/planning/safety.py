"""The arithmetic of the plan: which voters are alive, which voter sets safe, which disks gone.

A voter is alive if its own pod answers with the voter's directory id and is not being deleted, and
the leader reports the voter as caught up. A controller of Kafka that is taken over has no pod of
the Quorum: it is alive if the leader reports it as caught up. A voter set V is safe if it is not
empty and |alive in V| >= |V| // 2 + 1.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.raft.types import ReplicaKey

from quorate_operator.naming import NODES_MAX
from quorate_operator.planning.values import Desired, LeaderView, Observed


def majority(count: int) -> int:
    return count // 2 + 1


def alive(observed: Observed) -> frozenset[ReplicaKey]:
    """The voters that are alive; none without a leader."""
    view = observed.view
    if view is None:
        return frozenset()
    return frozenset(v for v in view.voters if is_alive(observed, view, v))


def is_alive(observed: Observed, view: LeaderView, replica: ReplicaKey) -> bool:
    """Whether a replica, voter or not, is alive."""
    if observed.is_kafkas(replica):
        return replica in view.caught_up
    node = observed.node_of(replica)
    return (
        node is not None
        and node.answers
        and not node.terminating
        and node.key == replica
        and replica in view.caught_up
    )


def is_safe(alive_replicas: Iterable[ReplicaKey], voters: frozenset[ReplicaKey]) -> bool:
    """Whether a voter set can commit with the replicas that are alive."""
    return len(voters) > 0 and len(voters & frozenset(alive_replicas)) >= majority(len(voters))


def disks_gone(observed: Observed) -> frozenset[ReplicaKey]:
    """The voters whose disk is provably gone: their own pod reports another disk, or none."""
    return frozenset(
        voter
        for voter in observed.voters
        if (node := observed.node_of(voter)) is not None and node.answers and node.key != voter
    )


def is_majority_gone(observed: Observed) -> bool:
    voters = observed.voters
    left = len(voters) - len(disks_gone(observed))
    return len(voters) > 0 and left < majority(len(voters))


def has_template(desired: Desired, observed: Observed) -> bool:
    """Whether pods may be made from the template of the spec."""
    return not (observed.forbidden or desired.invalid_template or observed.invalid_config)


def wanted_ids(desired: Desired, observed: Observed) -> frozenset[int]:
    """The node ids of the wanted voters."""
    if desired.rolls_back:
        return observed.kafka_ids
    return frozenset(map(observed.ids.of, range(desired.replicas)))


def size_for(desired: Desired, observed: Observed) -> int:
    """The size of a StatefulSet with every pod that may be needed.

    These are the wanted pods, those of voters and existing ones. Without a leader, any volume may
    be that of a voter; without a record, any may hold a cluster.
    """
    needed = {desired.replicas - 1}
    if observed.view is None or observed.record is None:
        needed |= observed.volumes
    needed |= {node.ordinal for node in observed.nodes}
    needed |= set(ordinals(observed, observed.voters))
    return 1 + max(ordinal for ordinal in needed if ordinal < NODES_MAX)


def ordinals(observed: Observed, voters: Iterable[ReplicaKey]) -> list[int]:
    """The ordinals of voters, without those whose id no pod can have."""
    found = (observed.ordinal_of(voter) for voter in voters)
    return [ordinal for ordinal in found if ordinal is not None]
