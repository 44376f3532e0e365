"""Decisions by ACLs: Kafka's rules one by one, and properties against a plain reading of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.metadata.authorizer import (
    ANONYMOUS,
    CLUSTER,
    AclAuthorizer,
    Operation,
    Resource,
    ResourceType,
)
from quorate.metadata.requests import Acl

ALICE, BOB = "User:CN=alice", "User:CN=bob"
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4
HOST, OTHER_HOST = "10.0.0.1", "10.0.0.2"


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def acl(  # noqa: PLR0917 - in the order of Acl's fields
    name: str = "orders",
    operation: int = Operation.READ,
    permission: int = ALLOW,
    principal: str = ALICE,
    host: str = "*",
    pattern: int = LITERAL,
    resource_type: int = ResourceType.TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, allow_if_none: bool = False) -> AclAuthorizer:
    made = AclAuthorizer(["User:CN=root"], allow_if_no_acl_found=allow_if_none)
    made.use(acls)
    return made


def may(decides: AclAuthorizer, operation: Operation, name: str, principal: str = ALICE) -> bool:
    return decides.allows(principal, HOST, operation, topic(name))


def test_nothing_is_allowed_without_an_acl() -> None:
    assert not may(authorizer(), Operation.READ, "orders")
    assert not authorizer().allows(ANONYMOUS, HOST, Operation.DESCRIBE, CLUSTER)


def test_super_users_may_do_everything_even_before_the_acls_are_loaded() -> None:
    decides = AclAuthorizer(["User:CN=root"], allow_if_no_acl_found=True)
    assert not decides.is_ready
    assert may(decides, Operation.ALTER, "orders", "User:CN=root")
    assert not may(decides, Operation.ALTER, "orders")
    decides.use([acl(operation=Operation.ALL, permission=DENY, principal="User:*")])
    assert may(decides, Operation.ALTER, "orders", "User:CN=root")


@pytest.mark.parametrize(
    ("name", "pattern", "asked", "allowed"),
    [
        ("orders", LITERAL, "orders", True),
        ("orders", LITERAL, "orders-eu", False),
        ("order", PREFIXED, "orders", True),
        ("orders", PREFIXED, "orders", True),
        ("orders-", PREFIXED, "orders", False),
        ("*", LITERAL, "anything", True),
        ("*", PREFIXED, "anything", False),
    ],
)
def test_literal_prefixed_and_wildcard(name: str, pattern: int, asked: str, allowed: bool) -> None:
    assert may(authorizer(acl(name, pattern=pattern)), Operation.READ, asked) is allowed


def test_a_denial_wins_over_everything_that_allows() -> None:
    allowed = acl("orders", Operation.ALL)
    assert not may(
        authorizer(acl("ord", permission=DENY, pattern=PREFIXED), allowed),
        Operation.READ,
        "orders",
    )
    assert not may(
        authorizer(allowed, acl("*", Operation.ALL, DENY, principal="User:*")),
        Operation.READ,
        "orders",
    )


@pytest.mark.parametrize("granted", [3, 4, 6, 7])
def test_read_write_delete_and_alter_imply_describe(granted: int) -> None:
    decides = authorizer(acl(operation=granted))
    assert may(decides, Operation.DESCRIBE, "orders")
    assert not may(decides, Operation.DESCRIBE_CONFIGS, "orders")


def test_alter_configs_implies_describe_configs() -> None:
    decides = authorizer(acl(operation=Operation.ALTER_CONFIGS))
    assert may(decides, Operation.DESCRIBE_CONFIGS, "orders")
    assert not may(decides, Operation.DESCRIBE, "orders")


def test_a_denial_implies_nothing() -> None:
    decides = authorizer(acl(operation=Operation.READ, permission=DENY), acl(operation=7))
    assert may(decides, Operation.DESCRIBE, "orders")
    assert not may(decides, Operation.READ, "orders")


def test_hosts_and_everybody() -> None:
    decides = authorizer(acl(host=HOST, principal="User:*"))
    assert decides.allows(BOB, HOST, Operation.READ, topic("orders"))
    assert not decides.allows(BOB, OTHER_HOST, Operation.READ, topic("orders"))


def test_allow_everyone_if_no_acl_found_looks_at_anybodys() -> None:
    decides = authorizer(acl(principal=BOB), allow_if_none=True)
    assert may(decides, Operation.WRITE, "payments")
    assert not may(decides, Operation.READ, "orders")


def test_the_types_of_resources_do_not_mix() -> None:
    decides = authorizer(acl("kafka-cluster", Operation.ALL))
    assert not decides.allows(ALICE, HOST, Operation.ALTER, CLUSTER)


NAMES = st.text("ab", min_size=1, max_size=3)
ACLS = st.builds(
    acl,
    st.one_of(NAMES, st.just("*")),
    st.sampled_from([2, 3, 4, 5, 6, 7, 8, 10, 11]),
    st.sampled_from([DENY, ALLOW]),
    st.sampled_from([ALICE, BOB, "User:*"]),
    st.sampled_from(["*", HOST, OTHER_HOST]),
    st.sampled_from([LITERAL, PREFIXED]),
)
OPERATIONS = st.sampled_from([op for op in Operation if op is not Operation.ALL])
IMPLIED = {8: {3, 4, 6, 7}, 10: {11}}


def read_plainly(
    acls: list[Acl], principal: str, operation: int, name: str, *, default: bool
) -> bool:
    """The rules as the module's docstring tells them, without any index."""
    found = [
        a
        for a in acls
        if (a.pattern_type == LITERAL and a.resource_name in (name, "*"))
        or (a.pattern_type == PREFIXED and name.startswith(a.resource_name))
    ]
    mine = [a for a in found if a.principal in (principal, "User:*") and a.host in ("*", HOST)]
    if any(a.permission_type == DENY and a.operation in (2, operation) for a in mine):
        return False
    implying = {2, operation} | IMPLIED.get(operation, set())
    if any(a.permission_type == ALLOW and a.operation in implying for a in mine):
        return True
    return default and not found


@given(st.lists(ACLS, max_size=12), OPERATIONS, NAMES, st.booleans())
def test_the_index_changes_no_decision(
    acls: list[Acl], operation: Operation, name: str, default: bool
) -> None:
    decides = authorizer(*acls, allow_if_none=default)
    for principal in (ALICE, BOB):
        wanted = read_plainly(acls, principal, operation, name, default=default)
        assert may(decides, operation, name, principal) is wanted


@given(st.lists(ACLS, max_size=8), ACLS, OPERATIONS, NAMES)
def test_one_more_denial_never_allows_more(
    acls: list[Acl], more: Acl, operation: Operation, name: str
) -> None:
    denial = acl(more.resource_name, more.operation, DENY, more.principal, more.host)
    if may(authorizer(*acls, denial), operation, name):
        assert may(authorizer(*acls), operation, name)
