"""Requests about principals: ACLs, client quotas and SCRAM credentials.

Source: KIP-290, KIP-801 (ACLs); KIP-546, KIP-599, KIP-612 (quotas); KIP-554, KIP-900 (SCRAM);
Kafka's AclControlManager, ClientQuotaControlManager and ScramControlManager.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections import Counter

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import uuid_from_bytes
from quorate.common.scram import MECHANISM_NAMES
from quorate.metadata import acls
from quorate.metadata.acls import acl_of
from quorate.metadata.describe import acl_filter_fault
from quorate.metadata.image import quotas, scram
from quorate.metadata.limits import fits
from quorate.metadata.managers.controller_context import TOO_MANY, ControllerContext, RefusedError
from quorate.metadata.metadata_version import RELEASES, SCRAM
from quorate.metadata.requests import (
    Acl,
    AlterClientQuotas,
    AlterClientQuotasResponse,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResponse,
    CreateAcls,
    CreateAclsResponse,
    DeleteAcls,
    DeleteAclsResponse,
    DeletedAcls,
    PartResult,
    QuotaChange,
    QuotaEntityKey,
    QuotaOutcome,
    ScramDeletion,
    ScramUpsertion,
)
from quorate.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    MetadataRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

# --- ACLs -----------------------------------------------------------------------------------------


def create_acls(
    context: ControllerContext, request: CreateAcls
) -> tuple[list[MetadataRecord], CreateAclsResponse]:
    """Create ACLs. An ACL that exists already is not an error."""
    batch = context.batch()
    made: set[Acl] = set()
    results = []
    for acl in request.acls:
        try:
            check_acl(acl)
            if acl not in context.image.acls.ids and acl not in made:
                record = AccessControlEntryRecord(
                    _new_id(context),
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                    version=0,
                )
                batch.add([record])
                made.add(acl)
            results.append(PartResult(acl.resource_name))
        except RefusedError as refused:
            results.append(PartResult(acl.resource_name, refused.error, refused.message))
    return batch.records, CreateAclsResponse(tuple(results))


def _new_id(context: ControllerContext) -> str:
    while True:
        text = uuid_from_bytes(context.random_uuid())
        if text not in context.image.acls.acls:
            return text


def check_acl(acl: Acl) -> None:
    """Raise RefusedError if the ACL is invalid."""
    fault = ""
    if acl.resource_type not in acls.RESOURCE_TYPES:
        fault = f"Invalid resourceType {acl.resource_type}"
    elif acl.pattern_type not in acls.PATTERN_TYPES:
        fault = f"Invalid patternType {acl.pattern_type}"
    elif acl.operation not in acls.OPERATIONS:
        fault = f"Invalid operation {acl.operation}"
    elif acl.permission_type not in acls.PERMISSIONS:
        fault = f"Invalid permissionType {acl.permission_type}"
    elif acls.RESOURCE_TYPES[acl.resource_type] == "CLUSTER" and (
        acl.resource_name != acls.CLUSTER_NAME
    ):
        fault = f"The only valid name for the CLUSTER resource is {acls.CLUSTER_NAME}"
    elif not acl.resource_name:
        fault = "Invalid empty resource name"
    elif not acl.host:
        fault = "Host should not be empty"
    elif not acl.principal.partition(":")[0] or ":" not in acl.principal:
        fault = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    elif not fits(acl.resource_name, acl.principal, acl.host):
        fault = "A name is longer than a record can hold."
    if fault:
        raise RefusedError(ErrorCode.INVALID_REQUEST, fault)


def delete_acls(
    context: ControllerContext, request: DeleteAcls
) -> tuple[list[MetadataRecord], DeleteAclsResponse]:
    removed: set[str] = set()
    listed = 0
    results = []
    for chosen in request.filters:
        fault = acl_filter_fault(chosen)
        if fault:
            results.append(DeletedAcls(error=ErrorCode.INVALID_REQUEST, message=fault))
            continue
        # An ACL that several filters match is in the result of each, as in Kafka.
        found = context.image.acls.matching(chosen)
        # Hence the limit of what is listed: filters that all match everything would repeat it all.
        if listed + len(found) > context.settings.records_per_batch_max:
            results.append(DeletedAcls(error=ErrorCode.POLICY_VIOLATION, message=TOO_MANY))
            continue
        listed += len(found)
        removed |= {record.id for record in found}
        results.append(DeletedAcls(tuple(map(acl_of, found))))
    records: list[MetadataRecord] = [
        RemoveAccessControlEntryRecord(acl_id, version=0)
        for acl_id in context.image.acls.acls
        if acl_id in removed
    ]
    return records, DeleteAclsResponse(tuple(results))


# --- client quotas --------------------------------------------------------------------------------


def alter_quotas(
    context: ControllerContext, request: AlterClientQuotas
) -> tuple[list[MetadataRecord], AlterClientQuotasResponse]:
    keys = [quotas.entity_key(change.entity) for change in request.changes]
    times = Counter(keys)
    records: list[MetadataRecord] = []
    entries = []
    for key, change in zip(keys, request.changes, strict=True):
        try:
            if times[key] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "The entity is named twice.")
            records += _quota_records(context, key, change)
            entries.append(QuotaOutcome(change.entity))
        except RefusedError as refused:
            entries.append(
                QuotaOutcome(change.entity, error=refused.error, message=refused.message)
            )
    return [] if request.validate_only else records, AlterClientQuotasResponse(tuple(entries))


def _quota_records(
    context: ControllerContext, key: QuotaEntityKey, change: QuotaChange
) -> list[MetadataRecord]:
    fault = _entity_fault(key)
    if fault:
        raise RefusedError(ErrorCode.INVALID_REQUEST, fault)
    names = [op.key for op in change.ops]
    if len(set(names)) < len(names):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "A quota is named twice.")
    before = context.image.quotas.entities.get(key, {})
    parts = tuple(QuotaEntity(kind, name) for kind, name in key)
    valid = quotas.IP_KEYS if key[0][0] == quotas.IP else quotas.CLIENT_KEYS
    records: list[MetadataRecord] = []
    for op in change.ops:
        if op.value is None:
            if op.key in before:
                records.append(ClientQuotaRecord(parts, op.key, remove=True, version=0))
            continue
        if op.key not in valid:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {op.key}")
        fault = _value_fault(op.key, op.value)
        if fault:
            raise RefusedError(ErrorCode.INVALID_REQUEST, fault)
        if before.get(op.key) != op.value:
            records.append(ClientQuotaRecord(parts, op.key, op.value, version=0))
    return records


_HOST = re.compile(r"[0-9A-Za-z_.:%-]+")
"""What an address or the name of a host consists of."""


def _entity_fault(key: QuotaEntityKey) -> str:
    if not key:
        return "Invalid empty client quota entity"
    kinds = [kind for kind, _ in key]
    for kind, name in key:
        if kind not in (quotas.USER, quotas.CLIENT_ID, quotas.IP):
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
        if not fits(name):
            return "A name is longer than a record can hold."
        if kind == quotas.IP and name is not None and not _HOST.fullmatch(name):
            return f"{name} is not a valid IP or resolvable host."
    if len(set(kinds)) < len(kinds):
        return f"Invalid quota entity combination {', '.join(kinds)}"
    if quotas.IP in kinds and len(kinds) > 1:
        return (
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId"
        )
    return ""


_WHOLE = {
    "producer_byte_rate": 2**63 - 1,
    "consumer_byte_rate": 2**63 - 1,
    "connection_creation_rate": 2**31 - 1,
}
"""The quotas that must be whole numbers, with their maximum."""
_TYPES = {2**63 - 1: "a LONG", 2**31 - 1: "an INT"}


def quota_fault(record: ClientQuotaRecord) -> str:
    """Why no request could produce this record, empty if one could."""
    parts = {part.entity_type: part.entity_name for part in record.entity}
    if len(parts) < len(record.entity):
        return "An entity type is named twice."
    fault = _entity_fault(tuple(parts.items()))
    if fault:
        return fault
    if record.key not in (quotas.IP_KEYS if quotas.IP in parts else quotas.CLIENT_KEYS):
        return f"Invalid configuration key {record.key}"
    return "" if record.remove else _value_fault(record.key, record.value)


def _value_fault(key: str, value: float) -> str:
    if math.isnan(value):
        return f"{key} cannot be NaN."
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    most = _WHOLE.get(key)
    if most is not None:
        if value > most:
            return f"Proposed value for {key} is too large for {_TYPES[most]}."
        if value != math.floor(value):
            return f"{key} cannot be a fractional value."
    return ""


# --- SCRAM ----------------------------------------------------------------------------------------


def alter_scram(
    context: ControllerContext, request: AlterUserScramCredentials
) -> tuple[list[MetadataRecord], AlterUserScramCredentialsResponse]:
    """Alter SCRAM credentials. One invalid change rejects all changes of the same user."""
    pairs = [(entry.name, entry.mechanism) for entry in request.deletions]
    pairs += [(entry.name, entry.mechanism) for entry in request.upsertions]
    faults: dict[str, RefusedError] = {}
    made: list[tuple[str, MetadataRecord]] = []
    seen: set[tuple[str, int]] = set()
    changes: list[ScramDeletion | ScramUpsertion] = [*request.deletions, *request.upsertions]
    for each in changes:
        if each.name in faults:
            continue
        try:
            _check_scram(context, each.name, each.mechanism)
            record = (
                _deleted_credential(context, each)
                if isinstance(each, ScramDeletion)
                else credential_of(each)
            )
            if (each.name, each.mechanism) in seen:
                raise RefusedError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            seen.add((each.name, each.mechanism))
            made.append((each.name, record))
        except RefusedError as refused:
            faults[each.name] = refused
    outcomes = tuple(
        PartResult(name, faults[name].error, faults[name].message)
        if name in faults
        else PartResult(name)
        for name in dict.fromkeys(name for name, _ in pairs)
    )
    records = [record for name, record in made if name not in faults]
    return records, AlterUserScramCredentialsResponse(outcomes)


def _deleted_credential(context: ControllerContext, deletion: ScramDeletion) -> MetadataRecord:
    if (deletion.name, deletion.mechanism) not in context.image.scram.credentials:
        raise RefusedError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    return RemoveUserScramCredentialRecord(deletion.name, deletion.mechanism, version=0)


def _check_scram(context: ControllerContext, name: str, mechanism: int) -> None:
    if context.image.level < SCRAM:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"SCRAM credentials need metadata.version {RELEASES[SCRAM]} or later.",
        )
    fault = _username_fault(name)
    if fault:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, fault)
    if mechanism not in MECHANISM_NAMES:
        raise RefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def credential_fault(record: UserScramCredentialRecord, level: int) -> str:
    """Why no request could produce this record, empty if one could. level: the metadata.version."""
    if level < SCRAM:
        return f"SCRAM credentials need metadata.version {RELEASES[SCRAM]} or later."
    if record.mechanism not in MECHANISM_NAMES:
        return "Unknown SCRAM mechanism"
    fault = _username_fault(record.name)
    if fault:
        return fault
    if not scram.MIN_ITERATIONS <= record.iterations <= scram.MAX_ITERATIONS:
        return "Too few or too many iterations"
    size = hashlib.new(scram.HASHES[record.mechanism]).digest_size
    if not record.salt or {len(record.stored_key), len(record.server_key)} != {size}:
        return f"The salt is missing, or a key does not have {size} bytes."
    return ""


def _username_fault(name: str) -> str:
    if not name:
        return "Username must not be empty"
    return "" if fits(name) else "Username is longer than a record can hold"


def credential_of(upsertion: ScramUpsertion) -> UserScramCredentialRecord:
    """Derive the keys of RFC 5802 from the salted password, which is not stored.

    Raises RefusedError.
    """
    if upsertion.iterations < scram.MIN_ITERATIONS:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > scram.MAX_ITERATIONS:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    hashed = scram.HASHES[upsertion.mechanism]
    size = hashlib.new(hashed).digest_size
    if len(upsertion.salted_password) != size or not upsertion.salt:
        raise RefusedError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The salted password has {len(upsertion.salted_password)} bytes instead of {size}, "
            "or the salt is missing.",
        )
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", hashed)
    return UserScramCredentialRecord(
        upsertion.name,
        upsertion.mechanism,
        upsertion.salt,
        hashlib.new(hashed, client_key).digest(),
        hmac.digest(upsertion.salted_password, b"Server Key", hashed),
        upsertion.iterations,
        version=0,
    )
