"""Plans the next action for one Quorum: a pure function of the desired and the observed state.

`plan` returns at most one action that changes something. It is stateless, so an operator that is
killed between two actions resumes where it stopped. The first of these steps that applies decides,
and `OperatorPlan.refusals` lists what the plan holds back:

 0. Deleted: nothing, because the objects have owner references. Paused: nothing. Too few voters'
    disks remain for a majority, provably: nothing at all, because any action could make the loss
    final. Invalid number of voters or ids: nothing.
    Something keeps objects from being as desired: the template or a setting is invalid, or the
    template uses an image or a Secret that it may not use; foreign objects have names of this
    Quorum's objects; the authority cannot sign certificates; the API server rejects an object, or
    another program changes it back. A new quorum is not started; an existing one is maintained with
    the objects that it has.
    Then the Kubernetes objects themselves: those that pods need, and the StatefulSet.
 1. Not bootstrapped: create the record, then format the seed standalone, once, or restore a backup
    to its volume before there are pods. When a leader has been seen, create the marker; after that
    no node is ever formatted standalone again. In a takeover of Kafka's controllers, none ever is.
 2. A disk of another cluster: stop. ZooKeeper holds another cluster (checked before step 1): stop,
    but restart dead outdated pods.
 3. No leader: wait. (Pods of wanted nodes and known voters may be created, dead outdated pods
    restarted, and, in a takeover, empty nodes formatted to join.)
 4. A voter set change is uncommitted: wait. Otherwise members are fenced on request, if that is
    safe (`fencing`). They are unfenced without a leader, too.
 5. A voter whose disk was replaced, or a dead surplus voter: remove it, if that is safe.
 6. A wanted node that is empty and not a voter: format it to join.
 7. A wanted observer that has caught up: make it a voter, if that is safe.
 8. Voters that the StatefulSet is too small for: create their pods. A wanted node without a pod:
    create the pod, one after another (`growing`).
 9. A live surplus voter, the highest ordinal first, the leader last after a transfer: remove it, if
    all wanted nodes are live voters and the removal is safe.
    A wanted node whose volume claim is being deleted: move it to a new volume (`moving`).
    In a takeover, `takeover` does steps 7 and 9 until none of Kafka's controllers is a voter.
10. A surplus pod that is not a voter: shrink the StatefulSet, whose retention policy decides about
    the volume.
11. A broker that lacks rights: grant them, before an authorizer requires them.
12. A pod that is outdated, or whose file system grows at a restart: restart it, one at a time, dead
    pods first, the leader last after a transfer; live pods not without the approval that a
    supervised rollout needs, and in a maintenance window.
13. A volume that is too small, whether or not there is a leader: expand it, one at a time
    (`expansion`). The claims of new pods have another StorageClass: create the StatefulSet again
    (`moving`).

Hibernated: after step 1, delete all pods in place of the other steps (`hibernation`). Woken, there
is no leader: pods are created for everything that has a volume, and the steps above do the rest.

An action that failed is not planned before its next attempt is due (`Observed.failures`); the other
steps go on without it, because each of them checks its own conditions.

`safety` defines "alive" and "safe". Voters have node ids, pods have ordinals. A voter whose id no
pod can have (`naming.NodeIds`) is foreign, and the plan leaves it alone.

Source: KIP-853, "Disk failure recovery", "Add controller", "Remove controller".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from quorate.raft.types import ReplicaKey

from quorate_operator.naming import APPROVED_ANNOTATION
from quorate_operator.planning.bootstrap import (
    SEED,
    bootstrap,
    cluster_mismatch,
    is_dead,
    needed_size,
    recover,
    restart_dead,
    waiting,
    without_leader,
    wrong_ensemble_of,
)
from quorate_operator.planning.expansion import expand
from quorate_operator.planning.fencing import fence, fenced, unfence
from quorate_operator.planning.growing import grow
from quorate_operator.planning.hibernation import hibernate, is_hibernating
from quorate_operator.planning.moving import apply_storage_class, losing_volumes, move
from quorate_operator.planning.safety import (
    alive,
    disks_gone,
    has_template,
    is_majority_gone,
    is_safe,
    majority,
    size_for,
)
from quorate_operator.planning.takeover import is_under_way, take_over
from quorate_operator.planning.values import (
    Action,
    AddVoter,
    ApplyObjects,
    BootstrapRecord,
    CreateRecord,
    CreateStatefulSet,
    Desired,
    ExpandVolume,
    FormatNode,
    GrantBrokers,
    LeaderView,
    MarkBootstrapped,
    Observed,
    ObservedNode,
    OperatorPlan,
    PlanRefusal,
    Reason,
    RecreateStatefulSet,
    RejectedPod,
    RemoveVoter,
    Resize,
    RestartPod,
    SetFenced,
    StartRestore,
    TransferLeadership,
    VerifyBackup,
)
from quorate_operator.planning.waits import (
    expired_certificates,
    failing_pods,
    missing_voters,
    pending_balancers,
)

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

    def propose(self, action: Action, text: str) -> tuple[Action, str] | None:
        """Return an action, or None if it failed and its next attempt is not due."""
        failure = self.observed.failure_of(action)
        if not failure:
            return action, text
        self.refuse(Reason.ACTION_FAILED, f"{text}: {failure}")
        return None

    def described(self, voter: ReplicaKey) -> str:
        """A voter, and why its node does not run."""
        node = self.observed.node_of(voter)
        known = node is not None and not node.answers and node.problem
        return f"{voter} ({known})" if known else str(voter)

    def is_wanted(self, replica: ReplicaKey) -> bool:
        return self.observed.ordinal_of(replica) in range(self.desired.replicas)

    @property
    def voters_by_ordinal(self) -> list[ReplicaKey]:
        return sorted(self.view.voters)

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(voter.id for voter in self.view.voters)

    def shown_alive(self, voters: frozenset[ReplicaKey]) -> str:
        count = len(voters & self.alive)
        return f"{count} of {len(voters)} would be alive, but {majority(len(voters))} are needed"

    def fence(self) -> tuple[Action, str] | None:
        return self.follow(fence(self.desired, self.observed, self.view, self.alive))

    def follow(self, found: OperatorPlan) -> tuple[Action, str] | None:
        """Propose the action of another part of the plan."""
        self.refusals += found.refusals
        return None if found.action is None else self.propose(found.action, found.text)

    # 5
    def remove_dead(self) -> tuple[Action, str] | None:
        gone = disks_gone(self.observed)
        for voter in self.voters_by_ordinal:
            if voter == self.view.leader or voter in self.alive:
                continue
            if self.observed.is_kafkas(voter):
                continue  # see `take_over`
            wanted = self.is_wanted(voter)
            if self.observed.ordinal_of(voter) is None:
                self.refuse(
                    Reason.FOREIGN_VOTER, f"voter {voter} is not a pod of this Quorum: ignored"
                )
                continue
            if self.observed.ordinal_of(voter) in self.observed.fenced:
                continue  # reported as such
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
            if not is_safe(self.alive, rest):
                self.refuse(
                    Reason.REMOVE_BLOCKED,
                    f"cannot remove voter {voter} ({why}): without it {self.shown_alive(rest)}",
                )
                continue
            found = self.propose(RemoveVoter(voter), f"remove voter {voter}: {why}")
            if found is not None:
                return found
        return None

    # 6
    def format_empty(self) -> tuple[Action, str] | None:
        if self.desired.rolls_back:
            return None
        for node in self.observed.nodes:
            if not self.is_wanted(node.key) or not node.is_empty or node.terminating:
                continue
            if node.id in self.voter_ids or node.loses_volume:
                continue
            assert self.observed.record is not None, "the steps after 1 know the cluster"
            action = FormatNode(node.ordinal, node.uid, self.observed.record.cluster_id)
            found = self.propose(action, f"format node {node.id} to join")
            if found is not None:
                return found
        return None

    # 7, 9
    def take_over(self) -> tuple[Action, str] | None:
        return self.follow(take_over(self.desired, self.observed, self.view, self.alive))

    # 7
    def add_observer(self) -> tuple[Action, str] | None:
        for node in self.observed.nodes:
            if not self.is_wanted(node.key) or node.id in self.voter_ids:
                continue
            if not node.answers or not node.is_formatted or node.terminating or node.loses_volume:
                continue
            key = node.key
            if key not in self.view.caught_up:
                self.refuse(Reason.CATCHING_UP, f"node {key} has not caught up with the leader")
                continue
            more = self.view.voters | {key}
            if not is_safe(self.alive | {key}, more):
                needed = majority(len(more))
                self.refuse(
                    Reason.ADD_BLOCKED,
                    f"cannot add voter {key}: {needed} of {len(more)} voters must be alive",
                )
                continue
            found = self.propose(AddVoter(key), f"add voter {key}")
            if found is not None:
                return found
        return None

    # 8
    def create_missing(self) -> tuple[Action, str] | None:
        return self.follow(grow(self.desired, self.observed, self.view, self.alive))

    # 9
    def remove_surplus(self) -> tuple[Action, str] | None:
        surplus = [v for v in self.voters_by_ordinal if not self.is_wanted(v)]
        if not surplus:
            return None
        left_alone = (None, *self.observed.fenced)
        ours = [v for v in surplus if self.observed.ordinal_of(v) not in left_alone]
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
            return self.transfer(wanted, f"because {voter} will be removed")
        return self.propose(RemoveVoter(voter), f"remove surplus voter {voter}")

    def transfer(self, followers: list[ReplicaKey], why: str) -> tuple[Action, str] | None:
        """Transfer leadership to the first follower for which an attempt is due."""
        for target in followers:
            text = f"transfer leadership to {target}, {why}"
            found = self.propose(TransferLeadership(target), text)
            if found is not None:
                return found
        return None

    # 9
    def move(self) -> tuple[Action, str] | None:
        return self.follow(move(self.desired, self.observed, self.view, self.alive))

    # 10
    def shrink(self) -> tuple[Action, str] | None:
        size = self.observed.size or 0
        voters = self.view.voters | self.view.committed
        kept = (ordinal + 1 for ordinal in self.observed.fenced)
        needed = max([needed_size(self.desired, self.observed, voters), *kept])
        if needed < size:
            text = f"delete the pods from ordinal {needed} on"
            return self.propose(Resize(needed, size), text)
        return None

    # 11
    def grant_brokers(self) -> tuple[Action, str] | None:
        principals = self.observed.brokers_without_rights
        if not principals:
            return None
        text = f"grant {', '.join(principals)} the rights of brokers"
        return self.propose(GrantBrokers(principals), text)

    # 12
    def restart_outdated(self) -> tuple[Action, str] | None:
        nodes = [n for n in self.observed.nodes if n.restart_reason and not n.terminating]
        if self.observed.fenced:
            # The template that fences a member makes the pods of all others outdated.
            nodes = [node for node in nodes if is_dead(node)]
        if not nodes:
            return None
        # A voter that answers while it catches up may already be part of a majority, so only dead
        # pods and non-voters restart without further checks.
        free = [node for node in nodes if is_dead(node) or node.key not in self.view.voters]
        if free:
            return next(filter(None, map(self.restart, free)), None)
        hold = self.rollout_hold()
        if hold is not None:
            self.refusals.append(hold)
            return None
        unwell = sorted(self.view.voters - self.alive)
        if unwell:
            shown = ", ".join(map(self.described, unwell))
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
        others = [v for v in sorted(self.alive - {node.key}) if not self.observed.is_kafkas(v)]
        if node.key == self.view.leader and others:
            return self.transfer(others, f"because pod {node.ordinal} is restarted")
        return self.restart(node)

    def rollout_hold(self) -> PlanRefusal | None:
        """Why no live pod may be restarted for the new template; None if one may."""
        revision = self.observed.revision
        if self.desired.is_supervised and self.desired.approved_rollout != revision:
            text = f"outdated pods wait for the annotation {APPROVED_ANNOTATION}={revision}"
            return PlanRefusal(Reason.APPROVAL_REQUIRED, text)
        if self.observed.closed_window:
            return PlanRefusal(Reason.WINDOW_CLOSED, self.observed.closed_window)
        return None

    def restart(self, node: ObservedNode) -> tuple[Action, str] | None:
        action = RestartPod(node.ordinal, node.uid)
        return self.propose(action, f"restart pod {node.ordinal}: {node.restart_reason}")


def plan(desired: Desired, observed: Observed) -> OperatorPlan:
    """Return the next action for one Quorum, or the reasons why there is none."""
    stop = _reason_to_stop(desired, observed)
    if stop is not None:
        return OperatorPlan(refusals=(stop,))
    held = tuple(_held_back(desired, observed))
    if held and not observed.is_bootstrapped:
        return OperatorPlan(refusals=held)
    if held and observed.size is None:
        return _without_set(desired, observed, held)
    found = _attempted(_plan(desired, observed), observed)
    unfinished = (
        *expired_certificates(observed),
        *failing_pods(observed),
        *pending_balancers(observed),
    )
    return OperatorPlan(found.action, found.text, (*held, *found.refusals, *unfinished))


def _attempted(found: OperatorPlan, observed: Observed) -> OperatorPlan:
    """Hold back an action that failed and whose next attempt is not due."""
    failure = "" if found.action is None else observed.failure_of(found.action)
    if not failure:
        return found
    refusal = PlanRefusal(Reason.ACTION_FAILED, f"{found.text}: {failure}")
    return OperatorPlan(refusals=(refusal, *found.refusals))


def _held_back(desired: Desired, observed: Observed) -> Iterator[PlanRefusal]:
    """Yield why some objects cannot become as desired, whatever is done."""
    if observed.conflicts:
        yield PlanRefusal(Reason.CONFLICT, "; ".join(observed.conflicts))
    if observed.forbidden:
        yield PlanRefusal(Reason.NOT_ALLOWED, "; ".join(observed.forbidden))
    if desired.invalid_template or observed.invalid_config:
        text = desired.invalid_template or observed.invalid_config
        yield PlanRefusal(Reason.INVALID_SPEC, text)
    if observed.unusable_authority:
        yield PlanRefusal(Reason.AUTHORITY_UNUSABLE, observed.unusable_authority)


def _plan(desired: Desired, observed: Observed) -> OperatorPlan:
    """`plan` for a Quorum that may be changed. Objects come first, but none holds up the steps."""
    is_valid = has_template(desired, observed)
    stale = [n for n in observed.stale if is_valid or not n.startswith("StatefulSet/")]
    due = tuple(name for name in stale if not observed.failure(name))
    rejected = tuple(
        PlanRefusal(
            Reason.APPLY_UNDONE if observed.is_undone(name) else Reason.APPLY_REJECTED,
            f"{name}: {observed.failure(name)}",
        )
        for name in stale
        if name not in due
    )
    if due:
        return OperatorPlan(ApplyObjects(due), f"apply {', '.join(due)}", rejected)
    if observed.size is None:
        if rejected and not observed.is_bootstrapped:
            return OperatorPlan(refusals=rejected)
        recovery = recover(desired, observed)
        if recovery is not None:
            return recovery
        is_asleep = is_hibernating(desired, observed) and not observed.nodes
        size = 0 if is_asleep else size_for(desired, observed)
        action, text = CreateStatefulSet(size), f"create the StatefulSet with {size} pods"
        failure = observed.failure_of(action)
        if not failure or not observed.is_bootstrapped:
            return OperatorPlan(action, text, rejected)
        refusal = PlanRefusal(Reason.APPLY_REJECTED, f"cannot {text}: {failure}")
        return _without_set(desired, observed, (*rejected, refusal))
    found = _maintain(desired, observed)
    for step in (expand, apply_storage_class):
        if found.action is None:
            more = step(desired, observed)
            found = OperatorPlan(more.action, more.text, (*found.refusals, *more.refusals))
    return OperatorPlan(found.action, found.text, (*rejected, *found.refusals))


def _without_set(
    desired: Desired, observed: Observed, why: tuple[PlanRefusal, ...]
) -> OperatorPlan:
    """Maintain the voters of a StatefulSet that cannot be created: no pod would come back."""
    found = _attempted(_maintain(desired, observed), observed)
    if isinstance(found.action, RestartPod):  # a dead one, without a leader
        found = OperatorPlan(refusals=found.refusals)
    return OperatorPlan(found.action, found.text, (*why, *found.refusals))


def _maintain(desired: Desired, observed: Observed) -> OperatorPlan:
    """Steps 1 to 12, with the objects that exist."""
    if any(node.wrong_ensemble for node in observed.nodes):
        return restart_dead(observed) or wrong_ensemble_of(observed)
    if not observed.is_bootstrapped:
        return bootstrap(desired, observed)
    leaving = [node for node in losing_volumes(observed) if not node.terminating]
    hibernates = is_hibernating(desired, observed) and observed.size is not None
    if hibernates and not leaving:
        return hibernate(observed)
    mismatch = cluster_mismatch(desired, observed)
    if mismatch is not None:
        return OperatorPlan(refusals=(mismatch,))
    returned = OperatorPlan()
    if observed.size is not None:
        returned = _attempted(unfence(desired, observed), observed)
    if returned.action is not None:
        return returned
    found = _with_cluster(desired, observed)
    refusals = [*found.refusals, *returned.refusals, *fenced(observed)]
    if hibernates:
        nodes = ", ".join(str(node.id) for node in leaving)
        text = f"to hibernate would delete the volumes of nodes {nodes}: their claims are deleted"
        refusals.append(PlanRefusal(Reason.HIBERNATION_BLOCKED, text))
    return OperatorPlan(found.action, found.text, tuple(refusals))


def _with_cluster(desired: Desired, observed: Observed) -> OperatorPlan:
    """Steps 3 to 12."""
    if observed.view is None:
        return without_leader(desired, observed)
    if observed.view.voters != observed.view.committed:
        return waiting(Reason.CHANGE_UNCOMMITTED, "the last voter set change is uncommitted")
    steps = _Steps(desired, observed, observed.view, alive(observed))
    changes = [steps.add_observer, steps.create_missing, steps.remove_surplus, steps.move]
    if is_under_way(desired, observed):
        changes = [steps.take_over, steps.create_missing, steps.move]
    # Without a StatefulSet, no pod that is deleted would come back.
    of_pods = (steps.fence, steps.create_missing, steps.move, steps.shrink, steps.restart_outdated)
    for step in (
        steps.fence,
        steps.remove_dead,
        steps.format_empty,
        *changes,
        steps.shrink,
        steps.grant_brokers,
        steps.restart_outdated,
    ):
        found = None if observed.size is None and step in of_pods else step()
        if found is not None:
            return OperatorPlan(*found, tuple(steps.refusals))
    steps.refusals += missing_voters(desired, observed, observed.view, steps.alive)
    if observed.is_template_pending:
        text = "the StatefulSet controller has not observed the last change"
        steps.refuse(Reason.WAITING_FOR_PODS, text)
    return OperatorPlan(refusals=tuple(steps.refusals))


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


__all__ = [
    "SEED",
    "Action",
    "AddVoter",
    "ApplyObjects",
    "BootstrapRecord",
    "CreateRecord",
    "CreateStatefulSet",
    "Desired",
    "ExpandVolume",
    "FormatNode",
    "GrantBrokers",
    "LeaderView",
    "MarkBootstrapped",
    "Observed",
    "ObservedNode",
    "OperatorPlan",
    "PlanRefusal",
    "Reason",
    "RecreateStatefulSet",
    "RejectedPod",
    "RemoveVoter",
    "Resize",
    "RestartPod",
    "SetFenced",
    "StartRestore",
    "TransferLeadership",
    "VerifyBackup",
    "alive",
    "disks_gone",
    "is_majority_gone",
    "is_safe",
    "majority",
    "plan",
    "size_for",
]
