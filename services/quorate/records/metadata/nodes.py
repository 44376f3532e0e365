"""Records of brokers and controllers (KIP-631, KIP-841, KIP-858, KIP-866, KIP-919)."""

from __future__ import annotations

from quorate.common.identifiers import ZERO_UUID
from quorate.records.metadata.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    MetadataRecord,
    String,
    Structure,
    Uint16,
    Uuid,
    record,
    structure,
    wire,
)

NO_CHANGE = 0
FENCE = 1
UNFENCE = -1
"""Of BrokerRegistrationChangeRecord.fenced."""
IN_CONTROLLED_SHUTDOWN = 1


@structure
class RegisteredEndpoint(Structure):
    """A registered endpoint of a node."""

    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0
    """0 is PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


@structure
class RegisteredFeature(Structure):
    """The levels of a feature that a node supports."""

    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@record(api_key=0, versions=(0, 4))
class RegisterBrokerRecord(MetadataRecord):
    """A broker registered. Version 1: KIP-841; 2: KIP-866; 3: KIP-858; 4: KIP-1066."""

    broker_id: Int32 = 0
    is_migrating_zk_broker: Bool = wire(default=False, since=2)
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: tuple[RegisteredEndpoint, ...] = ()
    features: tuple[RegisteredFeature, ...] = ()
    rack: String | None = ""
    fenced: Bool = True
    in_controlled_shutdown: Bool = wire(default=False, since=1)
    log_dirs: tuple[Uuid, ...] = wire(default=(), since=3, tag=0)
    cordoned_log_dirs: tuple[Uuid, ...] | None = wire(default=None, since=4, tag=1)


@record(api_key=1, versions=(0, 0))
class UnregisterBrokerRecord(MetadataRecord):
    """A broker is forgotten."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


@record(api_key=7, versions=(0, 0))
class FenceBrokerRecord(MetadataRecord):
    """A broker is fenced: the form before BrokerRegistrationChangeRecord."""

    id: Int32 = 0
    epoch: Int64 = 0


@record(api_key=8, versions=(0, 0))
class UnfenceBrokerRecord(MetadataRecord):
    """A broker is unfenced: the form before BrokerRegistrationChangeRecord."""

    id: Int32 = 0
    epoch: Int64 = 0


@record(api_key=17, versions=(0, 3))
class BrokerRegistrationChangeRecord(MetadataRecord):
    """What changed in a registration. Empty `log_dirs` and None say that nothing did."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Int8 = wire(default=NO_CHANGE, tag=0)
    in_controlled_shutdown: Int8 = wire(default=NO_CHANGE, since=1, tag=1)
    log_dirs: tuple[Uuid, ...] = wire(default=(), since=2, tag=2)
    cordoned_log_dirs: tuple[Uuid, ...] | None = wire(default=None, since=3, tag=3)


@record(api_key=27, versions=(0, 0))
class RegisterControllerRecord(MetadataRecord):
    """A controller registered (KIP-919)."""

    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    end_points: tuple[RegisteredEndpoint, ...] = ()
    features: tuple[RegisteredFeature, ...] = ()
