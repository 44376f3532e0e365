"""Access control lists, as part of the image, and the matching of filters.

The numbers are Kafka's codes: 0 unknown and 1 any (in filters only) of each kind, then

    resource types   2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user
    pattern types    2 match (in filters only), 3 literal, 4 prefixed
    operations       2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster
                     action, 10 describe configs, 11 alter configs, 12 idempotent write, 13 create
                     tokens, 14 describe tokens, 15 two phase commit
    permissions      2 deny, 3 allow

Source: KIP-290 (prefixed patterns), KIP-801; Kafka's ResourcePatternFilter and AclBinding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.requests import Acl, AclFilter
from quorate.records.metadata import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)

UNKNOWN, ANY = 0, 1
MATCH, LITERAL, PREFIXED = 2, 3, 4
WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"

RESOURCE_TYPES: Final = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
PATTERN_TYPES: Final = {LITERAL: "LITERAL", PREFIXED: "PREFIXED"}
OPERATIONS: Final = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
PERMISSIONS: Final = {2: "DENY", 3: "ALLOW"}


def acl_of(record: AccessControlEntryRecord) -> Acl:
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def matches(chosen: AclFilter, acl: Acl) -> bool:
    """Whether a filter selects an ACL."""
    return (
        chosen.resource_type in (ANY, acl.resource_type)
        and _matches_pattern(chosen, acl)
        and chosen.principal in (None, acl.principal)
        and chosen.host in (None, acl.host)
        and chosen.operation in (ANY, acl.operation)
        and chosen.permission_type in (ANY, acl.permission_type)
    )


def _matches_pattern(chosen: AclFilter, acl: Acl) -> bool:
    """Whether the filter's pattern selects an ACL.

    ANY selects both pattern types with exactly that name. MATCH selects the ACLs that apply to a
    resource of that name: literal ones for the name or the wildcard, and prefixes of the name.
    """
    if chosen.pattern_type not in (ANY, MATCH, acl.pattern_type):
        return False
    name = chosen.resource_name
    if name is None:
        return True
    if chosen.pattern_type != MATCH:
        return name == acl.resource_name
    if acl.pattern_type == LITERAL:
        return acl.resource_name in (name, WILDCARD)
    return name.startswith(acl.resource_name)


@dataclass(slots=True, repr=False)
class AclsImage:
    """The ACLs."""

    acls: dict[str, AccessControlEntryRecord] = field(default_factory=dict)
    """The ACL records by id."""
    ids: dict[Acl, str] = field(default_factory=dict, compare=False)
    """The id of each ACL."""

    def copy(self) -> AclsImage:
        return AclsImage(self.acls.copy(), self.ids.copy())

    def matching(self, chosen: AclFilter) -> list[AccessControlEntryRecord]:
        return [record for record in self.acls.values() if matches(chosen, acl_of(record))]

    def records(self) -> Iterator[MetadataRecord]:
        for record in self.acls.values():
            yield record if record.version == 0 else replace(record, version=0)

    def apply(self, record: AccessControlEntryRecord, delta: MetadataDelta) -> None:
        old = self.acls.get(record.id)
        if old is not None:
            self.ids.pop(acl_of(old), None)
        self.acls[record.id] = record
        self.ids[acl_of(record)] = record.id
        delta.acls = True

    def apply_remove(self, record: RemoveAccessControlEntryRecord, delta: MetadataDelta) -> None:
        old = self.acls.pop(record.id, None)
        if old is None:
            raise ValueError(f"there is no ACL {record.id}")
        acl = acl_of(old)
        if self.ids.get(acl) == record.id:
            del self.ids[acl]
        delta.acls = True
