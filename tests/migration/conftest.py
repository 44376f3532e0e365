"""A real ZooKeeper 3.8 on loopback, empty or over a copy of what a real cluster wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from quorate.migration.znodes import Tree, ZNode
from quorate.migration.zookeeper import ZooKeeper

from tests.kafka import KAFKA_3_9, SHARED, copy_writable, fetch, java, missing
from tests.processes import HOST, Process, free_ports, write_properties

START_S = 40.0


class Server(Process):
    """One ZooKeeper, its settings and its data in `folder`. host: an address of this machine."""

    def __init__(
        self,
        folder: Path,
        jars: Path,
        settings: Mapping[str, object] | None = None,
        host: str = HOST,
    ) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__("ZooKeeper", folder / "zookeeper.log")
        self.properties = folder / "zoo.cfg"
        self.jars = jars
        self.host = host
        (self.port,) = free_ports(1, host)
        write_properties(
            self.properties,
            {
                "dataDir": folder / "data",
                "clientPort": self.port,
                "clientPortAddress": host,
                "tickTime": 500,
                "maxClientCnxns": 0,
                "minSessionTimeout": 2000,
                "maxSessionTimeout": 120000,
                "admin.enableServer": "false",
                **(settings or {}),
            },
        )

    @property
    def command(self) -> Sequence[object]:
        return java(
            self.jars,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dzookeeper.preAllocSize=64",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            self.properties,
        )

    @property
    def connect(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start it; return once it listens."""
        super().start()
        self.wait_listening(self.port, self.host, START_S)

    def client(self) -> ZooKeeper:
        made = ZooKeeper(self.connect, session_timeout_s=6.0)
        made.start()
        return made


@pytest.fixture(scope="session")
def jars() -> Path:
    fetch(KAFKA_3_9)
    return KAFKA_3_9


@pytest.fixture(scope="session")
def stored() -> Path:
    """A data directory of ZooKeeper under Kafka 3.9.1, with its znodes as the oracle."""
    found = SHARED / "data/kafka-3.9-zookeeper"
    if not found.exists():
        missing(f"a ZooKeeper-mode cluster's data is not in {found} (set QUORATE_SHARED)")
    return found


@pytest.fixture
def empty(jars: Path, tmp_path: Path) -> Iterator[Server]:
    """A ZooKeeper that holds nothing yet."""
    with Server(tmp_path / "zookeeper", jars) as server:
        server.start()
        yield server


@pytest.fixture
def server(jars: Path, stored: Path, tmp_path: Path) -> Iterator[Server]:
    """A ZooKeeper over a copy of the stored data."""
    folder = tmp_path / "zookeeper"
    copy_writable(stored / "version-2", folder / "data/version-2")
    with Server(folder, jars) as server:
        server.start()
        yield server


@pytest.fixture
def znodes(stored: Path) -> Tree:
    """Every znode as ZooKeeper's client saw it when the data was stored."""
    nodes = []
    for line in (stored / "znodes.jsonl").read_text().splitlines():
        fields = json.loads(line)
        data = None if fields["data"] is None else fields["data"].encode()
        nodes.append(ZNode(fields["path"], data, fields["version"], fields["ephemeral_owner"]))
    return Tree(nodes)
