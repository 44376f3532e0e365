"""Listener protocol x principal x request: what a bridge with an authorizer allows."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quorate.bridge.authentication.sasl_config import SaslConfig
from quorate.bridge.bridge import Bridge, BridgeSettings
from quorate.bridge.listener.listening import ListenerSettings
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.metadata import describe
from quorate.metadata import requests as r
from quorate.metadata.acls import CLUSTER_NAME, LITERAL
from quorate.metadata.authorizer import AclAuthorizer, Operation, ResourceType
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records import metadata as rec
from quorate.rpc.framing.frame_stream import FRAME_BYTES_MAX
from quorate.rpc.principals import PrincipalMapping
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.metadata_loader import MetadataLoader

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import free_ports
from tests.unit.bridge.bridge_support import LEADER
from tests.unit.bridge.client_frames import read_frame
from tests.unit.bridge.sasl_support import PASSWORD, Client, credential, plain
from tests.unit.bridge.test_server import HOST

pytestmark = needs_openssl

USERS = ("broker", "alice", "admin")
PROTOCOLS = ("PLAINTEXT", "SSL", "SSL requested", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SUPER_USER = "User:admin"


def image() -> MetadataImage:
    """broker has CLUSTER_ACTION, alice may create the topic a, and all have SCRAM credentials."""
    found = MetadataImage()
    found.apply(rec.FeatureLevelRecord("metadata.version", 29, version=0), 0)
    acls = (
        r.Acl(ResourceType.CLUSTER, CLUSTER_NAME, LITERAL, "User:broker", "*",
              Operation.CLUSTER_ACTION, 3),
        r.Acl(ResourceType.TOPIC, "a", LITERAL, "User:alice", "*", Operation.CREATE, 3),
    )  # fmt: skip
    for number, acl in enumerate(acls, 1):
        entry = rec.AccessControlEntryRecord(
            f"{'A' * 20}{number}A", acl.resource_type, acl.resource_name, acl.pattern_type,
            acl.principal, acl.host, acl.operation, acl.permission_type,
        )  # fmt: skip
        found.apply(entry, number)
    for user in USERS:
        for mechanism in (1, 2):
            made = credential(mechanism, user)
            record = rec.UserScramCredentialRecord(
                user, mechanism, made.salt, made.stored_key, made.server_key, made.iterations
            )
            found.apply(record, 9)
    token = rec.DelegationTokenRecord(
        "User:alice", "User:alice", (), 1, 2**60, 2**60, "token", version=0
    )
    found.apply(token, 10)
    return found


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = make_authority(folder, "authority")
        self.own = make_certificate(folder, "controller", self.authority)
        self.files = {
            user: make_certificate(folder, user, self.authority, ("node-1",)) for user in USERS
        }

    @asynccontextmanager
    async def listening(self, protocol: str) -> AsyncIterator[None]:
        found = image()
        authorizer = NodeAuthorizer(authorizer=AclAuthorizer([SUPER_USER]))
        loader = SimpleNamespace(image=found, has_caught_up=True, add_listener=lambda _: None)
        authorizer.follow(cast(MetadataLoader, loader))
        kind, _, requested = protocol.partition(" ")
        (port,) = free_ports(1)
        is_sasl = kind.startswith("SASL")
        listener = ListenerSettings(
            "KAFKA", HOST, port,
            tls=TlsConfig(*self.own, self.authority[0]) if kind.endswith("SSL") else None,
            mapping=PrincipalMapping.parse("RULE:^CN=(.*)$/$1/"),
            client_auth="none" if is_sasl else requested or "required",
            sasl=SaslConfig(MECHANISMS, dict.fromkeys(USERS, PASSWORD)) if is_sasl else None,
            token_secret_key="key",
        )  # fmt: skip
        settings = BridgeSettings(1, "cluster", listener, frozenset({SUPER_USER}))

        async def handle(request: Any, _timeout_ms: int) -> MetadataAnswer:
            """The metadata controller is not what is looked at here."""
            if isinstance(request, r.CreateTopics):
                topics = tuple(r.CreatedTopic(each.name) for each in request.topics)
                return MetadataAnswer(ErrorCode.NONE, LEADER, r.CreateTopicsResponse(topics))
            kinds = {
                r.BrokerHeartbeat: r.BrokerHeartbeatResponse,
                r.CreateDelegationToken: r.CreateDelegationTokenResponse,
            }
            return MetadataAnswer(ErrorCode.NONE, LEADER, kinds[type(request)]())

        raft = cast(Any, SimpleNamespace(node=SimpleNamespace(current_leader=LEADER)))

        async def admit(_timeout_ms: int) -> tuple[ErrorCode, str]:
            return ErrorCode.NONE, ""

        bridge = Bridge(
            settings,
            raft,
            handle,
            lambda read: describe.answer(found, read),
            admit=admit,
            authorizer=authorizer,
            image=lambda: found,
        )
        await bridge.open()
        self.port = port
        try:
            yield
        finally:
            await bridge.close()

    async def dial(self, protocol: str, mechanism: str, user: str) -> Client:
        """user: empty for nobody, `token` for alice's delegation token."""
        context = None
        if "SSL" in protocol:
            context = ssl.create_default_context(cafile=self.authority[0])
            if user in self.files and not protocol.startswith("SASL"):
                context.load_cert_chain(*self.files[user])
        client = Client(await asyncio.open_connection(HOST, self.port, ssl=context))
        if mechanism and user:
            await client.handshake(mechanism)
            if mechanism == "PLAIN":
                await client.token(plain(user))
            else:
                await client.scram(mechanism, user)
        return client


def creation() -> Any:
    module = s.request_module(s.CREATE_TOPICS, 7)
    topic = module.CreatableTopic(
        name="a", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    return module.CreateTopicsRequest(topics=(topic,))


def own_token(**fields: Any) -> Any:
    nobody = {"owner_principal_type": None, "owner_principal_name": None}
    return s.request_type(s.CREATE_DELEGATION_TOKEN, 3)(
        **{"renewers": (), "max_lifetime": s.milliseconds(-1), **nobody, **fields}
    )


def enveloped(api_key: int, body: Any, principal: str, used_token: bool = False) -> Any:
    kind, _, user = principal.partition(":")
    who = s.principal_type()(type_=kind, name=user, token_authenticated=used_token)
    return s.request_type(s.ENVELOPE, 0)(
        request_data=s.write_header(api_key, s.SERVED[api_key][1], 9, "c") + s.write(body),
        request_principal=b"\0\0" + s.write(who),
        client_host_address=bytes((10, 0, 0, 7)),
    )


async def send(client: Client, api_key: int, body: Any) -> Any:
    version = s.SERVED[api_key][1]
    frame = await client.raw(s.write_header(api_key, version, 7, "c") + s.write(body))
    return None if frame is None else s.read_response(api_key, version, frame)[1]


def error_of(answer: Any) -> int | None:
    """The first error; None where the connection is closed."""
    if answer is None:
        return None
    for part in (answer, *getattr(answer, "topics", ())):
        if int(getattr(part, "error_code", 0)):
            return int(part.error_code)
    return 0


async def asked(client: Client) -> dict[str, int | None]:
    """The error of each request."""
    heartbeat = s.request_type(s.BROKER_HEARTBEAT, 1)(
        broker_id=1, current_metadata_offset=1, want_fence=False, want_shut_down=False
    )
    bobs = own_token(owner_principal_type="User", owner_principal_name="bob")
    listing = s.request_type(s.DESCRIBE_DELEGATION_TOKEN, 3)(owners=None)
    requests = {
        "heartbeat": (s.BROKER_HEARTBEAT, heartbeat),
        "topic": (s.CREATE_TOPICS, creation()),
        "envelope": (s.ENVELOPE, enveloped(s.CREATE_TOPICS, creation(), "User:alice")),
        "token": (s.CREATE_DELEGATION_TOKEN, own_token()),
        "token of bob": (s.CREATE_DELEGATION_TOKEN, bobs),
        "tokens": (s.DESCRIBE_DELEGATION_TOKEN, listing),
    }
    return {name: error_of(await send(client, *each)) for name, each in requests.items()}


CLUSTER_FAILED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TOPIC_FAILED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
NOT_ALLOWED = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
TOKEN_FAILED = int(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
NAMES = ("heartbeat", "topic", "envelope", "token", "token of bob", "tokens")
EXPECTED: dict[str, tuple[int | None, ...]] = {
    "broker": (0, TOPIC_FAILED, 0, 0, TOKEN_FAILED, 0),
    "alice": (CLUSTER_FAILED, 0, CLUSTER_FAILED, 0, TOKEN_FAILED, 0),
    "admin": (0, 0, 0, 0, 0, 0),
    "": (CLUSTER_FAILED, TOPIC_FAILED, CLUSTER_FAILED, NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("matrix"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_who_may_do_what(lab: Lab, protocol: str) -> None:
    mechanisms = MECHANISMS if protocol.startswith("SASL") else ("",)
    async with lab.listening(protocol):
        for mechanism in mechanisms:
            for user in EXPECTED:
                client = await lab.dial(protocol, mechanism, user)
                if not user and (mechanism or protocol == "SSL"):
                    assert not await client.works(), "nobody is heard without authentication"
                    continue
                who = "" if protocol == "PLAINTEXT" else user
                found = await asked(client)
                assert found == dict(zip(NAMES, EXPECTED[who], strict=True)), (mechanism, user)
                client.close()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_what_a_broker_may_forward(lab: Lab, protocol: str) -> None:
    admins = own_token(owner_principal_type="User", owner_principal_name="admin")
    cases: list[tuple[int, Any, str, bool, int]] = [
        (s.CREATE_TOPICS, creation(), "User:alice", False, 0),
        (s.CREATE_TOPICS, creation(), "User:bob", False, TOPIC_FAILED),
        (s.CREATE_TOPICS, creation(), SUPER_USER, False, CLUSTER_FAILED),
        (s.CREATE_DELEGATION_TOKEN, own_token(), "User:alice", False, 0),
        (s.CREATE_DELEGATION_TOKEN, own_token(), "User:alice", True, NOT_ALLOWED),
        (s.CREATE_DELEGATION_TOKEN, own_token(), "User:ANONYMOUS", False, NOT_ALLOWED),
        (s.CREATE_DELEGATION_TOKEN, own_token(), SUPER_USER, False, CLUSTER_FAILED),
        (s.CREATE_DELEGATION_TOKEN, admins, "User:alice", False, CLUSTER_FAILED),
    ]
    async with lab.listening(protocol):
        client = await lab.dial(protocol, "SCRAM-SHA-256", "broker")
        for api_key, body, principal, used_token, expected in cases:
            outer = await send(client, s.ENVELOPE, enveloped(api_key, body, principal, used_token))
            assert int(outer.error_code) == 0
            data = bytes(outer.response_data)
            _, inner = s.read_response(api_key, s.SERVED[api_key][1], data)
            assert error_of(inner) == expected, (api_key, principal, used_token)
        client.close()


async def test_only_brokers_may_send_long_frames(lab: Lab) -> None:
    async with lab.listening("SASL_PLAINTEXT"):
        for user, expected in (("broker", FRAME_BYTES_MAX), ("alice", 256 * 1024)):
            client = await lab.dial("SASL_PLAINTEXT", "PLAIN", user)
            size = 300 * 1024
            client.writer.write(size.to_bytes(4, "big") + b"\0\x13\0\x07\0\0\0\0")
            reads = asyncio.create_task(read_frame(client.reader))
            done, _ = await asyncio.wait({reads}, timeout=0.5)
            assert bool(done) is (expected < size), user
            reads.cancel()
            await asyncio.gather(reads, return_exceptions=True)
            client.close()


async def test_tokens_are_seen_by_their_owners(lab: Lab) -> None:
    listing = s.request_type(s.DESCRIBE_DELEGATION_TOKEN, 3)(owners=None)
    async with lab.listening("SASL_PLAINTEXT"):
        seen = {}
        for user in USERS:
            client = await lab.dial("SASL_PLAINTEXT", "PLAIN", user)
            answer = await send(client, s.DESCRIBE_DELEGATION_TOKEN, listing)
            seen[user] = [each.token_id for each in answer.tokens]
            client.close()
    assert seen == {"broker": [], "alice": ["token"], "admin": ["token"]}
