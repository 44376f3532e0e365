"""What a controller that finds no leader logs, with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import HOST, Node, assert_clean, free_ports

pytestmark = [pytest.mark.slow, needs_openssl]


@pytest.fixture(params=["grpc", "kafka"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Node]]:
    """A quorum of one, and a controller that connects to it over this protocol."""
    ports, kafka_ports = free_ports(2), free_ports(2)
    bootstrap = kafka_ports[0] if request.param == "kafka" else ports[0]
    authority = make_authority(tmp_path, "authority")
    made = []
    for node_id, (port, kafka_port) in enumerate(zip(ports, kafka_ports, strict=True), 1):
        name = f"node-{node_id}"
        certificate, key = make_certificate(tmp_path, name, authority, names=(name,))
        settings = {
            "controller.listener.names": "CONTROLLER,KAFKA",
            "listeners": f"CONTROLLER://{HOST}:{port},KAFKA://{HOST}:{kafka_port}",
            "listener.security.protocol.map": "CONTROLLER:SSL,KAFKA:SSL",
            "quorate.kafka.listener.name": "KAFKA",
            "quorate.peer.protocol": request.param,
            "controller.quorum.bootstrap.servers": f"{HOST}:{bootstrap}",
            "ssl.certificate.location": certificate,
            "ssl.key.location": key,
            "ssl.ca.location": authority[0],
        }
        made.append(Node(tmp_path, node_id, port, **settings))
    made[0].format("--standalone")
    made[1].format("--no-initial-controllers")
    yield made
    for node in made:
        node.kill()


def test_a_certificate_of_an_unknown_authority(tmp_path: Path, nodes: list[Node]) -> None:
    quorum, joining = nodes
    trusted = joining.settings["ssl.ca.location"]
    joining.configure({"ssl.ca.location": make_authority(tmp_path, "other")[0]})
    quorum.start()
    joining.start()
    joining.wait_said("no leader found for 1")
    (line,) = (line for line in joining.said().splitlines() if "no leader found" in line)
    assert "WARNING" in line
    assert f"no response from {joining.settings['controller.quorum.bootstrap.servers']}: " in line
    assert "certificate" in line.lower()
    assert joining.stop() == 0
    joining.configure({"ssl.ca.location": trusted})
    joining.start()
    joining.wait_said("in epoch 1, leader 1")
    for node in reversed(nodes):
        assert node.stop() == 0
        assert_clean(node.said())
