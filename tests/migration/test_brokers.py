"""The migration with real brokers: two of Kafka 3.9.1 in ZooKeeper mode, which somebody writes to
and reads from all the time, three controllers, and the way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.controller.migration.settings import ENABLE
from quorate.metadata.metadata_version import LATEST_LEVEL
from quorate.migration import znodes as z
from quorate.migration.znodes import Tree
from quorate.records.metadata import ZkMigrationState

from tests.integration.support import HOST, Ran, assert_error, free_ports, here, until
from tests.migration.brokers import Broker, fill
from tests.migration.client import KafkaClient, Load
from tests.migration.cluster import CLUSTER, IDS, MigratingQuorum, differences
from tests.migration.conftest import Server

TOPIC = "before"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAABAA"
STEP_S = 90.0
PAUSE_S_MAX = 45.0
"""How long a write may take with everything that happens: a producer's default is 120 s."""


class BridgedQuorum(MigratingQuorum):
    """Three controllers that brokers in ZooKeeper mode find at `bridges`."""

    def __init__(self, folder: Path, connect: str) -> None:
        super().__init__(folder, connect, **{"broker.session.timeout.ms": "9000"})
        self.bridges = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        for node in self.nodes.values():
            node.configure(
                {
                    "controller.listener.names": "CONTROLLER,BRIDGE",
                    "listeners": f"CONTROLLER://{node.address},"
                    f"BRIDGE://{HOST}:{self.bridges[node.id]}",
                    "quorate.kafka.listener.name": "BRIDGE",
                }
            )


class Cluster:
    """What the test works with."""

    def __init__(self, folder: Path, jars: Path, server: Server) -> None:
        self.server = server
        self.brokers = [
            Broker(folder, jars, number, port, server.connect)
            for number, port in enumerate(free_ports(2), 1)
        ]
        self.client = KafkaClient(broker.address for broker in self.brokers)
        self.load = Load(self.client, TOPIC)
        self.quorum: BridgedQuorum | None = None

    def start_brokers(self) -> None:
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait_ready()

    def end(self) -> None:
        self.load.stop()
        for broker in self.brokers:
            broker.kill()
        if self.quorum is not None:
            self.quorum.kill()

    def check_load(self, at_least: int) -> None:
        """Nothing that was acknowledged is lost, and no write took longer than producers wait."""
        load = self.load
        assert len(load.acknowledged) >= at_least, load.faults[-5:]
        assert set(load.acknowledged) <= set(load.read)
        assert load.longest_s < PAUSE_S_MAX, load.faults
        print(
            f"{len(load.acknowledged)} writes, {len(load.faults)} attempts failed, the longest "
            f"write took {load.longest_s:.1f} s"
        )

    def tree(self) -> Tree:
        client = self.server.client()
        try:
            return client.read_tree()
        finally:
            client.close()

    def at_brokers(self, topic: str) -> list[set[int]]:
        """What each broker says of the replicas in sync of a topic's first partition."""
        found = []
        for broker in self.brokers:
            partition = self.client.topics(broker.address).get(topic, {}).get(0)
            found.append(set() if partition is None else set(partition.isr_nodes))
        return found

    def until_in_sync(self, topic: str, brokers: set[int]) -> None:
        def is_so() -> bool:
            try:
                return all(isr == brokers for isr in self.at_brokers(topic))
            except OSError:
                return False

        until(f"{topic} is in sync on {brokers}", is_so, STEP_S)

    def create(self, topic: str, factor: int = 2, **at: str) -> None:
        """Through a broker: the one at `address`, or any that takes it."""

        def done() -> bool:
            try:
                address = at.get("address") or self.controller()
                return self.client.create_topic(address, topic, 1, factor) in (0, 36)
            except (OSError, LookupError):
                return False

        until(f"{topic} is created", done, STEP_S)

    def controller(self) -> str:
        """The broker that the first says is the controller, or may be told to forward."""
        found = self.client.metadata(self.brokers[0].address)
        for broker in found.brokers:
            if broker.node_id == found.controller_id:
                return f"{broker.host}:{broker.port}"
        raise LookupError("no controller")


@pytest.fixture
def cluster(jars: Path, empty: Server, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, jars, empty)
    yield made
    made.end()


def in_step(cluster: Cluster, quorum: MigratingQuorum) -> bool:
    return differences(cluster.tree(), quorum.image(), dual=True) == []


@pytest.mark.timeout(400)
def test_real_brokers_migrate_and_go_back(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_brokers()
    cluster.create(TOPIC)
    cluster.until_in_sync(TOPIC, {1, 2})
    cluster.load.start()

    # The quorum waits for the brokers, which are restarted one after the other.
    quorum = cluster.quorum = BridgedQuorum(tmp_path, cluster.server.connect)
    cluster_id = cluster.tree()[z.CLUSTER_ID].object()["id"]
    quorum.format_and_start(cluster_id)
    quorum.until_state(ZkMigrationState.PRE_MIGRATION)
    for broker in cluster.brokers:
        broker.migrate_to(quorum.bridges)
        broker.stop()
        broker.start()
        broker.wait_ready()
        cluster.until_in_sync(TOPIC, {1, 2})
    image = quorum.until_state(ZkMigrationState.MIGRATION)
    quorum.until_said("DUAL_WRITE")
    assert TOPIC in image.topics.ids
    assert {b.broker_id for b in image.cluster.brokers.values() if b.is_migrating_zk_broker} == {
        1,
        2,
    }
    assert cluster.tree()[z.CONTROLLER].object()["brokerid"] in IDS

    # What clients ask of a broker is forwarded; what is asked of the quorum brokers hear of.
    cluster.create("forwarded", address=cluster.brokers[1].address)
    made = here(
        "topics", "--bootstrap-controller", quorum.addresses, "create", "--topic", "direct",
        "--partitions", "1", "--replication-factor", "2",
    )  # fmt: skip
    assert made.status == 0, made
    for topic in ("forwarded", "direct"):
        cluster.until_in_sync(topic, {1, 2})
        assert cluster.client.produce_first(topic, [b"1", b"2"]) == 0
        assert topic in quorum.image().topics.ids
    until("both say the same", lambda: in_step(cluster, quorum), STEP_S)
    assert cluster.client.delete_topic(cluster.brokers[0].address, "direct") == 0
    until(
        "it is gone everywhere",
        lambda: (
            not any(cluster.at_brokers("direct"))
            and f"{z.TOPICS}/direct" not in cluster.tree()
            and not list((cluster.brokers[0].folder / "data").glob("direct-0"))
        ),
        STEP_S,
    )

    # A replica moves from one broker to the other.
    cluster.create("moved", factor=1, address=cluster.brokers[0].address)
    from_, to = (1, 2) if _isr(quorum, "moved")[0] == 1 else (2, 1)
    cluster.until_in_sync("moved", {from_})
    assert cluster.client.produce_first("moved", [b"1"]) == 0
    assert cluster.client.reassign(cluster.brokers[0].address, "moved", to) == 0
    until("it has moved", lambda: _isr(quorum, "moved") == (to, (to,)), STEP_S)
    cluster.until_in_sync("moved", {to})
    assert [value for _, value in cluster.client.fetch("moved", 0)] == [b"1"]
    left = cluster.brokers[from_ - 1].folder / "data"
    until("nothing is left of it", lambda: not list(left.glob("moved-0")), STEP_S)

    # A broker that stops leaves its ISRs, and is back in them after its start.
    cluster.brokers[0].stop()
    until("broker 2 leads alone", lambda: _isr(quorum, TOPIC) == (2, (2,)), STEP_S)
    leader = quorum.nodes[_controller(cluster)]
    leader.kill()
    leader.start()
    cluster.brokers[0].start()
    cluster.brokers[0].wait_ready()
    cluster.until_in_sync(TOPIC, {1, 2})
    until("both say the same", lambda: in_step(cluster, quorum), STEP_S)
    cluster.brokers[1].kill()
    until("broker 1 leads alone", lambda: _isr(quorum, TOPIC) == (1, (1,)), STEP_S)
    cluster.brokers[1].start()
    cluster.brokers[1].wait_ready()
    cluster.until_in_sync(TOPIC, {1, 2})

    # The way back: a broker takes ZooKeeper, and the others follow it.
    for node in quorum.nodes.values():
        node.stop()
    gone = here(
        "migrate", "rollback", "--zookeeper", cluster.server.connect,
        "--bootstrap-controller", quorum.addresses,
    )  # fmt: skip
    assert gone.status == 0, gone
    until("a broker is the controller", lambda: _controller(cluster) in (1, 2), STEP_S)
    assert z.MIGRATION not in cluster.tree()
    cluster.create("after")
    cluster.until_in_sync("after", {1, 2})

    cluster.load.stop()
    cluster.check_load(50)


KAFKA_3_9 = 21
"""The newest metadata.version of the brokers in these tests, 3.9-IV0."""


def finalize(quorum: MigratingQuorum, *options: str) -> Ran:
    return here("migrate", "finalize", "--bootstrap-controller", quorum.addresses, *options)


def upgrade(quorum: MigratingQuorum, *options: str) -> Ran:
    return here("features", "--bootstrap-controller", quorum.addresses, "upgrade", *options)


def _isr(quorum: MigratingQuorum, topic: str) -> tuple[int, tuple[int, ...]]:
    """(leader, ISR) of its first partition in the log."""
    topics = quorum.image().topics
    partition = topics.partition(topics.ids[topic], 0)
    assert partition is not None
    return partition.leader, partition.isr


def _controller(cluster: Cluster) -> int:
    node = cluster.tree().get(z.CONTROLLER)
    return -1 if node is None else int(node.object()["brokerid"])


@pytest.mark.timeout(300)
def test_real_brokers_go_on_in_kraft_mode_without_zookeeper(
    jars: Path, empty: Server, tmp_path: Path
) -> None:
    """Its end is run by hand, as an administrator does who does not want to wait for it. A leader
    without the setting ends the migration within 0.2 s of the moment from which on the command may,
    since both look for the same: so the command is refused until then, with the reason, and most
    often finds it done.
    """
    cluster = Cluster(tmp_path, jars, empty)
    try:
        first, second = cluster.brokers
        fill(empty.connect, CLUSTER, TOPIC, TOPIC_ID, [1, 2])
        quorum = cluster.quorum = BridgedQuorum(tmp_path, empty.connect)
        quorum.format_and_start()
        for broker in cluster.brokers:
            broker.migrate_to(quorum.bridges)
        cluster.start_brokers()
        quorum.until_said("DUAL_WRITE")
        cluster.until_in_sync(TOPIC, {1, 2})
        cluster.load.start()

        # In KRaft mode a broker reads the log; for a while the other is still told.
        for broker in (first, second):
            broker.stop()
            broker.become_kraft()
            broker.start()
            broker.wait_ready()
            cluster.until_in_sync(TOPIC, {1, 2})
            cluster.create(f"with-{broker.id}", address=broker.address)
            cluster.until_in_sync(f"with-{broker.id}", {1, 2})
            assert_error(finalize(quorum), ENABLE, "3001, 3002, 3003")
        until("both say the same", lambda: in_step(cluster, quorum), STEP_S)
        in_mode = [b.is_migrating_zk_broker for b in quorum.image().cluster.brokers.values()]
        assert in_mode == [False, False]

        def is_located() -> bool:
            partition = quorum.image().topics.partition(TOPIC_ID, 0)
            registered = quorum.image().cluster.brokers
            assert partition is not None
            return partition.directories == tuple(
                registered[broker].log_dirs[0] for broker in partition.replicas
            )

        until("they have said where the copied replicas lie", is_located, STEP_S)

        # The controllers are restarted without the setting, one after the other: one is not enough.
        for node in quorum.nodes.values():
            assert quorum.image().features.zk_migration == ZkMigrationState.MIGRATION
            node.alone = True
            node.stop()
            node.start()

        def is_over() -> bool:
            ran = finalize(quorum, "--json")
            if ran.status != 0:
                refusals.append(ran.err)
                return False
            return bool(ran.json() == {"state": "POST_MIGRATION"})

        refusals: list[str] = []
        until("the migration is finalized", is_over, STEP_S)
        assert all(ENABLE in said and str(node.id) in said for said in refusals), refusals
        quorum.until_state(ZkMigrationState.POST_MIGRATION)
        assert "is finished" in finalize(quorum).out, "again does no harm"
        print(f"finalize was refused {len(refusals)} times, then the migration was over")

        # Nobody needs ZooKeeper.
        empty.kill()
        cluster.create("without", address=second.address)
        cluster.until_in_sync("without", {1, 2})
        assert cluster.client.produce_first("without", [b"1"]) == 0
        cluster.load.stop()
        cluster.check_load(50)

        # Its features rise to what the brokers support, and without them to the latest.
        newer = upgrade(quorum, f"--feature=metadata.version={KAFKA_3_9 + 1}")
        assert newer.status == 1, newer
        assert f"only supports versions 1-{KAFKA_3_9}" in newer.out, newer
        raised = upgrade(quorum, f"--feature=metadata.version={KAFKA_3_9}")
        assert raised.status == 0, raised
        assert quorum.image().features.metadata_version == KAFKA_3_9
        for broker in cluster.brokers:
            broker.stop()
            gone = here(
                "cluster", "--bootstrap-controller", quorum.addresses,
                "unregister", "--id", str(broker.id),
            )  # fmt: skip
            assert gone.status == 0, gone
        raised = upgrade(quorum)
        assert raised.status == 0, raised
        print(raised.out)
        assert quorum.image().features.metadata_version == LATEST_LEVEL
    finally:
        cluster.end()
