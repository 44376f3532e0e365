"""Write the files of this folder with release 0.1.0 itself, from this repository's history.

    python -m tests.releases

It takes a minute. Run it again only to add what the tests should also open: the files stand for
directories that users have.

Three controllers form a quorum, get metadata and records, and change leaders. 1 keeps its whole
log, 2 and 3 drop what their checkpoints replace; 2 is killed. 4 is alone at kraft.version 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quorate.log.meta_properties import MetaProperties

from tests.earlier import COMMIT, unpack
from tests.integration.metadata_support import brokers
from tests.integration.support import OTHER_CLUSTER, succeed, until, voters
from tests.integration.test_snapshot_offsets import SMALL, is_cleaned
from tests.releases.contents import ARCHIVE, CONTENTS, INTERFACES, PORTS, STATIC
from tests.releases.interfaces import of_release
from tests.releases.running import FOLDER, Appender, Released, ReleasedNode, python, run

INTERVAL = "metadata.log.max.snapshot.interval.ms"
BETWEEN = "metadata.log.max.record.bytes.between.snapshots"
RECORDS = 60
"""Before each change."""


class Writer:
    """The quorum, and what it has acknowledged."""

    def __init__(self, folder: Path, sources: Path) -> None:
        self.folder, self.sources = folder, sources
        self.appended: list[tuple[int, str]] = []

    def append(self, addresses: str, count: int = RECORDS) -> None:
        name = f"value-{len(self.appended)}"
        log_file = self.folder / "appender.log"
        appender = Appender(log_file, name, addresses, self.sources, count)
        appender.start()
        assert appender.wait(60) == 0, appender.said()
        assert not appender.failed()
        self.appended += appender.acknowledged()

    def form(self) -> Released:
        quorum = Released(self.folder, (1, 2, 3), self.sources, list(PORTS.values()), **SMALL)
        quorum.nodes[1].configure({INTERVAL: None, BETWEEN: None})
        quorum.form()
        return quorum

    def history(self, quorum: Released) -> None:
        """Everything that happens to the quorum of three."""
        self.metadata(quorum)
        for leader in (2, 3, 1):
            self.append(quorum.addresses)
            quorum.transfer(leader)
        self.append(quorum.addresses)
        third = quorum.nodes[3]
        succeed(*quorum.ask, "remove-controller", "-i", 3, "-d", third.directory_id)
        self.append(quorum.addresses)
        succeed(*quorum.ask, "add-controller", "-c", third.properties)
        for node_id in (2, 3):
            node = quorum.nodes[node_id]
            until(f"{node_id} has cleaned its log", lambda node=node: is_cleaned(node))
        self.append(quorum.addresses)

    def metadata(self, quorum: Released) -> None:
        """Changes of several kinds."""
        ask = ("--bootstrap-controller", quorum.addresses)
        alter = ("configs", *ask, "alter")
        succeed(*alter, "--entity-type", "brokers", "--entity-default", "--add-config", MAX_BYTES)
        succeed(*alter, "--entity-type", "clients", "--entity-name", "app", "--add-config", RATE)
        succeed(*alter, "--entity-type", "users", "--entity-name", "alice", "--add-config", SCRAM)
        succeed("acls", *ask, "add", *ACL)
        with brokers(quorum.addresses, 101, 102):
            succeed("topics", *ask, "create", "--topic", "orders", *TOPIC)


MAX_BYTES = "message.max.bytes=1000000"
RATE = "producer_byte_rate=1024"
SCRAM = "SCRAM-SHA-256=[iterations=4096,password=secret]"
TOPIC = ("--partitions", 2, "--replication-factor", 2)
ACL = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")


def static_node(folder: Path, sources: Path) -> ReleasedNode:
    """A controller whose voters are in its settings, as before KIP-853."""
    port = max(PORTS.values()) + 1
    node = ReleasedNode(folder, STATIC, port)
    node.sources = sources
    voter = {"controller.quorum.voters": f"{STATIC}@{node.address}"}
    node.configure({"controller.quorum.bootstrap.servers": None, **voter, **SMALL})
    node.format(None, OTHER_CLUSTER)
    node.start()
    node.wait_said("leads epoch 1")
    return node


def entry(
    node: ReleasedNode, kraft_version: int, appended: list[tuple[int, str]], ids: Sequence[int]
) -> dict[str, Any]:
    """What `contents.Directory` has of a node."""
    properties = MetaProperties.read(node.data)
    shell = ("metadata-shell", "--log-dir", node.data, "--json", "find")
    return {
        "node_id": node.id,
        "cluster_id": properties.cluster_id,
        "directory_id": properties.directory_id,
        "kraft_version": kraft_version,
        "voters": sorted(ids),
        "appended": sorted(appended),
        "metadata": json.loads(run(node.sources, *shell)),
    }


def write_directories(folder: Path, sources: Path) -> None:
    """The archive and what it contains."""
    three, alone = Writer(folder, sources), Writer(folder, sources)
    quorum = three.form()
    try:
        three.history(quorum)
        status = quorum.status()
        assert status is not None
        node = static_node(folder, sources)
        alone.append(node.address)
        quorum.nodes[2].kill()
        for stopping in (quorum.nodes[1], quorum.nodes[3], node):
            assert stopping.stop() == 0
    finally:
        quorum.kill()
    entries = [
        entry(each, 1, three.appended, list(voters(status))) for each in quorum.nodes.values()
    ]
    entries.append(entry(node, 0, alone.appended, [STATIC]))
    lines = ",\n".join(json.dumps(each) for each in entries)
    CONTENTS.write_text(f'{{"commit": "{COMMIT}", "directories": [\n{lines}\n]}}\n')
    pack(folder, [*quorum.nodes.values(), node])


def pack(folder: Path, nodes: Sequence[ReleasedNode]) -> None:
    """Write the archive: `node-N/` is the directory of a node."""
    for node in nodes:
        node.data.rename(folder / "packed" / f"node-{node.id}")
    options = ("--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--sparse")
    command = ("tar", "-cz", *options, "-C", str(folder / "packed"), "-f", str(ARCHIVE), ".")
    subprocess.run(command, check=True)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "sources").mkdir()
        (folder / "packed").mkdir()
        sources = unpack(folder / "sources")
        write_directories(folder, sources)
        found = of_release(COMMIT, python(sources, FOLDER / "probe.py"))
    INTERFACES.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    for path in (ARCHIVE, CONTENTS, INTERFACES):
        print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
