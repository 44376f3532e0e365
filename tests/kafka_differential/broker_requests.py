"""Random requests that brokers and controllers send about themselves."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.metadata.image.cluster import Broker

from tests.kafka_differential.requests import (
    BROKERS,
    Request,
    Script,
    State,
    common,
    part,
    whole,
)
from tests.kafka_differential.side import Side

RACKS: Final = (None, "a", "b", "c")
LISTENERS: Final = (("PLAINTEXT", 9092, 0), ("SSL", 9093, 1), ("INTERNAL", 9094, 2))
LATEST: Final = 30
FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "metadata.version": (7, LATEST),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
"""What Kafka 4.3's brokers support."""
CONTROLLERS: Final = (3001, 3002)


# --- registration ---------------------------------------------------------------------------------


def register_broker(state: State, cluster_id: str, broker_id: int | None = None) -> Script:
    """Register a broker, again or for the first time. broker_id: None for any.

    A process that is already registered is registered again with the same incarnation.
    """
    chance = state.chance
    broker = chance.choice(BROKERS) if broker_id is None else broker_id
    existing = state.image.cluster.brokers.get(broker)
    name = "BrokerRegistration"
    may_stop = _may_stop(state, broker)
    if may_stop:
        if state.odds(0.99):
            return unregister_broker(state, broker)
        name = "BrokerRegistration after a stop"
    incarnation: uuid.UUID | None = uuid.UUID(int=chance.getrandbits(128), version=4)
    if existing is not None and state.odds(0.3):
        incarnation = s.uuid_field(existing.incarnation_id)
    key = s.BROKER_REGISTRATION
    version = chance.choice((4, 4, 4, 3, 2, 1, 0))
    if version < 2 and state.odds(0.8):
        version = 4
    features = _features(state, key, version, rare=0.05)
    if "kraft.version" not in {each.name for each in features}:
        name += " without kraft.version"
    is_clean = state.odds(0.7)
    fields = {
        "broker_id": broker,
        "cluster_id": cluster_id if not state.odds(0.01) else "another",
        "incarnation_id": incarnation,
        "listeners": _listeners(state, key, version),
        "features": features,
        "rack": chance.choice(RACKS),
        "is_migrating_zk_broker": state.odds(0.01),
        "log_dirs": _directories(state, broker),
    }

    def build(side: Side) -> Any:
        previous = side.epochs.get(broker, -1) if is_clean else -1
        return whole(key, version, **fields, previous_broker_epoch=previous)

    return [
        Request(
            name,
            key,
            version,
            build,
            is_safe=lambda now: _may_stop(now, broker) == may_stop,
        )
    ]


def _may_stop(state: State, broker: int) -> bool:
    existing = state.image.cluster.brokers.get(broker)
    return broker in state.stopped or (existing is not None and existing.in_controlled_shutdown)


def _listeners(state: State, key: int, version: int) -> tuple[Any, ...]:
    """Never invalid ones: without a name, Kafka's controllers write them and end; with port 0 or an
    unknown security protocol they resign; of two with one name they drop the second.
    """
    chosen = list(LISTENERS[: 1 + state.skewed(len(LISTENERS))])
    return tuple(
        part(
            key,
            version,
            "Listener",
            name=name,
            host="broker.example",
            port=port,
            security_protocol=protocol,
        )
        for name, port, protocol in chosen
    )


def _features(state: State, key: int, version: int, rare: float) -> tuple[Any, ...]:
    levels = dict(FEATURES)
    if state.odds(rare):
        levels["metadata.version"] = (7, LATEST - 1 - state.chance.randrange(3))
    if state.odds(rare):
        del levels[state.chance.choice(sorted(levels))]
    if state.odds(rare):
        levels["foo.version"] = (1, 3)
    if state.odds(rare / 4):
        levels["group.version"] = state.chance.choice(((0, 0), (1, 1), (0, 5)))
    return all_features(key, version, levels)


def all_features(
    key: int, version: int, levels: Mapping[str, tuple[int, int]] = FEATURES
) -> tuple[Any, ...]:
    """The features of a registration."""
    return tuple(
        part(
            key,
            version,
            "Feature",
            name=name,
            min_supported_version=low,
            max_supported_version=high,
        )
        for name, (low, high) in levels.items()
    )


def _directories(state: State, broker: int) -> tuple[uuid.UUID | None, ...]:
    """The broker's directories, up to three, always the same ones."""
    own = [directory(broker, number) for number in range(1 + broker % 3)]
    if state.odds(0.1):
        own = own[:1] if state.odds(0.5) else [*own, directory(broker, 9)]
    if state.odds(0.03):
        return state.chance.choice(
            (
                (),
                (*own, own[0]),
                (directory(broker - 1 if broker > BROKERS[0] else BROKERS[-1], 0),),
                (uuid.UUID(int=1),),
                (None,),
            )
        )
    return tuple(own)


def directory(broker: int, number: int) -> uuid.UUID:
    """One of a broker's directories."""
    return uuid.UUID(int=0xD1 << 120 | 0x4 << 76 | 0x8 << 60 | broker << 8 | number)


def unregister_broker(state: State, broker_id: int | None = None) -> Script:
    return [unregistration(state.broker(0.1) if broker_id is None else broker_id)]


def unregistration(broker_id: int) -> Request:
    key = s.UNREGISTER_BROKER
    return common("UnregisterBroker", key, 0, whole(key, 0, broker_id=broker_id))


def register_controller(state: State) -> Script:
    """Another controller registers. It supports all levels: one that does not fetch is ignored by
    Quorate, and not by Kafka, when a level is updated.
    """
    key = s.CONTROLLER_REGISTRATION
    body = whole(
        key,
        0,
        controller_id=state.chance.choice(CONTROLLERS),
        incarnation_id=uuid.UUID(int=state.chance.getrandbits(128), version=4),
        zk_migration_ready=False,
        listeners=_listeners(state, key, 0),
        features=_features(state, key, 0, rare=0.0),
    )
    return [common("ControllerRegistration", key, 0, body)]


# --- heartbeats -----------------------------------------------------------------------------------


def heartbeat(state: State) -> Script:
    """A heartbeat of any kind; most brokers want to be active and are up to date."""
    chance = state.chance
    broker = state.broker(0.01)
    registration = state.image.cluster.brokers.get(broker)
    wants_stop = state.odds(0.06)
    if registration is not None and registration.in_controlled_shutdown:
        # When it may stop depends on what the others have reported, which is not compared.
        return []
    wants_fence = state.odds(0.06)
    stays = not wants_fence and not wants_stop
    is_unfenced = registration is not None and not registration.fenced
    # Quorate handles failed directories before what else a heartbeat asks for.
    failing = 0.05 if stays and is_unfenced else 0.0
    fields = {
        "want_fence": wants_fence,
        "want_shut_down": wants_stop,
        "offline_log_dirs": _some_directories(state, registration, failing),
        "cordoned_log_dirs": (
            None if state.odds(0.6) else _some_directories(state, registration, 0.15)
        ),
    }
    behind = chance.choice(("epoch", "before")) if state.odds(0.1) else "end"
    version = chance.choice((2, 2, 2, 1, 0))
    return [_heartbeat(state, broker, version, fields, behind)]


def _is_of_another(state: State, broker: int, directories: Collection[str]) -> bool:
    """Whether partitions have replicas in these directories on a broker other than this one."""
    return bool(directories) and any(
        replica != broker and directory in directories
        for partition in state.image.topics.all_partitions()
        for replica, directory in zip(partition.replicas, partition.directories, strict=False)
    )


def _heartbeat(
    state: State, broker: int, version: int, fields: Mapping[str, Any], behind: str
) -> Request:
    """behind: where the broker's replay of the log is: at the end, its registration or before."""
    stale = state.odds(0.01)
    failed = {s.uuid_text(each) for each in fields["offline_log_dirs"] if each is not None}
    has_moved = _is_of_another(state, broker, failed)

    def build(side: Side) -> Any:
        offsets = {
            "end": side.last_offset,
            "epoch": side.registered_at.get(broker, 0),
            "before": side.epochs.get(broker, 0) - 1,
        }
        return whole(
            s.BROKER_HEARTBEAT,
            version,
            broker_id=broker,
            broker_epoch=side.epoch(broker) + stale,
            current_metadata_offset=offsets[behind],
            **fields,
        )

    def is_safe(now: State) -> bool:
        found = now.image.cluster.brokers.get(broker)
        if found is None:
            return True
        return (
            not found.in_controlled_shutdown
            and not (found.fenced and failed)
            and _is_of_another(now, broker, failed) == has_moved
        )

    name = "BrokerHeartbeat with a moved directory" if has_moved else "BrokerHeartbeat"
    return Request(name, s.BROKER_HEARTBEAT, version, build, is_safe=is_safe)


def _some_directories(
    state: State, registration: Broker | None, odds: float
) -> tuple[uuid.UUID | None, ...]:
    if registration is None or not state.odds(odds):
        return ()
    registered = list(registration.log_dirs)
    found: Sequence[Any] = state.chance.sample(
        registered, min(len(registered), 1 + state.skewed(3))
    )
    chosen = [s.uuid_field(each) for each in found]
    if state.odds(0.1):
        chosen.append(uuid.UUID(int=state.chance.getrandbits(128)))
    if chosen and state.odds(0.05):
        chosen.append(chosen[0])
    return tuple(chosen)


def start_broker(state: State, cluster_id: str) -> Script:
    """A broker registers if it is not registered, and becomes active."""
    inactive = [each for each in BROKERS if each not in state.active_ids]
    if not inactive:
        return heartbeat(state)
    broker = state.chance.choice(inactive)
    fields = {
        "want_fence": False,
        "want_shut_down": False,
        "offline_log_dirs": (),
        "cordoned_log_dirs": None,
    }
    existing = state.image.cluster.brokers.get(broker)
    if existing is None or existing.in_controlled_shutdown:
        return register_broker(state, cluster_id, broker)
    return [_heartbeat(state, broker, 2, fields, "end")]


# --- producer ids ---------------------------------------------------------------------------------


def allocate_producer_ids(state: State) -> Script:
    key = s.ALLOCATE_PRODUCER_IDS
    broker = state.broker(0.05)
    stale = state.odds(0.05)
    return [
        Request(
            "AllocateProducerIds",
            key,
            0,
            lambda side: whole(key, 0, broker_id=broker, broker_epoch=side.epoch(broker) + stale),
        )
    ]
