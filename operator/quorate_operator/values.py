"""What the plan speaks of: what is wanted, what is there, what can be done, and why not.

Immutable values without behaviour beyond simple questions. Directory ids are Kafka's text form;
pods and volumes go by their ordinal, voters by their node id (`naming.NodeIds`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quorate.raft.types import ReplicaKey

from quorate_operator.naming import SAME_IDS, NodeIds

# --- what is wanted and what is there -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Desired:
    """replicas: how many voters, those of the ordinals below. cluster_id: of which cluster they
    must be, "" for any. invalid: why the resource cannot be obeyed.
    """

    replicas: int
    cluster_id: str = ""
    paused: bool = False
    deleted: bool = False
    replace_disks: bool = True
    invalid: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """The pod of an ordinal and what its process says of itself.

    id: its node id. answers: its NodeStatus came; directory_id and cluster_id are None and "" where
    it is not formatted. ready: as the kubelet sees it. problem: why it does not run, for people.
    wrong_ensemble: what it ended with when it found another cluster in ZooKeeper; "" if it did not.
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
    wrong_ensemble: str = ""

    @property
    def is_formatted(self) -> bool:
        return self.directory_id is not None

    @property
    def is_empty(self) -> bool:
        """Whether it certainly has no storage of a replica."""
        return self.answers and not self.is_formatted

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The quorum as its leader describes it. caught_up: the replicas, voters or observers, that
    held all that the leader held a moment ago.
    """

    leader: ReplicaKey
    epoch: int
    voters: frozenset[ReplicaKey]
    committed: frozenset[ReplicaKey]
    caught_up: frozenset[ReplicaKey]


@dataclass(frozen=True, slots=True)
class Record:
    """The bootstrap record. adopted: disks of that cluster were there before the Quorum."""

    cluster_id: str
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """What is there.

    ids: which node each pod is. size: the replicas of the StatefulSet, None if it does not exist.
    stale: objects that are not as they should be. view: None without a leader; known_voters is then
    the last voter set that anybody knows of. known_cluster_id: what the resource's status says.
    inherited: ordinals whose volumes are older than the Quorum. volumes: ordinals that have a
    volume. conflicts: what has a name of the Quorum's objects and is not its own, for people.
    foreign_volumes: ordinals whose volume claim is among these. forbidden: what the spec names and
    the Quorum may not use, for people. brokers_without_rights: principals of brokers that lack the
    cluster action.
    """

    ids: NodeIds = SAME_IDS
    size: int | None = None
    stale: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    view: LeaderView | None = None
    known_voters: frozenset[ReplicaKey] = frozenset()
    record: Record | None = None
    is_marked: bool = False
    known_cluster_id: str = ""
    inherited: frozenset[int] = frozenset()
    volumes: frozenset[int] = frozenset()
    conflicts: tuple[str, ...] = ()
    foreign_volumes: frozenset[int] = frozenset()
    forbidden: tuple[str, ...] = ()
    brokers_without_rights: tuple[str, ...] = ()

    @property
    def voters(self) -> frozenset[ReplicaKey]:
        """The voter set in force, or the last that is known."""
        return self.view.voters if self.view else self.known_voters

    @property
    def is_bootstrapped(self) -> bool:
        return self.record is not None and (self.record.adopted or self.is_marked)

    def node(self, ordinal: int) -> Node | None:
        return next((node for node in self.nodes if node.ordinal == ordinal), None)

    def node_of(self, voter: ReplicaKey) -> Node | None:
        """The node with a voter's id, whatever its disk."""
        return next((node for node in self.nodes if node.id == voter.id), None)

    def ordinal_of(self, voter: ReplicaKey) -> int | None:
        """The ordinal of a voter's pod; None if no pod can be it."""
        return self.ids.ordinal(voter.id)


# --- what can be done -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateStatefulSet:
    replicas: int


@dataclass(frozen=True, slots=True)
class ApplyObjects:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateRecord:
    """cluster_id: that of the disks that were found (adopted), or the one that was asked for; None
    for a new one.
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
    """before: the size that this decision rests on."""

    replicas: int
    before: int


@dataclass(frozen=True, slots=True)
class RestartPod:
    ordinal: int
    uid: str


@dataclass(frozen=True, slots=True)
class GrantBrokers:
    """ACLs of the cluster action."""

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


class Reason(StrEnum):
    """Why nothing is done, or something is not; the reasons of conditions and Events."""

    DELETED = "Deleted"
    PAUSED = "Paused"
    INVALID_SPEC = "InvalidSpec"
    DONE = "AsWanted"
    NOT_ALLOWED = "NotAllowed"
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
class Refusal:
    """Something that is not done now, and why."""

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """At most one action, what it is for, and what is not done meanwhile."""

    action: Action | None = None
    text: str = ""
    refusals: tuple[Refusal, ...] = ()

    @property
    def is_done(self) -> bool:
        return self.action is None and not self.refusals

    def refuses(self, reason: Reason) -> bool:
        return any(refusal.reason is reason for refusal in self.refusals)
