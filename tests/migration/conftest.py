"""A real ZooKeeper 3.8 on loopback, empty or over a copy of what a real cluster wrote.

The jars are those of Kafka 3.9.1, the last release that runs on ZooKeeper. A clone alone has
neither them nor the data: then these tests are skipped with the reason. With CI set and the shared
folder there, a missing part is a failure, never a skip.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from quorate.migration.znodes import Tree, ZNode
from quorate.migration.zookeeper import ZooKeeper

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
PEERS = Path(os.environ.get("PEERS", Path.home() / ".cache/peers"))
KAFKA = "3.9.1"
HOST = "127.0.0.1"
START_TIMEOUT_S = 40.0


def missing(reason: str) -> None:
    """Skip, or fail where CI promised that it is there."""
    if os.environ.get("CI") and SHARED.exists():
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass
class Server:
    """One ZooKeeper process with a directory of its own. host: an address of this machine."""

    folder: Path
    jars: Path
    port: int = 0
    settings: dict[str, object] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None)
    host: str = HOST

    @property
    def connect(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "zookeeper.log"

    def start(self) -> Server:
        if not self.port:
            with socket.create_server((self.host, 0)) as chosen:
                self.port = chosen.getsockname()[1]
        settings = self.folder / "zoo.cfg"
        settings.write_text(
            f"dataDir={self.folder / 'data'}\nclientPort={self.port}\n"
            f"clientPortAddress={self.host}\ntickTime=500\nmaxClientCnxns=0\n"
            "minSessionTimeout=2000\nmaxSessionTimeout=120000\nadmin.enableServer=false\n"
            + "".join(f"{name}={value}\n" for name, value in self.settings.items())
        )
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    "java", "-Xmx256m", "-XX:TieredStopAtLevel=1",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-Dzookeeper.preAllocSize=64", "-cp", f"{self.jars}/*",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings),
                ],
                stdout=output,
                stderr=output,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((self.host, self.port)) == 0:
                    return self
            time.sleep(0.1)
        raise AssertionError(f"ZooKeeper did not start:\n{self.log.read_text()}")

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def client(self) -> ZooKeeper:
        made = ZooKeeper(self.connect, session_timeout_s=6.0)
        made.start()
        return made


@pytest.fixture(scope="session")
def jars() -> Path:
    found = PEERS / f"kafka-{KAFKA}"
    if not shutil.which("java"):
        missing("Java is not installed")
    if not (found / ".complete").exists():
        fetch = SHARED / "peers/kafka/fetch"
        if not fetch.exists() or not shutil.which("mvn"):
            missing(f"no jars in {found}, and {fetch} or Maven is not there to get them")
        subprocess.run([fetch, KAFKA], check=True)
    return found


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
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    server = Server(folder, jars)
    yield server.start()
    server.kill()


@pytest.fixture
def server(jars: Path, stored: Path, tmp_path: Path) -> Iterator[Server]:
    """A ZooKeeper over a copy of the stored data."""
    made = over_stored(jars, stored, tmp_path / "zookeeper")
    yield made
    made.kill()


def over_stored(jars: Path, stored: Path, folder: Path) -> Server:
    """Start one over a copy of the stored data; whoever calls ends it."""
    folder.mkdir()
    data = folder / "data" / "version-2"
    shutil.copytree(stored / "version-2", data)
    for path in (data, *data.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return Server(folder, jars).start()


@pytest.fixture
def znodes(stored: Path) -> Tree:
    """Every znode as ZooKeeper's client saw it when the data was stored."""
    nodes = []
    for line in (stored / "znodes.jsonl").read_text().splitlines():
        fields = json.loads(line)
        data = None if fields["data"] is None else fields["data"].encode()
        nodes.append(ZNode(fields["path"], data, fields["version"], fields["ephemeral_owner"]))
    return Tree(nodes)
