"""Principals and nodes out of what gRPC says of a connection."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.rpc.principals import (
    ANONYMOUS,
    SUBJECT_MAX,
    Caller,
    PrincipalMapping,
    caller_of,
    host_of,
    nodes_of,
)
from quorate.rpc.tls import dns_names

from tests.certificates import certificate_of, make_authority, make_certificate, needs_openssl

PEER = "ipv4:10.1.2.3:40000"
SUBJECT = "CN=kafka1.example.com,OU=ops,O=Acme\\, Inc,C=DE"


def auth(subject: str = "", *dns: str) -> dict[str, list[bytes]]:
    names = [name.encode() for name in dns]
    found = {"x509_pem_cert": [certificate_of(*names)]}
    # As gRPC has them: it takes a NUL character for the end.
    found["peer_dns"] = [name.partition(b"\0")[0] for name in names]
    return found | ({"x509_subject": [subject.encode()]} if subject else {})


def test_who_shows_no_certificate_is_anonymous() -> None:
    insecure = {"transport_security_type": [b"insecure"]}
    assert caller_of(insecure, PEER, PrincipalMapping()) == Caller(ANONYMOUS, "10.1.2.3")


def test_a_certificate_is_its_subject_and_its_nodes() -> None:
    found = caller_of(auth(SUBJECT, "node-3", "kafka1"), PEER, PrincipalMapping())
    assert found == Caller(f"User:{SUBJECT}", "10.1.2.3", frozenset({3}), True)


def test_a_certificate_without_a_subject_is_its_first_name() -> None:
    assert caller_of(auth("", "console", "x"), PEER, PrincipalMapping()).principal == (
        "User:DNS=console"
    )
    assert caller_of(auth(), PEER, PrincipalMapping()).principal is None


def test_a_subject_that_no_rule_maps_is_nobody() -> None:
    rules = PrincipalMapping.parse("RULE:^CN=(.*?),OU=dev.*$/$1/")
    assert caller_of(auth(SUBJECT), PEER, rules).principal is None


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),.*$/$1/", "kafka1.example.com"),
        ("RULE:^CN=(.*?),.*$/$1/U", "KAFKA1.EXAMPLE.COM"),
        ("RULE:^CN=([^.]*)\\..*OU=(.*?),.*$/$1@$2/L", "kafka1@ops"),
        ("RULE:^CN=nobody$/x/, DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),OU=dev.*$/$1/L,RULE:.*C=DE$/german/", "german"),
        ("RULE:CN=kafka1/never the whole subject/,DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),.*$/a\\/b-$1/", "a/b-kafka1.example.com"),
    ],
)
def test_mapping_rules(rules: str, name: str) -> None:
    assert PrincipalMapping.parse(rules).name(SUBJECT) == name


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("", "there is no rule"),
        ("default", "is not a valid rule"),
        ("RULE:^CN=(.*$/$1/", "RE2 regular expression"),
        ("RULE:^CN=.*$/$1/", "no group $1"),
        ("RULE:^CN=(.*)$/$1/X", "is not a valid rule"),
        ("RULE:^CN=(.*)$", "is not a valid rule"),
        ("RULE:^(?!CN=root)(.*)$/$1/", "RE2 regular expression: invalid perl operator"),
        ("RULE:^CN=(.*),OU=\\1$/$1/", "RE2 regular expression: invalid escape"),
        ("RULE:^(((.{1000}){1000}){1000})$/$1/", "RE2 regular expression"),
    ],
)
def test_rules_that_are_none(rules: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("$", r"\$")):
        PrincipalMapping.parse(rules)


@pytest.mark.parametrize(
    "rules", ["RULE:^CN=(([a-z])+)+$/$1/", "RULE:^CN=(.*)*(.*)*X$/$1/", "RULE:(a|a|aa)*b/x/"]
)
def test_no_rule_takes_long(rules: str) -> None:
    mapping = PrincipalMapping.parse(rules)
    began = time.process_time()
    assert mapping.name("CN=" + "a" * (SUBJECT_MAX - 4) + "!") is None
    assert time.process_time() - began < 1


def test_a_subject_that_is_too_long_is_nobody() -> None:
    mapping = PrincipalMapping.parse("RULE:^CN=(.*)$/$1/,DEFAULT")
    assert mapping.name("CN=" + "a" * (SUBJECT_MAX - 3)) == "a" * (SUBJECT_MAX - 3)
    assert mapping.name("CN=" + "a" * (SUBJECT_MAX - 2)) is None


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:41482", "127.0.0.1"),
        ("ipv6:%5B::1%5D:41482", "::1"),
        ("ipv6:[::ffff:10.0.0.1]:41482", "10.0.0.1"),
        ("unix:/tmp/x", "/tmp/x"),
    ],
)
def test_hosts(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_only_node_n_names_a_node() -> None:
    names = ["node-0", "node-12", "node-01", "node--1", "node-1.x", "xnode-1", "NODE-5", "node-"]
    assert nodes_of(names) == {0, 12}


FORGED_NAMES = b"\x30\x0f\x06\x03\x55\x1d\x11\x04\x0a\x30\x08\x82\x06node-1"
"""What the extension with a certificate's names consists of."""


def test_a_name_is_what_the_certificate_says_to_its_end() -> None:
    nearly = caller_of(auth("", "node-1\0.example.org", "node-2"), PEER, PrincipalMapping())
    assert nearly.nodes == frozenset({2})
    assert nearly.principal == "User:DNS=node-1\0.example.org"
    # Text that looks like the extension, where the subject chooses it.
    for names in ((), (b"node-2",)):
        pem = certificate_of(*names, subject=FORGED_NAMES)
        forged = caller_of({"x509_pem_cert": [pem]}, PEER, PrincipalMapping())
        assert forged.nodes == {2 for _ in names}


@pytest.mark.parametrize("pem", [b"...", certificate_of(b"node-1")[:-40], b"\xff\0"])
def test_a_certificate_that_cannot_be_read_names_nobody(pem: bytes) -> None:
    found = caller_of({"x509_pem_cert": [pem], "peer_dns": [b"node-1"]}, PEER, PrincipalMapping())
    assert found == Caller(None, "10.1.2.3", frozenset(), True)


@given(st.text())
def test_any_text_is_rules_or_an_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        PrincipalMapping.parse(text).name(SUBJECT)


@needs_openssl
def test_the_names_in_ones_own_certificate(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "ca")
    plain, _ = make_certificate(tmp_path, "plain", authority)
    assert dns_names(plain) == ()
    long = [f"host-{number}.example.com" for number in range(40)]
    named, _ = make_certificate(tmp_path, "named", authority, names=("node-7", *long))
    assert dns_names(named) == ("node-7", *long)
    assert dns_names(authority[0]) == ()
