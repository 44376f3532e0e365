"""Brokers of Kafka 4.3 on a quorum of Quorate's: they register, serve, and Kafka's tools work.

`Cluster` is three of them with a producer with acks=all: at every metadata.version, and through
restarts, a failover and the cordoning of directories at the latest.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.authorizer import Operation, ResourceType
from quorate.metadata.metadata_version import LATEST_LEVEL, MINIMUM_LEVEL
from quorate.rpc.metadata_client import MetadataClient

from tests.attacks.kafka_listener import ACTION, AUTHORIZER, BROKER, controller
from tests.certificates import needs_openssl
from tests.integration import test_quickstart as quickstart
from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import CLUSTER, HOST, free_ports, here, until
from tests.kafka import KAFKA_4_3, KafkaNode
from tests.migration.client import KafkaClient, Load

START_S = 90.0
STALLS = re.compile(
    r"the disk of .* is slow|the disk has completed no sync|the disk completed a sync"
    r"|the event loop was blocked|lost voter|cannot elect a leader|is not registered yet"
)
"""What a controller warns of when the machine stalls, not its clients."""


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[KafkaQuorum]:
    made = KafkaQuorum(tmp_path, (3001, 3002, 3003))
    try:
        made.format_and_start()
        yield made
    finally:
        made.kill()


class KafkaBroker(KafkaNode):
    """A formatted broker of Kafka 4.3 that registers on the listener KAFKA."""

    def __init__(
        self,
        folder: Path,
        node_id: int,
        settings: Mapping[str, object],
        cluster_id: str = CLUSTER,
    ) -> None:
        (port,) = free_ports(1)
        self.id = node_id
        self.address = f"{HOST}:{port}"
        super().__init__(
            folder,
            KAFKA_4_3,
            {
                "process.roles": "broker",
                "node.id": node_id,
                "controller.listener.names": "KAFKA",
                "listeners": f"PLAINTEXT://{self.address}",
                "log.dirs": folder / "broker",
                **settings,
            },
        )
        self.format(cluster_id)

    def wait_serving(self) -> None:
        self.wait_said("STARTING to STARTED", START_S)

    def shut_down(self) -> None:
        """A controlled shutdown, which must succeed."""
        self.stop(START_S)
        said = self.recently()
        assert "The controller has asked us to exit controlled shutdown" in said, said[-3000:]


@contextmanager
def running(
    folder: Path, node_id: int, settings: Mapping[str, object], cluster_id: str = CLUSTER
) -> Iterator[str]:
    """A broker of Kafka; where it listens."""
    with KafkaBroker(folder / "kafka", node_id, settings, cluster_id) as broker:
        broker.start()
        broker.wait_serving()
        yield broker.address


def in_clear(quorum: KafkaQuorum) -> dict[str, object]:
    """The settings of a broker on this quorum."""
    return {
        "controller.quorum.bootstrap.servers": ",".join(
            f"{HOST}:{each}" for each in quorum.ports.values()
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KAFKA:PLAINTEXT",
    }


@pytest.fixture
def broker(quorum: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path) -> Iterator[str]:
    """Where it listens."""
    quorum.has_migrated()
    with running(tmp_path, 1, in_clear(quorum)) as address:
        yield address


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
    assert client.produce_first("made", [b"1", b"2"], partition=1) == 0
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
            assert client.produce_first("made", [b"1"], partition=0) == 0
            with pytest.raises(AssertionError, match="TopicAuthorizationException"):
                kafka_tool(
                    *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker),
                    *(*create, "other"),
                )


SESSION_S = 3.0
IDS = (101, 102, 103)


class Cluster:
    """Three brokers with so many log directories each, on a quorum at a level."""

    def __init__(
        self,
        quorum: KafkaQuorum,
        folder: Path,
        kafka_tool: Callable[..., str],
        level: int,
        disks: int,
    ) -> None:
        self.quorum = quorum
        self.tool = kafka_tool
        self.raise_to(level)
        self.brokers = {
            node_id: KafkaBroker(
                folder / f"broker-{node_id}",
                node_id,
                {
                    **in_clear(quorum),
                    "log.dirs": ",".join(map(str, self.directories(folder, node_id)[:disks])),
                    "broker.heartbeat.interval.ms": 300,
                    "broker.session.timeout.ms": int(SESSION_S * 1000),
                    "offsets.topic.num.partitions": 1,
                },
            )
            for node_id in IDS
        }
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            broker.wait_serving()
        self.client = KafkaClient(broker.address for broker in self.brokers.values())
        self.until_unfenced(IDS)
        self.until_made("load", 1)
        self.load = Load(self.client, "load").start()

    @staticmethod
    def directories(folder: Path, node_id: int) -> tuple[Path, Path]:
        return folder / f"disk-{node_id}-1", folder / f"disk-{node_id}-2"

    def kill(self) -> None:
        self.load.stop()
        for broker in self.brokers.values():
            broker.kill()

    def raise_to(self, level: int) -> None:
        ran = here(*self.quorum.features, "upgrade", "--feature", f"metadata.version={level}")
        assert ran.status == 0, ran

    def described(self) -> dict[int, r.BrokerDescription]:
        async def ask() -> r.DescribeClusterResponse:
            addresses = self.quorum.addresses.split(",")
            async with MetadataClient(addresses, request_timeout_ms=20_000) as client:
                found = await client.ask(r.DescribeCluster())
                assert isinstance(found, r.DescribeClusterResponse)
                return found

        return {broker.id: broker for broker in asyncio.run(ask()).brokers}

    def until_unfenced(self, ids: Iterable[int]) -> None:
        wanted = set(ids)

        def found() -> bool:
            return {each.id for each in self.described().values() if not each.is_fenced} == wanted

        until(f"{wanted} are unfenced", found)

    def create(self, topic: str, partitions: int, factor: int = 3) -> int:
        """Make a topic at the first broker that answers; the error's number."""
        for broker in self.brokers.values():
            try:
                return self.client.create_topic(broker.address, topic, partitions, factor)
            except OSError:
                continue
        raise AssertionError("no broker answers")

    def until_made(self, topic: str, partitions: int, factor: int = 3) -> None:
        """Make a topic. A machine that stalls may have fenced a broker for a moment, and an answer
        may be lost, so that the topic exists the next time.
        """
        made = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        until(f"{topic} is made", lambda: self.create(topic, partitions, factor) in made)

    def replicas(self, topic: str) -> list[tuple[int, ...]]:
        """Of each partition, once all brokers that answer know the topic."""
        found = until(
            f"{topic} is known",
            lambda: self.client.topics(self.brokers[IDS[0]].address).get(topic),
        )
        return [tuple(each.replica_nodes) for each in found.values()]

    def until_written(self, count: int = 5) -> None:
        """Until the producer has got further acknowledgements."""
        before = len(self.load.acknowledged)
        until("records are written", lambda: len(self.load.acknowledged) >= before + count)

    def check_load(self) -> None:
        """Nothing that was acknowledged is lost."""
        self.load.stop()
        assert self.load.acknowledged
        assert set(self.load.acknowledged) <= set(self.load.read), self.load.faults[-20:]
        print(f"{len(self.load.acknowledged)} records, longest {self.load.longest_s:.2f} s")

    def cordon(self, node_id: int, directories: str) -> None:
        change = ("--add-config", f"cordoned.log.dirs=[{directories}]")
        self.tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", self.brokers[node_id].address,
            *("--alter", "--entity-type", "brokers", "--entity-name", str(node_id)), *change,
        )  # fmt: skip


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[KafkaQuorum]:
    """A quorum with short sessions of brokers."""
    made = KafkaQuorum(
        tmp_path, (3001, 3002, 3003), **{"broker.session.timeout.ms": int(SESSION_S * 1000)}
    )
    made.format_and_start()
    made.until_voters(3001, 3002, 3003)
    yield made
    made.kill()


@pytest.mark.timeout(300)
def test_brokers_serve_at_every_level(
    sessions: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    cluster = Cluster(sessions, tmp_path, kafka_tool, MINIMUM_LEVEL, disks=1)
    try:
        for level in range(MINIMUM_LEVEL + 1, LATEST_LEVEL + 1):
            cluster.raise_to(level)
            # Brokers whose heartbeats the controller rejects are fenced by then.
            time.sleep(SESSION_S)
            cluster.until_unfenced(IDS)
            cluster.until_written(1)
            cluster.until_made(f"at-{level}", 1)
        assert all(len(each.log_dirs) == 1 for each in cluster.described().values())
        cluster.check_load()
        for broker in cluster.brokers.values():
            assert "publishing fault" not in broker.said()
    finally:
        cluster.kill()


@pytest.mark.timeout(300)
def test_brokers_at_the_latest_level(
    sessions: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    cluster = Cluster(sessions, tmp_path, kafka_tool, LATEST_LEVEL, disks=2)
    first = IDS[0]
    try:
        # One of the first broker's directories takes no new replicas, then none of them does.
        cordoned, other = cluster.directories(tmp_path, first)
        cluster.cordon(first, str(cordoned))
        until("one is cordoned", lambda: len(cluster.described()[first].cordoned_log_dirs) == 1)
        cluster.until_made("other", 6)
        until("it is stored", lambda: len(list(other.glob("other-*"))) == 6)
        assert list(cordoned.glob("other-*")) == []
        cluster.cordon(first, "*")
        until("both are cordoned", lambda: len(cluster.described()[first].cordoned_log_dirs) == 2)
        cluster.until_made("elsewhere", 6, factor=2)
        assert all(first not in each for each in cluster.replicas("elsewhere"))
        assert cluster.create("nowhere", 1, factor=3) == ErrorCode.INVALID_REPLICATION_FACTOR

        # A broker stops and starts: its directories are cordoned as before.
        cluster.brokers[first].shut_down()
        cluster.until_unfenced(IDS[1:])
        cluster.until_written()
        cluster.brokers[first].start()
        cluster.brokers[first].wait_serving()
        cluster.until_unfenced(IDS)
        until("both are cordoned", lambda: len(cluster.described()[first].cordoned_log_dirs) == 2)

        # The leading controller is lost: the next one hears what the brokers report.
        status = sessions.until("there is a leader", lambda status: status["leaderId"] > 0)
        sessions.nodes[status["leaderId"]].kill()
        cluster.until_written()
        cluster.cordon(first, "")
        until("none is cordoned", lambda: cluster.described()[first].cordoned_log_dirs == ())
        time.sleep(SESSION_S)
        cluster.until_unfenced(IDS)
        sessions.nodes[status["leaderId"]].start()
        cluster.until_made("again", 1)

        # A broker leaves for good.
        last = IDS[-1]
        cluster.brokers[last].shut_down()
        ran = here(
            "cluster", "--bootstrap-controller", sessions.addresses,
            "unregister", "--id", str(last),
        )  # fmt: skip
        assert ran.status == 0, ran
        assert cluster.described().keys() == set(IDS[:-1])
        cluster.until_written()
        cluster.check_load()
    finally:
        cluster.kill()


@pytest.mark.timeout(300)
def test_kafkas_broker_and_tools_on_a_quickstart(
    kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    """With nothing but what it prints."""
    with quickstart.running(tmp_path / "quick") as quick:
        quick.wait_for(r"3 voters: ")
        tools = quick.wait_for(r"^Kafka's tools: (.*)$")[1].split()
        said = quick.wait_for(r"^Kafka's brokers: (\S+)=(\S+) .* formatted with -t (\S+)$")
        settings: dict[str, object] = {
            said[1]: said[2],
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KAFKA:PLAINTEXT",
        }
        with running(tmp_path, 1001, settings, said[3]) as broker:
            client = KafkaClient([broker])
            assert client.create_topic(broker, "made") == 0
            until("it leads", lambda: client.topics(broker).get("made", {}).keys() == {0}, START_S)
            assert client.produce_first("made", [b"1"], partition=0) == 0
            described = kafka_tool(
                "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", broker,
                "describe", "--status",
            )  # fmt: skip
            assert all(f"KAFKA://{address}" in described for address in tools[1].split(","))
        assert tools[0] == "--bootstrap-controller"
        assert quick.interrupt() == 0
    for log in (tmp_path / "quick").glob("controller-*/controller.log"):
        lines = log.read_text().splitlines()
        warned = [line for line in lines if "WARNING" in line and not STALLS.search(line)]
        assert not warned, f"gRPC clients stay away from Kafka's listener: {warned}"
