"""The plan's values: the desired and the observed state, the actions, and reasons to hold back.

The values are immutable and have no behaviour beyond simple queries. Directory ids have Kafka's
text form. Ordinals identify pods and volumes, node ids identify voters (`naming.NodeIds`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quorate.raft.types import ReplicaKey

from quorate_operator.kube.job_state import JobRun
from quorate_operator.naming import SAME_IDS, NodeIds

CLAIM_DELETED = "its volume claim is being deleted"

# --- the desired and the observed state -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state."""

    replicas: int
    """The number of voters; their ordinals are 0 to replicas - 1."""
    cluster_id: str = ""
    """The cluster that the voters must belong to, "" for any."""
    paused: bool = False
    hibernated: bool = False
    """Whether no pods are wanted, and the voters stay."""
    deleted: bool = False
    replace_disks: bool = True
    is_supervised: bool = False
    """Whether live pods are restarted for a template only if its revision is `approved_rollout`."""
    approved_rollout: str = ""
    invalid: str = ""
    """Why the spec as a whole is invalid, "" if it is valid."""
    invalid_template: str = ""
    """Why no pods may be made from the template, "" if they may."""
    recovers: bool = False
    """Whether the quorum begins with a backup."""
    is_takeover: bool = False
    """Whether the quorum is that of Kafka's controllers, which the pods join."""
    rolls_back: bool = False
    """Whether Kafka's controllers are the wanted voters again."""
    fenced: frozenset[int] = frozenset()
    """The ordinals of the members to fence."""
    unknown_members: tuple[str, ...] = ()
    """Names of pods to fence that no pod can have."""
    volume_size: str = ""
    """The wanted size of volumes, as the spec writes it."""
    volume_bytes: int = 0
    """The same in bytes; 0: any size."""
    volume_class: str = ""
    """The wanted StorageClass of volumes, "" for the cluster's default."""


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """The pod of an ordinal, and the state that its process reports."""

    ordinal: int
    id: int
    """The node id."""
    uid: str = ""
    answers: bool = False
    """Whether the process returned a NodeStatus. For an unformatted node, `directory_id` is None
    and `cluster_id` is "".
    """
    directory_id: str | None = None
    cluster_id: str = ""
    ready: bool = False
    """Whether the pod is ready, as the kubelet sees it."""
    outdated: bool = False
    terminating: bool = False
    problem: str = ""
    """Why the pod does not run, for people."""
    is_failing: bool = False
    """Whether the problem does not end by waiting, such as an image that cannot be pulled."""
    wrong_ensemble: str = ""
    """The process's last line if it exited because ZooKeeper holds another cluster, else ""."""
    is_fenced: bool = False
    """Whether the pod was started fenced: without a controller."""
    grows_at_restart: bool = False
    """Whether the file system of its volume grows only when the pod is restarted."""
    loses_volume: bool = False
    """Whether its volume claim is being deleted, so that the volume goes with the pod."""

    @property
    def restart_reason(self) -> str:
        """Why the pod needs a restart, "" if it does not. A fenced one is left alone, and so is one
        that would lose its volume.
        """
        if self.is_fenced or self.loses_volume:
            return ""
        grows = "its file system grows at a restart" if self.grows_at_restart else ""
        return "outdated" if self.outdated else grows

    @property
    def is_formatted(self) -> bool:
        return self.directory_id is not None

    @property
    def is_empty(self) -> bool:
        """Whether the node itself reports that it has no replica's storage."""
        return self.answers and not self.is_formatted

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)


@dataclass(frozen=True, slots=True)
class ObservedClaim:
    """The volume of an ordinal. Sizes are in bytes."""

    ordinal: int
    requested: int
    """What the claim requests."""
    capacity: int
    """What the volume has; 0 if that is unknown."""
    size: str = ""
    """The capacity, for people."""
    problem: str = ""
    """What the storage driver and the kubelet report, "" for nothing."""
    needs_restart: bool = False
    """Whether the file system grows only when the pod is restarted."""
    name: str = ""
    storage_class: str = ""
    is_bound: bool = True
    """Whether it has a volume, or is to get a certain one."""

    @property
    def shown(self) -> str:
        return f"PersistentVolumeClaim/{self.name}"


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The quorum as its leader describes it."""

    leader: ReplicaKey
    epoch: int
    voters: frozenset[ReplicaKey]
    committed: frozenset[ReplicaKey]
    caught_up: frozenset[ReplicaKey]
    """The voters and observers that recently reached the leader's log end offset."""


@dataclass(frozen=True, slots=True)
class BootstrapRecord:
    """The bootstrap record."""

    cluster_id: str
    adopted: bool = False
    """Whether the cluster existed before the record: its disks, or Kafka's controllers."""


@dataclass(frozen=True, slots=True)
class ActionFailure:
    """The last attempt to change something failed, and it is too early for the next one."""

    target: str
    """One of the `targets` of the action."""
    text: str
    """The error."""
    is_undone: bool = False
    """Whether it succeeded, but did not last."""


@dataclass(frozen=True, slots=True)
class RejectedPod:
    """A pod that the StatefulSet controller cannot create."""

    ordinal: int
    text: str
    """The API server's message."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed state."""

    ids: NodeIds = SAME_IDS
    """The node ids by ordinal."""
    kafka_ids: frozenset[int] = frozenset()
    """The node ids of the controllers of Kafka that are taken over."""
    size: int | None = None
    """The number of replicas of the StatefulSet, None if it does not exist."""
    is_template_pending: bool = False
    """Whether the StatefulSet's controller has not observed its last change yet."""
    stale: tuple[str, ...] = ()
    """Objects that differ from the desired ones."""
    nodes: tuple[ObservedNode, ...] = ()
    view: LeaderView | None = None
    """The quorum as its leader describes it, None without a leader."""
    known_voters: frozenset[ReplicaKey] = frozenset()
    """The last known voter set, for use without a leader."""
    record: BootstrapRecord | None = None
    is_marked: bool = False
    known_cluster_id: str = ""
    """The cluster id in the resource's status."""
    inherited: frozenset[int] = frozenset()
    """Ordinals whose volumes are older than the Quorum."""
    volumes: frozenset[int] = frozenset()
    """Ordinals that have a volume claim."""
    fenced: frozenset[int] = frozenset()
    """The ordinals of the pods that the template fences when they start."""
    claims: tuple[ObservedClaim, ...] = ()
    """The claims that are not being deleted."""
    conflicts: tuple[str, ...] = ()
    """Messages about foreign objects with names of the Quorum's objects."""
    foreign_volumes: frozenset[int] = frozenset()
    """Ordinals whose volume claim is a foreign object."""
    forbidden: tuple[str, ...] = ()
    """Messages about images and Secrets in the spec that the Quorum may not use."""
    invalid_config: str = ""
    """Why a controller would reject the spec's settings, "" if it would not."""
    unusable_authority: str = ""
    """Why the Quorum's authority cannot sign certificates, "" if it can."""
    expired_certificates: tuple[str, ...] = ()
    """Messages about certificates of another issuer that are in use and have expired."""
    brokers_without_rights: tuple[str, ...] = ()
    """Principals of brokers that lack some of their rights (`broker_rights`)."""
    rejected_pods: tuple[RejectedPod, ...] = ()
    """Missing pods that the API server has rejected."""
    revision: str = ""
    """The revision of the template of new pods."""
    closed_window: str = ""
    """Why no live pod may be restarted for the template now, "" if one may."""
    keeps_volumes: bool = True
    """Whether volumes outlive the pods that a smaller size removes."""
    outlives_set: bool = True
    """Whether volumes outlive the StatefulSet."""
    made_class: str = ""
    """The StorageClass in the StatefulSet's claims, "" for the cluster's default."""
    failures: tuple[ActionFailure, ...] = ()
    """What failed lately and is not due for another attempt."""
    pending_balancers: tuple[str, ...] = ()
    """The names of Services for outside whose load balancers have no address yet."""
    verification: JobRun | None = None
    """The Job that verifies a backup, None without one and once the StatefulSet exists."""
    restore: JobRun | None = None
    """The Job that restores a backup, None without one and once the StatefulSet exists."""

    @property
    def voters(self) -> frozenset[ReplicaKey]:
        """The leader's voter set; the last known one without a leader."""
        return self.view.voters if self.view else self.known_voters

    @property
    def is_bootstrapped(self) -> bool:
        return self.record is not None and (self.record.adopted or self.is_marked)

    def node(self, ordinal: int) -> ObservedNode | None:
        return next((node for node in self.nodes if node.ordinal == ordinal), None)

    def node_of(self, voter: ReplicaKey) -> ObservedNode | None:
        """The node with a voter's id, regardless of its directory id."""
        return next((node for node in self.nodes if node.id == voter.id), None)

    def is_kafkas(self, voter: ReplicaKey) -> bool:
        """Whether a voter is a controller of Kafka that is taken over."""
        return voter.id in self.kafka_ids

    def ordinal_of(self, voter: ReplicaKey) -> int | None:
        """The ordinal of a voter's pod; None if no pod can have the voter's id."""
        return self.ids.ordinal(voter.id)

    def failure(self, target: str) -> str:
        """Why the last change of a target failed, "" if nothing forbids an attempt."""
        return next((each.text for each in self.failures if each.target == target), "")

    def is_undone(self, target: str) -> bool:
        """Whether the last change of a target succeeded, but did not last."""
        return any(each.is_undone for each in self.failures if each.target == target)

    def failure_of(self, action: Action) -> str:
        """Why the last attempt of an action failed, "" if an attempt is due."""
        return next(filter(None, map(self.failure, targets(action))), "")


# --- actions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateStatefulSet:
    replicas: int


@dataclass(frozen=True, slots=True)
class RecreateStatefulSet:
    """Delete the StatefulSet without its pods, and create it with the spec's volume claims."""


@dataclass(frozen=True, slots=True)
class ApplyObjects:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateRecord:
    """Create the bootstrap record."""

    cluster_id: str | None = None
    """The id of the cluster that was found (`adopted`), or the spec's; None for a new one."""
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class VerifyBackup:
    """Create the Job that verifies the backup with which the Quorum begins."""


@dataclass(frozen=True, slots=True)
class StartRestore:
    """Create the first voter's volume claim, and the Job that restores the backup to it."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class MarkBootstrapped:
    cluster_id: str


@dataclass(frozen=True, slots=True)
class FormatNode:
    ordinal: int
    uid: str
    cluster_id: str
    standalone: bool = False


@dataclass(frozen=True, slots=True)
class AddVoter:
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    target: ReplicaKey


@dataclass(frozen=True, slots=True)
class Resize:
    """Resize the StatefulSet."""

    replicas: int
    before: int
    """The observed size on which the decision rests."""


@dataclass(frozen=True, slots=True)
class RestartPod:
    ordinal: int
    uid: str


@dataclass(frozen=True, slots=True)
class ExpandVolume:
    """Let the volume claim of an ordinal request a size."""

    ordinal: int
    size: str


@dataclass(frozen=True, slots=True)
class SetFenced:
    """Let the template fence the pods of these ordinals when they start, and no others."""

    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GrantBrokers:
    """Create the ACLs that give the principals the rights of brokers."""

    principals: tuple[str, ...]


Action = (
    CreateStatefulSet
    | RecreateStatefulSet
    | ApplyObjects
    | CreateRecord
    | StartRestore
    | VerifyBackup
    | MarkBootstrapped
    | FormatNode
    | AddVoter
    | RemoveVoter
    | TransferLeadership
    | Resize
    | RestartPod
    | ExpandVolume
    | SetFenced
    | GrantBrokers
)


def targets(action: Action) -> tuple[str, ...]:
    """The objects that an action changes. Failed attempts are counted and delayed for each."""
    match action:
        case ApplyObjects(names):
            return names
        case FormatNode(ordinal) | RestartPod(ordinal) | ExpandVolume(ordinal):
            return (f"{type(action).__name__} {ordinal}",)
        case AddVoter(voter) | RemoveVoter(voter) | TransferLeadership(voter):
            return (f"{type(action).__name__} {voter}",)
        case Resize(replicas):
            return (f"Resize {replicas}",)  # a size that is refused must not delay another one
        case _:
            return (type(action).__name__,)


class Reason(StrEnum):
    """Why the plan holds something back; also the reasons of conditions and Events."""

    DELETED = "Deleted"
    PAUSED = "Paused"
    INVALID_SPEC = "InvalidSpec"
    DONE = "AsWanted"
    NOT_ALLOWED = "NotAllowed"
    APPLY_REJECTED = "ApplyRejected"
    APPLY_UNDONE = "ApplyUndone"
    ACTION_FAILED = "ActionFailed"
    AUTHORITY_UNUSABLE = "AuthorityUnusable"
    CERTIFICATE_EXPIRED = "CertificateExpired"
    POD_FAILING = "PodFailing"
    CONFLICT = "Conflict"
    MAJORITY_DISKS_LOST = "MajorityDisksLost"
    CLUSTER_ID_MISMATCH = "ClusterIdMismatch"
    WRONG_ENSEMBLE = "WrongEnsemble"
    BOOTSTRAP_RECORD_LOST = "BootstrapRecordLost"
    RECOVERY_FAILED = "RecoveryFailed"
    RECOVERING = "Recovering"
    WAITING_FOR_PODS = "WaitingForPods"
    WAITING_FOR_LEADER = "WaitingForLeader"
    CHANGE_UNCOMMITTED = "MembershipChangeUncommitted"
    REMOVE_BLOCKED = "RemoveBlocked"
    DISK_REPLACEMENT_MANUAL = "DiskReplacementManual"
    ADD_BLOCKED = "AddBlocked"
    CATCHING_UP = "CatchingUp"
    SCALE_DOWN_BLOCKED = "ScaleDownBlocked"
    ROLLOUT_BLOCKED = "RolloutBlocked"
    FOREIGN_VOTER = "ForeignVoter"
    TAKEOVER_BLOCKED = "TakeoverBlocked"
    ROLLED_BACK = "TakeoverRolledBack"
    APPROVAL_REQUIRED = "ApprovalRequired"
    WINDOW_CLOSED = "MaintenanceWindowClosed"
    FENCED = "Fenced"
    FENCING_REFUSED = "FencingRefused"
    EXPANDING = "VolumeExpanding"
    EXPANSION_REFUSED = "VolumeExpansionRefused"
    STORAGE_CLASS_REFUSED = "StorageClassRefused"
    VOLUMES_DIFFER = "VolumesDiffer"
    VOLUMES_MOVING = "VolumesMoving"
    VOLUME_MOVE_BLOCKED = "VolumeMoveBlocked"
    LOAD_BALANCER_PENDING = "LoadBalancerPending"
    HIBERNATED = "Hibernated"
    HIBERNATION_BLOCKED = "HibernationBlocked"


@dataclass(frozen=True, slots=True)
class PlanRefusal:
    """Something that the plan holds back, and why."""

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """At most one action, its description, and what the plan holds back."""

    action: Action | None = None
    text: str = ""
    refusals: tuple[PlanRefusal, ...] = ()

    @property
    def is_done(self) -> bool:
        return self.action is None and not self.refusals

    def refuses(self, reason: Reason) -> bool:
        return any(refusal.reason is reason for refusal in self.refusals)
