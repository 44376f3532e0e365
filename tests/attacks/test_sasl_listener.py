"""Clients that never authenticate, at the listener for Kafka's brokers of a real controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode

from tests.attacks.kafka_listener import ACTION, AUTHORIZER, BROKER, Lab, controller
from tests.certificates import needs_openssl
from tests.integration.support import HOST
from tests.unit.bridge.sasl_support import Client, FailureError, plain
from tests.unit.bridge.test_sasl import BAD_PLAIN

pytestmark = needs_openssl

STRANGER = "127.0.0.2"
PASSWORD = "the broker's password"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    settings: dict[str, object] = {
        **AUTHORIZER,
        "listener.name.kafka.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.kafka.plain.sasl.jaas.config": (
            f'{MODULE} required user_broker="{PASSWORD}";'
        ),
    }
    with controller(tmp_path, "SASL_PLAINTEXT", **settings) as made:
        made.allow("User:broker", ACTION)
        yield made


async def dial(lab: Lab, host: str = HOST) -> Client:
    return Client(await asyncio.open_connection(HOST, lab.port, local_addr=(host, 0)))


async def registers(client: Client) -> int:
    """The error of a registration in a broker's name."""
    answer = await client.ask(
        s.BROKER_REGISTRATION,
        4,
        broker_id=BROKER,
        cluster_id="AAAAAAAAAAAAAAAAAAAABA",
        incarnation_id=s.uuid_field("AAAAAAAAAAAAAAAAAAAAAQ"),
        listeners=(),
        features=(),
        rack=None,
    )
    return int(answer.error_code)


@pytest.mark.timeout(180)
async def test_floods_without_authentication_keep_no_broker_out(lab: Lab) -> None:
    before = lab.rss_mib
    strangers = [await dial(lab, STRANGER) for _ in range(400)]
    for index, each in enumerate(strangers[-200:]):
        if index % 2:
            await each.handshake("SCRAM-SHA-256")
        # A frame of 256 KiB begins, whose rest does not come.
        each.writer.write((256 * 1024).to_bytes(4, "big") + b"\0\x24\0\x02" + b"\0" * 60_000)
    broker = await dial(lab)
    await broker.handshake("PLAIN")
    assert await broker.token(plain("broker", PASSWORD)) == b""
    assert await registers(broker) == ErrorCode.INCONSISTENT_CLUSTER_ID
    for token in BAD_PLAIN:
        client = await dial(lab, STRANGER)
        await client.handshake("PLAIN")
        with pytest.raises(FailureError):
            await client.token(token)
        client.close()
    assert await registers(broker) == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert lab.rss_mib - before < 100
    for each in (*strangers, broker):
        each.close()
    assert PASSWORD not in lab.node.log_file.read_text()


async def test_a_request_without_authentication_ends_the_connection(lab: Lab) -> None:
    client = await dial(lab)
    body = s.make(s.request_type(s.ALLOCATE_PRODUCER_IDS, 0), broker_id=BROKER)
    frame = s.write_header(s.ALLOCATE_PRODUCER_IDS, 0, 7, "c") + s.write(body)
    assert await client.raw(frame) is None
    client.close()
    lab.node.wait_said("API 67 before authentication is complete")
