"""Every method, called by every kind of caller at a real controller, is answered as the page says.

One controller with an encrypted listener and one without, an authorizer and the ACL of
docs/access.md. So are the paths of its HTTP listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.process.http import METHODS
from quorate.process.telemetry import PATHS
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.methods import RPC_METHODS, RpcMethod

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import CLUSTER, HOST, Node, assert_clean, free_ports, succeed, until
from tests.tools import access, callers

pytestmark = needs_openssl

DENIED = {
    int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
}
NODES = {"broker": callers.BROKER, "controller": callers.CONTROLLER}
CALL_S = 20.0
STATUS = RPC_METHODS["NodeStatus"]


class Lab:
    """The controller, and a channel for each column of the page. kafka: the security protocol of a
    listener for Kafka's brokers; None for no such listener.
    """

    def __init__(self, folder: Path, kafka: str | None = None) -> None:
        self.authority = make_authority(folder, "authority")
        self.files = {
            "client": make_certificate(folder, "client", self.authority),
            "administrator": make_certificate(folder, "admin", self.authority),
        }
        for title, node in (*NODES.items(), ("receiver", callers.RECEIVER)):
            name = f"node-{node}"
            self.files[title] = make_certificate(folder, name, self.authority, names=(name,))
        secure, plain, self.http, self.kafka = free_ports(4)
        self.address, self.plaintext = f"{HOST}:{secure}", f"{HOST}:{plain}"
        certificate, key = self.files["receiver"]
        listeners = {"CONTROLLER": (self.address, "SSL"), "CLEAR": (self.plaintext, "PLAINTEXT")}
        if kafka is not None:
            listeners["KAFKA"] = (f"{HOST}:{self.kafka}", kafka)
        protocols = ",".join(f"{name}:{protocol}" for name, (_, protocol) in listeners.items())
        self.node = Node(
            folder,
            callers.RECEIVER,
            secure,
            **{
                "listeners": ",".join(f"{n}://{place}" for n, (place, _) in listeners.items()),
                "controller.listener.names": ",".join(listeners),
                "listener.security.protocol.map": protocols,
                "quorate.kafka.listener.name": None if kafka is None else "KAFKA",
                # An encrypted quorum's controllers may use it with certificates only.
                "quorate.peer.protocol": "kafka" if kafka == "SSL" else None,
                "quorate.http.listener": f"{HOST}:{self.http}",
                "ssl.certificate.location": certificate,
                "ssl.key.location": key,
                "ssl.ca.location": self.authority[0],
                "authorizer.class.name": "quorate.authorizer",
                "super.users": ";".join(callers.super_users()),
                "quorate.controller.principals": ";".join(callers.controllers()),
            },
        )
        succeed(
            *("storage", "format", "-t", CLUSTER, "-c", self.node.properties, "--standalone"),
            *(() if kafka is None else ("--release-version", "3.9")),
        )
        self.node.start()
        until("a leader", lambda: "leads epoch" in self.node.said())

    def tls(self, title: str) -> TlsConfig:
        return TlsConfig(*self.files[title], self.authority[0])

    def channel(self, title: str) -> grpc.aio.Channel:
        if title == "plaintext":
            return grpc.aio.insecure_channel(self.plaintext)
        if title == "no certificate":
            roots = self.authority[0].read_bytes()
            credentials = grpc.ssl_channel_credentials(root_certificates=roots)
            return grpc.aio.secure_channel(self.address, credentials)
        return grpc.aio.secure_channel(self.address, self.tls(title).channel_credentials())

    async def allow_broker(self) -> None:
        """Give the broker of the page what it has there."""
        async with MetadataClient([self.address], tls=self.tls("administrator")) as admin:
            answer = await admin.ask(r.CreateAcls((callers.broker_acl(),)))
            assert [each.error for each in answer.results] == [ErrorCode.NONE]


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    made = Lab(tmp_path)
    try:
        await made.allow_broker()
        yield made
        assert made.node.stop() == 0
        assert_clean(made.node.said())
    finally:
        made.node.kill()


async def call(channel: grpc.aio.Channel, rpc: RpcMethod, request: Any, **options: Any) -> Any:
    """The first message of the answer. options: of a call without streams."""
    coding: Any = {
        "request_serializer": rpc.request.SerializeToString,
        "response_deserializer": rpc.response.FromString,
    }
    if rpc.streams_requests:
        stream: Any = channel.stream_stream(rpc.path, **coding)(timeout=CALL_S)
        await stream.write(request)
        answer = await stream.read()
        stream.cancel()
        return answer
    if rpc.streams_responses:
        pieces: Any = channel.unary_stream(rpc.path, **coding)(request, timeout=CALL_S)
        answer = await pieces.read()
        pieces.cancel()
        return answer
    return await channel.unary_unary(rpc.path, **coding)(request, timeout=CALL_S, **options)


async def is_allowed(channel: grpc.aio.Channel, rpc: RpcMethod, node: int) -> bool:
    request = access.message_of(rpc, access.values_from(node)[rpc.name])
    try:
        answer = await call(channel, rpc, request)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return False
        raise
    return getattr(answer, "error_code", 0) not in DENIED


async def test_a_controller_allows_what_the_page_says(lab: Lab) -> None:
    page = {rpc.name: decided for rpc, decided in access.rows()}
    for number, column in enumerate(callers.COLUMNS):
        async with lab.channel(column.title) as channel:
            if column.caller is None:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(channel, STATUS, STATUS.request())
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, refused.value
                continue
            found = {
                rpc.name: await asyncio.wait_for(is_allowed(channel, rpc, column.node), CALL_S)
                for rpc in RPC_METHODS.values()
            }
            assert found == {name: decided[number] for name, decided in page.items()}, column.title


async def test_whoever_connects_may_see_the_paths_and_no_others(lab: Lab) -> None:
    async def status(method: str, path: str) -> int:
        reader, writer = await asyncio.open_connection(HOST, lab.http)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        line = (await asyncio.wait_for(reader.read(), CALL_S)).split(b"\r\n", 1)[0]
        writer.close()
        return int(line.split()[1])

    for each in PATHS:
        for method in METHODS:
            assert await status(method, each.path) in (200, 503), each.path
        assert await status("POST", each.path) == 405
    for path in ("/", "/metrics/", "/admin", "/debug/pprof"):
        assert await status("GET", path) == 404
