"""The plan's values: the desired and the observed state, the actions, and reasons to hold back.

The values are immutable and have no behaviour beyond simple queries. Directory ids have Kafka's
text form. Ordinals identify pods and volumes, node ids identify voters (`naming.NodeIds`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quorate.raft.types import ReplicaKey

from quorate_operator.naming import SAME_IDS, NodeIds

# --- the desired and the observed state -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state.

    replicas: the number of voters; their ordinals are 0 to replicas - 1. cluster_id: the cluster
    that they must belong to, "" for any. invalid: why the spec as a whole is invalid, "" if it is
    valid. invalid_template: why no pods may be made from it, "" if they may.
    """

    replicas: int
    cluster_id: str = ""
    paused: bool = False
    deleted: bool = False
    replace_disks: bool = True
    invalid: str = ""
    invalid_template: str = ""


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """The pod of an ordinal, and the state that its process reports.

    id: its node id. answers: it returned a NodeStatus; directory_id and cluster_id are None and ""
    if it is not formatted. ready: as the kubelet sees it. problem: why it does not run, for people.
    is_failing: the problem does not end by waiting, such as an image that cannot be pulled.
    wrong_ensemble: its last line if it exited because ZooKeeper holds another cluster, else "".
    """

    ordinal: int
    id: int
    uid: str = ""
    answers: bool = False
    directory_id: str | None = None
    cluster_id: str = ""
    ready: bool = False
    outdated: bool = False
    terminating: bool = False
    problem: str = ""
    is_failing: bool = False
    wrong_ensemble: str = ""

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
class LeaderView:
    """The quorum as its leader describes it.

    caught_up: the voters and observers that recently reached the leader's log end offset.
    """

    leader: ReplicaKey
    epoch: int
    voters: frozenset[ReplicaKey]
    committed: frozenset[ReplicaKey]
    caught_up: frozenset[ReplicaKey]


@dataclass(frozen=True, slots=True)
class BootstrapRecord:
    """The bootstrap record. adopted: disks of that cluster existed before the record."""

    cluster_id: str
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class ActionFailure:
    """The last attempt to change something failed, and it is too early for the next one.

    target: one of the `targets` of the action. text: the error.
    """

    target: str
    text: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed state.

    ids: maps ordinals to node ids. size: the replicas of the StatefulSet, None if it does not
    exist. is_template_pending: its controller has not observed its last change yet. stale: objects
    that differ from the desired ones. view: None without a leader;
    known_voters is then the last known voter set. known_cluster_id: the cluster id in the
    resource's status. inherited: ordinals whose volumes are older than the Quorum. volumes:
    ordinals that have a volume. conflicts: messages about foreign objects with names of the
    Quorum's objects. foreign_volumes: ordinals whose volume claim is such an object. forbidden:
    messages about images and Secrets in the spec that the Quorum may not use. unusable_authority:
    why the Quorum's authority cannot sign certificates, "" if it can. brokers_without_rights:
    principals of brokers that lack the cluster action. failures: what failed lately and is not due
    for another attempt.
    """

    ids: NodeIds = SAME_IDS
    size: int | None = None
    is_template_pending: bool = False
    stale: tuple[str, ...] = ()
    nodes: tuple[ObservedNode, ...] = ()
    view: LeaderView | None = None
    known_voters: frozenset[ReplicaKey] = frozenset()
    record: BootstrapRecord | None = None
    is_marked: bool = False
    known_cluster_id: str = ""
    inherited: frozenset[int] = frozenset()
    volumes: frozenset[int] = frozenset()
    conflicts: tuple[str, ...] = ()
    foreign_volumes: frozenset[int] = frozenset()
    forbidden: tuple[str, ...] = ()
    unusable_authority: str = ""
    brokers_without_rights: tuple[str, ...] = ()
    failures: tuple[ActionFailure, ...] = ()

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

    def ordinal_of(self, voter: ReplicaKey) -> int | None:
        """The ordinal of a voter's pod; None if no pod can have the voter's id."""
        return self.ids.ordinal(voter.id)

    def failure(self, target: str) -> str:
        """Why the last change of a target failed, "" if nothing forbids an attempt."""
        return next((each.text for each in self.failures if each.target == target), "")


# --- actions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateStatefulSet:
    replicas: int


@dataclass(frozen=True, slots=True)
class ApplyObjects:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateRecord:
    """Create the bootstrap record.

    cluster_id: the id of the disks that were found (adopted), or the spec's; None for a new one.
    """

    cluster_id: str | None = None
    adopted: bool = False


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
    """Resize the StatefulSet. before: the observed size on which the decision rests."""

    replicas: int
    before: int


@dataclass(frozen=True, slots=True)
class RestartPod:
    ordinal: int
    uid: str


@dataclass(frozen=True, slots=True)
class GrantBrokers:
    """Create the ACLs that allow the principals the cluster action."""

    principals: tuple[str, ...]


Action = (
    CreateStatefulSet
    | ApplyObjects
    | CreateRecord
    | MarkBootstrapped
    | FormatNode
    | AddVoter
    | RemoveVoter
    | TransferLeadership
    | Resize
    | RestartPod
    | GrantBrokers
)


def targets(action: Action) -> tuple[str, ...]:
    """What an action changes. Attempts that fail are counted, and delayed, for each of these."""
    match action:
        case ApplyObjects(names):
            return names
        case FormatNode(ordinal) | RestartPod(ordinal):
            return (f"{type(action).__name__} {ordinal}",)
        case AddVoter(voter) | RemoveVoter(voter) | TransferLeadership(voter):
            return (f"{type(action).__name__} {voter}",)
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
    ACTION_FAILED = "ActionFailed"
    AUTHORITY_UNUSABLE = "AuthorityUnusable"
    POD_FAILING = "PodFailing"
    CONFLICT = "Conflict"
    MAJORITY_DISKS_LOST = "MajorityDisksLost"
    CLUSTER_ID_MISMATCH = "ClusterIdMismatch"
    WRONG_ENSEMBLE = "WrongEnsemble"
    BOOTSTRAP_RECORD_LOST = "BootstrapRecordLost"
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
