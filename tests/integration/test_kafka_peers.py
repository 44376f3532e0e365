"""Controllers that talk to each other over Kafka's protocol (`quorate.peer.protocol`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from quorate.rpc.client.quorum_client import QuorumClient

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.bridge_support import KafkaQuorum, connections_at
from tests.integration.support import HOST, Node, assert_clean, succeed, until
from tests.integration.test_snapshot_join import RECORDS, SMALL, VALUE_BYTES, join_by_snapshot, read

pytestmark = pytest.mark.slow

PROTOCOL = "quorate.peer.protocol"


class KafkaPeersQuorum(KafkaQuorum):
    """Every controller has the setting; bootstrap servers are those of the Kafka listener."""

    def __init__(self, folder: Path, ids: tuple[int, ...], **settings: object) -> None:
        super().__init__(folder, ids, **settings)
        for node in self.nodes.values():
            self.use(node, "kafka")

    def use(self, node: Node, protocol: str) -> None:
        servers = ",".join(f"{HOST}:{port}" for port in self.ports.values())
        if protocol == "grpc":
            servers = self.addresses
        node.configure({PROTOCOL: protocol, "controller.quorum.bootstrap.servers": servers})

    def followers_of(self, node: Node) -> int:
        """How many connections its Kafka listener has."""
        return connections_at(self.ports[node.id])


Make = Callable[..., KafkaPeersQuorum]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[KafkaPeersQuorum] = []

    def build(*ids: int, **settings: object) -> KafkaPeersQuorum:
        made.append(KafkaPeersQuorum(tmp_path, ids, **settings))
        return made[-1]

    yield build
    for quorum in made:
        quorum.kill()


def leader_of(quorum: KafkaPeersQuorum) -> Node:
    status = quorum.until("somebody leads", lambda status: status["leaderId"] > 0)
    return quorum.nodes[status["leaderId"]]


def until_all_have(quorum: KafkaPeersQuorum, values: list[str]) -> None:
    for node in quorum.nodes.values():
        own = partial(read, node.address, linearizable=False)
        until(f"{node.id} has all", lambda own=own: asyncio.run(own()) == values)


def knows_all_endpoints(status: dict[str, Any]) -> bool:
    return all(len(voter["endpoints"]) == 2 for voter in status["currentVoters"])


async def append_all(addresses: str, values: list[str]) -> None:
    async with QuorumClient(addresses.split(","), request_timeout_ms=30_000) as client:
        for value in values:
            await client.append_value(value.encode())


def test_three_elect_commit_and_survive_the_leaders_death(make: Make) -> None:
    quorum = make(1, 2, 3)
    quorum.format_and_start()
    # The quorum was formatted without the Kafka listener: every voter adds it to its entry.
    quorum.until("all endpoints are known", knows_all_endpoints)
    first = next(node for node in quorum.nodes.values() if node is not leader_of(quorum))
    quorum.transfer(first.id)
    values = [f"before {number}" for number in range(20)]
    asyncio.run(append_all(quorum.addresses, values))
    until_all_have(quorum, values)
    assert quorum.followers_of(first) >= 2
    first.kill()
    quorum.until("another leads", lambda status: status["leaderId"] not in (-1, first.id))
    later = [f"after {number}" for number in range(20)]
    asyncio.run(append_all(quorum.addresses, later))
    first.start()
    until_all_have(quorum, values + later)
    second = leader_of(quorum)
    assert asyncio.run(read(second.address)) == values + later, "a majority confirms the leader"
    quorum.transfer(first.id)
    survivors = [node.said() for node in quorum.nodes.values() if node is not first]
    where = f"(Kafka's protocol at {HOST}:{quorum.ports[first.id]})"
    assert all(where in said for said in survivors), survivors
    for node in quorum.nodes.values():
        assert node.stop() == 0
        assert_clean(node.said())


def test_a_late_controller_gets_a_snapshot_and_voters_change(make: Make) -> None:
    quorum = make(1, 2, **SMALL)
    first, second = quorum.nodes.values()
    first.format("--standalone")
    second.format("--no-initial-controllers")
    wanted = [f"{number:06d}".ljust(VALUE_BYTES, ".") for number in range(RECORDS)]
    join_by_snapshot(quorum, wanted)
    quorum.transfer(2)
    assert asyncio.run(read(second.address)) == wanted
    status = quorum.status()
    (gone,) = (v for v in status["currentVoters"] if v["id"] == 1)
    succeed(*quorum.ask, "remove-controller", "-i", 1, "-d", gone["directoryId"])
    quorum.until_voters(2)
    for node in (first, second):
        assert node.stop() == 0
        assert_clean(node.said())


def test_a_controller_adds_itself(make: Make) -> None:
    quorum = make(1, 2, **{"controller.quorum.auto.join.enable": "true"})
    first, second = quorum.nodes.values()
    first.format("--standalone")
    second.format("--no-initial-controllers")
    first.start()
    second.start()
    quorum.until_voters(1, 2)


def test_the_protocol_is_changed_one_controller_at_a_time(make: Make) -> None:
    quorum = make(1, 2, 3)
    for node in quorum.nodes.values():
        quorum.use(node, "grpc")
    quorum.format_and_start()
    leader_of(quorum)
    values: list[str] = []
    for node in quorum.nodes.values():
        assert node.stop() == 0
        quorum.use(node, "kafka")
        node.start()
        values.append(f"with {node.id}")
        asyncio.run(append_all(quorum.addresses, values[-1:]))
        own = partial(read, node.address, linearizable=False)
        until(f"{node.id} has all", lambda own=own: asyncio.run(own()) == values)


@needs_openssl
def test_with_tls_controllers_present_their_certificates(make: Make, tmp_path: Path) -> None:
    quorum = make(1, 2, 3)
    authority = make_authority(tmp_path, "authority")
    for node in quorum.nodes.values():
        name = f"node-{node.id}"
        certificate, key = make_certificate(tmp_path, name, authority, names=(name,))
        node.configure(
            {
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SSL",
                "ssl.certificate.location": certificate,
                "ssl.key.location": key,
                "ssl.ca.location": authority[0],
                "quorate.peer.identity": "auto",
            }
        )
    quorum.format_and_start()
    leader_of(quorum)
    asyncio.run(append_all(quorum.addresses, ["kept"]))
    until_all_have(quorum, ["kept"])
    for node in quorum.nodes.values():
        assert node.stop() == 0
        assert_clean(node.said())
