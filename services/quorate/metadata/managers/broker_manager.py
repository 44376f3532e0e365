"""Brokers: registration, heartbeats, fencing, controlled shutdown and unregistration.

A broker is fenced, unfenced or in controlled shutdown. Each heartbeat may move it to another state:

    state        condition                                       result
    fenced       requests shutdown                               fenced again, may stop
                 requests unfencing, has replayed registration   unfenced
    unfenced     requests fencing                                fenced
                 requests shutdown, leads a partition            controlled shutdown
                 requests shutdown, leads nothing                fenced, may stop
    controlled   still leads a partition                         unchanged
    shutdown     every active broker has replayed its shutdown   fenced, may stop

Controlled shutdown and fencing remove the broker from every ISR and move its leaderships. The last
member of an ISR stays in it, and its partition is leaderless. Unfencing elects leaders for
leaderless partitions only. Controlled shutdown ends when the broker registers with a new
incarnation id.

A heartbeat also reports the directories that failed, and those that the broker has cordoned: new
replicas are not placed on a broker whose directories are all cordoned.

Source: KIP-631, KIP-841, KIP-858, KIP-866, KIP-966 (unclean restarts), KIP-1066; Kafka's
BrokerHeartbeatManager and ClusterControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorate.common.endpoints import PORT_MAX
from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION, LEVEL_MAX, METADATA_VERSION, VersionRange
from quorate.common.identifiers import NODE_ID_MAX, ZERO_UUID, is_uuid
from quorate.metadata.image.cluster import Broker
from quorate.metadata.limits import fits
from quorate.metadata.managers.controller_context import (
    RESERVED_DIRECTORIES,
    ControllerContext,
    RefusedError,
)
from quorate.metadata.managers.leadership import broker_joins, broker_leaves, broker_restarted
from quorate.metadata.managers.partition_change import Change
from quorate.metadata.metadata_version import (
    CORDONED_LOG_DIRS,
    DIRECTORIES,
    IN_CONTROLLED_SHUTDOWN,
    REGISTRATION_CHANGES,
    at_level,
)
from quorate.metadata.requests import (
    BrokerHeartbeat,
    BrokerHeartbeatResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    RegisterController,
    UnregisterBroker,
    UnregisterBrokerResponse,
)
from quorate.records.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisteredEndpoint,
    RegisteredFeature,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationState,
)
from quorate.records.metadata.nodes import FENCE, UNFENCE
from quorate.records.metadata.nodes import IN_CONTROLLED_SHUTDOWN as ENTERS_SHUTDOWN

# --- registration ---------------------------------------------------------------------------------


def register(
    context: ControllerContext, request: RegisterBroker, cluster_id: str, now_ms: int, offset: int
) -> tuple[list[MetadataRecord], RegisterBrokerResponse]:
    """Register a broker. A new incarnation's epoch is `offset`, that of the first record."""
    _check_registration(context, request, cluster_id, now_ms)
    existing = context.image.cluster.brokers.get(request.broker_id)
    is_same = existing is not None and existing.incarnation_id == request.incarnation_id
    epoch = existing.broker_epoch if existing is not None and is_same else offset
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=registered_endpoints(request),
        features=tuple(
            RegisteredFeature(feature.name, feature.supported.min, feature.supported.max)
            for feature in request.features
        ),
        rack=request.rack,
        is_migrating_zk_broker=request.is_migrating_zk_broker,
        fenced=existing.fenced if existing is not None and is_same else True,
        in_controlled_shutdown=(
            existing.in_controlled_shutdown if existing is not None and is_same else False
        ),
        log_dirs=request.log_dirs,
    )
    records: list[MetadataRecord] = []
    if not is_same:
        # A broker that was unregistered may have lost records, too.
        was_clean = existing is not None and request.previous_epoch == existing.broker_epoch
        records = broker_restarted(context, request.broker_id, was_clean=was_clean)
    return [*records, at_level(record, context.image.level)], RegisterBrokerResponse(epoch)


def registered_endpoints(
    request: RegisterBroker | RegisterController,
) -> tuple[RegisteredEndpoint, ...]:
    protocols = request.security_protocols or (0,) * len(request.endpoints)
    return tuple(
        RegisteredEndpoint(endpoint.name, endpoint.host, endpoint.port, protocol)
        for endpoint, protocol in zip(request.endpoints, protocols, strict=True)
    )


def _check_registration(
    context: ControllerContext, request: RegisterBroker, cluster_id: str, now_ms: int
) -> None:
    if cluster_id and request.cluster_id and request.cluster_id != cluster_id:
        raise RefusedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = context.image.cluster.brokers.get(request.broker_id)
    if (
        existing is not None
        and existing.incarnation_id != request.incarnation_id
        and not existing.in_controlled_shutdown
        and context.sessions.is_live(request.broker_id, existing.broker_epoch, now_ms)
    ):
        raise RefusedError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently "
            "restarted this should self-resolve once the heartbeat manager expires the broker's "
            "session.",
        )
    _check_mode(context, request)
    _check_directories(context, request)
    fault = _malformed(request)
    if fault:
        raise RefusedError(ErrorCode.INVALID_REGISTRATION, fault)
    _check_features(context, request)


def _check_mode(context: ControllerContext, request: RegisterBroker) -> None:
    """Check the mode of the broker against the migration from ZooKeeper (KIP-866).

    Brokers in ZooKeeper mode can register only during a migration. Others cannot register in
    PRE_MIGRATION, before the metadata has been copied.
    """
    features = context.image.features
    if request.is_migrating_zk_broker and not features.migration_is_under_way:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Controller does not support registering ZK brokers.",
        )
    is_before_copy = features.zk_migration == ZkMigrationState.PRE_MIGRATION
    if is_before_copy and not request.is_migrating_zk_broker:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Controller is in pre-migration mode and cannot register KRaft brokers until the "
            "metadata migration is complete.",
        )


def _malformed(request: RegisterBroker) -> str:
    """Why the request itself is invalid, empty if it is valid."""
    if not 0 <= request.broker_id <= NODE_ID_MAX:
        return f"Invalid broker id {request.broker_id}"
    if request.incarnation_id == ZERO_UUID or not is_uuid(request.incarnation_id):
        return "The incarnation id is not a UUID."
    if not request.endpoints:
        return "No endpoints specified in request"
    if not fits(request.rack):
        return "A name is longer than a record can hold."
    return malformed_node(request)


def malformed_node(request: RegisterBroker | RegisterController) -> str:
    """Why the endpoints or features of a registration are invalid, empty if they are valid."""
    names = [endpoint.name for endpoint in request.endpoints]
    if len(set(names)) < len(names):
        return "Duplicate listener name in request"
    if request.security_protocols and len(request.security_protocols) != len(names):
        return "The numbers of endpoints and security protocols differ."
    if not all(0 <= protocol <= 3 for protocol in request.security_protocols):
        return "Unknown security protocol"
    for endpoint in request.endpoints:
        if not 0 < endpoint.port <= PORT_MAX or not endpoint.name:
            return f"Invalid endpoint {endpoint}"
        if not fits(endpoint.name, endpoint.host):
            return "An endpoint is longer than a record can hold."
    if not fits(*(feature.name for feature in request.features)):
        return "A name is longer than a record can hold."
    for feature in request.features:
        if not 0 <= feature.supported.min <= feature.supported.max <= LEVEL_MAX:
            return f"Invalid versions of feature {feature.name}: {feature.supported}"
    return ""


def _check_directories(context: ControllerContext, request: RegisterBroker) -> None:
    """Require distinct directory ids that no other broker has registered (KIP-858).

    There must be one as soon as metadata.version supports them.
    """
    fault = ""
    named = set(request.log_dirs)
    owners = (
        broker.broker_id
        for broker in context.image.cluster.brokers.values()
        if broker.broker_id != request.broker_id and not named.isdisjoint(broker.log_dirs)
    )
    if not named and context.image.level >= DIRECTORIES:
        fault = "No directories specified in request"
    elif not named.isdisjoint(RESERVED_DIRECTORIES):
        fault = "Reserved directory ID in request"
    elif len(named) < len(request.log_dirs):
        fault = "Duplicate directory ID in request"
    elif not all(map(is_uuid, request.log_dirs)):
        fault = "Malformed directory ID in request"
    elif (owner := next(owners, None)) is not None:
        fault = f"Broker {owner} is already registered with one of the directories"
    if fault:
        raise RefusedError(ErrorCode.INVALID_REGISTRATION, fault)


def _check_features(context: ControllerContext, request: RegisterBroker) -> None:
    levels = context.image.features.levels
    supported = {feature.name: feature.supported for feature in request.features}
    if len(supported) < len(request.features):
        raise RefusedError(ErrorCode.INVALID_REGISTRATION, "A feature is named twice.")
    for name, found in supported.items():
        if name != METADATA_VERSION or name in levels:
            _check_level(name, levels.get(name, 0), found)
    if METADATA_VERSION not in supported:
        raise RefusedError(
            ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'"
        )
    for name, level in levels.items():
        if name not in supported:
            _check_level(name, level, VersionRange(0, 0))


def _check_level(name: str, level: int, supported: VersionRange) -> None:
    """Check that a broker supports the finalized level of a feature."""
    if name != KRAFT_VERSION and level not in supported:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} "
            f"of {name}. The broker wants a version between {supported.min} and {supported.max}, "
            "inclusive.",
        )


def unregister(
    context: ControllerContext, request: UnregisterBroker
) -> tuple[list[MetadataRecord], UnregisterBrokerResponse]:
    broker = context.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker ID {request.broker_id} is not currently registered",
        )
    records = broker_leaves(context, request.broker_id, is_gone=True)
    records.append(UnregisterBrokerRecord(request.broker_id, broker.broker_epoch, version=0))
    return records, UnregisterBrokerResponse()


# --- heartbeats -----------------------------------------------------------------------------------


def heartbeat(
    context: ControllerContext, request: BrokerHeartbeat, now_ms: int
) -> tuple[list[MetadataRecord], BrokerHeartbeatResponse]:
    """Process a heartbeat: return the records of what changed, and the broker's state."""
    context.check_broker_epoch(request.broker_id, request.broker_epoch)
    broker = context.image.cluster.brokers[request.broker_id]
    context.sessions.touch(broker.broker_id, broker.broker_epoch, request.metadata_offset, now_ms)
    records, response = _next_state(context, broker, request)
    if request.cordoned_log_dirs is not None:
        records += _directories_cordoned(context, broker, request.cordoned_log_dirs)
    return records, response


def _next_state(
    context: ControllerContext, broker: Broker, request: BrokerHeartbeat
) -> tuple[list[MetadataRecord], BrokerHeartbeatResponse]:
    registered_at = context.registered_at.get(broker.broker_id, broker.broker_epoch)
    caught_up = request.metadata_offset >= registered_at
    records: list[MetadataRecord] = []
    if request.offline_log_dirs:
        records += _directories_failed(context, broker, request.offline_log_dirs)
        if records:
            # A batch changes each partition at most once: the next heartbeat does the rest.
            return records, BrokerHeartbeatResponse(
                caught_up, broker.fenced, broker.in_controlled_shutdown
            )
    if broker.fenced:
        if request.want_shutdown:
            return _let_go(context, broker, caught_up)
        if request.want_fence or not caught_up or context.is_busy_with(broker.broker_id):
            return [], BrokerHeartbeatResponse(caught_up)
        return unfence(context, broker), BrokerHeartbeatResponse(caught_up, is_fenced=False)
    if broker.in_controlled_shutdown:
        if _may_stop(context, broker):
            return _let_go(context, broker, caught_up)
        return [], BrokerHeartbeatResponse(caught_up, False, in_controlled_shutdown=True)
    if request.want_shutdown:
        if request.want_fence or not context.index.leads_any(broker.broker_id):
            return _let_go(context, broker, caught_up)
        return begin_shutdown(context, broker), BrokerHeartbeatResponse(
            caught_up, False, in_controlled_shutdown=context.image.level >= IN_CONTROLLED_SHUTDOWN
        )
    if request.want_fence:
        return fence(context, broker), BrokerHeartbeatResponse(caught_up)
    return [], BrokerHeartbeatResponse(caught_up, is_fenced=False)


def _let_go(
    context: ControllerContext, broker: Broker, caught_up: bool
) -> tuple[list[MetadataRecord], BrokerHeartbeatResponse]:
    """Let the broker stop, and end its session so that its next process can register at once."""
    context.sessions.end(broker.broker_id)
    return fence(context, broker), BrokerHeartbeatResponse(
        caught_up, is_fenced=True, should_shut_down=True
    )


def _may_stop(context: ControllerContext, broker: Broker) -> bool:
    """Whether the broker leads nothing and every active broker has replayed its shutdown."""
    if context.index.leads_any(broker.broker_id):
        return False
    session = context.sessions.get(broker.broker_id)
    assert session is not None, "its heartbeat was just recorded"
    for other in context.image.cluster.brokers.values():
        if other.fenced or other.in_controlled_shutdown:
            continue
        found = context.sessions.get(other.broker_id)
        if found is None or found.metadata_offset < session.shutdown_offset:
            return False
    return True


def fence(context: ControllerContext, broker: Broker) -> list[MetadataRecord]:
    """Fence the broker and remove it from its ISRs."""
    return [*broker_leaves(context, broker.broker_id), _change(context, broker, fenced=FENCE)]


def unfence(context: ControllerContext, broker: Broker) -> list[MetadataRecord]:
    """Unfence the broker, and elect it for leaderless partitions where it is eligible."""
    return [_change(context, broker, fenced=UNFENCE), *broker_joins(context, broker.broker_id)]


def begin_shutdown(context: ControllerContext, broker: Broker) -> list[MetadataRecord]:
    """Begin a controlled shutdown.

    Below metadata.version 3.3-IV3, which has no field for it, only remove the broker from its ISRs.
    """
    records = broker_leaves(context, broker.broker_id)
    if context.image.level < IN_CONTROLLED_SHUTDOWN:
        return records
    change = BrokerRegistrationChangeRecord(
        broker.broker_id, broker.broker_epoch, in_controlled_shutdown=ENTERS_SHUTDOWN, version=1
    )
    return [change, *records]


def _change(context: ControllerContext, broker: Broker, *, fenced: int) -> MetadataRecord:
    if context.image.level < REGISTRATION_CHANGES:
        kind = FenceBrokerRecord if fenced == FENCE else UnfenceBrokerRecord
        return kind(broker.broker_id, broker.broker_epoch, version=0)
    return BrokerRegistrationChangeRecord(
        broker.broker_id, broker.broker_epoch, fenced=fenced, version=0
    )


def _directories_cordoned(
    context: ControllerContext, broker: Broker, cordoned: tuple[str, ...]
) -> list[MetadataRecord]:
    """Record which of the broker's directories are cordoned, if that changed (KIP-1066)."""
    known = broker.cordoned_log_dirs
    is_known = known is not None and set(known) == set(cordoned)
    if is_known or context.image.level < CORDONED_LOG_DIRS:
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker.broker_id, broker.broker_epoch, cordoned_log_dirs=cordoned, version=3
        )
    ]


def _directories_failed(
    context: ControllerContext, broker: Broker, failed: Iterable[str]
) -> list[MetadataRecord]:
    """Remove the broker's replicas in failed directories from ISRs and leadership (KIP-858).

    As in Kafka, every partition with a replica in these directories changes as far as it can: its
    reassignment may end, and it may get another leader in place of none or of one without a
    directory.
    """
    gone = set(failed) & set(broker.log_dirs)
    left = tuple(directory for directory in broker.log_dirs if directory not in gone)
    if not gone:
        return []
    records: list[MetadataRecord] = []
    for partition in context.image.topics.all_partitions():
        if broker.broker_id not in partition.replicas:
            continue
        where = dict(zip(partition.replicas, partition.directories, strict=False))
        if where.get(broker.broker_id) not in gone:
            continue
        record = Change.without(context, partition, broker.broker_id).build()
        if record is not None:
            records.append(record)
    # Without any directory left the record says that nothing changed: the broker stops by itself.
    change = BrokerRegistrationChangeRecord(
        broker.broker_id, broker.broker_epoch, log_dirs=left, version=2
    )
    return [*records, change]
