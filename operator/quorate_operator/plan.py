"""What to do next for one Quorum: a pure function of what is wanted and what is there.

`plan` returns at most one action that changes something. It has no memory, so an operator that is
killed between any two actions goes on where it was. Steps, in this order; the first that applies
decides, and what it may not do is said in `Plan.refusals`:

 0. Deleted: nothing, the objects have owners. Paused: nothing. A majority of the voters' disks is
    provably gone: nothing at all, since whatever is done now could make the loss final.
    Then the Kubernetes objects themselves: what pods need, and the StatefulSet.
 1. Not bootstrapped: the record first, then the seed is formatted standalone, once; a leader that
    was seen is marked, and from then on nothing is ever formatted standalone again.
 2. A disk of another cluster: stop.
 3. No leader: wait. (Pods for known voters may be created; pods that do not run may get a newer
    template.)
 4. A change of the voter set is uncommitted: wait.
 5. A voter whose disk was replaced, or a dead surplus voter: remove it, if that is safe.
 6. A wanted node that is empty and no voter: format it to join.
 7. A wanted observer that caught up: make it a voter, if that is safe.
 8. A wanted node that does not exist: create its pod.
 9. A live surplus voter, the highest ordinal first, the leader last after a transfer: remove it, if
    all wanted nodes are voters and alive and it is safe.
10. A surplus pod that is no voter: shrink the StatefulSet, whose policy decides about its volume.
11. An outdated pod: restart it, the dead first, the leader last after a transfer, one at a time.

A voter is alive if its own pod answers with the voter's directory id and it is caught up in the
leader's eyes. A voter set V is safe if it is not empty and |alive in V| >= |V| // 2 + 1.

Source: KIP-853, "Disk failure recovery", "Add controller", "Remove controller".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from quorate.raft.types import ReplicaKey

from quorate_operator.naming import NODES_MAX
from quorate_operator.values import (
    Action,
    AddVoter,
    ApplyObjects,
    CreateRecord,
    CreateStatefulSet,
    Desired,
    FormatNode,
    LeaderView,
    MarkBootstrapped,
    Node,
    Observed,
    Plan,
    Reason,
    Record,
    Refusal,
    RemoveVoter,
    Resize,
    RestartPod,
    TransferLeadership,
)

SEED = 0
"""The ordinal that begins a new quorum. It is wanted at every size."""


# --- the arithmetic -------------------------------------------------------------------------------


def majority(count: int) -> int:
    return count // 2 + 1


def alive(observed: Observed) -> frozenset[ReplicaKey]:
    """The voters that are there for certain: none without a leader."""
    view = observed.view
    if view is None:
        return frozenset()
    return frozenset(v for v in view.voters if _is_alive(observed, view, v))


def _is_alive(observed: Observed, view: LeaderView, replica: ReplicaKey) -> bool:
    node = observed.node(replica.id)
    return (
        node is not None
        and node.answers
        and not node.terminating
        and node.key == replica
        and replica in view.caught_up
    )


def is_safe(alive_replicas: Iterable[ReplicaKey], voters: frozenset[ReplicaKey]) -> bool:
    """Whether a voter set can commit with those that are alive."""
    return len(voters) > 0 and len(voters & frozenset(alive_replicas)) >= majority(len(voters))


def disks_gone(observed: Observed) -> frozenset[ReplicaKey]:
    """The voters whose disk is provably gone: their own pod answers with another, or with none."""
    gone = set()
    for voter in observed.voters:
        node = observed.node(voter.id)
        if node is not None and node.answers and node.key != voter:
            gone.add(voter)
    return frozenset(gone)


def is_majority_gone(observed: Observed) -> bool:
    voters = observed.voters
    left = len(voters) - len(disks_gone(observed))
    return len(voters) > 0 and left < majority(len(voters))


def size_for(desired: Desired, observed: Observed) -> int:
    """The replicas of a StatefulSet that holds every pod that may be needed: the wanted ones, those
    of voters, those that run, and those that have a volume.
    """
    ordinals = {desired.replicas - 1, *observed.volumes}
    ordinals |= {node.ordinal for node in observed.nodes}
    ordinals |= {voter.id for voter in observed.voters}
    return 1 + max(ordinal for ordinal in ordinals if ordinal < NODES_MAX)


# --- the steps ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Steps:
    """The steps with a leader; each returns an action or None, and collects refusals."""

    desired: Desired
    observed: Observed
    view: LeaderView
    alive: frozenset[ReplicaKey] = frozenset()
    refusals: list[Refusal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.alive = alive(self.observed)

    def refuse(self, reason: Reason, text: str) -> None:
        self.refusals.append(Refusal(reason, text))

    def is_wanted(self, ordinal: int) -> bool:
        return ordinal < self.desired.replicas

    @property
    def voters_by_ordinal(self) -> list[ReplicaKey]:
        return sorted(self.view.voters)

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(voter.id for voter in self.view.voters)

    def shown_alive(self, voters: frozenset[ReplicaKey]) -> str:
        count = len(voters & self.alive)
        return f"{count} of {len(voters)} would be alive and {majority(len(voters))} are needed"

    # 5
    def remove_dead(self) -> tuple[Action, str] | None:
        gone = disks_gone(self.observed)
        for voter in self.voters_by_ordinal:
            if voter == self.view.leader or voter in self.alive:
                continue
            wanted = self.is_wanted(voter.id)
            if voter.id >= NODES_MAX:
                self.refuse(Reason.FOREIGN_VOTER, f"voter {voter} is not one of the pods: left")
                continue
            if wanted and voter not in gone:
                continue
            if wanted and not self.desired.replace_disks:
                self.refuse(
                    Reason.DISK_REPLACEMENT_MANUAL,
                    f"the disk of voter {voter} is gone; remove that voter to let it be replaced",
                )
                continue
            why = "its disk was replaced" if voter in gone else "it is surplus and not alive"
            rest = self.view.voters - {voter}
            if is_safe(self.alive, rest):
                return RemoveVoter(voter), f"remove voter {voter}: {why}"
            self.refuse(
                Reason.REMOVE_BLOCKED,
                f"voter {voter} ({why}) stays a voter: without it {self.shown_alive(rest)}",
            )
        return None

    # 6
    def format_empty(self) -> tuple[Action, str] | None:
        for node in self.observed.nodes:
            if not self.is_wanted(node.ordinal) or not node.is_empty or node.terminating:
                continue
            if node.ordinal in self.voter_ids:
                continue
            assert self.observed.record is not None, "the steps after 1 know the cluster"
            action = FormatNode(node.ordinal, node.uid, self.observed.record.cluster_id)
            return action, f"format node {node.ordinal} to join"
        return None

    # 7
    def add_observer(self) -> tuple[Action, str] | None:
        for node in self.observed.nodes:
            if not self.is_wanted(node.ordinal) or node.ordinal in self.voter_ids:
                continue
            if not node.answers or not node.is_formatted or node.terminating:
                continue
            key = node.key
            if key not in self.view.caught_up:
                self.refuse(Reason.CATCHING_UP, f"node {key} has not caught up with the leader")
                continue
            more = self.view.voters | {key}
            if is_safe(self.alive | {key}, more):
                return AddVoter(key), f"add voter {key}"
            needed = majority(len(more))
            self.refuse(
                Reason.ADD_BLOCKED,
                f"node {key} is not made a voter: of {len(more)} voters {needed} must be alive",
            )
        return None

    # 8
    def create_missing(self) -> tuple[Action, str] | None:
        size = self.observed.size or 0
        needed = self.desired.replicas
        dead = [v.id for v in self.view.voters - self.alive if size <= v.id < NODES_MAX]
        needed = max([needed, *(ordinal + 1 for ordinal in dead)])
        if size < needed:
            return Resize(needed, size), f"create the pods up to ordinal {needed - 1}"
        return None

    # 9
    def remove_surplus(self) -> tuple[Action, str] | None:
        surplus = [v for v in self.voters_by_ordinal if not self.is_wanted(v.id)]
        if not surplus:
            return None
        wanted = [v for v in self.voters_by_ordinal if self.is_wanted(v.id)]
        missing = set(range(self.desired.replicas)) - {v.id for v in wanted if v in self.alive}
        if missing:
            shown = ", ".join(map(str, sorted(missing)))
            self.refuse(
                Reason.SCALE_DOWN_BLOCKED,
                f"surplus voters stay until the nodes that remain are voters and alive: {shown}",
            )
            return None
        live = [v for v in surplus if v in self.alive and v.id < NODES_MAX]
        if not live:
            return None
        voter = max(live, key=lambda v: (v != self.view.leader, v.id))
        rest = self.view.voters - {voter}
        if not is_safe(self.alive, rest):
            self.refuse(
                Reason.SCALE_DOWN_BLOCKED,
                f"surplus voter {voter} stays: without it {self.shown_alive(rest)}",
            )
            return None
        if voter == self.view.leader:
            target = wanted[0]
            return TransferLeadership(target), f"let {target} lead, since {voter} is to go"
        return RemoveVoter(voter), f"remove surplus voter {voter}"

    # 10
    def shrink(self) -> tuple[Action, str] | None:
        size = self.observed.size or 0
        used = [v.id + 1 for v in self.view.voters | self.view.committed if v.id < NODES_MAX]
        needed = max([self.desired.replicas, *used])
        if needed < size:
            return Resize(needed, size), f"delete the pods from ordinal {needed} on"
        return None

    # 11
    def restart_outdated(self) -> tuple[Action, str] | None:
        nodes = [node for node in self.observed.nodes if node.outdated and not node.terminating]
        if not nodes:
            return None
        # Who answers and catches up may already be one of a majority; who is no voter is not.
        free = [node for node in nodes if _is_dead(node) or node.key not in self.view.voters]
        if free:
            node = free[0]
            return RestartPod(node.ordinal, node.uid), f"restart pod {node.ordinal}: outdated"
        unwell = sorted(self.view.voters - self.alive)
        if unwell:
            shown = ", ".join(map(str, unwell))
            self.refuse(
                Reason.ROLLOUT_BLOCKED, f"outdated pods wait until all voters are alive: {shown}"
            )
            return None
        node = max(nodes, key=lambda n: (n.key != self.view.leader, n.ordinal))
        voters = self.view.voters
        # One or two voters cannot do without any of them: a restart is a pause, not a loss.
        if len(voters) > 2 and not is_safe(self.alive - {node.key}, voters):
            shown_rest = f"{len(self.alive - {node.key})} of {len(voters)} voters would be alive"
            self.refuse(Reason.ROLLOUT_BLOCKED, f"pod {node.ordinal} waits: {shown_rest}")
            return None
        others = sorted(self.alive - {node.key})
        if node.key == self.view.leader and others:
            return TransferLeadership(others[0]), f"let {others[0]} lead: {node.key} is outdated"
        return RestartPod(node.ordinal, node.uid), f"restart pod {node.ordinal}: outdated"


def plan(desired: Desired, observed: Observed) -> Plan:
    """The next action for one Quorum, or why there is none."""
    stop = _reason_to_stop(desired, observed)
    if stop is not None:
        return Plan(refusals=(stop,))
    if observed.stale:
        return Plan(ApplyObjects(observed.stale), f"apply {', '.join(observed.stale)}")
    if observed.size is None:
        size = size_for(desired, observed)
        return Plan(CreateStatefulSet(size), f"create the StatefulSet with {size} pods")
    if not observed.is_bootstrapped:
        return _bootstrap(desired, observed)
    mismatch = _mismatch(observed)
    if mismatch is not None:
        return Plan(refusals=(mismatch,))
    if observed.view is None:
        return _without_leader(desired, observed)
    if observed.view.voters != observed.view.committed:
        return _waiting(Reason.CHANGE_UNCOMMITTED, "the last change of the voters is uncommitted")
    steps = _Steps(desired, observed, observed.view)
    for step in (
        steps.remove_dead,
        steps.format_empty,
        steps.add_observer,
        steps.create_missing,
        steps.remove_surplus,
        steps.shrink,
        steps.restart_outdated,
    ):
        found = step()
        if found is not None:
            return Plan(found[0], found[1], tuple(steps.refusals))
    _wait_for_pods(steps)
    return Plan(refusals=tuple(steps.refusals))


def _waiting(reason: Reason, text: str) -> Plan:
    return Plan(refusals=(Refusal(reason, text),))


def _reason_to_stop(desired: Desired, observed: Observed) -> Refusal | None:
    if desired.deleted:
        return Refusal(Reason.DELETED, "the Quorum is being deleted")
    if desired.paused:
        return Refusal(Reason.PAUSED, "spec.paused is set: nothing is changed")
    if is_majority_gone(observed):
        gone = ", ".join(map(str, sorted(disks_gone(observed))))
        return Refusal(
            Reason.MAJORITY_DISKS_LOST,
            f"the disks of {gone} are gone, a majority of {len(observed.voters)} voters: nothing "
            "is changed; bring a disk back, or recover the quorum by hand",
        )
    if desired.invalid:
        return Refusal(Reason.INVALID_SPEC, desired.invalid)
    return None


def _wait_for_pods(steps: _Steps) -> None:
    """Nothing is left to do, but not all is as wanted: say what is waited for."""
    for ordinal in range(steps.desired.replicas):
        node = steps.observed.node(ordinal)
        voter = next((v for v in steps.view.voters if v.id == ordinal), None)
        if voter is not None and voter in steps.alive:
            continue
        if node is None:
            problem = "it has no pod"
        elif node.terminating:
            problem = "its pod is being deleted"
        elif not node.answers:
            problem = node.problem or "it does not answer"
        elif voter is None or node.key != voter:
            continue  # a refusal says more
        else:
            problem = "it has not caught up with the leader"
        steps.refuse(Reason.WAITING_FOR_PODS, f"node {ordinal}: {problem}")


# --- before there is a leader ---------------------------------------------------------------------


def _cluster_ids(observed: Observed) -> set[str]:
    return {node.cluster_id for node in observed.nodes if node.answers and node.is_formatted}


def _mismatch(observed: Observed) -> Refusal | None:
    assert observed.record is not None
    wanted = observed.record.cluster_id
    foreign = [
        f"{node.ordinal} ({node.cluster_id})"
        for node in observed.nodes
        if node.answers and node.is_formatted and node.cluster_id != wanted
    ]
    if not foreign:
        return None
    return Refusal(
        Reason.CLUSTER_ID_MISMATCH,
        f"this is cluster {wanted}, but there are disks of others in node {', '.join(foreign)}",
    )


def _bootstrap(desired: Desired, observed: Observed) -> Plan:
    """Step 1. No record and disks of a cluster: it is adopted, and begins nothing."""
    size, needed = observed.size or 0, size_for(desired, observed)
    if size < needed:
        return Plan(Resize(needed, size), f"create the pods up to ordinal {needed - 1}")
    if observed.record is None:
        return _first_record(observed)
    mismatch = _mismatch(observed)
    if mismatch is not None:
        return Plan(refusals=(mismatch,))
    if observed.view is not None:
        return Plan(MarkBootstrapped(observed.record.cluster_id), "a leader was seen: mark it")
    seed = observed.node(SEED)
    formatted = [node.ordinal for node in observed.nodes if node.is_formatted]
    if seed is not None and seed.is_empty and not seed.terminating:
        if formatted:
            return _waiting(
                Reason.BOOTSTRAP_RECORD_LOST,
                f"node {SEED} is empty but {formatted} are not: nothing is formatted standalone",
            )
        action = FormatNode(SEED, seed.uid, observed.record.cluster_id, standalone=True)
        return Plan(action, f"format node {SEED} to begin the quorum")
    return _restart_dead(observed) or _waiting(
        Reason.WAITING_FOR_LEADER, f"node {SEED} begins the quorum: {_problem(seed)}"
    )


def _first_record(observed: Observed) -> Plan:
    """Begin a cluster only when no disk can belong to an earlier one."""
    silent = [
        ordinal
        for ordinal in sorted({SEED, *observed.inherited})
        if (node := observed.node(ordinal)) is None or not node.answers
    ]
    if silent:
        shown = "; ".join(f"node {o}: {_problem(observed.node(o))}" for o in silent)
        return _restart_dead(observed) or _waiting(Reason.WAITING_FOR_PODS, shown)
    clusters = _cluster_ids(observed)
    if len(clusters) > 1:
        text = f"there are disks of {len(clusters)} clusters: {', '.join(sorted(clusters))}"
        return _waiting(Reason.CLUSTER_ID_MISMATCH, text)
    if clusters:
        cluster_id = clusters.pop()
        return Plan(CreateRecord(cluster_id), f"take over the disks of cluster {cluster_id}")
    if observed.known_cluster_id:
        return _waiting(
            Reason.BOOTSTRAP_RECORD_LOST,
            f"cluster {observed.known_cluster_id} was here, and neither its record nor any of its "
            "disks is: delete the Quorum to begin a new cluster",
        )
    return Plan(CreateRecord(), "record that a new cluster begins")


def _without_leader(desired: Desired, observed: Observed) -> Plan:
    """Step 3: nothing that a quorum would have to agree to."""
    used = [voter.id + 1 for voter in observed.known_voters if voter.id < NODES_MAX]
    size, needed = observed.size or 0, max([desired.replicas, *used])
    if size < needed:
        return Plan(Resize(needed, size), f"create the pods up to ordinal {needed - 1}")
    problems = [
        f"node {node.ordinal}: {_problem(node)}" for node in observed.nodes if not node.answers
    ]
    text = "; ".join(["no leader", *problems])
    return _restart_dead(observed) or _waiting(Reason.WAITING_FOR_LEADER, text)


def _restart_dead(observed: Observed) -> Plan | None:
    """A pod that neither runs nor answers loses nothing by a newer template."""
    for node in observed.nodes:
        if node.outdated and _is_dead(node) and not node.terminating:
            text = f"restart pod {node.ordinal}: outdated, dead"
            return Plan(RestartPod(node.ordinal, node.uid), text)
    return None


def _is_dead(node: Node) -> bool:
    """Both must say so: the kubelet, which is near, and our own call."""
    return not node.ready and not node.answers


def _problem(node: Node | None) -> str:
    if node is None:
        return "it has no pod yet"
    if node.answers:
        return "it does not lead yet"
    return node.problem or "it does not answer yet"


__all__ = [
    "SEED",
    "Action",
    "AddVoter",
    "ApplyObjects",
    "CreateRecord",
    "CreateStatefulSet",
    "Desired",
    "FormatNode",
    "LeaderView",
    "MarkBootstrapped",
    "Node",
    "Observed",
    "Plan",
    "Reason",
    "Record",
    "Refusal",
    "RemoveVoter",
    "Resize",
    "RestartPod",
    "TransferLeadership",
    "alive",
    "disks_gone",
    "is_majority_gone",
    "is_safe",
    "majority",
    "plan",
    "size_for",
]
