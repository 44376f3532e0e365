"""Who may do what: Kafka's StandardAuthorizer over the ACLs of the committed image.

Steps of a decision, for a principal, its host, an operation and a resource:

1. A super user may do everything.
2. Until the ACLs are loaded nobody else may do anything.
3. The ACLs of the resource: literal ones of its name and of `*`, prefixed ones of its beginnings.
4. One of them denies this principal (or `User:*`) from this host (or `*`) this operation (or ALL):
   denied, whatever allows it.
5. One of them allows it, or an operation that implies it: allowed. Read, write, delete and alter
   imply describe; alter configs implies describe configs. A denial implies nothing.
6. The resource has no ACL at all, anybody's: what `allow.everyone.if.no.acl.found` says. Otherwise
   denied.

Source: KIP-11, KIP-290, KIP-801; Kafka's StandardAuthorizerData and AclEntry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from quorate.metadata.acls import CLUSTER_NAME, LITERAL, PREFIXED, WILDCARD, acl_of
from quorate.metadata.image import MetadataImage
from quorate.metadata.requests import Acl

ANONYMOUS = "User:ANONYMOUS"
"""Who connects without a certificate."""
EVERYBODY = "User:*"


class Operation(IntEnum):
    """Kafka's AclOperation, as far as something asks for it."""

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


class ResourceType(IntEnum):
    """Kafka's ResourceType, as far as something asks for it."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource by its very name."""

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
    """ACLs by what they speak of. `lengths`: of the prefixes of a resource type. `granted`: what
    one of them allows at all: resource type, principal, host, operation.
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
        """Step 3."""
        kind, name = resource.type, resource.name
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                yield from self._prefixed.get((kind, name[:length]), ())


def _is_about(acl: Acl, principal: str, host: str, operation: int) -> bool:
    """Whether an ACL of the resource decides about this (steps 4 and 5)."""
    if acl.principal not in (principal, EVERYBODY) or acl.host not in (host, WILDCARD):
        return False
    if acl.operation in (Operation.ALL, operation):
        return True
    return acl.permission_type == _ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


class AclAuthorizer:
    """Decides by the ACLs that it was told last. `is_ready`: whether it was told any state at all.

    super_users: principals, as in `User:CN=admin`.
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
        """Decide by the ACLs of this image from now on."""
        self.use(acl_of(record) for record in image.acls.acls.values())

    def use(self, acls: Iterable[Acl]) -> None:
        """Decide by these ACLs from now on."""
        self._index = _Index(acls)

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """The decision."""
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
        """Whether there may be a resource of these kinds on which `allows` says yes. False is
        certain: it is known before any resource is.
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
