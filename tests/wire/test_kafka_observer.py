"""A controller of Kafka 4.3 as an observer of Quorate's quorum: it registers, and is no voter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.bridge_support import KafkaQuorum, listens
from tests.integration.support import CLUSTER, HOST, free_ports, until
from tests.kafka import KAFKA_4_3, KafkaNode
from tests.wire.tool_runner import run_tool

OBSERVER = 9


@pytest.mark.timeout(240)
def test_a_controller_of_kafka_registers_but_cannot_be_added(
    kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    quorum = KafkaQuorum(tmp_path, (1, 2, 3))
    quorum.format_and_start("4.1-IV1")
    address = ",".join(f"{HOST}:{port}" for port in quorum.ports.values())
    (port,) = free_ports(1)
    settings = {
        "process.roles": "controller",
        "node.id": OBSERVER,
        "controller.listener.names": "KAFKA",
        "listeners": f"KAFKA://{HOST}:{port}",
        "listener.security.protocol.map": "KAFKA:PLAINTEXT",
        "controller.quorum.bootstrap.servers": address,
        "log.dirs": tmp_path / "observer",
    }
    observer = KafkaNode(tmp_path / "kafka", KAFKA_4_3, settings)
    observer.format(CLUSTER, "--no-initial-controllers")
    until("all listen", lambda: all(map(listens, quorum.ports.values())))
    observer.start()
    where = ("--bootstrap-controller", address)
    try:
        observer.wait_said("registration has been persisted to the metadata log", 90.0)
        assert f" {port} " in run_tool("kafka-cluster", "list-endpoints", *where)
        said = run_tool(
            "kafka-metadata-quorum",
            *where,
            "--command-config",
            observer.properties,
            "add-controller",
        )
        assert "InvalidRequestException" in said, said
        assert "runs Kafka, and voters answer gRPC" in said, said
        described = run_tool("kafka-metadata-quorum", *where, "describe", "--replication")
        (line,) = (text for text in described.splitlines() if text.startswith(f"{OBSERVER} "))
        assert "Observer" in line
    finally:
        observer.kill()
        quorum.kill()
