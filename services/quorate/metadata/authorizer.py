"""ACL authorization: Kafka's StandardAuthorizer over the ACLs of the committed image.

Steps of a decision, for a principal, its host, an operation and a resource:

1. A super user is allowed everything.
2. Until the ACLs are loaded, all other principals are denied everything.
3. The resource's ACLs are the literal ones for its name and for `*`, and the prefixed ones for
   every prefix of its name.
4. If one of them denies this principal (or `User:*`) this operation (or ALL) from this host (or
   `*`), the operation is denied, even if another ACL allows it.
5. If one of them allows the operation, or another that implies it, the operation is allowed. Read,
   write, delete and alter imply describe; alter configs implies describe configs. A denial implies
   nothing.
6. If the resource has no ACL for any principal, `allow.everyone.if.no.acl.found` decides. Otherwise
   the operation is denied.

Source: KIP-11, KIP-290, KIP-801; Kafka's StandardAuthorizerData and AclEntry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from quorate.metadata.acls import CLUSTER_NAME, LITERAL, PREFIXED, WILDCARD, acl_of
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.requests import Acl

ANONYMOUS = "User:ANONYMOUS"
"""The principal of clients without a certificate."""
EVERYBODY = "User:*"


class Operation(IntEnum):
    """The operations of Kafka's AclOperation that are authorized here."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """The resource types of Kafka's ResourceType that are authorized here."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    DELEGATION_TOKEN = 6
    USER = 7


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, by its exact name."""

    type: int
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)

_DENY, _ALLOW = 2, 3
_IMPLIED_BY: Final[dict[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class _Index:
    """ACLs by resource.

    `_lengths`: the lengths of the prefixes of each resource type. `granted`: the (resource type,
    principal, host, operation) of every ACL that allows something.
    """

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.granted: set[tuple[int, str, str, int]] = set()
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[tuple[int, str], list[Acl]] = {}
        self._lengths: dict[int, set[int]] = {}
        for acl in acls:
            if acl.permission_type == _ALLOW:
                self.granted.add((acl.resource_type, acl.principal, acl.host, acl.operation))
            place = (acl.resource_type, acl.resource_name)
            if acl.pattern_type == LITERAL:
                self._literal.setdefault(place, []).append(acl)
            elif acl.pattern_type == PREFIXED:
                self._prefixed.setdefault(place, []).append(acl)
                self._lengths.setdefault(acl.resource_type, set()).add(len(acl.resource_name))

    def of(self, resource: Resource) -> Iterator[Acl]:
        """The ACLs of a resource (step 3)."""
        kind, name = resource.type, resource.name
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from self._prefixed.get((kind, name[:length]), ())


def _is_about(acl: Acl, principal: str, host: str, operation: int) -> bool:
    """Whether an ACL of the resource applies to the operation (steps 4 and 5)."""
    if acl.principal not in (principal, EVERYBODY) or acl.host not in (host, WILDCARD):
        return False
    if acl.operation in (Operation.ALL, operation):
        return True
    return acl.permission_type == _ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


class AclAuthorizer:
    """Authorizes by the ACLs that were loaded last. `is_ready`: whether ACLs have been loaded.

    super_users: principals, such as `User:CN=admin`.
    """

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_if_no_acl_found: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl_found = allow_if_no_acl_found
        self._index: _Index | None = None

    @property
    def is_ready(self) -> bool:
        return self._index is not None

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def load(self, image: MetadataImage) -> None:
        """Replace the ACLs with those of the image."""
        self.use(acl_of(record) for record in image.acls.acls.values())

    def use(self, acls: Iterable[Acl]) -> None:
        """Replace the ACLs."""
        self._index = _Index(acls)

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether the principal may perform the operation on the resource."""
        if principal in self._super_users:
            return True
        if self._index is None:
            return False
        found = is_allowed = False
        for acl in self._index.of(resource):
            found = True
            if _is_about(acl, principal, host, operation):
                if acl.permission_type == _DENY:
                    return False
                is_allowed = True
        return is_allowed or (not found and self._allow_if_no_acl_found)

    def may_allow(
        self, principal: str, host: str, operation: Operation, kinds: Iterable[ResourceType]
    ) -> bool:
        """Whether `allows` may return True for some resource of these types.

        False is definitive: a request can be rejected before its resources are known.
        """
        if principal in self._super_users:
            return True
        if self._index is None:
            return False
        operations = (Operation.ALL, operation, *_IMPLIED_BY.get(operation, ()))
        return self._allow_if_no_acl_found or any(
            (kind, who, where, each) in self._index.granted
            for kind in kinds
            for who in (principal, EVERYBODY)
            for where in (host, WILDCARD)
            for each in operations
        )
