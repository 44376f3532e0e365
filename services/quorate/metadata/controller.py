"""The active controller as a pure state machine: requests and times in, records and responses out.

It owns the working image: the committed image plus all records written since. Rules:

1. `activate` starts from a copy of the committed image and a full session for every broker that is
   not fenced. It aborts a transaction that the previous controller left open.
2. The records that `handle` and `tick` return form one atomic batch at `next_offset`. They are
   already applied to the working image, so the caller must append them or deactivate.
3. The caller releases a response when its records are committed. A response without records waits
   until all earlier writes are committed, because it may depend on them.
4. A log without metadata gets no metadata records until the first request that writes some. That
   batch begins with the finalized features, metadata.version first. If the directory was formatted
   with records, the first activation writes those instead.
5. `next_deadline_ms` says when to call `tick`: for pending election tasks, expired sessions, idle
   time (a no-op record keeps the lag of observers measurable, KIP-835), preferred leaders,
   unclean elections and expired delegation tokens. A tick fences at most one broker.
6. During a metadata transaction (KIP-868) the working image is ahead of the committed image, which
   holds back the transaction's records. An abort resets it to the start of the transaction.
7. Kafka's nodes cannot read the records of applications. Before the first of them is served, the
   record KAFKA_NODES is in the log (`admit_kafka_nodes`), which excludes applications for good.

Source: KIP-631, KIP-841, KIP-868; Kafka's QuorumController.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION, VersionRange
from quorate.metadata import requests as r
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage, ReplayError
from quorate.metadata.image.partition_index import PartitionIndex
from quorate.metadata.image.producer_ids import BLOCK_SIZE
from quorate.metadata.image.tokens import TokenSecrets
from quorate.metadata.limits import collision_key
from quorate.metadata.managers import (
    alter_partition,
    broker_manager,
    config_manager,
    controller_manager,
    directory_manager,
    feature_manager,
    leadership,
    principal_manager,
    reassignments,
    token_manager,
    topic_manager,
)
from quorate.metadata.managers.appended import Appended
from quorate.metadata.managers.controller_context import (
    ControllerContext,
    CurrentControllers,
    RefusedError,
)
from quorate.metadata.managers.sessions import BrokerSessions
from quorate.metadata.metadata_version import LATEST_LEVEL, NO_OP, SUPPORTED, at_level
from quorate.metadata.settings import ControllerSettings
from quorate.raft.errors import MisuseError
from quorate.records.metadata import (
    KAFKA_NODES,
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    ProducerIdsRecord,
)

__all__ = ["ControllerResult", "CurrentControllers", "MetadataController"]

PRODUCER_ID_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ControllerResult:
    """One atomic batch of records, each with its version; `response` is None without a request."""

    records: tuple[AnyRecord, ...]
    response: Any = None


@dataclass(slots=True)
class _ActiveState:
    """The state of an active controller."""

    context: ControllerContext
    epoch: int
    written_ms: int
    rebalanced_ms: int
    unclean_ms: int
    tokens_ms: int
    before_transaction: MetadataImage | None = field(default=None)
    """The image that an abort restores."""


class MetadataController:
    """The metadata controller of a node, active or not.

    random_uuid: returns sixteen random bytes per call. cluster_id: brokers of another cluster are
    rejected; empty accepts any. bootstrap_levels, formatted_with: see rule 4. enforce_eligibility:
    False disables KIP-841's checks of a proposed ISR, for tests only. wall_ms: returns the
    milliseconds since 1970, from which delegation tokens are counted. node_id: this controller's,
    for messages.
    """

    def __init__(
        self,
        random_uuid: Callable[[], bytes],
        settings: ControllerSettings | None = None,
        *,
        cluster_id: str = "",
        bootstrap_levels: Mapping[str, int] | None = None,
        formatted_with: Sequence[AnyRecord] = (),
        enforce_eligibility: bool = True,
        wall_ms: Callable[[], int] = lambda: 0,
        node_id: int = 0,
    ) -> None:
        self.settings = settings or ControllerSettings()
        self._random_uuid = random_uuid
        self._cluster_id = cluster_id
        if bootstrap_levels is None:
            bootstrap_levels = {METADATA_VERSION: LATEST_LEVEL}
        self._bootstrap_levels = dict(bootstrap_levels)
        self._formatted_with = tuple(formatted_with)
        self._controllers: CurrentControllers | None = None
        self._enforce_eligibility = enforce_eligibility
        self._wall_ms = wall_ms
        self._node_id = node_id
        self._active_state: _ActiveState | None = None

    # --- activation -------------------------------------------------------------------------------

    @property
    def supported(self) -> dict[str, VersionRange]:
        """The features and levels that this controller can serve."""
        return SUPPORTED

    @property
    def is_active(self) -> bool:
        return self._active_state is not None

    @property
    def image(self) -> MetadataImage:
        """The working image. Callers must not change or retain it. MisuseError unless active."""
        return self._active.context.image

    @property
    def epoch(self) -> int:
        return self._active.epoch

    @property
    def _active(self) -> _ActiveState:
        if self._active_state is None:
            raise MisuseError("the metadata controller is not active")
        return self._active_state

    def activate(
        self, committed_image: MetadataImage, epoch: int, now_ms: int, next_offset: int
    ) -> ControllerResult:
        """Become active (rule 1). The committed image is copied, not changed."""
        image = committed_image.copy()
        index = PartitionIndex(image.topics.by_topic())
        image.topics.index = index
        sessions = BrokerSessions(self.settings.session_timeout_ms)
        for broker in image.cluster.brokers.values():
            if not broker.fenced:
                session = sessions.begin(broker.broker_id, broker.broker_epoch, now_ms)
                if broker.in_controlled_shutdown:
                    # Only the previous controller knew the exact offset. This is its upper bound.
                    session.shutdown_offset = next_offset - 1
        context = ControllerContext(
            image, index, sessions, self.settings, self._random_uuid, self._enforce_eligibility
        )
        context.wall_ms = self._wall_ms
        context.node_id = self._node_id
        context.token_secrets = TokenSecrets(self.settings.token_secret_key or "")
        context.colliding = {collision_key(name): name for name in image.topics.ids}
        context.cursor = image.topics.partition_count
        leadership.clean_up(context)
        self._active_state = _ActiveState(context, epoch, now_ms, now_ms, now_ms, now_ms)
        records: tuple[AnyRecord, ...] = ()
        if image.in_transaction:
            records = (AbortTransactionRecord("the active controller changed", version=0),)
        elif not image.features.metadata_version:
            records = self._formatted_with
        if records:
            image.apply_batch(records, next_offset, epoch, now_ms)
        if records and records is self._formatted_with and context.elr_enabled:
            added = tuple(feature_manager.elr_safety_records(image))
            image.apply_batch(added, next_offset + len(records), epoch, now_ms)
            records += added
        return ControllerResult(records)

    def deactivate(self) -> None:
        """Discard the working image. Records that were written may still be committed."""
        self._active_state = None

    def controllers_are(self, current: CurrentControllers) -> None:
        """Set the other current controllers of the quorum. Call this before UpdateFeatures."""
        self._controllers = current

    # --- requests ---------------------------------------------------------------------------------

    def handle(self, request: r.Request, now_ms: int, next_offset: int) -> ControllerResult:
        """Handle a request (rules 2 to 4)."""
        active = self._active
        bootstrap = self._bootstrap(active.context)
        records, response = self._dispatch(request, now_ms, next_offset + len(bootstrap))
        if not records:
            if isinstance(request, r.BrokerHeartbeat):
                # Before it may stop, the other brokers must replay what is written by now.
                self._note_shutdown(request.broker_id, next_offset - 1)
            return ControllerResult((), response)
        if bootstrap and not _sets_metadata_version(records):
            # Without a level, records are created at the latest one.
            level = self._bootstrap_levels[METADATA_VERSION]
            records = [*bootstrap, *(at_level(each, level) for each in records)]
        self._write(records, now_ms, next_offset)
        if isinstance(response, r.RegisterBrokerResponse):
            assert isinstance(request, r.RegisterBroker), "only RegisterBroker gets that response"
            # The session of a new process begins with its first heartbeat.
            active.context.registered_at[request.broker_id] = next_offset + len(records) - 1
            active.context.sessions.registered(request.broker_id, response.broker_epoch)
        if isinstance(request, r.BrokerHeartbeat) and request.want_shutdown:
            self._note_shutdown(request.broker_id, next_offset + len(records) - 1)
        return ControllerResult(tuple(records), response)

    @property
    def has_kafka_nodes(self) -> bool:
        """Whether Kafka's nodes use this quorum, as of the last written record (rule 7)."""
        return self.image.features.kafka_nodes

    @property
    def application_version(self) -> int:
        """The level of application.version as of the last written record."""
        return self.image.features.application_version

    def admit_kafka_nodes(self, now_ms: int, next_offset: int) -> ControllerResult:
        """Say that Kafka's nodes use this quorum; no records if the log says so already (rule 7).

        The caller must know that the log has no records of applications. Kafka's loader fails on
        any record before the first metadata.version, so rule 4 holds here too.
        """
        if self.has_kafka_nodes:
            return ControllerResult(())
        records = (*self._bootstrap(self._active.context), KAFKA_NODES)
        self._write(records, now_ms, next_offset)
        return ControllerResult(records)

    def _bootstrap(self, context: ControllerContext) -> list[MetadataRecord]:
        if context.image.features.metadata_version:
            return []
        return feature_manager.bootstrap_records(self._bootstrap_levels)

    def _dispatch(
        self, request: r.Request, now_ms: int, offset: int
    ) -> tuple[list[MetadataRecord], r.Response]:
        context = self._active.context
        context.controllers = self._controllers
        try:
            match request:
                case r.BrokerHeartbeat():
                    return broker_manager.heartbeat(context, request, now_ms)
                case r.RegisterBroker():
                    return broker_manager.register(
                        context, request, self._cluster_id, now_ms, offset
                    )
            return _HANDLERS[type(request)](context, request)
        except RefusedError as refused:
            refusal = _REFUSALS[type(request)]
            return [], refusal(error=refused.error, message=refused.message)

    def is_silent(self, broker_id: int) -> bool:
        """Whether this broker's session expired at the active controller."""
        active = self._active_state
        return active is not None and active.context.sessions.is_silent(broker_id)

    def _note_shutdown(self, broker_id: int, last_offset: int) -> None:
        """Record the offset that the other brokers must replay before this broker may stop."""
        broker = self.image.cluster.brokers.get(broker_id)
        session = self._active.context.sessions.get(broker_id)
        if broker is not None and session is not None and broker.in_controlled_shutdown:
            session.shutdown_offset = last_offset

    # --- records ----------------------------------------------------------------------------------

    def replay(
        self,
        records: Sequence[AnyRecord],
        now_ms: int,
        next_offset: int,
        *,
        from_client: bool = False,
    ) -> str | None:
        """Apply records from outside the controller as the next batch.

        from_client: also check that a client may append them (`Appended`). Return None, or the
        reason why the records are rejected; then nothing has changed.
        """
        active = self._active
        trial = active.context.image.copy()
        appended = Appended(trial) if from_client else None
        is_open = active.before_transaction is not None
        try:
            for offset, record in enumerate(records, next_offset):
                kind = type(record)
                fault = appended.fault(record, trial) if appended is not None else None
                if fault is not None:
                    return f"offset {offset}: {fault}"
                if kind in _TRANSACTION_KINDS:
                    if (kind is BeginTransactionRecord) is is_open:
                        return f"offset {offset}: a transaction is {'' if is_open else 'not '}open"
                    is_open = not is_open
                    if kind is AbortTransactionRecord:
                        before = active.before_transaction
                        trial = trial if before is None else before.copy()
                    continue
                trial.apply_batch((record,), offset, active.epoch, now_ms)
        except ReplayError as error:
            return str(error)
        self._write(records, now_ms, next_offset)
        return None

    def _write(self, records: Sequence[AnyRecord], now_ms: int, next_offset: int) -> None:
        """Apply the records that are about to be appended."""
        active = self._active
        kinds = set(map(type, records))
        if kinds.isdisjoint(_TRANSACTION_KINDS):
            self._apply(records, now_ms, next_offset)
        else:
            for offset, record in enumerate(records, next_offset):
                if type(record) in _TRANSACTION_KINDS:
                    self._transaction(record)
                else:
                    self._apply((record,), now_ms, offset)
        active.written_ms = now_ms

    def _apply(self, records: Sequence[AnyRecord], now_ms: int, offset: int) -> None:
        active = self._active
        changes = active.context.image.apply_batch(records, offset, active.epoch, now_ms)
        self._follow(changes, now_ms)

    def _transaction(self, record: AnyRecord) -> None:
        """Track a transaction (rule 6). The working image itself never holds records back."""
        active = self._active
        context = active.context
        match record:
            case BeginTransactionRecord():
                active.before_transaction = context.image.copy()
            case EndTransactionRecord():
                active.before_transaction = None
            case AbortTransactionRecord():
                before = active.before_transaction
                assert before is not None, "replay() checked that a transaction is open"
                active.before_transaction = None
                before.features.kafka_nodes |= context.image.features.kafka_nodes
                context.image = before
                context.index = PartitionIndex(before.topics.by_topic())
                before.topics.index = context.index
                context.colliding = {collision_key(name): name for name in before.topics.ids}

    def _follow(self, changes: MetadataDelta, now_ms: int) -> None:
        """Update the sessions and topic name collisions after the image changed."""
        context = self._active.context
        for broker_id in changes.brokers:
            broker = context.image.cluster.brokers.get(broker_id)
            session = context.sessions.get(broker_id)
            if broker is None or (broker.fenced and broker.in_controlled_shutdown):
                context.sessions.end(broker_id)
            elif not broker.fenced and session is None:
                context.sessions.begin(broker_id, broker.broker_epoch, now_ms)
        for topic_id, name in changes.topics_deleted.items():
            if topic_id not in context.image.topics.names:
                context.colliding.pop(collision_key(name), None)
        for topic_id in changes.topics_created:
            name = context.image.topics.names[topic_id]
            context.colliding[collision_key(name)] = name

    # --- time -------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """The time at which to call `tick`, None while nothing is scheduled."""
        if self._active_state is None:
            return None
        return min(self._deadlines(self._active_state), default=None)

    def _deadlines(self, active: _ActiveState) -> list[int]:
        context, settings = active.context, self.settings
        found = []
        if context.election_tasks:
            found.append(active.written_ms)
        expiry = context.sessions.next_expiry_ms()
        if expiry is not None:
            found.append(expiry)
        if not context.image.features.metadata_version:
            return found
        if settings.idle_interval_ms and context.image.level >= NO_OP:
            found.append(active.written_ms + settings.idle_interval_ms)
        if settings.leader_imbalance_check_interval_ms and context.index.off_preferred:
            found.append(active.rebalanced_ms + settings.leader_imbalance_check_interval_ms)
        if settings.unclean_election_interval_ms and context.index.leaderless:
            found.append(active.unclean_ms + settings.unclean_election_interval_ms)
        if context.token_secrets.is_enabled and context.image.tokens.tokens:
            found.append(active.tokens_ms + settings.token_check_interval_ms)
        return found

    def tick(self, now_ms: int, next_offset: int) -> ControllerResult | None:
        """Run one due task and return its records, None if nothing is due."""
        active = self._active
        records, broker_id = leadership.proceed(active.context)
        if not records:
            records = self._due(active, now_ms)
        if not records:
            return None
        self._write(records, now_ms, next_offset)
        self._note_shutdown(broker_id, next_offset + len(records) - 1)
        return ControllerResult(tuple(records))

    def _due(self, active: _ActiveState, now_ms: int) -> list[MetadataRecord]:
        context, settings = active.context, self.settings
        while (expired := context.sessions.expired(now_ms)) is not None:
            broker = context.image.cluster.brokers.get(expired)
            context.sessions.expire(expired)
            if broker is not None and not broker.fenced:
                return broker_manager.fence(context, broker)
        interval = settings.unclean_election_interval_ms
        if interval and now_ms - active.unclean_ms >= interval:
            records = leadership.elect_unclean(context)
            if len(records) < settings.records_per_batch_max:
                active.unclean_ms = now_ms
            if records:
                return records
        interval = settings.leader_imbalance_check_interval_ms
        if interval and now_ms - active.rebalanced_ms >= interval:
            records = leadership.rebalance(context)
            if len(records) < settings.records_per_batch_max:
                active.rebalanced_ms = now_ms
            if records:
                return records
        if context.token_secrets.is_enabled and (
            now_ms - active.tokens_ms >= settings.token_check_interval_ms
        ):
            records = token_manager.remove_expired(context)
            if len(records) < settings.records_per_batch_max:
                active.tokens_ms = now_ms
            if records:
                return records
        interval = settings.idle_interval_ms
        is_in_use = context.image.features.metadata_version >= NO_OP
        if interval and is_in_use and now_ms - active.written_ms >= interval:
            return [NoOpRecord(version=0)]
        return []


def _allocate_producer_ids(
    context: ControllerContext, request: r.AllocateProducerIds
) -> tuple[list[MetadataRecord], r.AllocateProducerIdsResponse]:
    """Allocate the next block. Blocks are consecutive, so no id is allocated twice (KIP-730)."""
    context.check_broker_epoch(request.broker_id, request.broker_epoch)
    start = context.image.producer_ids.next_producer_id
    if start > PRODUCER_ID_MAX - BLOCK_SIZE:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been allocated.")
    record = ProducerIdsRecord(
        request.broker_id, request.broker_epoch, start + BLOCK_SIZE, version=0
    )
    return [record], r.AllocateProducerIdsResponse(start, BLOCK_SIZE)


def _sets_metadata_version(records: Sequence[MetadataRecord]) -> bool:
    first = records[0]
    return isinstance(first, FeatureLevelRecord) and first.name == METADATA_VERSION


_Handler = Callable[[ControllerContext, Any], tuple[list[MetadataRecord], r.Response]]

_HANDLERS: Final[dict[type[Any], _Handler]] = {
    r.CreateTopics: topic_manager.create_topics,
    r.DeleteTopics: topic_manager.delete_topics,
    r.CreatePartitions: topic_manager.create_partitions,
    r.IncrementalAlterConfigs: config_manager.alter_configs,
    r.AlterConfigs: config_manager.alter_configs,
    r.AlterClientQuotas: principal_manager.alter_quotas,
    r.AlterUserScramCredentials: principal_manager.alter_scram,
    r.CreateAcls: principal_manager.create_acls,
    r.DeleteAcls: principal_manager.delete_acls,
    r.CreateDelegationToken: token_manager.create_token,
    r.RenewDelegationToken: token_manager.renew_token,
    r.ExpireDelegationToken: token_manager.expire_token,
    r.ElectLeaders: leadership.elect_leaders,
    r.AlterPartitionReassignments: reassignments.alter_reassignments,
    r.UpdateFeatures: feature_manager.update_features,
    r.UnregisterBroker: broker_manager.unregister,
    r.RegisterController: controller_manager.register_controller,
    r.AlterPartition: alter_partition.alter_partition,
    r.AssignReplicasToDirs: directory_manager.assign_replicas,
    r.AllocateProducerIds: _allocate_producer_ids,
}

_REFUSALS: Final[dict[type[Any], Callable[..., r.Response]]] = {
    r.AllocateProducerIds: r.AllocateProducerIdsResponse,
    r.AlterPartition: r.AlterPartitionResponse,
    r.AssignReplicasToDirs: r.AssignReplicasToDirsResponse,
    r.BrokerHeartbeat: r.BrokerHeartbeatResponse,
    r.ElectLeaders: r.ElectLeadersResponse,
    r.RegisterBroker: r.RegisterBrokerResponse,
    r.RegisterController: r.RegisterControllerResponse,
    r.UnregisterBroker: r.UnregisterBrokerResponse,
    r.UpdateFeatures: r.UpdateFeaturesResponse,
}
"""The responses to requests that a handler can reject as a whole."""

_TRANSACTION_KINDS: Final = frozenset(
    {BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord}
)
