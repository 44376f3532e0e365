"""Requests about the cluster, and those of controllers and brokers (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.common.identifiers import ZERO_UUID
from quorate.metadata.requests.common import (
    NO_BROKER,
    NO_EPOCH,
    Read,
    Request,
    RequestOutcome,
    Response,
)

# --- the cluster ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of one feature."""

    name: str
    level: int
    """The new level; 0 removes the feature."""
    upgrade_type: int = 1
    """The type of the change: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""


@dataclass(frozen=True, slots=True)
class UpdateFeatures(Request):
    """Update all of the features or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
    """Whether to validate the request without changing anything."""


@dataclass(frozen=True, slots=True)
class UpdateFeaturesResponse(Response, RequestOutcome):
    """`error` is that of the first rejected update."""


@dataclass(frozen=True, slots=True)
class DescribeCluster(Read):
    """Describe brokers, controllers and features."""

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
    cordoned_log_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerDescription:
    """A registered controller (KIP-919)."""

    id: int
    incarnation_id: str
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, VersionRange], ...] = ()


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """A feature: the levels that this release supports, and the finalized level (0 for none)."""

    name: str
    supported: VersionRange
    finalized_level: int


@dataclass(frozen=True, slots=True)
class DescribeClusterResponse(Response):
    """The cluster, sorted by id or name."""

    brokers: tuple[BrokerDescription, ...]
    controllers: tuple[ControllerDescription, ...]
    features: tuple[FeatureDescription, ...]
    features_epoch: int = -1
    """The offset of the image with these features."""
    topic_count: int = 0
    partition_count: int = 0


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Request):
    """A broker requests a block of producer ids."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse(Response, RequestOutcome):
    """The broker's block: `count` ids from `start` on."""

    start: int = -1
    count: int = 0


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Request):
    """Remove the registration of a broker."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class UnregisterBrokerResponse(Response, RequestOutcome):
    """BROKER_ID_NOT_REGISTERED if the broker is not registered."""


# --- requests of controllers ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControllerFeature:
    """The levels of a feature that a controller supports."""

    name: str
    supported: VersionRange


@dataclass(frozen=True, slots=True)
class RegisterController(Request):
    """A controller process registers, once (KIP-919, ControllerRegistration)."""

    controller_id: int
    incarnation_id: str
    """An id that is generated when the process starts."""
    endpoints: tuple[Endpoint, ...]
    features: tuple[ControllerFeature, ...]
    security_protocols: tuple[int, ...] = ()
    """The protocols of the endpoints, as in RegisterBroker."""
    zk_migration_ready: bool = False
    """Whether the migration from ZooKeeper is enabled on the controller (KIP-866)."""


@dataclass(frozen=True, slots=True)
class RegisterControllerResponse(Response, RequestOutcome):
    """UNSUPPORTED_VERSION if metadata.version does not support controller registration."""


# --- requests of brokers --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerFeature:
    """The levels of a feature that a broker supports."""

    name: str
    supported: VersionRange


@dataclass(frozen=True, slots=True)
class RegisterBroker(Request):
    """A broker process registers."""

    broker_id: int
    incarnation_id: str
    """An id that is generated when the process starts."""
    endpoints: tuple[Endpoint, ...]
    cluster_id: str = ""
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    security_protocols: tuple[int, ...] = ()
    """One protocol per endpoint (0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL), or empty if all
    are PLAINTEXT.
    """
    previous_epoch: int = NO_EPOCH
    """The broker's last epoch, read from disk, after a clean shutdown, else -1 (KIP-966)."""
    is_migrating_zk_broker: bool = False
    """Whether the broker runs in ZooKeeper mode and takes part in the migration (KIP-866)."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse(Response, RequestOutcome):
    """The response to RegisterBroker."""

    broker_epoch: int = NO_EPOCH
    """The epoch that the broker must send in every later request."""


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(Request):
    """A broker's heartbeat."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """The last offset that the broker has replayed."""
    want_fence: bool = False
    want_shutdown: bool = False
    offline_log_dirs: tuple[str, ...] = ()
    cordoned_log_dirs: tuple[str, ...] | None = None
    """The directories that take no new replicas, None for no change (KIP-1066)."""


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse(Response, RequestOutcome):
    """The response to BrokerHeartbeat."""

    caught_up: bool = False
    """Whether the broker has replayed its registration."""
    is_fenced: bool = True
    in_controlled_shutdown: bool = False
    should_shut_down: bool = False
    """Whether the broker may stop."""


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """A replica on the sending broker, and its directory."""

    directory_id: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirs(Request):
    """A broker reports the directories of its replicas (KIP-858)."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[ReplicaAssignment, ...]


@dataclass(frozen=True, slots=True)
class AssignedReplica:
    """The result of a ReplicaAssignment."""

    directory_id: str
    topic_id: str
    partition: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsResponse(Response, RequestOutcome):
    """Results in the order of the request. With an `error`, the whole request was rejected."""

    replicas: tuple[AssignedReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A broker of a proposed ISR, and its epoch when it fetched, -1 if unknown (KIP-903)."""

    id: int
    broker_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionProposal:
    """The ISR that a leader proposes, based on these epochs."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class TopicProposals:
    """The proposals for one topic, identified by id from version 2 on, by name before."""

    partitions: tuple[PartitionProposal, ...]
    topic_id: str = ZERO_UUID
    topic_name: str = ""


@dataclass(frozen=True, slots=True)
class AlterPartition(Request):
    """A broker proposes ISRs for partitions that it leads."""

    broker_id: int
    broker_epoch: int
    topics: tuple[TopicProposals, ...]
    version: int = 3
    """The version of the request, 0 to 3: 1 adds leader recovery (KIP-704), 2 topic ids and
    KIP-841's errors, 3 broker epochs (KIP-903).
    """


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The result of a proposal. With NONE, the fields are the resulting state of the partition."""

    partition: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = NO_BROKER
    leader_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = NO_EPOCH
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class AlteredTopic:
    """The results for one topic, identified by id or name as in the request."""

    partitions: tuple[AlteredPartition, ...]
    topic_id: str = ZERO_UUID
    topic_name: str = ""


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse(Response, RequestOutcome):
    """With an `error` such as STALE_BROKER_EPOCH, the whole request was rejected."""

    topics: tuple[AlteredTopic, ...] = ()
