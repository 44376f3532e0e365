"""A broker of Kafka 4.3 on a quorum of Quorate's: it registers, serves, and Kafka's tools work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from quorate.metadata.authorizer import Operation, ResourceType

from tests.attacks.kafka_listener import ACTION, AUTHORIZER, BROKER, controller
from tests.certificates import needs_openssl
from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import CLUSTER, HOST, free_ports, here, until
from tests.kafka import KAFKA_4_3, KafkaNode
from tests.migration.client import KafkaClient

START_S = 90.0
NOT_LEADER = "6"
"""Kafka's error code NOT_LEADER_OR_FOLLOWER, as `KafkaClient` tells it."""


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[KafkaQuorum]:
    made = KafkaQuorum(tmp_path, (3001, 3002, 3003))
    try:
        made.format_and_start()
        yield made
    finally:
        made.kill()


@contextmanager
def running(folder: Path, node_id: int, settings: dict[str, object]) -> Iterator[str]:
    """A broker of Kafka; where it listens."""
    (port,) = free_ports(1)
    settings = {
        "process.roles": "broker",
        "node.id": node_id,
        "controller.listener.names": "KAFKA",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": folder / "broker",
        **settings,
    }
    with KafkaNode(folder / "kafka", KAFKA_4_3, settings) as broker:
        broker.format(CLUSTER)
        broker.start()
        broker.wait_said("STARTING to STARTED", START_S)
        yield f"{HOST}:{port}"


@pytest.fixture
def broker(quorum: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path) -> Iterator[str]:
    """Where it listens."""
    quorum.has_migrated()
    settings: dict[str, object] = {
        "controller.quorum.bootstrap.servers": ",".join(
            f"{HOST}:{each}" for each in quorum.ports.values()
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KAFKA:PLAINTEXT",
    }
    with running(tmp_path, 1, settings) as address:
        yield address


def produce_first(client: KafkaClient, topic: str, values: list[bytes], partition: int) -> int:
    """As soon as the broker leads: it says who leads a moment before it does."""
    offsets: list[int] = []

    def is_written() -> bool:
        try:
            offsets.append(client.produce(topic, values, partition=partition))
        except AssertionError as error:
            if str(error) != NOT_LEADER:
                raise
        return bool(offsets)

    until("it leads", is_written, START_S)
    return offsets[0]


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
    assert produce_first(client, "made", [b"1", b"2"], partition=1) == 0
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


@needs_openssl
@pytest.mark.timeout(240)
def test_kafkas_broker_over_mutual_tls_with_an_authorizer(
    kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    with controller(tmp_path, "SSL", **AUTHORIZER) as lab:
        lab.allow("User:CN=broker", ACTION)
        # Whom the broker has not authenticated is forwarded as such.
        lab.allow("User:ANONYMOUS", (ResourceType.TOPIC, "made", Operation.CREATE))
        store = tmp_path / "broker-store.pem"
        certificate, key = lab.files["broker"]
        store.write_text(key.read_text() + certificate.read_text())
        settings: dict[str, object] = {
            "controller.quorum.bootstrap.servers": f"{HOST}:{lab.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KAFKA:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": lab.authority[0],
        }
        with running(tmp_path, BROKER, settings) as broker:
            client = KafkaClient([broker])
            create = ("--create", "--partitions", "1", "--replication-factor", "1", "--topic")
            kafka_tool(
                *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker),
                *(*create, "made"),
            )
            until("it leads", lambda: client.topics(broker).get("made", {}).keys() == {0}, START_S)
            assert produce_first(client, "made", [b"1"], partition=0) == 0
            with pytest.raises(AssertionError, match="TopicAuthorizationException"):
                kafka_tool(
                    *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker),
                    *(*create, "other"),
                )
