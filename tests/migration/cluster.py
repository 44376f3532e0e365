"""A quorum of real controllers that migrate, and stand-ins for brokers in ZooKeeper mode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from quorate.cli.main import main
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.metadata_version import SUPPORTED
from quorate.migration.verification import compare
from quorate.migration.znodes import Tree
from quorate.records.metadata import (
    EndTransactionRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisteredFeature,
    ZkMigrationState,
    decode,
    encode,
)
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import OutcomeUnknownError, RpcError

from tests.integration.support import Node, Quorum, until
from tests.launcher import launched_by

IDS = (3001, 3002, 3003)
BROKERS = (1, 2)
STATE_S = 60.0
CLUSTER = "-osK_z-yS4WP9LBCencUOA"
"""The id of the cluster whose ZooKeeper data is stored."""


class MigratingNode(Node):
    """A controller that migrates.

    die_at, stop_at: `STEP=MARKER`; the first controller that comes to the step is killed or
    stopped. alone: without the setting of the migration, whatever its file says.
    """

    die_at = ""
    stop_at = ""
    alone = False

    @property
    def variables(self) -> dict[str, str]:
        return {"QUORATE_ZOOKEEPER_METADATA_MIGRATION_ENABLE": "false"} if self.alone else {}

    @property
    def launcher(self) -> Sequence[str]:
        options = [f"--kill=migration.{self.die_at}"] if self.die_at else []
        options += [f"--stop=migration.{self.stop_at}"] if self.stop_at else []
        return launched_by(*options) if options else super().launcher


class MigratingQuorum(Quorum):
    """Three controllers of one quorum, all with the migration's settings."""

    nodes: dict[int, MigratingNode]  # type: ignore[assignment]

    def __init__(self, folder: Path, connect: str, **settings: object) -> None:
        super().__init__(folder, IDS)
        self._settings = {
            "zookeeper.metadata.migration.enable": "true",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "6000",
            # The stand-ins send no heartbeats.
            "broker.session.timeout.ms": "600000",
            **settings,
        }
        for node in self.nodes.values():
            node.__class__ = MigratingNode

    def format_and_start(self, cluster_id: str = CLUSTER) -> None:
        ids = [f"{'A' * 20}{index}A" for index in range(1, 4)]
        voters = ",".join(
            f"{node.id}@{node.address}:{directory}"
            for node, directory in zip(self.nodes.values(), ids, strict=True)
        )
        for node in self.nodes.values():
            node.configure(self._settings)
            status = main(
                ["storage", "format", "-t", cluster_id, "-c", str(node.properties),
                 "--initial-controllers", voters]
            )  # fmt: skip
            assert status == 0
        for node in self.nodes.values():
            node.start()

    # --- the log ----------------------------------------------------------------------------------

    def log(self) -> list[tuple[int, MetadataRecord]]:
        """All committed metadata records with their offsets."""

        async def read() -> list[tuple[int, MetadataRecord]]:
            async with QuorumClient(self.addresses.split(","), request_timeout_ms=20_000) as client:
                return [
                    (record.offset, decode(record.value or b""))  # type: ignore[misc]
                    async for record in client.read()
                    if record.key is None
                ]

        return asyncio.run(read())

    def image(self) -> MetadataImage:
        image = MetadataImage()
        for offset, record in self.log():
            image.apply(record, offset)
        return image

    def copied(self) -> MetadataImage:
        """The metadata as of the end of the copy: what controllers decide later is not in it."""
        image = MetadataImage()
        for offset, record in self.log():
            image.apply(record, offset)
            if isinstance(record, EndTransactionRecord):
                return image
        raise AssertionError("no copy has ended")

    def append(self, *records: MetadataRecord) -> int:
        """As a bridge to ZooKeeper-mode brokers would: through the leader."""

        async def write() -> int:
            async with QuorumClient(self.addresses.split(","), request_timeout_ms=20_000) as client:
                values: list[Any] = [(None, encode(r, r.version or 0)) for r in records]
                return (await client.append(values)).base_offset

        return asyncio.run(write())

    def until_state(self, state: ZkMigrationState) -> MetadataImage:
        """Wait until the log says that the migration is there."""

        def reached() -> MetadataImage | None:
            try:
                image = self.image()
            except RpcError:
                return None
            return image if image.features.zk_migration == state else None

        try:
            found = until(f"the state {state.name}", reached, STATE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None
        assert isinstance(found, MetadataImage)
        return found

    def until_said(self, text: str, timeout_s: float = STATE_S) -> None:
        try:
            until(f"some controller says {text}", lambda: text in self.said(), timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def register_brokers(self, *, in_zookeeper_mode: bool = True) -> None:
        """Brokers in ZooKeeper mode say that they are ready, or come back without it."""
        for broker in BROKERS:
            record = RegisterBrokerRecord(
                broker_id=broker,
                is_migrating_zk_broker=in_zookeeper_mode,
                incarnation_id="A" * 20 + f"{broker}{'A' if in_zookeeper_mode else 'Q'}",
                broker_epoch=broker if in_zookeeper_mode else 10 * broker,
                features=tuple(
                    RegisteredFeature(name, levels.min, levels.max)
                    for name, levels in ({} if in_zookeeper_mode else SUPPORTED).items()
                ),
                fenced=False,
                version=3,
            )
            # A leader that dies may not have answered; a registration may come twice.
            until("the registration is answered", partial(self._is_appended, record), STATE_S)

    def _is_appended(self, record: MetadataRecord) -> bool:
        try:
            self.append(record)
        except OutcomeUnknownError:
            return False
        return True


def differences(tree: Tree, image: MetadataImage, *, dual: bool = False) -> list[object]:
    """dual: whether both are written, so that the versions of znodes differ."""
    found = compare(tree, image.records())
    return [each for each in found if not (dual and each.field == "partition_epoch")]
