"""Registered brokers and controllers, as part of the image.

A registration is stored as its register record, with the changes of later records applied.

Source: KIP-631, KIP-841 (controlled shutdown), KIP-858 (directories), KIP-919 (controllers),
KIP-1066 (cordoned directories).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.metadata_version import CONTROLLER_REGISTRATION, at_level
from quorate.records.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RegisteredFeature,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from quorate.records.metadata.nodes import FENCE, IN_CONTROLLED_SHUTDOWN, NO_CHANGE, UNFENCE

Broker = RegisterBrokerRecord
Controller = RegisterControllerRecord


def is_active(broker: Broker | None) -> bool:
    """Whether the broker can join an ISR: registered, unfenced, not shutting down (KIP-841)."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def takes_replicas(broker: Broker) -> bool:
    """Whether new replicas can be placed on the broker: not during its controlled shutdown, nor if
    all of its directories are cordoned (KIP-1066).
    """
    if broker.in_controlled_shutdown and not broker.fenced:
        return False
    cordoned = broker.cordoned_log_dirs
    return not broker.log_dirs or not cordoned or not set(broker.log_dirs) <= set(cordoned)


@dataclass(slots=True, repr=False)
class ClusterImage:
    """Registrations by id."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    controllers: dict[int, Controller] = field(default_factory=dict)

    def copy(self) -> ClusterImage:
        return ClusterImage(self.brokers.copy(), self.controllers.copy())

    def is_active(self, broker_id: int) -> bool:
        return is_active(self.brokers.get(broker_id))

    def records(self, level: int) -> Iterator[MetadataRecord]:
        for _, broker in sorted(self.brokers.items()):
            yield at_level(broker, level)
        if level >= CONTROLLER_REGISTRATION:
            for _, controller in sorted(self.controllers.items()):
                yield at_level(controller, level)

    # --- replay -----------------------------------------------------------------------------------

    def apply_register(self, record: RegisterBrokerRecord, delta: MetadataDelta) -> None:
        self.brokers[record.broker_id] = replace(record, features=_by_name(record.features))
        delta.brokers.add(record.broker_id)

    def apply_unregister(self, record: UnregisterBrokerRecord, delta: MetadataDelta) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        delta.brokers.add(record.broker_id)

    def apply_change(self, record: BrokerRegistrationChangeRecord, delta: MetadataDelta) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        if record.fenced not in (FENCE, NO_CHANGE, UNFENCE):
            raise ValueError(f"invalid change {record.fenced} of fenced")
        self.brokers[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced == NO_CHANGE else record.fenced == FENCE,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown
                if record.in_controlled_shutdown == NO_CHANGE
                else record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN
            ),
            log_dirs=record.log_dirs or broker.log_dirs,
            cordoned_log_dirs=(
                broker.cordoned_log_dirs
                if record.cordoned_log_dirs is None
                else record.cordoned_log_dirs
            ),
        )
        delta.brokers.add(record.broker_id)

    def apply_fence(
        self, record: FenceBrokerRecord | UnfenceBrokerRecord, delta: MetadataDelta
    ) -> None:
        broker = self._registered(record.id, record.epoch)
        self.brokers[record.id] = replace(broker, fenced=isinstance(record, FenceBrokerRecord))
        delta.brokers.add(record.id)

    def apply_controller(self, record: RegisterControllerRecord, delta: MetadataDelta) -> None:
        features = _by_name(record.features)
        self.controllers[record.controller_id] = replace(record, features=features)
        delta.controllers.add(record.controller_id)

    def _registered(self, broker_id: int, epoch: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise ValueError(f"broker {broker_id} is not registered")
        if broker.broker_epoch != epoch:
            raise ValueError(f"broker {broker_id} has epoch {broker.broker_epoch}, not {epoch}")
        return broker


def _by_name(features: tuple[RegisteredFeature, ...]) -> tuple[RegisteredFeature, ...]:
    """Sort features: their order has no meaning, and differs between Kafka's log and snapshots."""
    return tuple(sorted(features, key=lambda feature: feature.name))
