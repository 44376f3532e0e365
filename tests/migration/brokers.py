"""Real Kafka 3.9.1 brokers in ZooKeeper mode, each a process with a folder of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kazoo.client import KazooClient
from quorate.migration import znodes as z

from tests.kafka import KafkaNode
from tests.processes import HOST

START_S = 180.0


def fill(connect: str, cluster_id: str, topic: str, topic_id: str, replicas: list[int]) -> None:
    """Let ZooKeeper hold a cluster with a topic of one partition, as if its brokers were down."""
    client = KazooClient(connect)
    client.start()
    node = {"version": 3, "topic_id": topic_id, "partitions": {"0": replicas}}
    state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": replicas}
    for path, value in (
        (z.CLUSTER_ID, {"version": "1", "id": cluster_id}),
        (f"{z.TOPICS}/{topic}", {**node, "adding_replicas": {}, "removing_replicas": {}}),
        (f"{z.TOPICS}/{topic}/partitions/0/state", state),
    ):
        client.create(path, json.dumps(value).encode(), makepath=True)
    client.stop()


class Broker(KafkaNode):
    """connect: of ZooKeeper. It migrates once `migrate_to` says where the controllers are. Other
    listeners than those of HOST are among the settings, and `host` says where they are then.
    """

    def __init__(
        self, folder: Path, jars: Path, broker_id: int, port: int, connect: str, **settings: object
    ) -> None:
        self.id = broker_id
        self.host = HOST
        self.port = port
        super().__init__(folder / f"broker-{broker_id}", jars, {})
        self.settings = {
            "broker.id": broker_id,
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": 6000,
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "replica.lag.time.max.ms": 5000,
            "num.network.threads": 1,
            "num.io.threads": 2,
            "log.cleaner.enable": "false",
            **settings,
        }

    def migrate_to(self, controllers: dict[int, int]) -> None:
        """controllers: the bridge's port of each controller."""
        self.settings |= {
            "inter.broker.protocol.version": "3.9",
            "zookeeper.metadata.migration.enable": "true",
            "controller.quorum.voters": ",".join(
                f"{node}@{HOST}:{port}" for node, port in controllers.items()
            ),
            "controller.listener.names": "BRIDGE",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BRIDGE:PLAINTEXT",
        }

    def become_kraft(self) -> None:
        """Once all are migrated: no ZooKeeper any more."""
        for name in (
            "broker.id",
            "inter.broker.protocol.version",
            "zookeeper.connect",
            "zookeeper.session.timeout.ms",
            "zookeeper.metadata.migration.enable",
        ):
            del self.settings[name]
        self.settings |= {"node.id": self.id, "process.roles": "broker"}

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def command(self) -> Sequence[object]:
        # Two brokers and a test that measures pauses share few processors.
        return ("nice", "-n", "10", *super().command)

    def start(self, *options: str) -> None:
        """options: of the JVM."""
        self.options = ("-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.showDateTime=true", *options)
        super().start()

    def wait_ready(self) -> None:
        """Wait until it listens."""
        self.wait_listening(self.port, self.host, START_S)

    def stop(self, timeout_s: float = 60.0) -> int:
        """As an administrator would: SIGTERM, and kill -9 if that takes too long."""
        if self.is_alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                super().stop(timeout_s)
        self.kill()
        return self.wait()
