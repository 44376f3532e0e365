"""Replaying records into what holds: the rules of the state, without Spark.

`Replay` is fed the records of some things in the order of the log, and says what is left. Which
things are replayed together is the caller's business (`bucket_of`): a topic's records belong
together, a broker's too; nothing else depends on each other but what `Context` carries.

1. For most things the last record decides, and a removal ends them.
2. A partition is its PartitionRecord and the changes after it: of each field the last change that
   names it; each change raises the partition epoch by one, each that names a leader the leader
   epoch (KIP-631; Kafka's PartitionRegistration). ClearElr empties what came before (KIP-966).
3. A topic's partitions and configs go with it. A broker is its registration and later changes.

Fields keep Kafka's names. Source: KIP-631, KIP-853, Kafka's image of the metadata log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quorate.records.metadata import RECORD_TYPES
from quorate.records.metadata.partitions import NO_LEADER_CHANGE, NO_RECOVERY_CHANGE
from quorate.records.metadata.schema import FieldSpec

TOPIC_RESOURCE = 2
KRAFT_VERSION = "kraft.version"
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
_SPECS: dict[str, tuple[FieldSpec, ...]] = {cls.TYPE: cls.FIELDS for cls in RECORD_TYPES.values()}

KEY_FIELDS: dict[str, tuple[str, ...]] = {
    "TOPIC_RECORD": ("topicId",),
    "PARTITION_RECORD": ("topicId",),
    "PARTITION_CHANGE_RECORD": ("topicId",),
    "REMOVE_TOPIC_RECORD": ("topicId",),
    "REGISTER_BROKER_RECORD": ("brokerId",),
    "UNREGISTER_BROKER_RECORD": ("brokerId",),
    "BROKER_REGISTRATION_CHANGE_RECORD": ("brokerId",),
    "FENCE_BROKER_RECORD": ("id",),
    "UNFENCE_BROKER_RECORD": ("id",),
    "CONFIG_RECORD": ("resourceType", "resourceName"),
    "FEATURE_LEVEL_RECORD": ("name",),
    "KRAFT_VERSION": (),
    "KRAFT_VOTERS": (),
    "REGISTER_CONTROLLER_RECORD": ("controllerId",),
    "CLIENT_QUOTA_RECORD": ("entity",),
    "ACCESS_CONTROL_ENTRY_RECORD": ("id",),
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": ("id",),
    "USER_SCRAM_CREDENTIAL_RECORD": ("name",),
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": ("name",),
    "DELEGATION_TOKEN_RECORD": ("tokenId",),
    "REMOVE_DELEGATION_TOKEN_RECORD": ("tokenId",),
    "PRODUCER_IDS_RECORD": (),
    "ZK_MIGRATION_STATE_RECORD": (),
}
"""The types that make up the state, and the fields whose values say which records belong together:
those of one broker under one type's name for it, and so on.
"""


@dataclass(frozen=True, slots=True)
class Context:
    """What one thing must know of others. Places in the order of the log: `seq`.

    removed_topics: by name, where a topic of that name was last removed. cleared_elr: by topic, ""
    for all, where its eligible leader replicas were last forgotten.
    """

    removed_topics: dict[str, int] = field(default_factory=dict)
    cleared_elr: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Thing:
    fields: Data
    offset: int
    seq: int


Key = tuple[str, str]


def _defaults(type_name: str, data: Data) -> Data:
    """A record's fields with those that its JSON leaves out."""
    return {
        spec.json_name: data.get(
            spec.json_name, list(spec.default) if isinstance(spec.default, tuple) else spec.default
        )
        for spec in _SPECS[type_name]
    }


class Replay:
    """What holds after the records so far."""

    def __init__(self, context: Context | None = None) -> None:
        self._context = context or Context()
        self._things: dict[Key, _Thing] = {}
        self._partitions: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}

    def apply(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        """The next record of the log. Types that say nothing about the state are passed over."""
        known = _APPLY.get(type_name)
        if known is not None:
            known(self, type_name, data, offset, seq)

    def rows(self) -> Iterator[tuple[str, str, Data, int]]:
        """(kind, key, fields, offset of the last change) of everything that holds."""
        for (kind, key), thing in self._things.items():
            if kind == PARTITIONS:
                topic = self._names.get(thing.fields["topicId"])
                if topic is None:
                    continue
                self._clear_elr(topic, thing)
                fields = {"topic": topic, **thing.fields}
                yield kind, f"{topic}/{thing.fields['partitionId']}", fields, thing.offset
            elif kind != CONFIGS or not self._went_with_topic(thing):
                yield kind, key, thing.fields, thing.offset

    def _went_with_topic(self, thing: _Thing) -> bool:
        if thing.fields["resourceType"] != TOPIC_RESOURCE:
            return False
        removed = self._context.removed_topics.get(thing.fields["resourceName"])
        return removed is not None and thing.seq < removed

    def _clear_elr(self, topic: str, thing: _Thing) -> None:
        cleared = max(
            (self._context.cleared_elr[n] for n in (topic, "") if n in self._context.cleared_elr),
            default=None,
        )
        if cleared is not None and thing.fields.pop("_elr", thing.seq) < cleared:
            thing.fields["eligibleLeaderReplicas"] = []
            thing.fields["lastKnownElr"] = []
        thing.fields.pop("_elr", None)

    def _set(self, kind: str, key: str, fields: Data, offset: int, seq: int) -> None:
        self._things[kind, key] = _Thing(fields, offset, seq)

    # --- by type ----------------------------------------------------------------------------------

    def _topic(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        fields = _defaults(type_name, data)
        self._names[fields["topicId"]] = fields["name"]
        self._set(TOPICS, fields["name"], fields, offset, seq)

    def _remove_topic(self, _: str, data: Data, offset: int, seq: int) -> None:  # noqa: ARG002
        name = self._names.pop(data["topicId"], None)
        self._things.pop((TOPICS, name or ""), None)
        for key in self._partitions.pop(data["topicId"], ()):
            self._things.pop((PARTITIONS, key), None)

    def _partition(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        fields = _defaults(type_name, data)
        for name in ("eligibleLeaderReplicas", "lastKnownElr"):
            fields[name] = fields[name] or []
        fields["_elr"] = seq
        key = f"{fields['topicId']}/{fields['partitionId']}"
        self._partitions.setdefault(fields["topicId"], set()).add(key)
        self._set(PARTITIONS, key, fields, offset, seq)

    def _change_partition(self, _: str, data: Data, offset: int, seq: int) -> None:
        thing = self._things.get((PARTITIONS, f"{data['topicId']}/{data['partitionId']}"))
        if thing is None:
            return
        fields = thing.fields
        fields["partitionEpoch"] += 1
        if data.get("leader", NO_LEADER_CHANGE) != NO_LEADER_CHANGE:
            fields["leader"] = data["leader"]
            fields["leaderEpoch"] += 1
        if data.get("leaderRecoveryState", NO_RECOVERY_CHANGE) != NO_RECOVERY_CHANGE:
            fields["leaderRecoveryState"] = data["leaderRecoveryState"]
        for name in _CHANGEABLE:
            if data.get(name) is not None:
                fields[name] = data[name]
        if "eligibleLeaderReplicas" in data or "lastKnownElr" in data:
            fields["_elr"] = seq
        thing.offset, thing.seq = offset, seq

    def _broker(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        fields = _defaults(type_name, data)
        _sort_features(fields)
        self._set(BROKERS, str(fields["brokerId"]), fields, offset, seq)

    def _unregister(self, _: str, data: Data, offset: int, seq: int) -> None:  # noqa: ARG002
        self._things.pop((BROKERS, str(data["brokerId"])), None)

    def _fence(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        self._update_broker(data["id"], {"fenced": type_name.startswith("FENCE")}, offset, seq)

    def _change_broker(self, _: str, data: Data, offset: int, seq: int) -> None:
        changed: Data = {}
        for name in ("fenced", "inControlledShutdown"):
            if data.get(name, 0) != 0:
                changed[name] = data[name] > 0
        if data.get("logDirs"):
            changed["logDirs"] = data["logDirs"]
        if data.get("cordonedLogDirs") is not None:
            changed["cordonedLogDirs"] = data["cordonedLogDirs"]
        self._update_broker(data["brokerId"], changed, offset, seq)

    def _update_broker(self, broker_id: int, changed: Data, offset: int, seq: int) -> None:
        thing = self._things.get((BROKERS, str(broker_id)))
        if thing is not None:
            thing.fields.update(changed)
            thing.offset, thing.seq = offset, seq

    def _config(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        fields = _defaults(type_name, data)
        key = f"{fields['resourceType']}/{fields['resourceName']}/{fields['name']}"
        if fields["value"] is None:
            self._things.pop((CONFIGS, key), None)
        else:
            self._set(CONFIGS, key, fields, offset, seq)

    def _feature(self, _: str, data: Data, offset: int, seq: int) -> None:
        self._level(data["name"], data["featureLevel"], offset, seq)

    def _kraft_version(self, _: str, data: Data, offset: int, seq: int) -> None:
        self._level(KRAFT_VERSION, data["kRaftVersion"], offset, seq)

    def _level(self, name: str, level: int, offset: int, seq: int) -> None:
        if level == 0 and name != KRAFT_VERSION:
            self._things.pop((FEATURES, name), None)
        else:
            self._set(FEATURES, name, {"name": name, "level": level}, offset, seq)

    def _voters(self, _: str, data: Data, offset: int, seq: int) -> None:
        for thing in [thing for thing in self._things if thing[0] == VOTERS]:
            del self._things[thing]
        for voter in data["voters"]:
            fields = {
                "voterId": voter["voterId"],
                "directoryId": voter["voterDirectoryId"],
                "endpoints": [f"{e['name']}://{e['host']}:{e['port']}" for e in voter["endpoints"]],
            }
            key = f"{fields['voterId']}-{fields['directoryId']}"
            self._set(VOTERS, key, fields, offset, seq)

    def _controller(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        fields = _defaults(type_name, data)
        _sort_features(fields)
        self._set(CONTROLLERS, str(fields["controllerId"]), fields, offset, seq)

    def _quota(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        fields = _defaults(type_name, data)
        entity = sorted(fields["entity"], key=lambda part: str(part["entityType"]))
        shown = ",".join(f"{part['entityType']}={part['entityName']}" for part in entity)
        key = f"{shown}/{fields['key']}"
        if fields.pop("remove"):
            self._things.pop((QUOTAS, key), None)
        else:
            self._set(QUOTAS, key, {**fields, "entity": entity}, offset, seq)

    def _keyed(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        kind, names = _KEYED[type_name]
        fields = _defaults(type_name, data)
        self._set(kind, "/".join(str(fields[name]) for name in names), fields, offset, seq)

    def _removed(self, type_name: str, data: Data, offset: int, seq: int) -> None:  # noqa: ARG002
        kind, names = _KEYED[type_name.removeprefix("REMOVE_")]
        self._things.pop((kind, "/".join(str(data[name]) for name in names)), None)

    def _producer_ids(self, _: str, data: Data, offset: int, seq: int) -> None:
        # Who took the last block is not part of the state: snapshots do not keep it either.
        fields = {"nextProducerId": data["nextProducerId"]}
        self._set(PRODUCER_IDS, "cluster", fields, offset, seq)

    def _migration(self, type_name: str, data: Data, offset: int, seq: int) -> None:
        self._set(MIGRATION, "cluster", _defaults(type_name, data), offset, seq)


_CHANGEABLE = (
    "isr",
    "replicas",
    "removingReplicas",
    "addingReplicas",
    "directories",
    "eligibleLeaderReplicas",
    "lastKnownElr",
)
_KEYED: dict[str, tuple[str, tuple[str, ...]]] = {
    "ACCESS_CONTROL_ENTRY_RECORD": (ACLS, ("id",)),
    "USER_SCRAM_CREDENTIAL_RECORD": (SCRAM, ("name", "mechanism")),
    "DELEGATION_TOKEN_RECORD": (TOKENS, ("tokenId",)),
}
_APPLY: dict[str, Callable[[Replay, str, Data, int, int], None]] = {
    "TOPIC_RECORD": Replay._topic,
    "REMOVE_TOPIC_RECORD": Replay._remove_topic,
    "PARTITION_RECORD": Replay._partition,
    "PARTITION_CHANGE_RECORD": Replay._change_partition,
    "REGISTER_BROKER_RECORD": Replay._broker,
    "UNREGISTER_BROKER_RECORD": Replay._unregister,
    "FENCE_BROKER_RECORD": Replay._fence,
    "UNFENCE_BROKER_RECORD": Replay._fence,
    "BROKER_REGISTRATION_CHANGE_RECORD": Replay._change_broker,
    "CONFIG_RECORD": Replay._config,
    "FEATURE_LEVEL_RECORD": Replay._feature,
    "KRAFT_VERSION": Replay._kraft_version,
    "KRAFT_VOTERS": Replay._voters,
    "REGISTER_CONTROLLER_RECORD": Replay._controller,
    "CLIENT_QUOTA_RECORD": Replay._quota,
    "PRODUCER_IDS_RECORD": Replay._producer_ids,
    "ZK_MIGRATION_STATE_RECORD": Replay._migration,
    **dict.fromkeys(_KEYED, Replay._keyed),
    **{f"REMOVE_{name}": Replay._removed for name in _KEYED},
}


def _sort_features(fields: Data) -> None:
    """A registration's features are a set: brokers list them in any order."""
    fields["features"] = sorted(fields["features"], key=lambda one: str(one["name"]))


def fields_text(fields: Data) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
