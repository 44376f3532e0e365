"""The callers of docs/access.md, what each of them has, and the authorizer that decides about them.

The receiver is a controller with TLS, an authorizer and `quorate.controller.principals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from quorate.broker.authorizer import BrokerAuthorizer
from quorate.metadata import requests as r
from quorate.metadata.acls import CLUSTER_NAME, LITERAL
from quorate.metadata.authorizer import ANONYMOUS, AclAuthorizer, Operation, ResourceType
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records import metadata as rec
from quorate.rpc.principals import Caller
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.metadata_loader import MetadataLoader

CONTROLLER, BROKER, RECEIVER = 2, 1001, 1
ADMINISTRATOR = "User:CN=admin"
OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAABA"
"""Of requests that no quorum carries out."""
DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAQ"
TOPIC, TOPIC_ID = "t", "AAAAAAAAAAAAAAAAAAACAA"


def principal_of(node: int) -> str:
    return f"User:CN=node-{node}"


@dataclass(frozen=True, slots=True)
class Column:
    """caller: None where no connection comes about. node: in whose name it sends."""

    title: str
    caller: Caller | None
    node: int = 0


COLUMNS: Sequence[Column] = (
    Column("no certificate", None),
    Column("client", Caller("User:CN=client", "h", has_certificate=True), CONTROLLER),
    Column("broker", Caller(principal_of(BROKER), "h", frozenset({BROKER}), True), BROKER),
    Column(
        "controller",
        Caller(principal_of(CONTROLLER), "h", frozenset({CONTROLLER}), True),
        CONTROLLER,
    ),
    Column("administrator", Caller(ADMINISTRATOR, "h", has_certificate=True), CONTROLLER),
    Column("plaintext", Caller(ANONYMOUS, "h"), CONTROLLER),
)


PRODUCER = Column("producer", Caller("User:CN=producer", "h", has_certificate=True), CONTROLLER)
"""Whom the ACLs allow to write and read TOPIC."""


def super_users() -> list[str]:
    return [ADMINISTRATOR, *map(principal_of, (RECEIVER, CONTROLLER))]


def controllers() -> list[str]:
    return [principal_of(RECEIVER), principal_of(CONTROLLER)]


def broker_acl() -> r.Acl:
    """What brokers are given, and all that the broker of the page has."""
    return r.Acl(
        *(ResourceType.CLUSTER, CLUSTER_NAME, LITERAL, principal_of(BROKER), "*"),
        *(Operation.CLUSTER_ACTION, 3),
    )


def producer_acls() -> tuple[r.Acl, ...]:
    """What the producer of the page is given."""
    return tuple(
        r.Acl(ResourceType.TOPIC, TOPIC, LITERAL, "User:CN=producer", "*", operation, 3)
        for operation in (Operation.READ, Operation.WRITE)
    )


def authorizer() -> NodeAuthorizer:
    """That of a controller whose certificate names it, with an authorizer and the ACL above."""
    made = NodeAuthorizer(controllers=controllers(), authorizer=AclAuthorizer(super_users()))
    made.follow(cast(MetadataLoader, _committed((broker_acl(),))))
    return made


def broker_gate() -> BrokerAuthorizer:
    """That of a broker with the same, the topic of the page, and a producer of its records."""
    made = BrokerAuthorizer(authorizer=AclAuthorizer(super_users()))
    made.follow(cast(MetadataLoader, _committed((broker_acl(), *producer_acls()))))
    return made


def _committed(acls: Sequence[r.Acl]) -> Any:
    """What an authorizer follows, with these ACLs and TOPIC."""
    image = MetadataImage()
    image.apply(rec.TopicRecord(TOPIC, TOPIC_ID, version=0), 0)
    for number, acl in enumerate(acls, 1):
        record = rec.AccessControlEntryRecord(
            id=f"{'A' * 20}{number}A",
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        image.apply(record, number)
    return SimpleNamespace(image=image, has_caught_up=True, add_listener=lambda _: None)
