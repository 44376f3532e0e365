"""Replays records with `metadata.image`, and shows the entities of the image.

A `Replay` applies the records of a log, or of a shard of one (`spark.shards`), in log order. The
image implements the rules of replay. This module defines how its entities are shown, and tracks the
last change of each.

A record that the image rejects is skipped: tables show as much of a broken log as possible, and the
audit names the cause. The records of a transaction take no effect until it ends (KIP-868).

Fields have Kafka's names. Each entity has all fields of its type's latest version.

Source: KIP-631, KIP-853.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from quorate.common.features import KRAFT_VERSION
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage, ReplayError
from quorate.metadata.metadata_version import LATEST_LEVEL
from quorate.records import metadata as rec
from quorate.records.metadata import MetadataRecord, UnknownRecord, to_json
from quorate.records.metadata.partitions import PartitionChangeRecord, PartitionRecord

TOPICS, PARTITIONS, BROKERS, CONFIGS = "topics", "partitions", "brokers", "configs"
FEATURES, VOTERS, CONTROLLERS, QUOTAS = "features", "voters", "controllers", "quotas"
ACLS, SCRAM, TOKENS, PRODUCER_IDS = "acls", "scram", "delegation tokens", "producer ids"
MIGRATION = "migration"
KINDS = (
    TOPICS,
    PARTITIONS,
    BROKERS,
    CONFIGS,
    FEATURES,
    VOTERS,
    CONTROLLERS,
    QUOTAS,
    ACLS,
    SCRAM,
    TOKENS,
    PRODUCER_IDS,
    MIGRATION,
)

Data = dict[str, Any]
Place = tuple[Any, ...]
Row = tuple[str, str, Data, int]
"""Kind, key, fields, and the offset of the last change."""


@dataclass(frozen=True, slots=True)
class _Thing:
    """How the records of a type identify and show the entity that they describe."""

    kind: str
    key: Callable[[Any], Any]
    """Returns the key that identifies the entity within its kind."""
    show: Callable[[Data], Data] = lambda fields: fields


def _quota_key(record: rec.ClientQuotaRecord) -> str:
    entity = sorted(record.entity, key=lambda part: part.entity_type)
    shown = ",".join(f"{part.entity_type}={part.entity_name}" for part in entity)
    return f"{shown}/{record.key}"


def _without(name: str) -> Callable[[Data], Data]:
    return lambda fields: {key: value for key, value in fields.items() if key != name}


def _cluster(_: MetadataRecord) -> str:
    """The key of an entity that exists once per cluster."""
    return "cluster"


def _joined(*names: str) -> Callable[[Any], str]:
    """Return a function that builds a key from several fields."""
    get = attrgetter(*names)
    return lambda record: "/".join(map(str, get(record)))


_THINGS: dict[type[MetadataRecord], _Thing] = {
    rec.TopicRecord: _Thing(TOPICS, attrgetter("name")),
    rec.RegisterBrokerRecord: _Thing(BROKERS, attrgetter("broker_id")),
    rec.BrokerRegistrationChangeRecord: _Thing(BROKERS, attrgetter("broker_id")),
    rec.FenceBrokerRecord: _Thing(BROKERS, attrgetter("id")),
    rec.UnfenceBrokerRecord: _Thing(BROKERS, attrgetter("id")),
    rec.ConfigRecord: _Thing(CONFIGS, _joined("resource_type", "resource_name", "name")),
    rec.FeatureLevelRecord: _Thing(
        FEATURES,
        attrgetter("name"),
        lambda fields: {"name": fields["name"], "level": fields["featureLevel"]},
    ),
    rec.RegisterControllerRecord: _Thing(CONTROLLERS, attrgetter("controller_id")),
    rec.ClientQuotaRecord: _Thing(QUOTAS, _quota_key, _without("remove")),
    rec.AccessControlEntryRecord: _Thing(ACLS, attrgetter("id")),
    rec.UserScramCredentialRecord: _Thing(SCRAM, _joined("name", "mechanism")),
    rec.DelegationTokenRecord: _Thing(TOKENS, attrgetter("token_id")),
    # The broker that took the last block is not part of the state. Snapshots omit it, too.
    rec.ProducerIdsRecord: _Thing(
        PRODUCER_IDS, _cluster, lambda fields: {"nextProducerId": fields["nextProducerId"]}
    ),
    rec.ZkMigrationStateRecord: _Thing(MIGRATION, _cluster),
}
"""Without partitions. Other types are shown under their own names, keyed by their first field."""


def _thing(cls: type[MetadataRecord]) -> _Thing:
    known = _THINGS.get(cls)
    if known is None:
        kind = cls.TYPE.removesuffix("_RECORD").replace("_", " ").lower()
        key = attrgetter(cls.FIELDS[0].name) if cls.FIELDS else _cluster
        known = _THINGS[cls] = _Thing(kind, key)
    return known


_DEFAULTS: dict[type[MetadataRecord], Data] = {
    cls: {
        spec.json_name: list(spec.default) if isinstance(spec.default, tuple) else spec.default
        for spec in cls.FIELDS
    }
    for cls in rec.RECORD_TYPES.values()
}


def fields_of(record: MetadataRecord) -> Data:
    """All fields of a record, with defaults, in declaration order."""
    cls = type(record)
    data: Data = to_json(record, cls.VERSIONS.max)["data"]
    return _DEFAULTS[cls] | data


class Replay(ABC):
    """A shard's image. A subclass decides what to do with each record that the image accepted.

    A place is the position of a record: its offset, and whatever else the subclass needs.
    """

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._held_back: list[tuple[MetadataRecord, Place]] = []
        self._is_refused = False

    def apply(self, found: Iterable[tuple[AnyRecord, Place, bool]]) -> None:
        """Replay records. found: tuples of a record, its place, and whether the shard shows it.

        The shard does not show a record that it has only because other entities depend on it.
        """
        left = self._noting(found)
        while True:
            try:
                self.image.load_batch(left, 0, self.image.epoch, self.image.timestamp_ms)
            except ReplayError:
                self._is_refused = True
            else:
                return

    def apply_control(  # noqa: B027 - most shards have no use for control records
        self, type_name: str, data: Data, place: Place
    ) -> None:
        """Apply a control record, given as JSON."""

    @abstractmethod
    def _changed(self, record: MetadataRecord, place: Place) -> None:
        """Handle a record that the image accepted; in a transaction, called only when it ends."""

    def _noting(self, found: Iterable[tuple[AnyRecord, Place, bool]]) -> Iterator[AnyRecord]:
        """Yield the records to the image, and note each that it accepts.

        The image has accepted or rejected a record when it requests the next one.
        """
        for record, place, is_shown in found:
            self._is_refused = False
            yield record
            if is_shown and not self._is_refused and not isinstance(record, UnknownRecord):
                self._note(record, place)

    def _note(self, record: MetadataRecord, place: Place) -> None:
        if self.image.in_transaction:
            self._held_back.append((record, place))
            return
        if self._held_back:
            held_back, self._held_back = self._held_back, []
            if isinstance(record, rec.EndTransactionRecord):
                for each, at in held_back:
                    self._changed(each, at)
        self._changed(record, place)


class StateReplay(Replay):
    """Tracks the offset of each entity's last change."""

    def __init__(self) -> None:
        super().__init__()
        self._controls: dict[tuple[str, str], tuple[Data, int]] = {}
        self._offsets: dict[tuple[str, Any], int] = {}
        self._partition_offsets: dict[str, dict[int, int]] = {}

    def apply_control(self, type_name: str, data: Data, place: Place) -> None:
        if type_name == "KRAFT_VERSION":
            fields = {"name": KRAFT_VERSION, "level": data["kRaftVersion"]}
            self._controls[FEATURES, KRAFT_VERSION] = fields, place[0]
        elif type_name == "KRAFT_VOTERS":
            for known in [known for known in self._controls if known[0] == VOTERS]:
                del self._controls[known]
            for voter in data["voters"]:
                ends = [f"{e['name']}://{e['host']}:{e['port']}" for e in voter["endpoints"]]
                voter_id, directory_id = voter["voterId"], voter["voterDirectoryId"]
                fields = {"voterId": voter_id, "directoryId": directory_id, "endpoints": ends}
                self._controls[VOTERS, f"{voter_id}-{directory_id}"] = fields, place[0]

    def _changed(self, record: MetadataRecord, place: Place) -> None:
        if isinstance(record, PartitionChangeRecord | PartitionRecord):
            of_topic = self._partition_offsets.setdefault(record.topic_id, {})
            of_topic[record.partition_id] = place[0]
        elif isinstance(record, rec.RemoveTopicRecord):
            self._partition_offsets.pop(record.topic_id, None)
        else:
            thing = _thing(type(record))
            self._offsets[thing.kind, thing.key(record)] = place[0]

    # --- result -----------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all entities that the shard shows."""
        for (kind, key), (fields, offset) in self._controls.items():
            yield kind, key, fields, offset
        for record in self._records():
            if isinstance(record, PartitionRecord):
                yield from self._partition_row(record)
                continue
            thing = _thing(type(record))
            key = thing.key(record)
            changed = self._offsets.get((thing.kind, key))
            if changed is not None:
                yield thing.kind, str(key), thing.show(fields_of(record)), changed

    def _records(self) -> Iterator[MetadataRecord]:
        for record in self.image.records(LATEST_LEVEL):
            if not isinstance(record, UnknownRecord):
                yield record
        if self.image.features.zk_migration == rec.ZkMigrationState.NONE:
            # The image does not distinguish NONE from a migration state that was never written.
            yield rec.ZkMigrationStateRecord(rec.ZkMigrationState.NONE)

    def _partition_row(self, record: PartitionRecord) -> Iterator[Row]:
        changed = self._partition_offsets.get(record.topic_id, {}).get(record.partition_id)
        if changed is None:
            return
        topic = self.image.topics.names[record.topic_id]
        fields: Data = {"topic": topic} | fields_of(record)
        for name in ("eligibleLeaderReplicas", "lastKnownElr"):
            fields[name] = fields[name] or []
        yield PARTITIONS, f"{topic}/{record.partition_id}", fields, changed


def fields_text(fields: Data) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
