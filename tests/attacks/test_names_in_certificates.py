"""Certificates that nearly name a node or a super user, and rights that end while a stream is open.

A real controller with TLS and an authorizer. The authority issued every certificate, so only what
the controller reads in a certificate keeps its owner from being somebody else.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.acls import CLUSTER_NAME, LITERAL
from quorate.metadata.authorizer import Operation, ResourceType
from quorate.v1 import quorum_pb2, raft_pb2

from tests.attacks.test_controller_principals import BROKER, REFUSED, Lab
from tests.certificates import needs_openssl
from tests.integration.support import CLUSTER

pytestmark = [needs_openssl, pytest.mark.timeout(120)]

CN, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    made = Lab(tmp_path, 1)
    try:
        yield made
    finally:
        made.stop()


def attribute(oid: x509.ObjectIdentifier, text: str) -> x509.NameAttribute:
    return x509.NameAttribute(oid, text, _validate=False)


def issue(
    lab: Lab,
    folder: Path,
    stem: str,
    subject: x509.Name,
    alternatives: tuple[x509.GeneralName, ...] = (),
) -> None:
    """A certificate of the lab's authority, as `lab.files[stem]`."""
    issuer = x509.load_pem_x509_certificate(lab.authority[0].read_bytes())
    issuer_key: Any = serialization.load_pem_private_key(lab.authority[1].read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    made = builder.sign(issuer_key, hashes.SHA256())
    certificate, secret = folder / f"{stem}.pem", folder / f"{stem}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    lab.files[stem] = (certificate, secret)


def other_name(text: bytes) -> x509.OtherName:
    return x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3"), text)


NOT_NODE_1: tuple[tuple[x509.GeneralName, ...], ...] = (
    (x509.DNSName("node-1\0.example.org"),),
    (x509.DNSName("node-1."),),
    (x509.DNSName("NODE-1"),),
    (x509.DNSName("node-01"),),
    (x509.DNSName("node-1 "),),
    (x509.DNSName("*"), x509.DNSName("node-*")),
    (x509.DNSName("node-1.example.org"), x509.DNSName("x.node-1")),
    (x509.UniformResourceIdentifier("node-1"),),
    (x509.RFC822Name("node-1"),),
    (x509.RegisteredID(x509.ObjectIdentifier("1.2.3")), other_name(b"\x0c\x06node-1")),
    (x509.DirectoryName(x509.Name([x509.NameAttribute(CN, "node-1")])),),
)
"""None of them is the DNS name `node-1`."""

NOT_ADMIN: tuple[x509.Name, ...] = (
    x509.Name([attribute(CN, "admin\0.example.org")]),
    x509.Name([attribute(CN, "admin ")]),
    x509.Name([attribute(CN, "Admin")]),
    x509.Name([attribute(CN, "x"), attribute(CN, "admin")]),
    x509.Name([attribute(CN, "admin"), attribute(CN, "x")]),
    x509.Name([attribute(CN, "x,CN=admin")]),
    x509.Name([attribute(CN, "admin;User:CN=admin")]),
    x509.Name([attribute(OU, "x\nCN=admin")]),
    x509.Name([x509.RelativeDistinguishedName([attribute(CN, "admin"), attribute(OU, "x")])]),
    x509.Name([x509.NameAttribute(CN, "admin\0", _ASN1Type.BMPString, _validate=False)]),
    x509.Name([attribute(CN, "аdmin")]),
)
"""None of them is the subject `CN=admin`; the last begins with a Cyrillic letter."""


async def test_only_the_exact_dns_name_is_a_node(lab: Lab, tmp_path: Path) -> None:
    stems = [f"nearly-{number}" for number in range(len(NOT_NODE_1))]
    for stem, names in zip(stems, NOT_NODE_1, strict=True):
        issue(lab, tmp_path, stem, x509.Name([attribute(CN, stem)]), names)
    issue(lab, tmp_path, "genuine", x509.Name([attribute(CN, "x")]), (x509.DNSName("node-1"),))
    await lab.allow(*(f"User:CN={stem}" for stem in (*stems, "x")))
    for stem in (*stems, "genuine"):
        answer = await lab.call(stem, 1, lab.vote(1, 1, 1, pre_vote=True))
        is_refused = answer.error_code == REFUSED
        assert is_refused is (stem != "genuine"), (stem, answer)


async def test_only_the_exact_subject_is_a_super_user(lab: Lab, tmp_path: Path) -> None:
    await lab.allow("User:CN=nobody")  # until the ACLs are loaded, callers are told of no leader
    for number, subject in enumerate(NOT_ADMIN):
        stem = f"nearly-{number}"
        issue(lab, tmp_path, stem, subject)
        request = quorum_pb2.DescribeQuorumRequest(cluster_id=CLUSTER)
        async with channel(lab, stem) as opened:
            ask = opened.unary_unary(
                "/quorate.v1.Quorum/DescribeQuorum",
                request_serializer=type(request).SerializeToString,
                response_deserializer=quorum_pb2.DescribeQuorumResponse.FromString,
            )
            answer = await ask(request, timeout=10)
        assert answer.error_code == REFUSED, (subject, answer)
    # What they are called cannot break or forge a line of the log.
    lines = [line for line in lab.said().splitlines() if "rejected DescribeQuorum" in line]
    assert len(lines) == len(NOT_ADMIN), lines
    assert all(line.isprintable() for line in lines), lines


def channel(lab: Lab, who: str) -> grpc.aio.Channel:
    credentials = lab.tls(who).channel_credentials()
    return grpc.aio.secure_channel(lab.nodes[1].address, credentials)


async def test_an_open_stream_loses_the_rights_that_its_caller_loses(lab: Lab) -> None:
    """Appends and fetches: each message is authorized, not the stream that carries it."""
    kinds = (Operation.ALTER, Operation.CLUSTER_ACTION)
    acls = tuple(
        r.Acl(ResourceType.CLUSTER, CLUSTER_NAME, LITERAL, "User:CN=broker", "*", kind, 3)
        for kind in kinds
    )
    async with lab.metadata("admin") as admin, channel(lab, "broker") as opened:
        await admin.ask(r.CreateAcls(acls))
        appends = opened.stream_stream(
            "/quorate.v1.Quorum/AppendStream",
            request_serializer=quorum_pb2.AppendRequest.SerializeToString,
            response_deserializer=quorum_pb2.AppendResponse.FromString,
        )()
        fetches = opened.stream_stream(
            "/quorate.v1.Raft/FetchStream",
            request_serializer=raft_pb2.FetchRequest.SerializeToString,
            response_deserializer=raft_pb2.FetchResponse.FromString,
        )()
        append = quorum_pb2.AppendRequest(
            correlation_id=1, records=[{"key": b"k", "value": b"v"}], timeout_ms=10_000
        )
        fetch = raft_pb2.FetchRequest(
            cluster_id=CLUSTER, epoch=1, replica=lab.key(BROKER), offset=0, max_wait_ms=0
        )
        for is_allowed in (True, False):
            for stream, message in ((appends, append), (fetches, fetch)):
                await stream.write(message)
                answer = await stream.read()
                assert (answer.error_code == REFUSED) is not is_allowed, answer
                assert (answer.error_code == ErrorCode.NONE) is is_allowed, answer
                assert not (isinstance(answer, raft_pb2.FetchResponse) and answer.records) or (
                    is_allowed
                )
            await admin.ask(r.DeleteAcls((r.AclFilter(1, principal="User:CN=broker"),)))
        appends.cancel()
        fetches.cancel()
