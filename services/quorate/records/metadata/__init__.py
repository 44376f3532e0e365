"""Kafka's metadata records: declared once, decoded and encoded in every version of Kafka 4.3.

`schema` says how a record is declared; `partitions`, `nodes`, `security` and `cluster` declare
them; `decoding` and `encoding` build a function per class and version; `registry` has the
registry and the frame; `as_json` prints as Kafka's tools do, and `from_json` reads that.
"""

from quorate.records.metadata.applications import (
    HAS_STATE,
    ApplicationSummary,
    ApplicationTag,
    OpenedSession,
    application_field,
    application_record,
)
from quorate.records.metadata.as_json import json_text
from quorate.records.metadata.cluster import (
    KAFKA_NODES,
    KAFKA_NODES_TAG,
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
    marks_kafka_nodes,
)
from quorate.records.metadata.encoding import UnsupportedVersionError
from quorate.records.metadata.nodes import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RegisteredEndpoint,
    RegisteredFeature,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from quorate.records.metadata.partitions import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.records.metadata.registry import (
    API_KEYS,
    RECORD_TYPES,
    UnknownRecord,
    decode,
    decode_json,
    encode,
    from_json,
    peek,
    to_json,
    type_name,
)
from quorate.records.metadata.schema import MetadataRecord, Structure
from quorate.records.metadata.security import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

__all__ = [
    "API_KEYS",
    "HAS_STATE",
    "KAFKA_NODES",
    "KAFKA_NODES_TAG",
    "RECORD_TYPES",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "ApplicationSummary",
    "ApplicationTag",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "MetadataRecord",
    "NoOpRecord",
    "OpenedSession",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "QuotaEntity",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RegisteredEndpoint",
    "RegisteredFeature",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "Structure",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnknownRecord",
    "UnregisterBrokerRecord",
    "UnsupportedVersionError",
    "UserScramCredentialRecord",
    "ZkMigrationState",
    "ZkMigrationStateRecord",
    "application_field",
    "application_record",
    "decode",
    "decode_json",
    "encode",
    "from_json",
    "json_text",
    "marks_kafka_nodes",
    "peek",
    "to_json",
    "type_name",
]
