"""Requests about the cluster, and the brokers' own (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.metadata.requests.common import NO_BROKER, NO_EPOCH, Read, Request, Response
from quorate.raft.errors import ErrorCode
from quorate.raft.types import ZERO_UUID, Endpoint, VersionRange

# --- the cluster ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """upgrade_type: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade. level 0 removes a feature."""

    name: str
    level: int
    upgrade_type: int = 1


@dataclass(frozen=True, slots=True)
class UpdateFeatures(Request):
    """validate_only: check, and change nothing. All of it or nothing."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class UpdateFeaturesResponse(Response):
    """`error` is that of the first update that cannot be."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DescribeCluster(Read):
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
class DescribeClusterResponse(Response):
    """By rising id and name. features_epoch: the offset that they are as of."""

    brokers: tuple[BrokerDescription, ...]
    controllers: tuple[ControllerDescription, ...]
    features: tuple[FeatureDescription, ...]
    features_epoch: int = -1
    topic_count: int = 0
    partition_count: int = 0


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Request):
    """A broker wants a block of producer ids."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse(Response):
    """`count` ids from `start` on are the broker's."""

    start: int = -1
    count: int = 0
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Request):
    """Forget a broker."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class UnregisterBrokerResponse(Response):
    """BROKER_ID_NOT_REGISTERED if there is none."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# --- the controllers' own -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControllerFeature:
    """The levels of a feature that a controller supports."""

    name: str
    supported: VersionRange


@dataclass(frozen=True, slots=True)
class RegisterController(Request):
    """A controller's process registers, once (KIP-919, ControllerRegistration).

    incarnation_id: of this process, made when it starts. security_protocols: as in RegisterBroker.
    zk_migration_ready: it has the setting of the migration from ZooKeeper (KIP-866).
    """

    controller_id: int
    incarnation_id: str
    endpoints: tuple[Endpoint, ...]
    features: tuple[ControllerFeature, ...]
    security_protocols: tuple[int, ...] = ()
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class RegisterControllerResponse(Response):
    """UNSUPPORTED_VERSION where metadata.version has no registrations of controllers."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


# --- the brokers' own -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerFeature:
    """The levels of a feature that a broker supports."""

    name: str
    supported: VersionRange


@dataclass(frozen=True, slots=True)
class RegisterBroker(Request):
    """A broker's process registers. Endpoints are PLAINTEXT unless `security_protocols` runs
    parallel (0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL).

    incarnation_id: of this process, made when it starts. previous_epoch: what the disk says of the
    broker's last epoch after a clean shutdown, -1 otherwise (KIP-966). is_migrating_zk_broker: it
    runs in ZooKeeper mode and takes part in the migration (KIP-866).
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
    is_migrating_zk_broker: bool = False


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse(Response):
    """broker_epoch: to name in every later request."""

    broker_epoch: int = NO_EPOCH
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(Request):
    """metadata_offset: the last offset that the broker has replayed."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False
    offline_log_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse(Response):
    """caught_up: with its own registration. should_shut_down: it may stop now."""

    caught_up: bool = False
    is_fenced: bool = True
    in_controlled_shutdown: bool = False
    should_shut_down: bool = False
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """A replica of the sender, and the directory that it lies in."""

    directory_id: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirs(Request):
    """A broker says where its replicas lie (KIP-858)."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[ReplicaAssignment, ...]


@dataclass(frozen=True, slots=True)
class AssignedReplica:
    """What became of a ReplicaAssignment."""

    directory_id: str
    topic_id: str
    partition: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsResponse(Response):
    """In the order of the request; with an `error` nothing was done."""

    replicas: tuple[AssignedReplica, ...] = ()
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
class AlterPartition(Request):
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
class AlterPartitionResponse(Response):
    """STALE_BROKER_EPOCH and the like stand in `error`: then nothing was done."""

    topics: tuple[AlteredTopic, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
