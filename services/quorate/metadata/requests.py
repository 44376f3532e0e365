"""What is asked of the metadata, and what is answered, as frozen values.

Rules:
1. A request that changes something is a `Request`: the active controller handles it
   (`controller.MetadataController`). A `Read` is answered from a committed image
   (`describe.answer`). Each has one response class.
2. Errors are values: an `Outcome` per part, and an `error` on the whole response where Kafka has
   one. A message is English text for people, empty if there is nothing to add.
3. Topic ids, directory ids and incarnation ids are UUIDs in Kafka's text form; `ZERO_UUID` is none.
4. Kafka's numbers stay numbers where Kafka's wire has them: resource types, operations, mechanisms
   (`configs`, `acls`, `scram` name them).

Source: the messages of KIP-631, KIP-497, KIP-841, KIP-903 (lifecycle), KIP-4, KIP-455, KIP-460,
KIP-546, KIP-554, KIP-584 and KIP-966 (administration).
"""

from __future__ import annotations

from dataclasses import dataclass

from quorate.raft.errors import ErrorCode
from quorate.raft.types import ZERO_UUID, Endpoint, VersionRange

NO_BROKER = -1
NO_EPOCH = -1
DEFAULT_COUNT = -1
"""For partitions and replication factor: the cluster's default."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one part of a request ended. `name` is what it was about, for people and programs."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# --- topics ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Partitions and replication factor, or `assignments`: the replicas of partition 0, 1, ….

    configs: (name, value).
    """

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: tuple[tuple[int, ...], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """validate_only: check, and change nothing."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What became of a NewTopic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: str = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    """One part for each topic, in the order of the request."""

    topics: tuple[CreatedTopic, ...]


@dataclass(frozen=True, slots=True)
class TopicRef:
    """A topic by its name, or by its id where `name` is empty."""

    name: str = ""
    topic_id: str = ZERO_UUID


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """By name or id."""

    topics: tuple[TopicRef, ...]


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """What became of a TopicRef."""

    name: str
    topic_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    """One part for each topic, in the order of the request."""

    topics: tuple[DeletedTopic, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Let the topic have `count` partitions in all; `assignments` of the new ones, or none."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """validate_only: check, and change nothing."""

    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse:
    """One part for each topic."""

    topics: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class DescribeTopics:
    """Of these topics, of all if `topics` is None.

    cursor: begin at this (topic name, partition); limit: partitions in the answer at most, 0 for
    all.
    """

    topics: tuple[TopicRef, ...] | None = None
    cursor: tuple[str, int] | None = None
    limit: int = 0


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as the metadata log has it. leader: -1 for none."""

    index: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, its configuration as set (not defaults), and its partitions by rising index."""

    name: str
    topic_id: str = ZERO_UUID
    partitions: tuple[PartitionDescription, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DescribeTopicsResponse:
    """By rising name. next_cursor: ask on from there, None if this is all."""

    topics: tuple[TopicDescription, ...]
    next_cursor: tuple[str, int] | None = None


# --- configuration --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """type: 2 topic, 4 broker, 16 client metrics, 32 group (`configs.ResourceType`). An empty name
    of a broker is the default of all brokers.
    """

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class ConfigOp:
    """operation: 0 set, 1 delete, 2 append, 3 subtract (to a list)."""

    name: str
    value: str | None
    operation: int = 0


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What to change of one resource."""

    resource: ConfigResource
    ops: tuple[ConfigOp, ...]


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs:
    """validate_only: check, and change nothing."""

    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigOutcome:
    """How the change of a resource ended."""

    resource: ConfigResource
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterConfigsResponse:
    """One part for each resource."""

    resources: tuple[ConfigOutcome, ...]


@dataclass(frozen=True, slots=True)
class DescribeConfigs:
    """Of these resources; of every resource of `all_of_type` that has any if `resources` is empty.

    names: only these configs, all if None. with_defaults: also what is not set.
    """

    resources: tuple[ConfigResource, ...] = ()
    all_of_type: int = 0
    names: tuple[str, ...] | None = None
    with_defaults: bool = False


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """source: Kafka's DescribeConfigs source (1 topic, 2 broker, 3 default broker, 5 default).

    A sensitive value is told as None.
    """

    name: str
    value: str | None
    source: int
    is_sensitive: bool = False
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """The configs of a resource by rising name."""

    resource: ConfigResource
    configs: tuple[ConfigValue, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    """One part for each resource."""

    resources: tuple[ResourceConfigs, ...]


# --- quotas and credentials -----------------------------------------------------------------------

QuotaEntityKey = tuple[tuple[str, str | None], ...]
"""(type, name) by rising type; a name of None is the type's default. Types: user, client-id, ip."""


@dataclass(frozen=True, slots=True)
class QuotaOp:
    """value None removes it."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What to change for one entity."""

    entity: QuotaEntityKey
    ops: tuple[QuotaOp, ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """validate_only: check, and change nothing."""

    changes: tuple[QuotaChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class QuotaOutcome:
    """How the change for one entity ended."""

    entity: QuotaEntityKey
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterClientQuotasResponse:
    """One part for each entity."""

    entries: tuple[QuotaOutcome, ...]


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """match: 0 exactly `name`, 1 the type's default, 2 any name."""

    entity_type: str
    match: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeClientQuotas:
    """Entities that have each of these parts, and no other part if `strict`; all without any."""

    filters: tuple[QuotaFilter, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasResponse:
    """(entity, ((key, value), …)) by rising entity."""

    entries: tuple[tuple[QuotaEntityKey, tuple[tuple[str, float], ...]], ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512. salted_password: the client salted it."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A user's credential to remove."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentials:
    """A user may appear once for each mechanism."""

    upsertions: tuple[ScramUpsertion, ...] = ()
    deletions: tuple[ScramDeletion, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterUserScramCredentialsResponse:
    """One part for each user."""

    users: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentials:
    """Of these users, of all if None."""

    users: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class UserScramCredentials:
    """credentials: (mechanism, iterations)."""

    name: str
    credentials: tuple[tuple[int, int], ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DescribeUserScramCredentialsResponse:
    """By rising user."""

    users: tuple[UserScramCredentials, ...]


# --- access control -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acl:
    """Who may do what. The numbers are Kafka's codes (`acls` names them). host "*" is any host."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs: 1 of a number is ANY, None of a text is any; pattern_type 2 is MATCH: what would
    apply to a resource of that name.
    """

    resource_type: int = 1
    resource_name: str | None = None
    pattern_type: int = 1
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission_type: int = 1


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """One that exists already is no error and changes nothing."""

    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class CreateAclsResponse:
    """One part for each ACL."""

    results: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Whatever matches one of the filters."""

    filters: tuple[AclFilter, ...]


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """What one filter removed."""

    acls: tuple[Acl, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeleteAclsResponse:
    """One part for each filter."""

    results: tuple[DeletedAcls, ...]


@dataclass(frozen=True, slots=True)
class DescribeAcls:
    """What matches."""

    filter: AclFilter = AclFilter()


@dataclass(frozen=True, slots=True)
class DescribeAclsResponse:
    """By resource, then by principal."""

    acls: tuple[Acl, ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# --- partitions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """election_type: 0 preferred, 1 unclean. partitions: (topic name, index), all if None."""

    election_type: int
    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """How it ended for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    """For all partitions: only those where something was to be done."""

    partitions: tuple[PartitionOutcome, ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas that the partition is to have; None cancels a reassignment under way."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignments:
    """KIP-455; allow_replication_factor_change: KIP-860."""

    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsResponse:
    """One part for each partition."""

    partitions: tuple[PartitionOutcome, ...]
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ListPartitionReassignments:
    """Of these (topic name, index), of all if None."""

    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A reassignment under way."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsResponse:
    """By rising topic and partition."""

    reassignments: tuple[OngoingReassignment, ...]


# --- the cluster ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """upgrade_type: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade. level 0 removes a feature."""

    name: str
    level: int
    upgrade_type: int = 1


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """validate_only: check, and change nothing. All of it or nothing."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class UpdateFeaturesResponse:
    """`error` is that of the first update that cannot be."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DescribeCluster:
    """Brokers, controllers and features."""

    include_fenced: bool = True


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A registered broker."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    incarnation_id: str = ZERO_UUID
    log_dirs: tuple[str, ...] = ()
    features: tuple[tuple[str, VersionRange], ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerDescription:
    """A registered controller (KIP-919)."""

    id: int
    incarnation_id: str
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, VersionRange], ...] = ()


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """A feature: what this release supports, and what is finalized (0 for nothing)."""

    name: str
    supported: VersionRange
    finalized_level: int


@dataclass(frozen=True, slots=True)
class DescribeClusterResponse:
    """By rising id and name. features_epoch: the offset that they are as of."""

    brokers: tuple[BrokerDescription, ...]
    controllers: tuple[ControllerDescription, ...]
    features: tuple[FeatureDescription, ...]
    features_epoch: int = -1
    topic_count: int = 0
    partition_count: int = 0


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker wants a block of producer ids."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse:
    """`count` ids from `start` on are the broker's."""

    start: int = -1
    count: int = 0
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Forget a broker."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class UnregisterBrokerResponse:
    """BROKER_ID_NOT_REGISTERED if there is none."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# --- the brokers' own -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerFeature:
    """The levels of a feature that a broker supports."""

    name: str
    supported: VersionRange


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker's process registers. Endpoints are PLAINTEXT unless `security_protocols` runs
    parallel (0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL).

    incarnation_id: of this process, made when it starts. previous_epoch: what the disk says of the
    broker's last epoch after a clean shutdown, -1 otherwise (KIP-966).
    """

    broker_id: int
    incarnation_id: str
    endpoints: tuple[Endpoint, ...]
    cluster_id: str = ""
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    security_protocols: tuple[int, ...] = ()
    previous_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse:
    """broker_epoch: to name in every later request."""

    broker_epoch: int = NO_EPOCH
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat:
    """metadata_offset: the last offset that the broker has replayed."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False
    offline_log_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse:
    """caught_up: with its own registration. should_shut_down: it may stop now."""

    caught_up: bool = False
    is_fenced: bool = True
    in_controlled_shutdown: bool = False
    should_shut_down: bool = False
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A broker of a proposed ISR; the epoch it had when it fetched, -1 for unknown (KIP-903)."""

    id: int
    broker_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionProposal:
    """The ISR that a leader wants, based on these epochs."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class TopicProposals:
    """Of one topic: by id from version 2 on, by name before."""

    partitions: tuple[PartitionProposal, ...]
    topic_id: str = ZERO_UUID
    topic_name: str = ""


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """version 0 to 3: 1 leader recovery (KIP-704), 2 topic ids and KIP-841's errors, 3 KIP-903."""

    broker_id: int
    broker_epoch: int
    topics: tuple[TopicProposals, ...]
    version: int = 3


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """What was made of a proposal; with NONE the fields say what holds now."""

    partition: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = NO_BROKER
    leader_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = NO_EPOCH
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class AlteredTopic:
    """By id or name as it was asked."""

    partitions: tuple[AlteredPartition, ...]
    topic_id: str = ZERO_UUID
    topic_name: str = ""


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    """STALE_BROKER_EPOCH and the like stand in `error`: then nothing was done."""

    topics: tuple[AlteredTopic, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# --- all of them ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused:
    """The request as a whole was refused: no response of its own class can say so."""

    error: ErrorCode
    message: str = ""


Request = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | IncrementalAlterConfigs
    | AlterClientQuotas
    | AlterUserScramCredentials
    | CreateAcls
    | DeleteAcls
    | ElectLeaders
    | AlterPartitionReassignments
    | UpdateFeatures
    | AllocateProducerIds
    | UnregisterBroker
    | RegisterBroker
    | BrokerHeartbeat
    | AlterPartition
)

Read = (
    DescribeTopics
    | DescribeConfigs
    | DescribeClientQuotas
    | DescribeUserScramCredentials
    | DescribeAcls
    | DescribeCluster
    | ListPartitionReassignments
)

Response = (
    CreateTopicsResponse
    | DeleteTopicsResponse
    | CreatePartitionsResponse
    | AlterConfigsResponse
    | AlterClientQuotasResponse
    | AlterUserScramCredentialsResponse
    | CreateAclsResponse
    | DeleteAclsResponse
    | ElectLeadersResponse
    | AlterPartitionReassignmentsResponse
    | UpdateFeaturesResponse
    | AllocateProducerIdsResponse
    | UnregisterBrokerResponse
    | RegisterBrokerResponse
    | BrokerHeartbeatResponse
    | AlterPartitionResponse
    | DescribeTopicsResponse
    | DescribeConfigsResponse
    | DescribeClientQuotasResponse
    | DescribeUserScramCredentialsResponse
    | DescribeAclsResponse
    | DescribeClusterResponse
    | ListPartitionReassignmentsResponse
    | Refused
)
