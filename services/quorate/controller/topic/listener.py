"""The listener for Kafka's producers and consumers, and what serves its requests."""

from __future__ import annotations

import logging

from quorate.bridge.listener.listening import ListenerSettings
from quorate.controller.config import ControllerConfig
from quorate.controller.kafka.opening import ListenerComponent
from quorate.controller.topic.sessions import SessionOpener
from quorate.controller.topic.settings import TOPIC_LISTENER
from quorate.process.extension import NodeComponents
from quorate.runtime.append_service import AppendService
from quorate.topic.access import TopicSettings
from quorate.topic.topic import Topic

LOGGER = logging.getLogger(__name__)


class TopicListener(ListenerComponent):
    """The listener of one controller. Create it before the driver starts."""

    def __init__(
        self, components: NodeComponents[ControllerConfig], appends: AppendService
    ) -> None:
        super().__init__(components, _topic(components, appends).listening, warn_of_callers)


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
