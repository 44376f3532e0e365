"""Builds the Quorum's status: a pure function of the observed state and the plan.

Conditions, and what True means: Ready: the state is the desired one. SpecApplied: the Kubernetes
objects are as the spec wants them, whether or not pods have been restarted for it. Quorate: a
leader answers and a majority of the voters is alive. Bootstrapped: the quorum was started and
cannot start again. Progressing: a change is in progress or pending. Degraded: a wanted node is not
a live voter. DataLossRisk: the loss of one more of several voters would stop commits, or too few
disks remain for a majority. Conflict: foreign objects have names of this Quorum's objects.
Hibernated: it has no pods, because `spec.hibernated` is set. Fenced: members are fenced, so their
controllers do not run. Paused: `spec.paused` is set.

When the state cannot be observed, all of them but Paused are Unknown: the last known state may not
be that of now. A condition's time is that of its last status change.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

from quorate_operator import naming
from quorate_operator.crd.quorum_schema import CONDITIONS
from quorate_operator.naming import Object
from quorate_operator.objects.made import claims_of, class_of, size_of
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.observe import Snapshot, replicas_of
from quorate_operator.planning.growing import progress
from quorate_operator.planning.plan import (
    Observed,
    OperatorPlan,
    PlanRefusal,
    Reason,
    alive,
    disks_gone,
    is_majority_gone,
    is_safe,
    majority,
)
from quorate_operator.planning.safety import wanted_ids
from quorate_operator.planning.takeover import phase

MESSAGE_CHARACTERS_MAX = 1024
Said = tuple[bool | None, str, str]
"""A condition's status (None: unknown), reason and message."""

URGENT = (
    Reason.MAJORITY_DISKS_LOST,
    Reason.NOT_ALLOWED,
    Reason.CONFLICT,
    Reason.CLUSTER_ID_MISMATCH,
    Reason.WRONG_ENSEMBLE,
    Reason.BOOTSTRAP_RECORD_LOST,
    Reason.RECOVERY_FAILED,
    Reason.INVALID_SPEC,
    Reason.AUTHORITY_UNUSABLE,
    Reason.CERTIFICATE_EXPIRED,
    Reason.APPLY_REJECTED,
    Reason.APPLY_UNDONE,
    Reason.POD_FAILING,
    Reason.ACTION_FAILED,
    Reason.SCALE_DOWN_BLOCKED,
    Reason.REMOVE_BLOCKED,
    Reason.ADD_BLOCKED,
    Reason.DISK_REPLACEMENT_MANUAL,
    Reason.ROLLOUT_BLOCKED,
    Reason.FOREIGN_VOTER,
    Reason.TAKEOVER_BLOCKED,
    Reason.HIBERNATION_BLOCKED,
    Reason.EXPANSION_REFUSED,
    Reason.STORAGE_CLASS_REFUSED,
    Reason.VOLUME_MOVE_BLOCKED,
    Reason.FENCING_REFUSED,
)
"""Refusals that may require manual action, the most severe first."""
OF_OBJECTS = (
    Reason.NOT_ALLOWED,
    Reason.CONFLICT,
    Reason.INVALID_SPEC,
    Reason.AUTHORITY_UNUSABLE,
    Reason.APPLY_REJECTED,
    Reason.APPLY_UNDONE,
    Reason.EXPANDING,
    Reason.EXPANSION_REFUSED,
    Reason.STORAGE_CLASS_REFUSED,
    Reason.VOLUMES_DIFFER,
    Reason.LOAD_BALANCER_PENDING,
)
"""Refusals because of which Kubernetes objects are not as the spec wants them."""
NOT_OBSERVED = "ObservationFailed"
TWO_VOTERS = "TwoVoters"


def build(quorum: QuorumResource, seen: Snapshot, plan: OperatorPlan) -> Object:
    """Build the status."""
    observed = seen.observed
    view = observed.view
    record = observed.record
    return {
        "observedGeneration": quorum.generation,
        "replicas": len(observed.nodes),
        "readyReplicas": seen.ready_count,
        "voters": len(observed.voters),
        "voterSet": [str(voter) for voter in sorted(observed.voters)],
        "leader": {"id": view.leader.id, "epoch": view.epoch} if view else None,
        "clusterId": record.cluster_id if record else observed.known_cluster_id,
        "selector": naming.selector_text(quorum.name),
        "updateRevision": observed.revision or None,
        "externalBootstrapServers": _external_servers(quorum, seen),
        "currentAction": plan.text or _refused(plan),
        "storage": _storage(seen) or quorum.status.get("storage"),
        "migration": _migration(quorum, seen),
        "takeover": _takeover(quorum, seen),
        "authority": _authority(seen),
        "members": list(_members(quorum, seen)),
        "conditions": written(quorum.status, quorum.generation, _conditions(quorum, seen, plan)),
    }


def unknown(quorum: QuorumResource, error: str) -> Object:
    """Build the status for when the state cannot be observed. error: why."""
    said: dict[str, Said] = dict.fromkeys(CONDITIONS, (None, NOT_OBSERVED, error))
    return {
        **quorum.status,
        "leader": None,
        "readyReplicas": None,
        "currentAction": f"cannot observe the state: {error}",
        "conditions": written(
            quorum.status, quorum.generation, {**said, "Paused": _paused(quorum)}
        ),
    }


def warnings(quorum: QuorumResource, seen: Snapshot) -> list[tuple[str, str]]:
    """Return the reason and the text of each warning about a state that is as desired."""
    risk, reason, text = _data_loss_risk(quorum, seen)
    return [(reason, text)] if risk and reason == TWO_VOTERS else []


def _storage(seen: Snapshot) -> Object | None:
    """The claims of the StatefulSet, with which new volumes begin; None without one."""
    if seen.stateful_set is None:
        return None
    claim = claims_of(seen.stateful_set)
    # A field that is None is removed from the status by the merge patch.
    return {"size": size_of(claim) or None, "storageClassName": class_of(claim) or None}


def _external_servers(quorum: QuorumResource, seen: Snapshot) -> str | None:
    """The outside addresses of all nodes that have one; None if none has."""
    if quorum.external is None:
        return None
    known = (each.address for _, each in sorted(seen.external.items()))
    return ",".join(filter(None, known)) or None


def _migration(quorum: QuorumResource, seen: Snapshot) -> Object | None:
    """The migration's progress; the last known one if the leader reports none."""
    if not quorum.is_migration:
        return None
    if seen.progress is None:
        return quorum.status.get("migration")
    return {
        "state": seen.progress.state.name,
        "brokersInZooKeeperMode": seen.progress.brokers,
    }


def _takeover(quorum: QuorumResource, seen: Snapshot) -> Object | None:
    """How far the takeover is; the last known state without a leader."""
    view, found = seen.observed.view, phase(quorum.desired, seen.observed)
    if view is None or found is None:
        return quorum.status.get("takeover") if quorum.is_takeover else None
    kafkas = sorted(voter.id for voter in view.voters if seen.observed.is_kafkas(voter))
    return {"phase": found.value, "kafkaVoters": kafkas}


def _authority(seen: Snapshot) -> Object | None:
    if seen.authority is None:
        return None
    return {"revision": seen.authority.revision, "phase": seen.authority.phase.value}


def written(earlier_status: Object, generation: int, said: dict[str, Said]) -> list[Object]:
    """The conditions of a status. One that is unchanged keeps its time of the earlier status."""
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    earlier = {c["type"]: c for c in earlier_status.get("conditions") or ()}
    return [
        _condition(name, each, earlier.get(name), generation, now) for name, each in said.items()
    ]


def _condition(name: str, said: Said, earlier: Object | None, generation: int, now: str) -> Object:
    status, reason, message = said
    shown = {True: "True", False: "False", None: "Unknown"}[status]
    changed = now
    if earlier is not None and earlier.get("status") == shown:
        changed = earlier.get("lastTransitionTime", now)
    return {
        "type": name,
        "status": shown,
        "reason": reason,
        "message": message[:MESSAGE_CHARACTERS_MAX],
        "lastTransitionTime": changed,
        "observedGeneration": generation,
    }


def _conditions(quorum: QuorumResource, seen: Snapshot, plan: OperatorPlan) -> dict[str, Said]:
    observed, whole = seen.observed, plan
    # Volumes of another StorageClass are no reason to wait.
    held = tuple(each for each in plan.refusals if each.reason is not Reason.VOLUMES_DIFFER)
    plan = replace(plan, refusals=held)
    worst = worst_refusal(plan)
    reason, refused = (worst.reason.value if worst else "AsWanted"), _refused(plan)
    action, doing = reason, refused
    if plan.action is not None:
        action, doing = type(plan.action).__name__, plan.text
    adding = progress(quorum.desired, observed)
    progressing = f"{adding}: {doing}" if adding and adding not in doing else doing
    wanted = wanted_ids(quorum.desired, observed)
    alive_ids = {voter.id for voter in alive(observed)}
    is_ready = plan.is_done and alive_ids == wanted
    missing = sorted(wanted - alive_ids)
    is_asleep = plan.refuses(Reason.HIBERNATED)
    is_over = is_asleep or plan.refuses(Reason.ROLLED_BACK) or not plan.refusals
    stopped = plan.action is None and is_over
    is_changing = not stopped and not quorum.desired.paused
    return {
        "Ready": (is_ready, reason if worst else action, refused or doing),
        "SpecApplied": _spec_applied(observed, whole),
        "Quorate": (False, "Hibernated", "") if is_asleep else _quorate(seen),
        "Bootstrapped": (
            observed.is_bootstrapped,
            "Bootstrapped" if observed.is_bootstrapped else "NotYet",
            "",
        ),
        "Progressing": (is_changing, action, progressing),
        "Degraded": _degraded(observed.is_bootstrapped and not is_asleep, missing, plan),
        "DataLossRisk": (None, "Hibernated", "") if is_asleep else _data_loss_risk(quorum, seen),
        "Conflict": (
            bool(observed.conflicts),
            "NamesTaken" if observed.conflicts else "AsWanted",
            "; ".join(observed.conflicts),
        ),
        "Hibernated": (is_asleep, "Hibernated" if is_asleep else "AsWanted", ""),
        "Fenced": _fenced(quorum, plan),
        "Paused": _paused(quorum),
    }


def _fenced(quorum: QuorumResource, plan: OperatorPlan) -> Said:
    """Whether members are fenced. Those that cannot be fenced are named first."""
    texts = [each.text for each in plan.refusals if each.reason is Reason.FENCED]
    refused = [each.text for each in plan.refusals if each.reason is Reason.FENCING_REFUSED]
    reason = Reason.FENCED.value if texts else "AsWanted"
    if refused:
        reason = Reason.FENCING_REFUSED.value
    elif quorum.desired.fenced and not texts:
        reason = "Pending"
    return bool(texts), reason, "; ".join((*refused, *texts))


def _paused(quorum: QuorumResource) -> Said:
    paused = bool(quorum.spec.get("paused", False))
    return paused, "Paused" if paused else "NotPaused", ""


def _spec_applied(observed: Observed, plan: OperatorPlan) -> Said:
    held = [refusal for refusal in plan.refusals if refusal.reason in OF_OBJECTS]
    if held:
        return False, min(held, key=_rank).reason.value, "; ".join(each.text for each in held)
    if observed.stale or observed.size is None:
        reason = next((each.reason.value for each in plan.refusals), "Pending")
        text = ", ".join(observed.stale) or plan.text or _refused(plan)
        return False, "Applying" if plan.action else reason, text
    return True, "AsWanted", ""


def _degraded(is_bootstrapped: bool, missing: list[int], plan: OperatorPlan) -> Said:
    if not is_bootstrapped or not missing:
        return False, "AsWanted", ""
    refused = [each for each in plan.refusals if each.reason not in OF_OBJECTS]
    reason = min(refused, key=_rank).reason.value if refused else "NodesMissing"
    text = f"nodes that are not live voters: {', '.join(map(str, missing))}"
    return True, reason, "; ".join([text, *(each.text for each in sorted(refused, key=_rank))])


def worst_refusal(plan: OperatorPlan) -> PlanRefusal | None:
    """The most severe refusal; None without refusals."""
    return min(plan.refusals, key=_rank, default=None)


def _rank(refusal: PlanRefusal) -> int:
    return URGENT.index(refusal.reason) if refusal.reason in URGENT else len(URGENT)


def _refused(plan: OperatorPlan) -> str:
    """The texts of all refusals, the most severe first."""
    return "; ".join(each.text for each in sorted(plan.refusals, key=_rank))


def _quorate(seen: Snapshot) -> Said:
    observed = seen.observed
    if not seen.is_asked:
        return None, "NoCertificate", "the operator has no certificate to connect to the nodes with"
    if observed.view is None and observed.expired_certificates:
        text = "; ".join(observed.expired_certificates)
        return None, Reason.CERTIFICATE_EXPIRED.value, text
    if observed.view is None:
        return False, "NoLeader", "none of the nodes that answer is the leader"
    living = alive(observed)
    count = len(observed.view.voters)
    text = f"{len(living)} of {count} voters are alive, {majority(count)} are needed"
    is_quorate = is_safe(living, observed.view.voters)
    return is_quorate, "LeaderKnown" if is_quorate else "MajorityNotAlive", text


def _data_loss_risk(quorum: QuorumResource, seen: Snapshot) -> Said:
    observed = seen.observed
    if is_majority_gone(observed):
        gone = ", ".join(map(str, sorted(disks_gone(observed))))
        return True, Reason.MAJORITY_DISKS_LOST.value, f"the disks of {gone} are gone"
    if observed.view is None:
        return None, "NoLeader", ""
    voters = observed.view.voters
    spare = len(alive(observed)) - majority(len(voters))
    if len(voters) == 2 == quorum.desired.replicas:
        return True, TWO_VOTERS, "both voters are needed to commit: use 1 voter, or 3 or more"
    if len(voters) > 2 and spare < 1:
        return True, "NoVoterToSpare", f"{len(alive(observed))} of {len(voters)} voters are alive"
    return False, "AsWanted", ""


def _members(quorum: QuorumResource, seen: Snapshot) -> Iterator[Object]:
    observed, view = seen.observed, seen.observed.view
    replicas = [] if seen.description is None else replicas_of(seen.description)
    ends = {each.replica.id: each.log_end_offset for each in replicas if each.log_end_offset >= 0}
    leader_end = -1 if view is None else ends.get(view.leader.id, -1)
    for node in observed.nodes:
        status = seen.statuses.get(node.ordinal)
        if node.is_fenced and status is None:
            role = "fenced"
        elif status is None:
            role = "unknown"
        elif not status.formatted:
            role = "unformatted"
        elif view is not None and view.leader == node.key:
            role = "leader"
        else:
            role = "voter" if node.key in observed.voters else "observer"
        member: Object = {
            "nodeId": node.id,
            "role": role,
            "endpoint": naming.address(quorum.name, quorum.namespace, node.ordinal),
        }
        external = seen.external.get(node.ordinal)
        if external is not None and external.address:
            member["externalEndpoint"] = external.address
        if status is not None:
            member["version"] = status.version
        if node.directory_id:
            member["directoryId"] = node.directory_id
        if leader_end >= 0 and node.id in ends:
            member["lag"] = max(0, leader_end - ends[node.id])
        yield member


def is_same(one: Object, other: Object) -> bool:
    """Whether two statuses are equal, apart from the lag, which changes with every record."""
    return _still(one) == _still(other)


def _still(status: Object) -> Object:
    members = [
        {name: value for name, value in member.items() if name != "lag"}
        for member in status.get("members") or ()
    ]
    return {**_present(status), "members": members}


def _present(found: Object) -> Object:
    """The fields that are not None, of nested objects, too."""
    return {
        name: _present(value) if isinstance(value, dict) else value
        for name, value in found.items()
        if value is not None
    }
