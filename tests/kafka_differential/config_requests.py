"""Random requests about configs and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quorate.bridge.messages import schemas as s

from tests.kafka_differential.broker_requests import FEATURES
from tests.kafka_differential.requests import UNKNOWN_BROKER, Script, State, common, part, whole

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

TOPIC_CONFIGS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "compression.type": ("lz4", "zstd", "producer"),
    "flush.ms": ("1000", "5"),
    "max.message.bytes": ("1000", "2000000"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "min.insync.replicas": ("1", "2", "3"),
    "preallocate": ("true", "false"),
    "retention.bytes": ("-1", "1000000"),
    "retention.ms": ("-1", "60000", "604800000"),
    "segment.bytes": ("1048576", "1073741824"),
    "unclean.leader.election.enable": ("true", "false"),
    "leader.replication.throttled.replicas": ("0:1,1:2", "*"),
    "follower.replication.throttled.replicas": ("0:1", ""),
}
BROKER_CONFIGS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.retention.ms": ("60000", "604800000"),
    "message.max.bytes": ("1000000", "2000000"),
    "min.insync.replicas": ("1", "2"),
    "unclean.leader.election.enable": ("true", "false"),
    "follower.replication.throttled.rate": ("1000000",),
    "leader.replication.throttled.rate": ("1000000",),
    "compression.type": ("lz4", "producer"),
    "log.cleanup.policy": ("compact", "delete"),
}
GROUP_CONFIGS: Final[Mapping[str, tuple[str, ...]]] = {
    "consumer.session.timeout.ms": ("45000", "50000"),
    "consumer.heartbeat.interval.ms": ("5000", "10000"),
    "share.record.lock.duration.ms": ("20000", "30000"),
}
CLIENT_METRICS_CONFIGS: Final[Mapping[str, tuple[str, ...]]] = {
    "interval.ms": ("1000", "60000"),
    "metrics": ("a.b", "*", "a.b,c.d"),
    "match": ("client_id=a", "client_software_name=apache-kafka-java"),
}
CONFIGS: Final = {
    TOPIC: TOPIC_CONFIGS,
    BROKER: BROKER_CONFIGS,
    CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
    GROUP: GROUP_CONFIGS,
}
UNKNOWN_KINDS: Final = (0, 3, 99)
INVALID: Final = (None, "", "x", "-2", "1.5", "99999999999999999999")
LEVELS: Final = (30, 30, 29, 28, 27, 26, 25, 24, 20, 7, 6, 31, 0, -1)


def topic_configs(state: State) -> Sequence[tuple[str, str | None]]:
    """The configs of a new topic."""
    if state.odds(0.6):
        return ()
    # At most one is wrong: of several, Kafka reports the first in a hash table.
    found = [_entry(state, TOPIC, 0.0 if each else 0.05) for each in range(1 + state.skewed(3))]
    return list(dict(found).items())


def _entry(state: State, kind: int, wrong: float) -> tuple[str, str | None]:
    known = CONFIGS.get(kind, TOPIC_CONFIGS)
    name = state.chance.choice(sorted(known))
    value: str | None = state.chance.choice(known[name])
    if state.odds(wrong):
        name = state.chance.choice(("unknown.config", name))
        # Kafka's controllers store invalid values of brokers' configs, Quorate's reject them.
        if kind != BROKER:
            value = state.chance.choice(INVALID)
    return name, value


def _resource(state: State) -> tuple[int, str]:
    kind = state.chance.choice((TOPIC,) * 6 + (BROKER,) * 2 + (CLIENT_METRICS, GROUP))
    if state.odds(0.01):
        kind = state.chance.choice(UNKNOWN_KINDS)
    names = {
        TOPIC: state.topic(0.05),
        BROKER: state.chance.choice(("", "", str(state.broker(0.05)))),
        CLIENT_METRICS: state.chance.choice(("m1", "m2")),
        GROUP: state.chance.choice(("g1", "g2")),
    }
    name = names.get(kind, "x")
    if state.odds(0.01):
        name = state.chance.choice(("", "x y", str(UNKNOWN_BROKER)))
    return kind, name


def incremental_alter_configs(state: State) -> Script:
    key, version = s.INCREMENTAL_ALTER_CONFIGS, state.chance.choice((1, 1, 0))
    resources = []
    for _ in range(1 + state.skewed(3)):
        kind, name = _resource(state)
        changes = [_change(state, kind, each) for each in range(1 + state.skewed(3))]
        # Kafka's brokers check this before they forward a request, its controllers do not.
        changes = list({change[0]: change for change in changes}.values())
        configs = tuple(
            part(
                key, version, "AlterableConfig", name=each, config_operation=operation, value=value
            )
            for each, operation, value in changes
        )
        resources.append((kind, name, configs))
    body = _body(state, key, version, resources)
    return [common("IncrementalAlterConfigs", key, version, body, is_safe=has_no_eligible)]


def _change(state: State, kind: int, number: int) -> tuple[str, int, str | None]:
    name, value = _entry(state, kind, 0.0 if number else 0.06)
    if name in ("cleanup.policy", "log.cleanup.policy") and state.odds(0.4):
        return name, state.chance.choice((APPEND, SUBTRACT)), value or ""
    if state.odds(0.4):
        return name, DELETE, value if state.odds(0.2) else None
    operation = SET
    if not number and state.odds(0.03):
        operation = state.chance.choice((APPEND, SUBTRACT))
    return name, operation, "" if value is None else value


def _body(state: State, key: int, version: int, resources: Sequence[tuple[int, str, Any]]) -> Any:
    """The request; it seldom names a resource twice."""
    if not state.odds(0.02):
        resources = list({each[:2]: each for each in resources}.values())
    parts = tuple(
        part(
            key,
            version,
            "AlterConfigsResource",
            resource_type=kind,
            resource_name=name,
            configs=configs,
        )
        for kind, name, configs in resources
    )
    return whole(key, version, resources=parts, validate_only=state.odds(0.08))


def alter_configs(state: State) -> Script:
    """The legacy request, which replaces all configs of a resource.

    Kafka's controllers never answer one that names two resources of unknown types alike.
    """
    key, version = s.ALTER_CONFIGS, state.chance.choice((2, 1, 0))
    resources = []
    unknown: set[str] = set()
    for _ in range(1 + state.skewed(3)):
        kind, name = _resource(state)
        entries = dict(
            _entry(state, kind, 0.0 if each else 0.06) for each in range(state.chance.randrange(4))
        )
        configs = tuple(
            part(key, version, "AlterableConfig", name=each, value=value or "")
            for each, value in entries.items()
        )
        if kind in UNKNOWN_KINDS and name in unknown:
            continue
        if kind in UNKNOWN_KINDS:
            unknown.add(name)
        resources.append((kind, name, configs))
    body = _body(state, key, version, resources)
    return [common("AlterConfigs", key, version, body, is_safe=has_no_eligible)]


def has_no_eligible(state: State) -> bool:
    """Whether no replica out of sync may lead a partition.

    A change of min.insync.replicas clears these replicas, but not in an index of Kafka's
    controllers, which fail later if such a topic is deleted.
    """
    return not any(each.eligible_leader_replicas for each in state.image.topics.all_partitions())


def update_features(state: State) -> Script:
    """Levels up and down, mostly of features other than metadata.version."""
    key, version = s.UPDATE_FEATURES, state.chance.choice((2, 1, 0))
    updates = []
    for _ in range(1 + state.skewed(2)):
        name = state.chance.choice((*FEATURES, "metadata.version"))
        level = state.chance.randrange(FEATURES[name][1] + 1)
        kind = state.chance.choice((1, 1, 2, 3))
        if name == "metadata.version":
            level = state.chance.choice(LEVELS)
        elif name == "kraft.version":
            level = state.chance.choice((0, 1, 2))
        if state.odds(0.05):
            name = state.chance.choice(("", "unknown.version"))
        if state.odds(0.05):
            level = state.chance.choice((-1, 9))
        if state.odds(0.02):
            kind = state.chance.choice((0, 4))
        updates.append((name, level, kind))
    if not state.odds(0.05):
        updates = list({name: (name, level, kind) for name, level, kind in updates}.values())
    name = "UpdateFeatures" if len(updates) == 1 else "UpdateFeatures of several"
    if any(each[0] == "kraft.version" for each in updates):
        name = "UpdateFeatures of kraft.version"
    body = whole(
        key,
        version,
        timeout=s.milliseconds(60_000),
        feature_updates=tuple(
            part(
                key,
                version,
                "FeatureUpdateKey",
                feature=name,
                max_version_level=level,
                upgrade_type=kind,
                allow_downgrade=kind > 1,
            )
            for name, level, kind in updates
        ),
        validate_only=state.odds(0.2),
    )
    return [common(name, key, version, body)]
