"""Controllers that outlive one test, and directories that a stopped controller left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import Node, Quorum, assert_clean, free_ports

Start = Callable[..., Node]


@pytest.fixture(scope="session", autouse=True)
def _without_settings_in_the_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("QUORATE_"):
                patch.delenv(name)
        yield


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Start]:
    """Makes controllers below `tmp_path`; ends their processes."""
    nodes: list[Node] = []

    def make(node_id: int, folder: Path = tmp_path, **settings: object) -> Node:
        node = Node(folder, node_id, free_ports(1)[0], **settings)
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.kill()


@pytest.fixture(scope="module")
def used_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A stopped controller, the only voter of its quorum, with 40 records in its log."""
    node = Node(tmp_path_factory.mktemp("used"), 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    try:
        asyncio.run(append(node.address, 40))
        assert node.stop() == 0
        yield node
    finally:
        node.kill()


@pytest.fixture(scope="session")
def lone_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A running controller, the only voter of its quorum."""
    node = Node(tmp_path_factory.mktemp("lone"), 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("leads epoch 1")
        yield node
        assert node.stop() == 0
        assert_clean(node.said())
    finally:
        node.kill()


@pytest.fixture(scope="session")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """1, 2 and 3 are voters; 2 and 3 joined by themselves; 4 waits to be added. Tests leave it
    like that.
    """
    quorum = Quorum(tmp_path_factory.mktemp("quorum"), (1, 2, 3, 4))
    for node in quorum.nodes.values():
        node.format("--standalone" if node.id == 1 else "--no-initial-controllers")
        if node.id in (2, 3):
            node.configure({"controller.quorum.auto.join.enable": "true"})
        node.start()
    try:
        quorum.until_voters(1, 2, 3)
        quorum.until("an observer", lambda s: len(s["currentObservers"]) == 1)
        yield quorum
        logs = {}
        for node in quorum.nodes.values():
            assert node.stop() == 0
            logs[node.id] = node.said()
        for log in logs.values():
            assert_clean(log)
    finally:
        quorum.kill()


async def append(address: str, count: int, value_bytes: int = 64) -> None:
    """Append records one after the other, so that each is a batch of its own."""
    async with QuorumClient([address]) as client:
        for number in range(count):
            await client.append_value(f"value-{number}".encode().ljust(value_bytes, b"."))
