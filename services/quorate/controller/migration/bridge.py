"""The migration's bridge to Kafka's own brokers: when it is open, and what serves its requests.

It listens on every controller that has `quorate.kafka.listener.name`, once the controller has
loaded the committed metadata, whatever the state of the migration. Brokers find the leader there.
A migrated cluster keeps the listener, since its brokers speak Kafka's protocol in KRaft mode too.
Requests are checked and served as over gRPC. Without the setting there is no bridge; the first
attempt to send the whole state to brokers then logs an error.

Source: KIP-866, "Controller RPCs", "Broker Registration".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from quorate.bridge.sasl_config import OAUTHBEARER, PLAIN
from quorate.controller.config import ControllerConfig
from quorate.controller.migration.settings import LISTENER
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.requests import RegisterBroker
from quorate.process.extension import NodeComponents
from quorate.raft.errors import ErrorCode
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.runtime.tasks import supervise
from quorate.telemetry.samples import Sample

if TYPE_CHECKING:
    from quorate.bridge.bridge import Bridge

LOGGER = logging.getLogger(__name__)

LOOK_PERIOD_S = 0.1
"""How often to check whether the committed metadata is loaded, seconds."""

REGISTRATION = RegisterBroker(0, "", ())
"""Kafka's nodes are admitted if registrations are: a migration writes metadata.version first."""


class BrokersBridge:
    """The bridge of one controller. refuses: why a request must be rejected, or ""."""

    def __init__(
        self, components: NodeComponents[ControllerConfig], refuses: Callable[[object], str]
    ) -> None:
        self._components = components
        self._bridge: Bridge | None = None
        if components.config.migration.listener is not None:
            self._bridge = _build(components, refuses)
        self._task: asyncio.Task[None] | None = None
        self._said = False

    def start(self) -> None:
        if self._bridge is not None:
            self._task = supervise(
                self._open(self._bridge),
                "migration-bridge",
                self._components.on_fatal,
                endless=False,
            )

    async def _open(self, bridge: Bridge) -> None:
        """Open the listener once the committed metadata is loaded."""
        # Poll: the loader does not call its listeners while there is no metadata.
        while not self._components.loader.has_caught_up:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_PERIOD_S)
        self._warn_of_clear()
        await bridge.open()

    def _warn_of_clear(self) -> None:
        config = self._components.config
        if config.security.authorizer and not config.kafka_listener_authenticates:
            LOGGER.warning(
                "%s=%s does not authenticate all callers, and an authorizer rejects what others "
                "forward for their clients; map it to SSL, SASL_SSL or SASL_PLAINTEXT in "
                "listener.security.protocol.map",
                LISTENER,
                config.migration.listener,
            )

        sasl = config.kafka_security.sasl
        is_clear = not any(
            each.tls for each in config.listeners if each.name == config.migration.listener
        )
        if sasl is not None and is_clear and not {PLAIN, OAUTHBEARER}.isdisjoint(sasl.mechanisms):
            LOGGER.warning(
                "%s=%s is SASL_PLAINTEXT: PLAIN and OAUTHBEARER send passwords and tokens over it "
                "unencrypted; map it to SASL_SSL, or enable SCRAM only",
                LISTENER,
                config.migration.listener,
            )

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._bridge is not None:
            await self._bridge.close()

    def samples(self) -> Iterator[Sample]:
        """The metrics of the listener; 0 if there is none."""
        bridge = self._bridge
        yield Sample("kafka-open-connections", 0 if bridge is None else bridge.connection_count)
        yield Sample("kafka-handshakes", 0 if bridge is None else bridge.handshake_count)
        yield Sample("kafka-closed-connections", 0 if bridge is None else bridge.closed_count)

    async def tell_everything(self, image: MetadataImage, zk_epoch: int) -> None:
        """Send the whole state to every broker in ZooKeeper mode.

        zk_epoch: the controller epoch that this node has claimed in ZooKeeper.
        """
        if self._bridge is not None:
            await self._bridge.propagation.tell_everything(image, zk_epoch)
        elif not self._said:
            self._said = True
            LOGGER.error(
                "migration: %s is not set: brokers in ZooKeeper mode receive no leaders and ISRs",
                LISTENER,
            )

    async def tell(self, image: MetadataImage, changes: MetadataDelta) -> None:
        """Send the changes to the brokers in ZooKeeper mode that they affect."""
        if self._bridge is not None:
            await self._bridge.propagation.tell(image, changes)

    async def silence(self) -> None:
        """Stop sending to brokers, because this node is not their controller."""
        if self._bridge is not None:
            await self._bridge.propagation.silence()


def _build(
    components: NodeComponents[ControllerConfig], refuses: Callable[[object], str]
) -> Bridge:
    from quorate.bridge.bridge import Bridge, BridgeSettings  # noqa: PLC0415 - needs the extra

    config = components.config
    migration, security = config.migration, config.security
    (listener,) = (each for each in config.listeners if each.name == migration.listener)
    denied = () if migration.forwards_super_users else security.super_users
    settings = BridgeSettings(
        config.node_id,
        components.cluster_id,
        listener.name,
        listener.host,
        listener.port,
        migration.broker_listener,
        components.tls if listener.tls else None,
        security.principal_mapping,
        frozenset(denied if security.authorizer else ()),
        migration.connections_max,
        migration.connections_per_address_max,
        config.kafka_security.client_auth,
        config.kafka_security.sasl,
        config.token_secret_key or "",
    )

    async def handle(request: Any, timeout_ms: int) -> MetadataAnswer:
        if text := refuses(request):
            leader = components.driver.node.current_leader
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader, None, text)
        return await components.metadata.handle(request, timeout_ms)

    metadata = components.metadata

    async def admit(timeout_ms: int) -> tuple[ErrorCode, str]:
        if text := refuses(REGISTRATION):
            return ErrorCode.NOT_CONTROLLER, text
        return await metadata.admit_kafka_node(timeout_ms)

    return Bridge(
        settings,
        components.driver,
        handle,
        metadata.describe,
        admit=admit,
        authorizer=components.authorizer,
        image=lambda: components.loader.image,
    )
