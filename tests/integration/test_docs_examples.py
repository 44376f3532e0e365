"""The examples of commands in docs and in the help of commands work as they are printed."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.metadata_support import brokers
from tests.integration.support import CLUSTER, HOST, Node, Quorum, here, until
from tests.integration.terminal import Terminal
from tests.processes import free_ports
from tests.tools.documents import block, find_block

BROKER = 101


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A controller that leads alone, with a cluster's metadata."""
    node = Node(tmp_path_factory.mktemp("examples"), 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("active controller in epoch")
        yield node
    finally:
        node.kill()


@pytest.fixture
def terminal(node: Node, tmp_path: Path) -> Iterator[Terminal]:
    """For which every placeholder of an address is the controller's."""
    addresses = ("H:P", "HOST:PORT", "controller-1:9093")
    names = dict.fromkeys(addresses, node.address)
    with Terminal(tmp_path, {**names, "…": f"--bootstrap-controller {node.address}"}) as made:
        yield made


def test_cluster(node: Node, terminal: Terminal) -> None:
    with brokers(node.address, BROKER):
        pass
    assert "no longer registered" in terminal.paste(block("docs/cli.md", "cluster … unregister"))


def test_topics_configs_and_acls(
    node: Node, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pwd\n"))
    with brokers(node.address, 11):
        create, *others, imports = block("docs/cli.md", "topics … describe").splitlines()
        for line in (create, *others):
            assert terminal.run(line)
        stopped = shutil.copytree(node.data, terminal.folder / "copy")
        terminal.replaced["/var/lib/kafka/metadata"] = str(stopped)
        assert terminal.run(imports)
        assert terminal.paste(block("docs/cli.md", "configs … alter"))
        assert terminal.paste(block("docs/cli.md", "acls … add"))
        assert terminal.paste(block("charts/quorate/README.md", "acls … add"))
    check_metadata_shell(node, terminal)


def check_metadata_shell(node: Node, terminal: Terminal) -> None:
    """There is a topic. The shell on a checkpoint reads commands from stdin."""
    snapshot = next(node.data.rglob("*.checkpoint"))
    terminal.replaced["/var/lib/quorate"] = str(node.data)
    terminal.replaced["00000000000000000500-0000000007.checkpoint"] = str(snapshot)
    assert terminal.paste(block("docs/cli.md", "metadata-shell")) == "/\n"


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="grpcurl is not installed")
def test_an_append_with_grpcurl(node: Node) -> None:
    line = block("docs/client.md", "grpcurl").replace("controller-1:9093", node.address)
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(json.loads(done.stdout)["base_offset"]) > 0


@pytest.mark.slow
def test_brokers(node: Node, tmp_path: Path) -> None:
    """Three, each with the properties of docs/brokers.md."""
    start = block("docs/brokers.md", "quorate broker")
    create = block("docs/brokers.md", "topics")
    settings = find_block("docs/brokers.md", "listeners=PLAINTEXT").text
    ports = free_ports(3)
    with Terminal(tmp_path, {"CLUSTER": CLUSTER}) as terminal:
        for broker, port in zip((101, 102, 103), ports, strict=True):
            names = {
                "node.id=101": f"node.id={broker}",
                "broker-101:9092": f"{HOST}:{port}",
                "controller-1:9093,controller-2:9093,controller-3:9093": node.address,
                "/var/lib/quorate-broker": tmp_path / str(broker),
            }
            properties = tmp_path / f"{broker}.properties"
            properties.write_text(Terminal(tmp_path, names).localized(settings))
            terminal.replaced["broker.properties"] = str(properties)
            terminal.paste(start)
        _, *arguments = create.replace("127.0.0.1:PORT", f"{HOST}:{ports[0]}").split()
        until("the topic is created", lambda: here(*arguments).status == 0)


def test_metadata_quorum(quorum: Quorum, tmp_path: Path) -> None:
    """Controller 4 is added and removed: the quorum stays as it was."""
    names = {"HOST:PORT": quorum.addresses, "-i 3": "-i 4"}
    properties = {"controller.properties": quorum.nodes[4].properties}
    with Terminal(tmp_path, {**names, **properties}) as terminal:
        terminal.paste(block("docs/cli.md", "metadata-quorum add-controller --config"))
    quorum.until_voters(1, 2, 3)
