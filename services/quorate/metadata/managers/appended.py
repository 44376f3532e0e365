"""Validation of metadata records that a client appends directly, without a request.

A client may append only records that a request could have produced: they must pass the checks of
the request managers. `Appended.fault` checks one record against the image that the records before
it produced. Records that result from the actions of brokers and controllers (registrations,
fencing, partition changes, transactions) are reserved for the controller.

Some checks are weaker than those of requests, so that the metadata of another cluster can be
imported: partitions and configs may name brokers that are not registered yet, and configs are not
checked against their definitions. While a migration from ZooKeeper is under way, the bridge between
its brokers and the quorum may append their registrations (KIP-866).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from quorate.common.features import LEVEL_MAX
from quorate.common.identifiers import NODE_ID_MAX, ZERO_UUID, is_uuid
from quorate.metadata.acls import acl_of
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage, type_of
from quorate.metadata.limits import collision_key, fits, topic_name_fault
from quorate.metadata.managers.controller_context import RefusedError
from quorate.metadata.managers.principal_manager import check_acl, credential_fault, quota_fault
from quorate.metadata.metadata_version import SUPPORTED
from quorate.records import metadata as rec
from quorate.records.metadata.partitions import NO_LEADER, RECOVERED, RECOVERING

NEXT_PRODUCER_ID_MAX = 2**62
"""The highest next id that a client may append. It leaves as many ids for allocation."""


class Appended:
    """Checks the records of one append. image: the image before the append; it is not retained."""

    def __init__(self, image: MetadataImage) -> None:
        self._begins_with_level = image.features.metadata_version > 0
        self._names: dict[str, str] | None = None

    def fault(self, record: AnyRecord, image: MetadataImage) -> str | None:
        """Why a client may not append a record, None if it may. image: includes earlier records."""
        check = _CHECKS.get(type(record))
        if check is None:
            return f"{type_of(record)}: clients cannot append records of this type"
        try:
            reason = check(self, record, image)
        except RefusedError as refused:
            reason = refused.message
        return reason and f"{type_of(record)}: {reason}"

    def _feature(self, record: rec.FeatureLevelRecord, _image: MetadataImage) -> str | None:
        if self._begins_with_level:
            return "metadata.version is already finalized: use `quorate features`"
        known = SUPPORTED.get(record.name)
        if known is None:
            return f"{record.name!r} is not a feature that this release can finalize"
        if not known.min <= record.feature_level <= known.max:
            return f"{record.name} {record.feature_level} is not in {known.min}-{known.max}"
        return None

    def _topic(self, record: rec.TopicRecord, image: MetadataImage) -> str | None:
        fault = topic_name_fault(record.name)
        if fault is not None:
            return f"the name is invalid: {fault}"
        if not _is_id(record.topic_id):
            return "the topic id is reserved"
        if self._names is None:
            self._names = {collision_key(name): name for name in image.topics.ids}
        other = self._names.setdefault(collision_key(record.name), record.name)
        return None if other == record.name else f"'{record.name}' collides with topic '{other}'"

    def _removed_topic(self, record: rec.RemoveTopicRecord, image: MetadataImage) -> str | None:
        """No checks beyond those of replay. A later topic of the append may have a similar name."""
        name = image.topics.names.get(record.topic_id)
        if self._names is not None and name is not None:
            self._names.pop(collision_key(name), None)
        return None

    def _partition(self, record: rec.PartitionRecord, _image: MetadataImage) -> str | None:
        replicas = set(record.replicas)
        lists = (record.replicas, record.isr, record.adding_replicas, record.removing_replicas)
        elr = (record.eligible_leader_replicas or (), record.last_known_elr or ())
        if record.partition_id < 0 or min(record.leader_epoch, record.partition_epoch) < 0:
            return "its id and epochs must be 0 or more"
        if any(len(set(each)) < len(each) for each in (*lists, *elr)):
            return "a list names a broker twice"
        if not all(0 <= each <= NODE_ID_MAX for each in replicas) or not replicas:
            return "its replicas must be broker ids"
        if not replicas.issuperset({*record.isr, *record.adding_replicas, *elr[0]}):
            return "a broker in the ISR, the ELR or the added replicas is not a replica"
        if not replicas.issuperset(record.removing_replicas):
            return "a broker in the removed replicas is not a replica"
        if record.leader != NO_LEADER and record.leader not in record.isr:
            return "the leader is not in the ISR"
        if record.leader_recovery_state not in (RECOVERED, RECOVERING):
            return f"invalid leader recovery state {record.leader_recovery_state}"
        if record.directories and len(record.directories) != len(record.replicas):
            return "it must have one directory for each replica"
        return None

    def _config(self, record: rec.ConfigRecord, image: MetadataImage) -> str | None:
        name = record.resource_name
        if not record.name:
            return "the name of the setting is empty"
        if not fits(record.name, name, record.value):
            return "a name or the value is longer than a record can hold"
        match record.resource_type:
            case ConfigResourceType.TOPIC:
                return None if name in image.topics.ids else f"there is no topic {name!r}"
            case ConfigResourceType.BROKER:
                is_id = re.fullmatch(r"[0-9]{0,10}", name, re.ASCII)
                return None if is_id else f"{name!r} is not a broker id"
            case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
                return None if name else "the resource has no name"
        return f"unknown resource type {record.resource_type}"

    def _producer_ids(self, record: rec.ProducerIdsRecord, _image: MetadataImage) -> str | None:
        if record.next_producer_id > NEXT_PRODUCER_ID_MAX:
            return f"the next id {record.next_producer_id} is above {NEXT_PRODUCER_ID_MAX}"
        return None

    def _acl(self, record: rec.AccessControlEntryRecord, _image: MetadataImage) -> str | None:
        check_acl(acl_of(record))
        return None if _is_id(record.id) else "the id of the ACL is reserved"

    def _quota(self, record: rec.ClientQuotaRecord, _image: MetadataImage) -> str | None:
        return quota_fault(record) or None

    def _scram(self, record: rec.UserScramCredentialRecord, image: MetadataImage) -> str | None:
        return credential_fault(record, image.level) or None

    def _token(self, record: rec.DelegationTokenRecord, _image: MetadataImage) -> str | None:
        return None if record.token_id and record.owner else "the token has no id or no owner"

    def _migration(self, record: rec.ZkMigrationStateRecord, image: MetadataImage) -> str | None:
        if record.zk_migration_state != rec.ZkMigrationState.POST_MIGRATION:
            return "a client can only finish a migration"
        return unfinished_migration(image)

    def _broker(self, record: rec.RegisterBrokerRecord, image: MetadataImage) -> str | None:
        if not image.features.migration_is_under_way:
            return "clients can register brokers only while a migration from ZooKeeper is under way"
        is_before_copy = image.features.zk_migration == rec.ZkMigrationState.PRE_MIGRATION
        if is_before_copy and not record.is_migrating_zk_broker:
            return "brokers in KRaft mode cannot be registered before the metadata has been copied"
        if not 0 <= record.broker_id <= NODE_ID_MAX or record.broker_epoch < 0:
            return "its id and epoch must be 0 or more"
        if record.incarnation_id == ZERO_UUID or not is_uuid(record.incarnation_id):
            return "the incarnation id is not a UUID"
        levels = (
            (each.min_supported_version, each.max_supported_version) for each in record.features
        )
        if not all(0 <= low <= high <= LEVEL_MAX for low, high in levels):
            return "feature levels must be from 0 to 32767"
        return None

    def _no_op(self, record: rec.NoOpRecord, _image: MetadataImage) -> str | None:
        if rec.marks_kafka_nodes(record):
            return "only the controller says that Kafka's nodes use the quorum"
        if rec.application_field(record) is not None:
            return "only the controller opens producer sessions and describes applications"
        return None

    def _anything(self, _record: AnyRecord, _image: MetadataImage) -> str | None:
        """No checks beyond those of replay."""
        return None


def unfinished_migration(image: MetadataImage) -> str | None:
    """Why the migration from ZooKeeper cannot be finished, None if it can."""
    if image.features.zk_migration == rec.ZkMigrationState.PRE_MIGRATION or image.in_transaction:
        return "the metadata has not been copied from ZooKeeper yet"
    controllers = image.cluster.controllers.values()
    with_it = sorted(each.controller_id for each in controllers if each.zk_migration_ready)
    if with_it:
        return (
            "zookeeper.metadata.migration.enable is still true on controllers "
            f"{', '.join(map(str, with_it))}: restart all controllers without it first"
        )
    brokers = image.cluster.brokers.values()
    in_zk_mode = sorted(each.broker_id for each in brokers if each.is_migrating_zk_broker)
    if in_zk_mode:
        return (
            f"brokers {', '.join(map(str, in_zk_mode))} still run in ZooKeeper mode: restart them "
            "with process.roles=broker first"
        )
    return None


def _is_id(text: str) -> bool:
    """Whether it is a UUID that Kafka does not reserve (one that is zero but for its last byte)."""
    return is_uuid(text) and text[:20] != ZERO_UUID[:20]


_CHECKS: Final[dict[type[Any], Callable[[Appended, Any, MetadataImage], str | None]]] = {
    rec.FeatureLevelRecord: Appended._feature,
    rec.TopicRecord: Appended._topic,
    rec.PartitionRecord: Appended._partition,
    rec.RemoveTopicRecord: Appended._removed_topic,
    rec.ConfigRecord: Appended._config,
    rec.ProducerIdsRecord: Appended._producer_ids,
    rec.AccessControlEntryRecord: Appended._acl,
    rec.RemoveAccessControlEntryRecord: Appended._anything,
    rec.ClientQuotaRecord: Appended._quota,
    rec.UserScramCredentialRecord: Appended._scram,
    rec.RemoveUserScramCredentialRecord: Appended._anything,
    rec.DelegationTokenRecord: Appended._token,
    rec.RemoveDelegationTokenRecord: Appended._anything,
    rec.ZkMigrationStateRecord: Appended._migration,
    rec.RegisterBrokerRecord: Appended._broker,
    rec.NoOpRecord: Appended._no_op,
}
