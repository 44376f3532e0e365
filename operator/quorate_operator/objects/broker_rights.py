"""What the controllers' authorizer must allow brokers.

Every broker needs the cluster action. Kafka's brokers also create the internal topics of groups,
transactions and share groups, when the first client needs one. They do so in their own name, not in
the client's, and on Kafka's controllers they are usually super users.

Source: Kafka's AutoTopicCreationManager; KIP-848, KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quorate.common.identifiers import INTERNAL_TOPICS
from quorate.metadata.acls import CLUSTER_NAME, LITERAL
from quorate.metadata.authorizer import Operation, ResourceType
from quorate.metadata.requests import Acl, AclFilter

PERMISSIONS_ALLOW: Final = 3
"""Kafka's AclPermissionType code of ALLOW."""

ASKED: Final = (
    AclFilter(ResourceType.CLUSTER, operation=Operation.CLUSTER_ACTION),
    AclFilter(ResourceType.TOPIC, operation=Operation.CREATE),
)
"""Filters for all ACLs that `rights` may return."""


def rights(principal: str, *, is_kafka: bool) -> tuple[Acl, ...]:
    """The ACLs of a broker with this principal. is_kafka: whether it may be one of Kafka's."""
    found = [_allow(ResourceType.CLUSTER, CLUSTER_NAME, principal, Operation.CLUSTER_ACTION)]
    if is_kafka:
        found += (
            _allow(ResourceType.TOPIC, name, principal, Operation.CREATE)
            for name in INTERNAL_TOPICS
        )
    return tuple(found)


def lacking(principals: Iterable[str], acls: Iterable[Acl], *, is_kafka: bool) -> tuple[str, ...]:
    """The principals that lack some of their rights. acls: those that exist."""
    found = set(acls)
    return tuple(
        each for each in principals if not found.issuperset(rights(each, is_kafka=is_kafka))
    )


def _allow(kind: int, name: str, principal: str, operation: int) -> Acl:
    return Acl(kind, name, LITERAL, principal, "*", operation, PERMISSIONS_ALLOW)
