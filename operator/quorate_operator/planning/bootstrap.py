"""The part of the plan that needs no leader: to start a quorum, or to wait for a leader.

Steps 1 to 3 of `plan`, and which pods must exist.
"""

from __future__ import annotations

from quorate.raft.types import ReplicaKey

from quorate_operator.kube.job_state import JobRun
from quorate_operator.planning.safety import ordinals, size_for
from quorate_operator.planning.values import (
    CLAIM_DELETED,
    Action,
    CreateRecord,
    Desired,
    FormatNode,
    MarkBootstrapped,
    Observed,
    ObservedNode,
    OperatorPlan,
    PlanRefusal,
    Reason,
    Resize,
    RestartPod,
    StartRestore,
    VerifyBackup,
)

SEED = 0
"""The ordinal of the node that starts a new quorum. Every size includes it."""


def needed_size(desired: Desired, observed: Observed, voters: frozenset[ReplicaKey]) -> int:
    """The size of a StatefulSet with the pods of the wanted nodes and of these voters."""
    return max([desired.replicas, *(ordinal + 1 for ordinal in ordinals(observed, voters))])


def create_pods(
    desired: Desired, observed: Observed, voters: frozenset[ReplicaKey]
) -> tuple[Action, str] | None:
    """Create the missing pods of wanted nodes and of these voters, all at once."""
    return resize_to(observed, needed_size(desired, observed, voters))


def resize_to(observed: Observed, needed: int) -> tuple[Action, str] | None:
    """Create the pods up to a size, unless one of them would mount a foreign volume."""
    size = observed.size
    if (
        size is None
        or size >= needed
        or not observed.foreign_volumes.isdisjoint(range(size, needed))
    ):
        return None
    return Resize(needed, size), f"create the pods up to ordinal {needed - 1}"


def waiting(reason: Reason, text: str) -> OperatorPlan:
    return OperatorPlan(refusals=(PlanRefusal(reason, text),))


def _cluster_ids(observed: Observed) -> set[str]:
    return {node.cluster_id for node in observed.nodes if node.answers and node.is_formatted}


def cluster_mismatch(desired: Desired, observed: Observed) -> PlanRefusal | None:
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


def wrong_ensemble_of(observed: Observed) -> OperatorPlan:
    """Wait: controllers exit when ZooKeeper holds another cluster, and would exit again."""
    said = [f"node {n.id}: {n.wrong_ensemble}" for n in observed.nodes if n.wrong_ensemble]
    return waiting(Reason.WRONG_ENSEMBLE, "; ".join(said))


def bootstrap(desired: Desired, observed: Observed) -> OperatorPlan:
    """Step 1. Without a record, the cluster of existing disks is adopted; no new one starts."""
    size, needed = observed.size or 0, size_for(desired, observed)
    if size < needed:
        return OperatorPlan(Resize(needed, size), f"create the pods up to ordinal {needed - 1}")
    if observed.record is None:
        return _first_record(desired, observed)
    mismatch = cluster_mismatch(desired, observed)
    if mismatch is not None:
        return OperatorPlan(refusals=(mismatch,))
    if observed.view is not None:
        return OperatorPlan(
            MarkBootstrapped(observed.record.cluster_id),
            "a leader was elected: create the bootstrap marker",
        )
    if desired.is_takeover:  # with a record of an operator that knew of no takeovers
        found = _join(desired, observed)
        if found is not None:
            return OperatorPlan(*found)
        text = "no leader of Kafka's controllers is known"
        return restart_dead(observed) or waiting(Reason.WAITING_FOR_LEADER, text)
    seed = observed.node(SEED)
    if seed is not None and seed.is_empty and seed.loses_volume and not seed.terminating:
        return OperatorPlan(RestartPod(SEED, seed.uid), f"restart pod {SEED}: {CLAIM_DELETED}")
    formatted = [node.id for node in observed.nodes if node.is_formatted]
    seed_id = observed.ids.of(SEED)
    if seed is not None and seed.is_empty and not seed.terminating:
        if formatted:
            return waiting(
                Reason.BOOTSTRAP_RECORD_LOST,
                f"node {seed_id} is empty but {formatted} are not: not formatting it standalone",
            )
        if desired.recovers:
            return waiting(
                Reason.RECOVERY_FAILED,
                f"node {seed_id} is empty, although a backup was restored to its volume: delete "
                "the Quorum and its volumes, and create it again",
            )
        action = FormatNode(SEED, seed.uid, observed.record.cluster_id, standalone=True)
        return OperatorPlan(action, f"format node {seed_id} to start the quorum")
    return restart_dead(observed) or waiting(
        Reason.WAITING_FOR_LEADER,
        f"waiting for node {seed_id} to start the quorum: {_problem(seed)}",
    )


def _join(desired: Desired, observed: Observed) -> tuple[Action, str] | None:
    """Format a pod to join Kafka's controllers: without one, nobody says who leads."""
    assert observed.record is not None
    for node in observed.nodes:
        if node.is_empty and not node.terminating and node.ordinal < desired.replicas:
            action: Action = FormatNode(node.ordinal, node.uid, observed.record.cluster_id)
            text = f"format node {node.id} to join Kafka's controllers"
            if node.loses_volume:
                action = RestartPod(node.ordinal, node.uid)
                text = f"restart pod {node.ordinal}: {CLAIM_DELETED}"
            if not observed.failure_of(action):
                return action, text
    return None


def recover(desired: Desired, observed: Observed) -> OperatorPlan | None:
    """Verify a backup, then restore it to the first voter's empty volume, without pods.

    None if there is nothing to restore, or it is done, or there are volumes that may hold a
    cluster: their pods show whether they do.
    """
    if not desired.recovers or observed.is_bootstrapped:
        return None
    if observed.record is None:
        if observed.volumes:
            return None
        return _verify(observed) or _new_cluster(desired, observed)
    found = observed.restore
    if found is None:
        text = f"restore the backup to the volume of node {observed.ids.of(SEED)}"
        return OperatorPlan(StartRestore(observed.record.cluster_id), text)
    advice = "no pod was created: delete the Job to try again, or the Quorum and its volume claim"
    return _outcome(found, "restores", advice)


def _verify(observed: Observed) -> OperatorPlan | None:
    """Verify the backup before anything is created for it; None once it is known to be sound."""
    found = observed.verification
    if found is None:
        return OperatorPlan(VerifyBackup(), "verify the backup")
    advice = "nothing was created: delete the Job to try again, or the Quorum"
    return _outcome(found, "verifies", advice)


def _outcome(run: JobRun, verb: str, advice: str) -> OperatorPlan | None:
    """What a Job of a recovery leaves to do; None once it has succeeded."""
    if run.succeeded:
        return None
    if run.succeeded is None:
        text = f"Job/{run.name} {verb} the backup"
        return waiting(Reason.RECOVERING, f"{text}: {run.message}" if run.message else text)
    text = f"Job/{run.name}: {run.message}; {advice} to begin with another backup"
    return waiting(Reason.RECOVERY_FAILED, text)


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
        return restart_dead(observed) or waiting(Reason.WAITING_FOR_PODS, shown)
    clusters = _cluster_ids(observed)
    if len(clusters) > 1:
        text = (
            f"the disks belong to {len(clusters)} different clusters: {', '.join(sorted(clusters))}"
        )
        return waiting(Reason.CLUSTER_ID_MISMATCH, text)
    if clusters:
        cluster_id = clusters.pop()
        if desired.cluster_id not in ("", cluster_id):
            return OperatorPlan(refusals=(_another_cluster(desired, cluster_id),))
        action = CreateRecord(cluster_id, adopted=True)
        return OperatorPlan(action, f"adopt the disks of cluster {cluster_id}")
    if desired.recovers:
        return waiting(
            Reason.RECOVERY_FAILED,
            "the Quorum has volumes that hold no cluster, and no backup was restored to them: "
            "delete the Quorum and its volumes, and create it again",
        )
    return _new_cluster(desired, observed)


def _new_cluster(desired: Desired, observed: Observed) -> OperatorPlan:
    if desired.is_takeover:
        # It is never to be started, not even by an operator that knows of no takeovers.
        action = CreateRecord(desired.cluster_id, adopted=True)
        return OperatorPlan(action, f"record the cluster {desired.cluster_id} of Kafka")
    if observed.known_cluster_id:
        return waiting(
            Reason.BOOTSTRAP_RECORD_LOST,
            f"the bootstrap record and all disks of cluster {observed.known_cluster_id} are gone: "
            "delete the Quorum to start a new cluster",
        )
    return OperatorPlan(
        CreateRecord(desired.cluster_id or None), "create the bootstrap record of a new cluster"
    )


def without_leader(desired: Desired, observed: Observed) -> OperatorPlan:
    """Step 3: only actions that need no agreement of the quorum."""
    found = create_pods(desired, observed, observed.known_voters)
    if observed.size == 0:
        # It hibernated: whatever its status says, every disk may be needed for a majority.
        size = size_for(desired, observed)
        if observed.foreign_volumes.isdisjoint(range(size)):
            found = Resize(size, 0), f"wake: create the pods up to ordinal {size - 1}"
    if found is None and desired.is_takeover and not desired.rolls_back:
        found = _join(desired, observed)
    if found is not None:
        return OperatorPlan(*found)
    problems = [f"node {node.id}: {_problem(node)}" for node in observed.nodes if not node.answers]
    text = "; ".join(["no leader", *problems])
    return restart_dead(observed) or waiting(Reason.WAITING_FOR_LEADER, text)


def restart_dead(observed: Observed) -> OperatorPlan | None:
    """Restart a dead pod that needs it: nothing is lost, and it gets the newer template.

    Choose the first pod whose attempt is due: one that cannot be deleted must not delay the others.
    """
    found = [
        (RestartPod(node.ordinal, node.uid), node.restart_reason)
        for node in observed.nodes
        if node.restart_reason and is_dead(node) and not node.terminating
    ]
    due = [each for each in found if not observed.failure_of(each[0])]
    for action, why in (due or found)[:1]:
        return OperatorPlan(action, f"restart pod {action.ordinal}: {why}, dead")
    return None


def is_dead(node: ObservedNode) -> bool:
    """Whether both the kubelet, which probes locally, and the operator find the node dead."""
    return not node.ready and not node.answers


def _problem(node: ObservedNode | None) -> str:
    if node is None:
        return "it has no pod yet"
    if node.answers:
        return "it does not lead yet"
    problem = node.problem or "it does not answer yet"
    if node.loses_volume and problem != CLAIM_DELETED:
        problem += f"; its pod is not restarted, because {CLAIM_DELETED}"
    return problem
