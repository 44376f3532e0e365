"""The listener for Kafka's nodes and tools: when it is open, and what serves its requests.

It listens on every controller that has `quorate.kafka.listener.name`, once the controller has
loaded the committed metadata, whatever the log contains. If controllers talk to each other over it
(`quorate.peer.protocol`), it listens from the start. Requests are checked and served as over gRPC.

Source: KIP-866, "Controller RPCs"; KIP-919.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from quorate.bridge.authentication.sasl_config import OAUTHBEARER, PLAIN
from quorate.bridge.bridge import Bridge, BridgeSettings
from quorate.bridge.listener.listening import ListenerSettings
from quorate.bridge.messages.peer_messages import load_failover_messages
from quorate.bridge.peers.leader_requests import LeaderRequests
from quorate.bridge.peers.leader_service import KafkaLedService
from quorate.bridge.peers.peer import KafkaPeers
from quorate.common.error_codes import ErrorCode
from quorate.controller.config import ControllerConfig
from quorate.controller.kafka.opening import ListenerComponent
from quorate.controller.kafka.settings import LISTENER
from quorate.metadata.requests import RegisterBroker
from quorate.process.extension import NodeComponents
from quorate.process.node import PeersFactory
from quorate.raft.types import VoterSet
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.transport import Peers
from quorate.rpc.server.framed_appends import FramedAppends
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.runtime.service import NodeService
from quorate.runtime.tasks import supervise
from quorate.telemetry.samples import Sample

LOGGER = logging.getLogger(__name__)

REGISTRATION = RegisterBroker(0, "", ())
"""Kafka's nodes are admitted if registrations are: a migration writes metadata.version first."""


class KafkaListener(ListenerComponent):
    """The listener of one controller. refuses: why a request must be rejected, or "". appends:
    serves appends in frames, if the configuration lets the listener take them.
    """

    def __init__(
        self,
        components: NodeComponents[ControllerConfig],
        refuses: Callable[[object], str],
        appends: FramedAppends | None = None,
    ) -> None:
        self._frames_port = 0 if appends is None else components.config.frames_port
        self.bridge = _bridge(components, refuses, appends if self._frames_port else None)
        is_early = components.config.kafka.serves_voters
        super().__init__(components, self.bridge, _warn, is_early=is_early)
        self._loading: asyncio.Task[None] | None = None

    def start(self) -> None:
        super().start()
        if self._is_early:
            loading = asyncio.to_thread(load_failover_messages)
            on_fatal = self._components.on_fatal
            self._loading = supervise(loading, "kafka-messages", on_fatal, endless=False)

    async def stop(self) -> None:
        await cancel_tasks(self._loading)
        await super().stop()

    @property
    def frames_port(self) -> int:
        """The port at which it takes appends in frames now, 0 if it does not."""
        return self._frames_port if self.bridge.listening.addresses else 0


def peers_factory(config: ControllerConfig) -> PeersFactory | None:
    """Makes the transport between controllers; None for the one over gRPC."""
    name = config.kafka.name
    if name is None or not config.kafka.serves_voters:
        return None

    tls = None if config.kafka_tls is None else config.kafka_tls.mutual

    def make(grpc: Peers, voters: Callable[[], VoterSet]) -> Peers:
        return KafkaPeers(grpc, listener=name, tls=tls, voters=voters)

    return make


def node_service(components: NodeComponents[ControllerConfig], **named: Any) -> NodeService:
    """The handler of gRPC requests. It forwards what only a leader answers that speaks Kafka's
    protocol only, if controllers talk to each other over it.
    """
    config = components.config
    listener = config.kafka.name
    named |= {
        "metadata": components.metadata,
        "kafka_listener": listener,
        "applications": components.applications,
    }
    if listener is None or not config.kafka.serves_voters:
        return NodeService(components.driver, **named)
    forwarding = LeaderRequests(
        components.driver,
        components.loader,
        listener=listener,
        tls=None if config.kafka_tls is None else config.kafka_tls.mutual,
        resolve=config.grpc_endpoint,
    )
    mapping = config.security.principal_mapping
    return KafkaLedService(components.driver, forwarding=forwarding, mapping=mapping, **named)


def listener_samples(listener: KafkaListener | None) -> Iterator[Sample]:
    """The metrics of the listener; zeros without one, so that no dashboard lacks data."""
    found = None if listener is None else listener.bridge.listening
    yield Sample("kafka-open-connections", 0 if found is None else found.connection_count)
    yield Sample("kafka-handshakes", 0 if found is None else found.handshake_count)
    yield Sample("kafka-closed-connections", 0 if found is None else found.closed_count)


def _warn(config: ControllerConfig) -> None:
    """Warn of what the listener's security protocol does not protect."""
    name, sasl = config.kafka.name, config.kafka.security.sasl
    if config.security.authorizer and not config.kafka_listener_authenticates:
        LOGGER.warning(
            "%s=%s does not authenticate all callers, and an authorizer rejects what others "
            "forward for their clients; map it to SSL, SASL_SSL or SASL_PLAINTEXT in "
            "listener.security.protocol.map",
            LISTENER,
            name,
        )
    is_clear = not any(each.tls for each in config.listeners if each.name == name)
    if sasl is not None and is_clear and not {PLAIN, OAUTHBEARER}.isdisjoint(sasl.mechanisms):
        LOGGER.warning(
            "%s=%s is SASL_PLAINTEXT: PLAIN and OAUTHBEARER send passwords and tokens over it "
            "unencrypted; map it to SASL_SSL, or enable SCRAM only",
            LISTENER,
            name,
        )


def _bridge(
    components: NodeComponents[ControllerConfig],
    refuses: Callable[[object], str],
    appends: FramedAppends | None,
) -> Bridge:
    config, metadata = components.config, components.metadata
    kafka, security = config.kafka, config.security
    (listener,) = (each for each in config.listeners if each.name == kafka.name)
    denied = () if kafka.forwards_super_users else security.super_users
    listening = ListenerSettings(
        listener.name,
        listener.host,
        listener.port,
        None if config.kafka_tls is None else config.kafka_tls.mutual,
        security.principal_mapping,
        kafka.connections_max,
        kafka.connections_per_address_max,
        kafka.security.client_auth,
        kafka.security.sasl,
        config.metadata.token_secret_key or "",
    )
    settings = BridgeSettings(
        config.node_id,
        components.cluster_id,
        listening,
        frozenset(denied if security.authorizer else ()),
        kafka.quota_window_count,
        kafka.quota_window_s,
        serves_voters=kafka.serves_voters,
        nodes=security.node_principals if kafka.serves_voters else (),
    )

    async def handle(request: Any, timeout_ms: int) -> MetadataAnswer:
        if text := refuses(request):
            leader = components.driver.node.current_leader
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader, None, text)
        return await metadata.handle(request, timeout_ms)

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
        is_loaded=lambda: not kafka.serves_voters or components.loader.has_caught_up,
        appends=appends,
    )
