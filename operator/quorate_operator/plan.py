"""Plans the next action for one Quorum: a pure function of the desired and the observed state.

`plan` returns at most one action that changes something. It is stateless, so an operator that is
killed between two actions resumes where it stopped. The first of these steps that applies decides,
and `OperatorPlan.refusals` lists what the plan holds back:

 0. Deleted: nothing, because the objects have owner references. Paused: nothing. Too few voters'
    disks remain for a majority, provably: nothing at all, because any action could make the loss
    final. Invalid spec: nothing.
    An image or a Secret that the Quorum may not use: nothing, because new pods would use it.
    Foreign objects with names of this Quorum's objects: a new quorum is not started; an existing
    one is reconciled without them.
    Then the Kubernetes objects themselves: those that pods need, and the StatefulSet.
 1. Not bootstrapped: create the record, then format the seed standalone, once. When a leader has
    been seen, create the marker; after that no node is ever formatted standalone again.
 2. A disk of another cluster: stop. ZooKeeper holds another cluster (checked before step 1): stop,
    but restart dead outdated pods.
 3. No leader: wait. (Pods of wanted nodes and known voters may be created, and dead outdated pods
    restarted.)
 4. A voter set change is uncommitted: wait.
 5. A voter whose disk was replaced, or a dead surplus voter: remove it, if that is safe.
 6. A wanted node that is empty and not a voter: format it to join.
 7. A wanted observer that has caught up: make it a voter, if that is safe.
 8. A wanted node or a dead voter without a pod: create the pod.
 9. A live surplus voter, the highest ordinal first, the leader last after a transfer: remove it, if
    all wanted nodes are live voters and the removal is safe.
10. A surplus pod that is not a voter: shrink the StatefulSet, whose retention policy decides about
    the volume.
11. A broker without the cluster action: grant it, before an authorizer requires it.
12. An outdated pod: restart it, one at a time, dead pods first, the leader last after a transfer.

`safety` defines "alive" and "safe". Voters have node ids, pods have ordinals. A voter whose id no
pod can have (`naming.NodeIds`) is foreign, and the plan leaves it alone.

Source: KIP-853, "Disk failure recovery", "Add controller", "Remove controller".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.raft.types import ReplicaKey

from quorate_operator.safety import (
    alive,
    disks_gone,
    is_majority_gone,
    is_safe,
    majority,
    ordinals,
    size_for,
)
from quorate_operator.values import (
    Action,
    AddVoter,
    ApplyObjects,
    BootstrapRecord,
    CreateRecord,
    CreateStatefulSet,
    Desired,
    FormatNode,
    GrantBrokers,
    LeaderView,
    MarkBootstrapped,
    Observed,
    ObservedNode,
    OperatorPlan,
    PlanRefusal,
    Reason,
    RemoveVoter,
    Resize,
    RestartPod,
    TransferLeadership,
)

SEED = 0
"""The ordinal of the node that starts a new quorum. Every size includes it."""


# --- the steps ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Steps:
    """The steps that require a leader. Each returns an action or None, and collects refusals."""

    desired: Desired
    observed: Observed
    view: LeaderView
    alive: frozenset[ReplicaKey]
    refusals: list[PlanRefusal] = field(default_factory=list)

    def refuse(self, reason: Reason, text: str) -> None:
        self.refusals.append(PlanRefusal(reason, text))

    def is_wanted(self, replica: ReplicaKey) -> bool:
        ordinal = self.observed.ordinal_of(replica)
        return ordinal is not None and ordinal < self.desired.replicas

    @property
    def voters_by_ordinal(self) -> list[ReplicaKey]:
        return sorted(self.view.voters)

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(voter.id for voter in self.view.voters)

    def shown_alive(self, voters: frozenset[ReplicaKey]) -> str:
        count = len(voters & self.alive)
        return f"{count} of {len(voters)} would be alive, but {majority(len(voters))} are needed"

    # 5
    def remove_dead(self) -> tuple[Action, str] | None:
        gone = disks_gone(self.observed)
        for voter in self.voters_by_ordinal:
            if voter == self.view.leader or voter in self.alive:
                continue
            wanted = self.is_wanted(voter)
            if self.observed.ordinal_of(voter) is None:
                self.refuse(
                    Reason.FOREIGN_VOTER, f"voter {voter} is not a pod of this Quorum: ignored"
                )
                continue
            if wanted and voter not in gone:
                continue
            if wanted and not self.desired.replace_disks:
                self.refuse(
                    Reason.DISK_REPLACEMENT_MANUAL,
                    f"the disk of voter {voter} is gone: remove that voter to have it replaced",
                )
                continue
            why = "its disk was replaced" if voter in gone else "it is surplus and not alive"
            rest = self.view.voters - {voter}
            if is_safe(self.alive, rest):
                return RemoveVoter(voter), f"remove voter {voter}: {why}"
            self.refuse(
                Reason.REMOVE_BLOCKED,
                f"cannot remove voter {voter} ({why}): without it {self.shown_alive(rest)}",
            )
        return None

    # 6
    def format_empty(self) -> tuple[Action, str] | None:
        for node in self.observed.nodes:
            if not self.is_wanted(node.key) or not node.is_empty or node.terminating:
                continue
            if node.id in self.voter_ids:
                continue
            assert self.observed.record is not None, "the steps after 1 know the cluster"
            action = FormatNode(node.ordinal, node.uid, self.observed.record.cluster_id)
            return action, f"format node {node.id} to join"
        return None

    # 7
    def add_observer(self) -> tuple[Action, str] | None:
        for node in self.observed.nodes:
            if not self.is_wanted(node.key) or node.id in self.voter_ids:
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
                f"cannot add voter {key}: {needed} of {len(more)} voters must be alive",
            )
        return None

    # 8
    def create_missing(self) -> tuple[Action, str] | None:
        return _create_pods(self.desired, self.observed, self.view.voters - self.alive)

    # 9
    def remove_surplus(self) -> tuple[Action, str] | None:
        surplus = [v for v in self.voters_by_ordinal if not self.is_wanted(v)]
        if not surplus:
            return None
        ours = [v for v in surplus if self.observed.ordinal_of(v) is not None]
        wanted = [v for v in self.voters_by_ordinal if self.is_wanted(v)]
        nodes = {self.observed.ids.of(ordinal) for ordinal in range(self.desired.replicas)}
        missing = nodes - {v.id for v in wanted if v in self.alive}
        if missing:
            shown = ", ".join(map(str, sorted(missing)))
            self.refuse(
                Reason.SCALE_DOWN_BLOCKED,
                f"cannot remove surplus voters until these nodes are live voters: {shown}",
            )
            return None
        live = [v for v in ours if v in self.alive]
        if not live:
            return None
        voter = max(live, key=lambda v: (v != self.view.leader, v.id))
        rest = self.view.voters - {voter}
        if not is_safe(self.alive, rest):
            self.refuse(
                Reason.SCALE_DOWN_BLOCKED,
                f"cannot remove surplus voter {voter}: without it {self.shown_alive(rest)}",
            )
            return None
        if voter == self.view.leader:
            text = f"transfer leadership to {wanted[0]}, because {voter} will be removed"
            return TransferLeadership(wanted[0]), text
        return RemoveVoter(voter), f"remove surplus voter {voter}"

    # 10
    def shrink(self) -> tuple[Action, str] | None:
        size = self.observed.size or 0
        needed = _needed(self.desired, self.observed, self.view.voters | self.view.committed)
        if needed < size:
            return Resize(needed, size), f"delete the pods from ordinal {needed} on"
        return None

    # 11
    def grant_brokers(self) -> tuple[Action, str] | None:
        principals = self.observed.brokers_without_rights
        if not principals:
            return None
        return GrantBrokers(principals), f"grant {', '.join(principals)} the cluster action"

    # 12
    def restart_outdated(self) -> tuple[Action, str] | None:
        nodes = [node for node in self.observed.nodes if node.outdated and not node.terminating]
        if not nodes:
            return None
        # A voter that answers while it catches up may already be part of a majority, so only dead
        # pods and non-voters restart without further checks.
        free = [node for node in nodes if _is_dead(node) or node.key not in self.view.voters]
        if free:
            node = free[0]
            return RestartPod(node.ordinal, node.uid), f"restart pod {node.ordinal}: outdated"
        unwell = sorted(self.view.voters - self.alive)
        if unwell:
            shown = ", ".join(map(str, unwell))
            self.refuse(
                Reason.ROLLOUT_BLOCKED,
                f"cannot restart outdated pods until these voters are alive: {shown}",
            )
            return None
        node = max(nodes, key=lambda n: (n.key != self.view.leader, n.ordinal))
        voters = self.view.voters
        # One or two voters tolerate no failure: a restart is an interruption, not a data loss.
        if len(voters) > 2 and not is_safe(self.alive - {node.key}, voters):
            shown_rest = f"{len(self.alive - {node.key})} of {len(voters)} voters would be alive"
            self.refuse(
                Reason.ROLLOUT_BLOCKED, f"cannot restart pod {node.ordinal}: only {shown_rest}"
            )
            return None
        others = sorted(self.alive - {node.key})
        if node.key == self.view.leader and others:
            text = f"transfer leadership to {others[0]}, because {node.key} is outdated"
            return TransferLeadership(others[0]), text
        return RestartPod(node.ordinal, node.uid), f"restart pod {node.ordinal}: outdated"


def _needed(desired: Desired, observed: Observed, voters: frozenset[ReplicaKey]) -> int:
    """The size of a StatefulSet with the pods of the wanted nodes and of these voters."""
    return max([desired.replicas, *(ordinal + 1 for ordinal in ordinals(observed, voters))])


def _create_pods(
    desired: Desired, observed: Observed, voters: frozenset[ReplicaKey]
) -> tuple[Action, str] | None:
    """Create the missing pods of wanted nodes and of these voters.

    Not if one of them would mount a volume that is not the Quorum's.
    """
    size, needed = observed.size or 0, _needed(desired, observed, voters)
    if size >= needed or not observed.foreign_volumes.isdisjoint(range(size, needed)):
        return None
    return Resize(needed, size), f"create the pods up to ordinal {needed - 1}"


def plan(desired: Desired, observed: Observed) -> OperatorPlan:
    """Return the next action for one Quorum, or the reasons why there is none."""
    stop = _reason_to_stop(desired, observed)
    if stop is not None:
        return OperatorPlan(refusals=(stop,))
    if observed.forbidden:
        return _waiting(Reason.NOT_ALLOWED, "; ".join(observed.forbidden))
    if not observed.conflicts:
        return _plan(desired, observed)
    refusal = PlanRefusal(Reason.CONFLICT, "; ".join(observed.conflicts))
    if observed.size is None or not observed.is_bootstrapped:
        return OperatorPlan(refusals=(refusal,))
    found = _plan(desired, observed)
    return OperatorPlan(found.action, found.text, (refusal, *found.refusals))


def _plan(desired: Desired, observed: Observed) -> OperatorPlan:
    """`plan` for a Quorum that may be changed."""
    if observed.stale:
        return OperatorPlan(ApplyObjects(observed.stale), f"apply {', '.join(observed.stale)}")
    if observed.size is None:
        size = size_for(desired, observed)
        return OperatorPlan(CreateStatefulSet(size), f"create the StatefulSet with {size} pods")
    if any(node.wrong_ensemble for node in observed.nodes):
        return _restart_dead(observed) or _wrong_ensemble(observed)
    if not observed.is_bootstrapped:
        return _bootstrap(desired, observed)
    mismatch = _mismatch(desired, observed)
    if mismatch is not None:
        return OperatorPlan(refusals=(mismatch,))
    if observed.view is None:
        return _without_leader(desired, observed)
    if observed.view.voters != observed.view.committed:
        return _waiting(Reason.CHANGE_UNCOMMITTED, "the last voter set change is uncommitted")
    steps = _Steps(desired, observed, observed.view, alive(observed))
    for step in (
        steps.remove_dead,
        steps.format_empty,
        steps.add_observer,
        steps.create_missing,
        steps.remove_surplus,
        steps.shrink,
        steps.grant_brokers,
        steps.restart_outdated,
    ):
        found = step()
        if found is not None:
            return OperatorPlan(*found, tuple(steps.refusals))
    _wait_for_pods(steps)
    return OperatorPlan(refusals=tuple(steps.refusals))


def _waiting(reason: Reason, text: str) -> OperatorPlan:
    return OperatorPlan(refusals=(PlanRefusal(reason, text),))


def _reason_to_stop(desired: Desired, observed: Observed) -> PlanRefusal | None:
    if desired.deleted:
        return PlanRefusal(Reason.DELETED, "the Quorum is being deleted")
    if desired.paused:
        return PlanRefusal(Reason.PAUSED, "spec.paused is set: nothing is changed")
    if is_majority_gone(observed):
        gone = ", ".join(map(str, sorted(disks_gone(observed))))
        count = len(observed.voters)
        left = count - len(disks_gone(observed))
        return PlanRefusal(
            Reason.MAJORITY_DISKS_LOST,
            f"the disks of {gone} are gone: at most {left} of {count} voters' disks remain, "
            f"{majority(count)} are needed: nothing is changed; restore a disk, or recover the "
            "quorum manually",
        )
    if desired.invalid:
        return PlanRefusal(Reason.INVALID_SPEC, desired.invalid)
    return None


def _wait_for_pods(steps: _Steps) -> None:
    """When no step applies: add a refusal for each wanted node that is not a live voter."""
    for ordinal in range(steps.desired.replicas):
        node = steps.observed.node(ordinal)
        node_id = steps.observed.ids.of(ordinal)
        voter = next((v for v in steps.view.voters if v.id == node_id), None)
        if voter is not None and voter in steps.alive:
            continue
        if node is None:
            problem = "it has no pod"
        elif node.terminating:
            problem = "its pod is being deleted"
        elif not node.answers:
            problem = node.problem or "it does not answer"
        elif voter is None or node.key != voter:
            continue  # an earlier refusal has the details
        else:
            problem = "it has not caught up with the leader"
        steps.refuse(Reason.WAITING_FOR_PODS, f"node {node_id}: {problem}")


# --- before there is a leader ---------------------------------------------------------------------


def _cluster_ids(observed: Observed) -> set[str]:
    return {node.cluster_id for node in observed.nodes if node.answers and node.is_formatted}


def _mismatch(desired: Desired, observed: Observed) -> PlanRefusal | None:
    assert observed.record is not None
    wanted = observed.record.cluster_id
    if desired.cluster_id not in ("", wanted):
        return _another_cluster(desired, wanted)
    foreign = [
        f"{node.id} ({node.cluster_id})"
        for node in observed.nodes
        if node.answers and node.is_formatted and node.cluster_id != wanted
    ]
    if not foreign:
        return None
    return PlanRefusal(
        Reason.CLUSTER_ID_MISMATCH,
        f"this is cluster {wanted}, but there are disks of other clusters: node "
        f"{', '.join(foreign)}",
    )


def _another_cluster(desired: Desired, found: str) -> PlanRefusal:
    return PlanRefusal(
        Reason.CLUSTER_ID_MISMATCH,
        f"spec.clusterId is {desired.cluster_id}, but this is cluster {found}: delete the Quorum, "
        "and also its volumes if you do not need their data",
    )


def _wrong_ensemble(observed: Observed) -> OperatorPlan:
    """Wait: controllers exit when ZooKeeper holds another cluster, and would exit again."""
    said = [f"node {n.id}: {n.wrong_ensemble}" for n in observed.nodes if n.wrong_ensemble]
    return _waiting(Reason.WRONG_ENSEMBLE, "; ".join(said))


def _bootstrap(desired: Desired, observed: Observed) -> OperatorPlan:
    """Step 1. Without a record, the cluster of existing disks is adopted; no new one starts."""
    size, needed = observed.size or 0, size_for(desired, observed)
    if size < needed:
        return OperatorPlan(Resize(needed, size), f"create the pods up to ordinal {needed - 1}")
    if observed.record is None:
        return _first_record(desired, observed)
    mismatch = _mismatch(desired, observed)
    if mismatch is not None:
        return OperatorPlan(refusals=(mismatch,))
    if observed.view is not None:
        return OperatorPlan(
            MarkBootstrapped(observed.record.cluster_id),
            "a leader was elected: create the bootstrap marker",
        )
    seed = observed.node(SEED)
    formatted = [node.id for node in observed.nodes if node.is_formatted]
    seed_id = observed.ids.of(SEED)
    if seed is not None and seed.is_empty and not seed.terminating:
        if formatted:
            return _waiting(
                Reason.BOOTSTRAP_RECORD_LOST,
                f"node {seed_id} is empty but {formatted} are not: not formatting it standalone",
            )
        action = FormatNode(SEED, seed.uid, observed.record.cluster_id, standalone=True)
        return OperatorPlan(action, f"format node {seed_id} to start the quorum")
    return _restart_dead(observed) or _waiting(
        Reason.WAITING_FOR_LEADER,
        f"waiting for node {seed_id} to start the quorum: {_problem(seed)}",
    )


def _first_record(desired: Desired, observed: Observed) -> OperatorPlan:
    """Start a new cluster only if no disk can belong to an earlier one."""
    silent = [
        ordinal
        for ordinal in sorted({SEED, *observed.inherited})
        if (node := observed.node(ordinal)) is None or not node.answers
    ]
    if silent:
        of = observed.ids.of
        shown = "; ".join(f"node {of(o)}: {_problem(observed.node(o))}" for o in silent)
        return _restart_dead(observed) or _waiting(Reason.WAITING_FOR_PODS, shown)
    clusters = _cluster_ids(observed)
    if len(clusters) > 1:
        text = (
            f"the disks belong to {len(clusters)} different clusters: {', '.join(sorted(clusters))}"
        )
        return _waiting(Reason.CLUSTER_ID_MISMATCH, text)
    if clusters:
        cluster_id = clusters.pop()
        if desired.cluster_id not in ("", cluster_id):
            return OperatorPlan(refusals=(_another_cluster(desired, cluster_id),))
        action = CreateRecord(cluster_id, adopted=True)
        return OperatorPlan(action, f"adopt the disks of cluster {cluster_id}")
    if observed.known_cluster_id:
        return _waiting(
            Reason.BOOTSTRAP_RECORD_LOST,
            f"the bootstrap record and all disks of cluster {observed.known_cluster_id} are gone: "
            "delete the Quorum to start a new cluster",
        )
    return OperatorPlan(
        CreateRecord(desired.cluster_id or None), "create the bootstrap record of a new cluster"
    )


def _without_leader(desired: Desired, observed: Observed) -> OperatorPlan:
    """Step 3: only actions that need no agreement of the quorum."""
    found = _create_pods(desired, observed, observed.known_voters)
    if found is not None:
        return OperatorPlan(*found)
    problems = [f"node {node.id}: {_problem(node)}" for node in observed.nodes if not node.answers]
    text = "; ".join(["no leader", *problems])
    return _restart_dead(observed) or _waiting(Reason.WAITING_FOR_LEADER, text)


def _restart_dead(observed: Observed) -> OperatorPlan | None:
    """Restart a dead outdated pod: it loses nothing, and gets the newer template."""
    for node in observed.nodes:
        if node.outdated and _is_dead(node) and not node.terminating:
            text = f"restart pod {node.ordinal}: outdated, dead"
            return OperatorPlan(RestartPod(node.ordinal, node.uid), text)
    return None


def _is_dead(node: ObservedNode) -> bool:
    """Whether both the kubelet, which probes locally, and the operator find the node dead."""
    return not node.ready and not node.answers


def _problem(node: ObservedNode | None) -> str:
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
    "BootstrapRecord",
    "CreateRecord",
    "CreateStatefulSet",
    "Desired",
    "FormatNode",
    "GrantBrokers",
    "LeaderView",
    "MarkBootstrapped",
    "Observed",
    "ObservedNode",
    "OperatorPlan",
    "PlanRefusal",
    "Reason",
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
