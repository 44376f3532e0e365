"""Controllers with a listener for Kafka's own brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from quorate.metadata.managers.feature_manager import bootstrap_records
from quorate.records.metadata import (
    MetadataRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
    encode,
)
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import CLUSTER, HOST, Quorum, free_ports, here, until
from tests.processes import listens

ESTABLISHED = "01"
LEVEL = 21
"""metadata.version of a cluster that came from ZooKeeper: Kafka 3.9's."""


def connections_at(port: int) -> int:
    """How many connections a listener of this machine has."""
    local = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(local) and row[3] == ESTABLISHED for row in rows)


class KafkaQuorum(Quorum):
    """ports: the listeners for Kafka's brokers, by node."""

    def __init__(self, folder: Path, ids: Sequence[int], **settings: object) -> None:
        super().__init__(folder, ids, **settings)
        self.ports = dict(zip(ids, free_ports(len(ids)), strict=True))
        for node in self.nodes.values():
            node.configure(
                {
                    "controller.listener.names": "CONTROLLER,KAFKA",
                    "listeners": f"{node.endpoint},KAFKA://{HOST}:{self.ports[node.id]}",
                    "quorate.kafka.listener.name": "KAFKA",
                }
            )

    def format_and_start(self, release: str | None = None) -> None:
        """release: the metadata.version that the quorum is formatted with, None for none."""
        voters = ",".join(
            f"{node.id}@{node.address}:{'A' * 20}{index}A"
            for index, node in enumerate(self.nodes.values(), 1)
        )
        for node in self.nodes.values():
            ran = here(
                "storage", "format", "-t", CLUSTER, "-c", node.properties,
                "--initial-controllers", voters,
                *(() if release is None else ("--release-version", release)),
            )  # fmt: skip
            assert ran.status == 0, ran
            node.start()

    def has_migrated(self) -> None:
        """Let the log say that this cluster came from ZooKeeper."""
        records: list[MetadataRecord] = [
            *bootstrap_records({"metadata.version": LEVEL}),
            ZkMigrationStateRecord(ZkMigrationState.POST_MIGRATION, version=0),
        ]

        async def append() -> None:
            addresses = self.addresses.split(",")
            async with QuorumClient(addresses, request_timeout_ms=20_000) as client:
                await client.append([(None, encode(each, each.version or 0)) for each in records])

        until("all listen", lambda: all(map(listens, self.ports.values())))
        asyncio.run(append())
