"""A broker of Kafka 4.3 on a quorum of Quorate's: it registers, serves, and Kafka's tools work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import CLUSTER, HOST, free_ports, here, until
from tests.migration.client import KafkaClient
from tests.wire.conftest import PEERS

START_S = 90.0


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[KafkaQuorum]:
    made = KafkaQuorum(tmp_path, (3001, 3002, 3003))
    made.format_and_start()
    yield made
    made.kill()


@pytest.fixture
def broker(quorum: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path) -> Iterator[str]:
    """Where it listens."""
    quorum.has_migrated()
    (port,) = free_ports(1)
    settings = {
        "process.roles": "broker",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": ",".join(
            f"{HOST}:{each}" for each in quorum.ports.values()
        ),
        "controller.listener.names": "KAFKA",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KAFKA:PLAINTEXT",
        "log.dirs": tmp_path / "broker",
    }
    properties = tmp_path / "broker.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    kafka_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(properties))
    log = tmp_path / "broker.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                "java", "-Xmx400m", "-XX:TieredStopAtLevel=1", "-cp", f"{PEERS}/kafka-4.3.0/*",
                "kafka.Kafka", str(properties),
            ],
            stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=dict(os.environ),
        )  # fmt: skip
    try:
        until(
            "the broker serves",
            lambda: process.poll() is not None or "STARTING to STARTED" in log.read_text(),
            START_S,
        )
        assert process.poll() is None, log.read_text()[-3000:]
        yield f"{HOST}:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(240)
def test_kafkas_broker_and_tools_on_quorates_quorum(
    broker: str, quorum: KafkaQuorum, kafka_tool: Callable[..., str]
) -> None:
    kafka_tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker, "--create",
        "--topic", "made", "--partitions", "2", "--replication-factor", "1",
    )  # fmt: skip
    client = KafkaClient([broker])
    until("it leads", lambda: client.topics(broker).get("made", {}).keys() == {0, 1}, START_S)
    assert client.produce("made", [b"1", b"2"], partition=1) == 0
    assert [value for _, value in client.fetch("made", 0, partition=1)] == [b"1", b"2"]
    told = kafka_tool(
        "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", broker,
        "describe", "--status",
    )  # fmt: skip
    assert all(f"KAFKA://{HOST}:{port}" in told for port in quorum.ports.values())
    kafka_tool(
        "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker, "upgrade",
        "--feature", "metadata.version=25",
    )  # fmt: skip
    features = here(*quorum.features, "describe", "--json").json()
    levels = {each["feature"]: each["finalizedVersionLevel"] for each in features}
    assert levels["metadata.version"] == 25
    assert client.produce("made", [b"3"]) == 0
