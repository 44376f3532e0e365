"""From release 0.1.0 to this version: its clients, its controllers one by one, its directories."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.earlier import unpack
from tests.integration.support import Node, Quorum, assert_clean, succeed, until
from tests.integration.test_snapshot_offsets import read as read_all
from tests.releases import contents
from tests.releases.running import FOLDER, Appender, Released, python, run

pytestmark = pytest.mark.slow

ENOUGH = 20
"""Records that each client must get acknowledged while a controller is replaced, and after it."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of 0.1.0."""
    return unpack(tmp_path_factory.mktemp("released"))


@pytest.fixture
def quorum(tmp_path: Path, released: Path) -> Iterator[Released]:
    """Three controllers of 0.1.0."""
    quorum = Released(tmp_path, (1, 2, 3), released)
    try:
        quorum.form()
        yield quorum
    finally:
        quorum.kill()


Log = list[tuple[int | None, str]]


def read(address: str) -> Log:
    """Every record, linearizably. 0.1.0's checkpoints kept no offsets."""
    found = asyncio.run(read_all(address, linearizable=True))
    return [(offset, value.decode()) for offset, value in found]


def read_with(sources: Path, addresses: str) -> Log:
    """The same by the client of 0.1.0."""
    lines = python(sources, FOLDER / "reader.py", addresses).splitlines()
    return [(int(offset), value) for offset, value in map(str.split, lines)]


def has(node: Node, log: Log) -> bool:
    """Whether a node itself has these records."""
    found = asyncio.run(read_all(node.address))
    return [(offset, value.decode()) for offset, value in found] == log


def go_on(clients: list[Appender]) -> None:
    """Wait until each client has got more records acknowledged."""
    for client in clients:
        wanted = len(client.acknowledged()) + ENOUGH
        client.wait_until("appends", lambda c=client, w=wanted: len(c.acknowledged()) >= w)


def assert_nothing_lost(clients: list[Appender], log: Log) -> None:
    """Each acknowledged record is at its offset, once, and nothing is there that was not sent."""
    acknowledged = [each for client in clients for each in client.acknowledged()]
    failed = {value for client in clients for value in client.failed()}
    assert set(acknowledged) <= set(log)
    assert {value for _, value in log} <= {value for _, value in acknowledged} | failed
    repeated = {value for value, count in Counter(value for _, value in log).items() if count > 1}
    assert repeated <= failed


@pytest.mark.timeout(300)
def test_controllers_are_upgraded_one_by_one(
    quorum: Released, released: Path, tmp_path: Path
) -> None:
    clients = [
        Appender(tmp_path / f"{name}.out", name, quorum.addresses, sources)
        for name, sources in (("old", released), ("new", None))
    ]
    old, new = clients
    with old, new:
        for client in clients:
            client.start()
        go_on(clients)
        for node_id in (2, 3, 1):  # the leader last, as docs/operations.md says
            quorum.change_version(node_id, None)
            go_on(clients)
        succeed(*quorum.features, "upgrade", "--feature", "application.version=1")
        go_on(clients)
        for client in clients:
            assert client.stop() == 0, client.said()
    log = read(quorum.nodes[1].address)
    assert_nothing_lost(clients, log)
    assert read_with(released, quorum.addresses) == log
    for node in quorum.nodes.values():
        until(f"{node.id} has everything", lambda node=node: has(node, log))
    for command in (
        ("metadata-quorum", "describe", "--status"),
        ("metadata-quorum", "describe", "--replication"),
        ("features", "describe"),
        ("topics", "list"),
        ("acls", "list"),
    ):
        group, *rest = command
        assert run(released, group, "--bootstrap-controller", quorum.addresses, *rest) is not None
    quorum.stop()
    assert_clean(quorum.said())


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Released, dict[int, contents.Directory]]]:
    """Controllers of this version on directories of 0.1.0."""
    directories = contents.unpack(tmp_path)
    ports = list(contents.PORTS.values())
    quorum = Released(tmp_path / "nodes", tuple(contents.PORTS), None, ports)
    for node in quorum.nodes.values():
        shutil.move(directories[node.id].path, node.data)
    try:
        yield quorum, directories
    finally:
        quorum.kill()


def test_a_quorum_goes_on_with_directories_of_the_release(
    kept: tuple[Released, dict[int, contents.Directory]],
) -> None:
    quorum, directories = kept
    wanted = [value.decode() for _, value in directories[1].appended]
    for node in quorum.nodes.values():
        node.start()
    quorum.until_voters(*quorum.nodes)
    assert "orders" in succeed("topics", *quorum.ask[1:], "list").out
    for node in quorum.nodes.values():
        found = [value for _, value in read(node.address)]
        assert found == wanted
    quorum.stop()
    assert_clean(quorum.said())


def test_a_static_quorum_goes_on_with_its_directory(tmp_path: Path) -> None:
    directory = contents.unpack(tmp_path)[contents.STATIC]
    quorum = Quorum(tmp_path / "nodes", (contents.STATIC,))
    (node,) = quorum.nodes.values()
    voter = f"{node.id}@{node.address}"
    node.configure({"controller.quorum.bootstrap.servers": None, "controller.quorum.voters": voter})
    shutil.move(directory.path, node.data)
    with node:
        node.start()
        node.wait_said("leads epoch ")
        succeed(*quorum.features, "upgrade", "--feature", "kraft.version=1")
        quorum.until_voters(node.id)
        assert asyncio.run(read_all(node.address)) == directory.appended
