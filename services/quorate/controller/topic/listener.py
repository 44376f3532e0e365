"""The listener for Kafka's producers and consumers: when it is open, and what serves it.

It listens once the controller has loaded the committed metadata, because that has the ACLs and the
SCRAM credentials.
"""

from __future__ import annotations

import asyncio
import logging

from quorate.bridge.listening import ListenerSettings
from quorate.controller.config import ControllerConfig
from quorate.controller.topic.sessions import SessionOpener
from quorate.controller.topic.settings import TOPIC_LISTENER
from quorate.process.extension import NodeComponents
from quorate.rpc.cancellation import cancel_tasks
from quorate.runtime.append_service import AppendService
from quorate.runtime.tasks import supervise
from quorate.topic.access import TopicSettings
from quorate.topic.topic import Topic

LOGGER = logging.getLogger(__name__)

LOOK_PERIOD_S = 0.1
"""How often to check whether the committed metadata is loaded, seconds."""


class TopicListener:
    """The listener of one controller. Create it before the driver starts."""

    def __init__(
        self, components: NodeComponents[ControllerConfig], appends: AppendService
    ) -> None:
        self._components = components
        self.topic = _topic(components, appends)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        on_fatal = self._components.on_fatal
        self._task = supervise(self._open(), "topic-listener", on_fatal, endless=False)

    async def stop(self) -> None:
        await cancel_tasks(self._task)
        await self.topic.listening.close()

    async def _open(self) -> None:
        # Poll: the loader does not call its listeners while there is no metadata.
        while not self._components.loader.has_caught_up:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_PERIOD_S)
        warn_of_callers(self._components.config)
        await self.topic.listening.open()


def warn_of_callers(config: ControllerConfig) -> None:
    """Warn if whoever connects can use the topic, or nobody can."""
    name, security = config.topic.listener, config.topic.security
    (listener,) = (each for each in config.listeners if each.name == name)
    if listener.sasl or (listener.tls and security.client_auth == "required"):
        return
    if config.security.authorizer:
        LOGGER.warning(
            "%s=%s does not authenticate all callers, and an authorizer rejects callers without a "
            "principal; map it to SSL, SASL_SSL or SASL_PLAINTEXT in "
            "listener.security.protocol.map",
            TOPIC_LISTENER,
            name,
        )
    elif any(each.tls for each in config.grpc_listeners):
        LOGGER.warning(
            "%s=%s does not authenticate its callers, unlike the listeners for gRPC: whoever can "
            "connect may append and read; map it to SSL, SASL_SSL or SASL_PLAINTEXT in "
            "listener.security.protocol.map",
            TOPIC_LISTENER,
            name,
        )


def _topic(components: NodeComponents[ControllerConfig], appends: AppendService) -> Topic:
    config = components.config
    (listener,) = (each for each in config.listeners if each.name == config.topic.listener)
    (endpoint,) = (each for each in config.endpoints if each.name == listener.name)
    security = config.topic.security
    listening = ListenerSettings(
        listener.name,
        listener.host,
        listener.port,
        None if config.topic_tls is None else config.topic_tls.mutual,
        config.security.principal_mapping,
        config.kafka.connections_max,
        config.kafka.connections_per_address_max,
        security.client_auth,
        security.sasl,
        config.metadata.token_secret_key or "",
    )
    settings = TopicSettings(
        config.topic.name,
        config.node_id,
        components.cluster_id,
        endpoint,
        config.topic.expiration_ms,
        listening,
    )
    return Topic(
        settings,
        components.driver,
        appends,
        SessionOpener(components).open,
        authorizer=components.authorizer,
        image=lambda: components.loader.image,
    )
