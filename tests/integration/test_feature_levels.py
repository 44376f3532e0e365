"""Levels of features with real controllers: at formatting, and after a migration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate import sync
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.log.meta_properties import random_uuid
from quorate.metadata import requests as r
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError, ConditionFailedError
from quorate.rpc.metadata_client import MetadataClient

from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import HOST, Quorum, quorate, until
from tests.integration.terminal import Terminal
from tests.processes import listens
from tests.tools.documents import block

IDS = (3001, 3002, 3003)
REMOVED = 3009


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaQuorum]:
    quorum = KafkaQuorum(tmp_path, IDS)
    try:
        quorum.format_and_start()
        yield quorum
    finally:
        quorum.kill()


def described(quorum: Quorum) -> r.DescribeClusterResponse:
    async def ask() -> Any:
        addresses = quorum.addresses.split(",")
        async with MetadataClient(addresses, request_timeout_ms=20_000) as client:
            return await client.ask(r.DescribeCluster())

    answer = asyncio.run(ask())
    assert isinstance(answer, r.DescribeClusterResponse)
    return answer


def levels(quorum: Quorum) -> dict[str, int]:
    return {f.name: f.finalized_level for f in described(quorum).features if f.finalized_level}


def registered(quorum: Quorum) -> dict[int, int]:
    """The highest metadata.version of each registered controller."""
    return {c.id: dict(c.features)["metadata.version"].max for c in described(quorum).controllers}


def append(quorum: Quorum, *values: bytes) -> None:
    async def ask() -> None:
        async with QuorumClient(quorum.addresses.split(","), request_timeout_ms=20_000) as client:
            await client.append([(None, value) for value in values])

    asyncio.run(ask())


def register(quorum: Quorum, requests: Iterable[r.RegisterController]) -> None:
    async def ask() -> None:
        addresses = quorum.addresses.split(",")
        async with MetadataClient(addresses, request_timeout_ms=20_000) as client:
            for request in requests:
                assert (await client.ask(request)).error is ErrorCode.NONE

    asyncio.run(ask())


@pytest.mark.slow
def test_a_migrated_quorum_rises_to_the_latest_level(kafka: KafkaQuorum) -> None:
    kafka.has_migrated()
    old = (
        r.RegisterController(
            each,
            random_uuid(),
            (Endpoint("CONTROLLER", HOST, 9093),),
            (r.ControllerFeature("metadata.version", VersionRange(1, 21)),),
        )
        for each in (*IDS, REMOVED)
    )
    register(kafka, old)
    until(
        "all register again",
        lambda: registered(kafka) == {**dict.fromkeys(IDS, 30), REMOVED: 21},
    )
    asked = ("features", "--bootstrap-controller", kafka.addresses)
    ran = quorate(*asked, "upgrade")
    assert ran.status == 0, ran
    print(ran.out)
    assert "metadata.version was upgraded to 30." in ran.out.splitlines()[0]
    assert levels(kafka)["metadata.version"] == 30
    assert all(map(listens, kafka.ports.values())), "the listener stays open"
    assert levels(kafka)["eligible.leader.replicas.version"] == 1
    for node in kafka.nodes.values():
        times = node.said().count("registered the features that this controller")
        assert 1 <= times <= 2, "once, and once more after the old records"


def test_metadata_begins_with_what_was_formatted(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, (1,))
    node = quorum.nodes[1]
    try:
        ran = quorate(
            *("storage", "format", "-t", "A" * 20 + "DQ", "-c", node.properties, "--standalone"),
            *("--release-version", "4.2-IV1", "--feature", "group.version=0"),
        )
        assert ran.status == 0, ran
        expected = {
            "metadata.version": 29,
            "eligible.leader.replicas.version": 1,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        }
        node.start()
        quorum.until_voters(1)
        until("the levels are there", lambda: levels(quorum) == expected)
        until("it registers", lambda: registered(quorum) == {1: 30})
        asked = ("features", "--bootstrap-controller", quorum.addresses, "describe")
        assert "FinalizedVersionLevel: 4.2-IV1" in quorate(*asked).out
        first = described(quorum).controllers
        node.kill()
        node.start()
        until("it registers anew", lambda: described(quorum).controllers != first)
        assert levels(quorum) == expected
    finally:
        quorum.kill()


def test_a_quorum_of_applications_gets_no_metadata(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, (1,))
    node = quorum.nodes[1]
    try:
        node.format("--standalone")
        node.start()
        status = quorum.until_voters(1)
        assert "registered the features" not in node.said()
        assert levels(quorum) == {}
        assert registered(quorum) == {}
        assert status["leaderId"] == 1
    finally:
        quorum.kill()


@pytest.mark.slow
def test_one_command_finalizes_application_version(tmp_path: Path) -> None:
    """On a quorum without metadata, and back; conditions hold across restarts in between."""
    quorum = Quorum(tmp_path, (1,))
    node = quorum.nodes[1]
    features = ("features", "--bootstrap-controller", quorum.addresses)

    def append(key: bytes, value: bytes | None, expected: int) -> int:
        with sync.Client(quorum.addresses.split(","), request_timeout_ms=20_000) as client:
            return client.append([(key, value)], if_key_offsets={key: expected}).base_offset

    try:
        node.format("--standalone")
        node.start()
        quorum.until_voters(1)
        with pytest.raises(AdminError, match=r"application\.version=1"):
            append(b"a", b"1", -1)
        upgrade = (*features, "upgrade", "--feature")
        assert quorate(*upgrade, "application.version=1", "--dry-run").status == 0
        for more in (("--dry-run",), ()):
            assert quorate(*upgrade, "application.version=2", *more).status == 1
        assert levels(quorum) == {}
        terminal = Terminal(tmp_path, {"controller-1:9093": quorum.addresses})
        said = terminal.paste(block("docs/client.md", "application.version=1"))
        assert said == "application.version was upgraded to 1.\n"
        assert levels(quorum) == {"application.version": 1, "metadata.version": 30}
        first = append(b"a", b"1", -1)
        node.kill()
        node.start()
        quorum.until_voters(1)
        with pytest.raises(ConditionFailedError) as failed:
            append(b"a", b"2", -1)
        assert (failed.value.key_offsets, failed.value.last_offset) == ({b"a": first}, None)
        append(b"a", None, first)
        append(b"a", b"3", -1)
        assert quorate(*features, "upgrade").status == 0, "it takes nothing back"
        ran = quorate(*features, "downgrade", "--feature", "application.version=0")
        assert ran.status == 0, ran
        assert levels(quorum)["metadata.version"] == 30
        assert "application.version" not in levels(quorum)
        with pytest.raises(AdminError, match=r"application\.version=1"):
            append(b"a", b"4", -1)
    finally:
        quorum.kill()


def test_a_quorum_can_be_formatted_with_application_version(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, (1,))
    node = quorum.nodes[1]
    try:
        ran = quorate(
            *("storage", "format", "-t", "A" * 20 + "DQ", "-c", node.properties, "--standalone"),
            *("--feature", "application.version=1"),
        )
        assert ran.status == 0, ran
        node.start()
        quorum.until_voters(1)
        until("the level is there", lambda: levels(quorum).get("application.version") == 1)
        with sync.Client(quorum.addresses.split(","), request_timeout_ms=20_000) as client:
            client.append([(b"a", b"1")], if_last_offset=-1)
            with pytest.raises(ConditionFailedError):
                client.append([(b"a", b"1")], if_last_offset=-1)
    finally:
        quorum.kill()
