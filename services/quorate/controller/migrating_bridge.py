"""The bridge to Kafka's own brokers, as the migration uses it: when it is open, and who answers.

It listens on every controller that has `quorate.kafka.listener.name`, from the moment a migration
is in the log, so that brokers find the one that leads; a cluster that was migrated goes on with it,
since its brokers speak Kafka's protocol in KRaft mode too. What they ask is refused and answered as
over gRPC. Without the setting there is none: then this says so once, and nothing else. It stays
closed where metadata.version is above KAFKA_LISTENER_MAX: every broker would be fenced for good.

Source: KIP-866, "Controller RPCs", "Broker Registration".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quorate.controller.companion import Parts
from quorate.controller.migration_settings import LISTENER
from quorate.metadata.changes import Changes
from quorate.metadata.image import MetadataImage
from quorate.metadata.levels import KAFKA_LISTENER_MAX, release_of
from quorate.raft.errors import ErrorCode
from quorate.records.metadata import ZkMigrationState
from quorate.rpc.convert_metadata import MetadataAnswer
from quorate.runtime.tasks import supervise

if TYPE_CHECKING:
    from quorate.bridge.bridge import Bridge

LOGGER = logging.getLogger(__name__)


class BrokersBridge:
    """One controller's. refuses: why a request is not taken now, or ""."""

    def __init__(self, parts: Parts, refuses: Callable[[object], str]) -> None:
        self._parts = parts
        self._bridge: Bridge | None = None
        if parts.config.migration.listener is not None:
            self._bridge = _build(parts, refuses)
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._said = False
        self._said_too_high = False

    def start(self) -> None:
        if self._bridge is not None:
            self._parts.loader.add_listener(self._changed)
            self._task = supervise(
                self._open(self._bridge), "migration-bridge", self._parts.on_fatal, endless=False
            )

    def _changed(self, image: MetadataImage, _changes: Changes) -> None:
        level = image.features.metadata_version
        if image.features.zk_migration == ZkMigrationState.NONE:
            return
        if level <= KAFKA_LISTENER_MAX:
            self._begun.set()
        elif not self._begun.is_set() and not self._said_too_high:
            self._said_too_high = True
            LOGGER.error(
                "the listener of %s stays closed: metadata.version is %d (%s), and the heartbeats "
                "of Kafka's brokers are served up to %d (%s); remove the setting and use Quorate's "
                "brokers",
                LISTENER,
                level,
                release_of(level),
                KAFKA_LISTENER_MAX,
                release_of(KAFKA_LISTENER_MAX),
            )

    async def _open(self, bridge: Bridge) -> None:
        """Listen once there is, or was, a migration."""
        await self._begun.wait()
        try:
            await bridge.open()
        except OSError as error:
            self._parts.on_fatal(error)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._bridge is not None:
            await self._bridge.close()

    async def tell_everything(self, image: MetadataImage, zk_epoch: int) -> None:
        """The whole state to every broker in ZooKeeper mode, in the name of the claim of
        `zk_epoch`.
        """
        if self._bridge is not None:
            await self._bridge.propagation.tell_everything(image, zk_epoch)
        elif not self._said:
            self._said = True
            LOGGER.error(
                "migration: %s is not set: brokers in ZooKeeper mode are not told of leaders and "
                "ISRs",
                LISTENER,
            )

    async def tell(self, image: MetadataImage, changes: Changes) -> None:
        """What changed."""
        if self._bridge is not None:
            await self._bridge.propagation.tell(image, changes)

    async def silence(self) -> None:
        """This node is not the brokers' controller any more."""
        if self._bridge is not None:
            await self._bridge.propagation.silence()


def _build(parts: Parts, refuses: Callable[[object], str]) -> Bridge:
    from quorate.bridge.bridge import Bridge, BridgeSettings  # noqa: PLC0415 - needs the extra

    config = parts.config
    (listener,) = (each for each in config.listeners if each.name == config.migration.listener)
    settings = BridgeSettings(
        config.node_id,
        parts.cluster_id,
        listener.name,
        listener.host,
        listener.port,
        config.migration.broker_listener,
    )

    async def handle(request: Any, timeout_ms: int) -> MetadataAnswer:
        if text := refuses(request):
            leader = parts.raft.node.current_leader
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader, None, text)
        return await parts.metadata.handle(request, timeout_ms)

    return Bridge(settings, parts.raft, handle, parts.gate)
