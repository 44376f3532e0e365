"""Strangers and brokers at the listener for Kafka's brokers: forged envelopes, frames, connections.

One real controller with TLS for gRPC. Half-sent frames of 150 connections, one frame of empty items
and idle connections each took a controller down that had no limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import random_uuid
from quorate.metadata.authorizer import Operation, ResourceType
from quorate.metadata.metadata_version import SUPPORTED
from quorate.rpc.client.quorum_client import QuorumClient

from tests.attacks.kafka_listener import ACTION, AUTHORIZER, BROKER, Lab, controller
from tests.certificates import needs_openssl
from tests.integration.support import CLUSTER, HOST, until
from tests.integration.test_bridge import Asker

pytestmark = needs_openssl

MIB = 1024 * 1024
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
FORWARDED = "quorate.kafka.forwarded.super.users"


def registration(broker_id: int = BROKER) -> Any:
    module = s.request_module(s.BROKER_REGISTRATION, 4)
    return module.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER,
        incarnation_id=s.uuid_field(random_uuid()),
        listeners=(module.Listener(name="PLAINTEXT", host=HOST, port=9, security_protocol=0),),
        features=tuple(
            module.Feature(
                name=name, min_supported_version=found.min, max_supported_version=found.max
            )
            for name, found in SUPPORTED.items()
        ),
        rack=None,
        is_migrating_zk_broker=False,
        log_dirs=(s.uuid_field(random_uuid()),),
    )


def test_nobody_becomes_a_super_user_by_an_envelope_in_clear(tmp_path: Path) -> None:
    with controller(tmp_path, **AUTHORIZER) as lab:
        lab.allow("User:ANONYMOUS", ACTION)
        asker = lab.asker()
        until("the ACL holds", lambda: int(asker.fetch().error_code) != REFUSED)
        for principal in ("User:CN=admin", "User:CN=node-1", "User:ANONYMOUS"):
            assert int(asker.forward("made", principal).error_code) == REFUSED
        asker.close()


def test_a_broker_forwards_as_who_its_certificate_says(tmp_path: Path) -> None:
    with controller(tmp_path, "SSL", **AUTHORIZER) as lab:
        lab.allow("User:CN=broker", ACTION)
        lab.allow("User:alice", (ResourceType.TOPIC, "made", Operation.CREATE))
        stranger = lab.asker("stranger")
        assert int(stranger.forward("made", "User:alice").error_code) == REFUSED
        assert int(stranger.fetch(replica=2000).error_code) == REFUSED
        stranger.close()

        broker = lab.asker("broker")
        until("the ACL holds", lambda: int(broker.fetch(replica=BROKER).error_code) != REFUSED)
        # Only in its own name.
        assert int(broker.fetch(replica=2000).error_code) == REFUSED
        assert int(broker.ask(s.BROKER_REGISTRATION, registration(7)).error_code) == REFUSED
        assert int(broker.ask(s.BROKER_REGISTRATION, registration()).error_code) == 0
        denied = broker.forward("made", "User:bob").topics[0]
        assert int(denied.error_code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        allowed = broker.forward("made", "User:alice").topics[0]
        assert int(allowed.error_code) == ErrorCode.INVALID_REPLICATION_FACTOR, "it is fenced"
        denied = broker.forward("made", "User:CN=admin").topics[0]
        assert int(denied.error_code) == REFUSED
        assert FORWARDED in denied.error_message
        broker.close()

        assert lab.node.stop() == 0
        lab.node.configure({FORWARDED: "allow"})
        lab.start()
        broker = lab.asker("broker")
        until("the ACL holds", lambda: int(broker.fetch(replica=BROKER).error_code) != REFUSED)
        allowed = broker.forward("made", "User:CN=admin").topics[0]
        assert int(allowed.error_code) == ErrorCode.INVALID_REPLICATION_FACTOR
        broker.close()


@pytest.mark.parametrize("settings", [{}, AUTHORIZER], ids=["open", "authorizer"])
def test_half_sent_frames_hold_little(tmp_path: Path, settings: dict[str, object]) -> None:
    with controller(tmp_path, **settings) as lab:
        before = lab.rss_mib
        held = []
        data = (8 * MIB).to_bytes(4, "big") + bytes(8 * MIB - 1)
        for _ in range(40):
            connection = socket.create_connection((HOST, lab.port), 20)
            held.append(connection)
            try:
                connection.sendall(data)
            except OSError:
                assert settings, "a frame may be as long where there is no authorizer"
        if settings:
            lab.node.wait_said("a frame of 8388608 bytes; at most 262144")
        assert lab.rss_mib - before < 130, "64 MiB, and what it takes to count them"
        asker = lab.asker()
        assert int(asker.ask(s.API_VERSIONS, versions()).error_code) == 0
        asker.close()
        for connection in held:
            connection.close()


class Deaf(Asker):
    """Reads no response."""

    def ask(self, api_key: int, body: Any) -> None:
        data = s.write_header(api_key, body.__version__, 5, "broker") + s.write(body)
        self.connection.sendall(len(data).to_bytes(4, "big") + data)


def test_answers_that_nobody_reads_hold_little(tmp_path: Path) -> None:
    """100 brokers fetch 4 MiB each; one that was connected before is served beside them."""
    with controller(tmp_path) as lab:
        lab.fill(6)
        broker = lab.asker()
        assert int(broker.fetch(epoch=1, replica=BROKER).error_code) == 0
        before = most = lab.rss_mib
        deaf = [Deaf(lab.port) for _ in range(100)]
        for number, each in enumerate(deaf, 2_000):
            each.fetch(epoch=1, replica=number, max_bytes=8 * MIB)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            most = max(most, lab.rss_mib)
            time.sleep(0.01)
        (answered,) = broker.fetch(epoch=1, replica=BROKER).responses[0].partitions
        assert len(answered.records) > MIB // 2
        assert max(most, lab.rss_mib) - before < 130, "24 MiB, in three forms"
        lab.node.wait_said("it does not read its responses")
        for each in (broker, *deaf):
            each.close()


def versions() -> Any:
    kind = s.request_type(s.API_VERSIONS, 4)
    return s.make(kind, client_software_name="x", client_software_version="1")


def test_a_frame_of_empty_items_stops_nobody(tmp_path: Path) -> None:
    with controller(tmp_path) as lab:
        module = s.request_module(s.CREATE_TOPICS, 7)
        one = s.write(
            s.make(
                module.CreatableTopic,
                name="",
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=(),
            )
        )
        count = (8 * MIB - 100) // len(one)
        length = bytes([(count + 1) & 127 | 128, (count + 1) >> 7 & 127 | 128, (count + 1) >> 14])
        assert count >> 14 < 128
        frame = s.write_header(s.CREATE_TOPICS, 7, 1, "x") + length + one * count + bytes(6)
        before = lab.rss_mib
        asyncio.run(appends_go_on(lab, len(frame).to_bytes(4, "big") + frame))
        assert lab.rss_mib - before < 100
        assert "more than 20000 items" in lab.node.said()


async def appends_go_on(lab: Lab, frame: bytes) -> None:
    """While frames come that are closed upon."""
    gaps: list[float] = []
    is_over = False

    async def append() -> None:
        async with QuorumClient([lab.node.address], tls=lab.tls("admin")) as client:
            while not is_over or not gaps:
                begun = time.monotonic()
                await client.append_value(b"probe")
                gaps.append(time.monotonic() - begun)

    probe = asyncio.create_task(append())
    for _ in range(4):
        reader, writer = await asyncio.open_connection(HOST, lab.port)
        writer.write(frame)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionResetError):  # it was closed before all was read
                assert await reader.read() == b""
        writer.close()
    is_over = True
    await probe
    assert max(gaps) < 10, gaps


def test_idle_connections_give_way_and_brokers_stay(tmp_path: Path) -> None:
    limits = {"max.connections": 40, "max.connections.per.ip": 20}
    with controller(tmp_path, **limits) as lab:
        broker = lab.asker()
        assert int(broker.ask(s.BROKER_REGISTRATION, registration()).error_code) == 0
        idle = [socket.create_connection((HOST, lab.port), 20) for _ in range(60)]
        for _ in range(3):
            asker = lab.asker()
            assert int(asker.ask(s.API_VERSIONS, versions()).error_code) == 0
            asker.close()
        idle[0].settimeout(20)
        assert idle[0].recv(1) == b"", "it was idle for longest"
        assert int(broker.ask(s.API_VERSIONS, versions()).error_code) == 0
        broker.close()
        for each in idle:
            each.close()
