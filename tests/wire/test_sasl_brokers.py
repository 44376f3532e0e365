"""Brokers of Kafka 4.3 that authenticate with SASL at Quorate's controllers, and their delegation
tokens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.acls import CLUSTER_NAME, LITERAL
from quorate.rpc.metadata_client import MetadataClient

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.bridge_support import KafkaQuorum, listens
from tests.integration.support import HOST, free_ports, until
from tests.processes import write_properties
from tests.unit.bridge.sasl_support import Client, FailureError
from tests.unit.bridge.test_oauth import OTHER_RSA, RSA, key_set
from tests.unit.bridge.test_sasl import by_hand
from tests.wire.test_brokers import START_S, KafkaBroker, running

IDS = (3001, 3002, 3003)
BROKER = 1
KEY = "the key of delegation tokens"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = 'user_broker="broker\'s" user_alice="alice\'s"'
AS_BROKER = 'username="broker" password="broker\'s"'
TOPICS = "org.apache.kafka.tools.TopicCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
OF_ALICE = ("--describe", "--owner-principal", "User:alice")
TOKEN = re.compile(r"^(\S+)\s+(\S+)\s+User:alice\s+User:alice", re.MULTILINE)


def ask(quorum: KafkaQuorum, request: Any) -> Any:
    async def run() -> Any:
        async with MetadataClient(quorum.addresses.split(",")) as client:
            return await client.ask(request)

    return asyncio.run(run())


def allow(quorum: KafkaQuorum, principal: str, kind: int, name: str, *operations: int) -> None:
    acls = tuple(r.Acl(kind, name, LITERAL, principal, "*", each, 3) for each in operations)
    answer = ask(quorum, r.CreateAcls(acls))
    assert {each.error for each in answer.results} == {ErrorCode.NONE}


def set_password(quorum: KafkaQuorum, user: str, password: str) -> None:
    salt = b"0123456789abcdef"
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 4096)
    change = r.ScramUpsertion(user, 2, 4096, salt, salted)
    answer = ask(quorum, r.AlterUserScramCredentials((change,)))
    assert [each.error for each in answer.users] == [ErrorCode.NONE]


@contextmanager
def secured(
    folder: Path, protocol: str, ids: Sequence[int], **settings: object
) -> Iterator[KafkaQuorum]:
    """Controllers with an authorizer, where brokers authenticate by `protocol`."""
    quorum = KafkaQuorum(folder, ids)
    for node in quorum.nodes.values():
        node.configure(
            {
                "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,KAFKA:{protocol}",
                "authorizer.class.name": "quorate.authorizer",
                "super.users": "User:ANONYMOUS",
                "delegation.token.secret.key": KEY,
                **settings,
            }
        )
    try:
        quorum.format_and_start()
        until("all listen", lambda: all(map(listens, quorum.ports.values())), START_S)
        quorum.has_migrated()
        allow(quorum, "User:broker", 4, CLUSTER_NAME, 9)
        allow(quorum, "User:alice", 2, "made", 5)
        yield quorum
    finally:
        quorum.kill()


def broker_settings(quorum: KafkaQuorum, port: int, protocol: str) -> dict[str, object]:
    """Clients authenticate with PLAIN, or with SCRAM and a delegation token."""
    return {
        "controller.quorum.bootstrap.servers": ",".join(
            f"{HOST}:{each}" for each in quorum.ports.values()
        ),
        "listeners": f"CLIENT://{HOST}:{port}",
        "inter.broker.listener.name": "CLIENT",
        "listener.security.protocol.map": f"CLIENT:SASL_PLAINTEXT,KAFKA:{protocol}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{PLAIN} {AS_BROKER} {USERS};",
        "listener.name.client.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        "delegation.token.secret.key": KEY,
    }


def client_file(folder: Path, mechanism: str, jaas: str) -> Path:
    path = folder / f"{mechanism}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
    )
    return path


async def login(port: int, token_id: str, password: str, context: Any = None) -> Client:
    """A connection to a controller that authenticates with a delegation token."""
    client = Client(await asyncio.open_connection(HOST, port, ssl=context))
    await client.versions()
    await client.handshake("SCRAM-SHA-256")
    first = f"n,,n={token_id},r=nonce,tokenauth=true"
    answer = await client.token(first.encode())
    assert answer is not None
    final = by_hand(first, answer.decode(), "n,,", password=password)
    assert (await client.token(final.encode()) or b"").startswith(b"v=")
    return client


def creation(topic: str) -> tuple[str, ...]:
    return ("--create", "--partitions", "1", "--replication-factor", "1", "--topic", topic)


@pytest.mark.timeout(240)
def test_sasl_plaintext_and_delegation_tokens(
    kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    settings: dict[str, object] = {
        "listener.name.kafka.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.kafka.plain.sasl.jaas.config": f"{PLAIN} {USERS};",
    }
    (port,) = free_ports(1)
    with secured(tmp_path, "SASL_PLAINTEXT", IDS, **settings) as quorum:
        broker = broker_settings(quorum, port, "SASL_PLAINTEXT") | {
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.kafka.plain.sasl.jaas.config": f"{PLAIN} {AS_BROKER};",
            "listener.name.kafka.sasl.enabled.mechanisms": "PLAIN",
        }
        with running(tmp_path, BROKER, broker):
            alice = client_file(tmp_path, "PLAIN", f'{PLAIN} username="alice" password="alice\'s";')
            where = ("--bootstrap-server", f"{HOST}:{port}", "--command-config", alice)
            kafka_tool(TOPICS, *where, *creation("made"))
            with pytest.raises(AssertionError, match="TopicAuthorizationException"):
                kafka_tool(TOPICS, *where, *creation("other"))
            lifetime = ("--max-life-time-period", "3600000")
            said = kafka_tool(
                TOKENS, *where, "--create", *lifetime, "--renewer-principal", "User:r"
            )
            found = TOKEN.search(said)
            assert found is not None, said
            token_id, secret = found[1], found[2]
            listed = kafka_tool(TOKENS, *where, *OF_ALICE)
            assert token_id in listed
            token = client_file(
                tmp_path,
                "SCRAM-SHA-256",
                f'{SCRAM} username="{token_id}" password="{secret}" tokenauth="true";',
            )
            by_token = ("--bootstrap-server", f"{HOST}:{port}", "--command-config", token)
            assert "made" in kafka_tool(TOPICS, *by_token, "--list")
            with pytest.raises(AssertionError, match="Delegation Token requests are not allowed"):
                kafka_tool(TOKENS, *by_token, "--create", *lifetime)
            for each in quorum.ports.values():
                asyncio.run(login(each, token_id, secret))
            renewed = ("--renew", "--renew-time-period", "1800000", "--hmac", secret)
            assert "Completed" in kafka_tool(TOKENS, *where, *renewed)
            gone = ("--expire", "--expiry-time-period", "-1", "--hmac", secret)
            kafka_tool(TOKENS, *where, *gone)
            described = kafka_tool(TOKENS, *where, *OF_ALICE)
            assert token_id not in described

            def is_unknown() -> bool:
                try:
                    asyncio.run(login(quorum.ports[IDS[0]], token_id, secret))
                except FailureError:
                    return True
                return False

            until("the token is gone", is_unknown)
    for node in quorum.nodes.values():
        said = node.log_file.read_text()
        for each in (KEY, secret, base64.b64decode(secret).hex(), "alice's", "broker's"):
            assert each not in said


@needs_openssl
@pytest.mark.timeout(240)
def test_sasl_ssl_with_scram(kafka_tool: Callable[..., str], tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    certificate, key = make_certificate(tmp_path, "controllers", authority)
    settings: dict[str, object] = {
        "ssl.certificate.location": certificate,
        "ssl.key.location": key,
        "ssl.ca.location": authority[0],
        "listener.name.kafka.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "connections.max.reauth.ms": "3000",
    }
    (port,) = free_ports(1)
    with secured(tmp_path, "SASL_SSL", IDS[:1], **settings) as quorum:
        set_password(quorum, "broker", "broker's")
        broker = broker_settings(quorum, port, "SASL_SSL") | {
            "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
            "listener.name.kafka.scram-sha-512.sasl.jaas.config": f"{SCRAM} {AS_BROKER};",
            "listener.name.kafka.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority[0],
        }
        with running(tmp_path, BROKER, broker):
            alice = client_file(tmp_path, "PLAIN", f'{PLAIN} username="alice" password="alice\'s";')
            where = ("--bootstrap-server", f"{HOST}:{port}", "--command-config", alice)
            kafka_tool(TOPICS, *where, *creation("made"))
            assert "made" in kafka_tool(TOPICS, *where, "--list")
            # Sessions last 3 s: the broker has authenticated again by now.
            answer = ask(quorum, r.DescribeCluster())
            assert [(each.id, each.is_fenced) for each in answer.brokers] == [(BROKER, False)]

        async def refused() -> None:
            context = ssl.create_default_context(cafile=authority[0])
            streams = await asyncio.open_connection(
                HOST, quorum.ports[IDS[0]], ssl=context, server_hostname=HOST
            )
            client = Client(streams)
            await client.handshake("SCRAM-SHA-512")
            with pytest.raises(FailureError):
                await client.scram("SCRAM-SHA-512", "broker", "wrong")

        asyncio.run(refused())


@pytest.mark.timeout(240)
def test_oauthbearer_with_kafkas_client(kafka_tool: Callable[..., str], tmp_path: Path) -> None:
    keys, own, foreign = (tmp_path / name for name in ("keys.json", "own.jwt", "foreign.jwt"))
    keys.write_bytes(key_set("rsa"))
    times = {"iat": int(time.time()), "exp": int(time.time()) + 3600}
    own.write_text(jwt.encode({"sub": "broker", **times}, RSA, "RS256", {"kid": "rsa"}))
    foreign.write_text(jwt.encode({"sub": "broker", **times}, OTHER_RSA, "RS256", {"kid": "rsa"}))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={own.as_uri()},{foreign.as_uri()}"
    settings: dict[str, object] = {
        "listener.name.kafka.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.kafka.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }

    def login_settings(token: Path) -> dict[str, object]:
        return {
            "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }

    (port,) = free_ports(1)
    with secured(tmp_path, "SASL_PLAINTEXT", IDS[:1], **settings) as quorum:

        def describe(token: Path) -> str:
            config = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                **login_settings(token),
            }
            path = tmp_path / f"{token.stem}.properties"
            write_properties(path, config)
            controller = f"{HOST}:{quorum.ports[IDS[0]]}"
            where = ("--bootstrap-controller", controller, "--command-config", path)
            return kafka_tool(allowed, QUORUM, *where, "describe", "--status")

        # Kafka's tools begin with DescribeCluster, which needs ALTER on controllers (KIP-919).
        allow(quorum, "User:broker", 4, CLUSTER_NAME, 7, 8)
        assert "LeaderId" in describe(own)
        with pytest.raises(AssertionError, match="SaslAuthenticationException"):
            describe(foreign)
        of_controllers = {
            f"listener.name.kafka.oauthbearer.{name}": value
            for name, value in login_settings(own).items()
        }
        broker = broker_settings(quorum, port, "SASL_PLAINTEXT") | {
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "listener.name.kafka.sasl.enabled.mechanisms": "OAUTHBEARER",
            **of_controllers,
        }
        with KafkaBroker(tmp_path / "kafka", BROKER, broker) as node:
            node.options = (allowed,)
            node.start()
            node.wait_serving()
            answer = ask(quorum, r.DescribeCluster())
            assert [(each.id, each.is_fenced) for each in answer.brokers] == [(BROKER, False)]
