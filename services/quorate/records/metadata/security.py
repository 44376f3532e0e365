"""Records of principals: ACLs (KIP-801), SCRAM credentials (KIP-900), delegation tokens (KIP-48),
client quotas (KIP-546)."""

from __future__ import annotations

from quorate.common.identifiers import ZERO_UUID
from quorate.records.metadata.schema import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int32,
    Int64,
    MetadataRecord,
    String,
    Structure,
    Uuid,
    record,
    structure,
)


@record(api_key=10, versions=(0, 0))
class DelegationTokenRecord(MetadataRecord):
    """A delegation token, made or renewed; times are milliseconds since 1970."""

    owner: String = ""
    requester: String = ""
    renewers: tuple[String, ...] = ()
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


@record(api_key=26, versions=(0, 0))
class RemoveDelegationTokenRecord(MetadataRecord):
    """A delegation token is gone."""

    token_id: String = ""


@record(api_key=11, versions=(0, 0))
class UserScramCredentialRecord(MetadataRecord):
    """A user's SCRAM credential."""

    name: String = ""
    mechanism: Int8 = 0
    """1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


@record(api_key=22, versions=(0, 0))
class RemoveUserScramCredentialRecord(MetadataRecord):
    """A user's SCRAM credential is gone."""

    name: String = ""
    mechanism: Int8 = 0


@structure
class QuotaEntity(Structure):
    """One part of what a quota applies to; None is the default of its type."""

    entity_type: String = ""
    entity_name: String | None = ""


@record(api_key=14, versions=(0, 0))
class ClientQuotaRecord(MetadataRecord):
    """A quota is set, or removed."""

    entity: tuple[QuotaEntity, ...] = ()
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


@record(api_key=18, versions=(0, 0))
class AccessControlEntryRecord(MetadataRecord):
    """An ACL; the small integers are the codes of Kafka's AclOperation and its kin."""

    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@record(api_key=19, versions=(0, 0))
class RemoveAccessControlEntryRecord(MetadataRecord):
    """An ACL is gone."""

    id: Uuid = ZERO_UUID
