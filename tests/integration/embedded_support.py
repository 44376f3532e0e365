"""Nodes within the test's own process: their settings, a state machine, and quorums of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import quorate
from quorate.log.meta_properties import random_uuid

from tests.processes import HOST, free_ports

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
SOON_S = 20.0

Settings = dict[str, object]


class KeyValues(quorate.StateMachine):
    """A dictionary, and what it got: offsets of records, leaderships, and the restored offset."""

    def __init__(self) -> None:
        self.values: dict[bytes | None, bytes | None] = {}
        self.offsets: list[int | None] = []
        self.leaderships: list[tuple[str, int, int]] = []
        """Each with the number of records that were applied before."""
        self.restored: int | None = None

    def apply(self, batch: Sequence[quorate.Record]) -> None:
        for record in batch:
            if record.value == b"bad":
                raise ValueError("a bad value")
            self.values[record.key] = record.value
            self.offsets.append(record.offset)

    def restore(self, snapshot: quorate.StateSnapshot) -> None:
        self.values, self.offsets = {}, []
        for batch in snapshot:
            self.apply(batch)
        self.restored = snapshot.offset

    def leadership_acquired(self, epoch: int) -> None:
        self.leaderships.append(("acquired", epoch, len(self.offsets)))

    def leadership_lost(self, epoch: int) -> None:
        self.leaderships.append(("lost", epoch, len(self.offsets)))


def topic_settings(port: int, topic_port: int) -> Settings:
    """A second listener, for Kafka's producers and consumers."""
    return {
        "controller.listener.names": ["CONTROLLER", "TOPIC"],
        "listeners": [f"CONTROLLER://{HOST}:{port}", f"TOPIC://{HOST}:{topic_port}"],
        "quorate.topic.listener.name": "TOPIC",
    }


def settings(folder: Path, node_id: int, ports: Sequence[int], **more: object) -> Settings:
    """ports: of all nodes, that of node 1 first."""
    return {
        "node.id": node_id,
        "listeners": f"CONTROLLER://{HOST}:{ports[node_id - 1]}",
        "controller.quorum.bootstrap.servers": [f"{HOST}:{port}" for port in ports],
        "metadata.log.dir": folder / f"node-{node_id}",
        "controller.quorum.election.timeout.ms": 300,
        **more,
    }


def initial_controllers(ports: Sequence[int]) -> str:
    return ",".join(f"{i}-{random_uuid()}@{HOST}:{port}" for i, port in enumerate(ports, 1))


class Trio:
    """Three nodes that are voters from the start. features: the finalized levels. has_topic:
    whether they listen for Kafka's producers and consumers, at `topic_addresses`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        features: Mapping[str, int] | None = None,
        has_topic: bool = False,
        **more: object,
    ) -> None:
        ports, topic_ports = free_ports(3), free_ports(3)
        self.settings = [settings(folder, each, ports, **more) for each in (1, 2, 3)]
        self.topic_addresses = [f"{HOST}:{port}" for port in topic_ports]
        if has_topic:
            for each, port, topic_port in zip(self.settings, ports, topic_ports, strict=True):
                each.update(topic_settings(port, topic_port))
        self.addresses = [f"{HOST}:{port}" for port in ports]
        self.machines: list[KeyValues] = []
        self.nodes: list[quorate.Node] = []
        voters = initial_controllers(ports)
        for each in self.settings:
            quorate.format_storage(
                each, CLUSTER, initial_controllers=voters, features=features or {}
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[quorate.Node]]:
        self.machines = [KeyValues() for _ in self.settings]
        self.nodes = [
            quorate.Node(each, machine)
            for each, machine in zip(self.settings, self.machines, strict=True)
        ]
        async with AsyncExitStack() as stack:
            for node in self.nodes:
                await stack.enter_async_context(node)
            yield self.nodes

    async def leader(self) -> int:
        """The position of the node whose machine has acquired leadership, once all follow it."""

        def found() -> int | None:
            leaders = {node.leader.id for node in self.nodes}
            (leader,) = leaders if len(leaders) == 1 else (None,)
            if leader is None:
                return None
            acquired = self.machines[leader - 1].leaderships
            return leader if acquired and acquired[-1][0] == "acquired" else None

        number: int = await until("a leader", found)
        return number - 1


def without_stalls(errors: str) -> str:
    """What a program's node printed on stderr, without warnings that the machine stalled."""
    loop = r"the event loop was blocked for .*, longer than the fetch timeout of .*"
    silent = r"the disk has completed no sync for .*, longer than the fetch timeout of .*"
    slow = r"the disk of .* is slow: one sync took .*"
    return re.sub(rf"^(?:{loop}|{silent}|{slow})\n", "", errors, flags=re.MULTILINE)


async def until(what: str, condition: Callable[[], Any]) -> Any:
    try:
        async with asyncio.timeout(SOON_S):
            while not (found := condition()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return found
    except TimeoutError:
        raise AssertionError(f"not within {SOON_S} s: {what}") from None
