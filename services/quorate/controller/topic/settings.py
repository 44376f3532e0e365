"""The settings of the listener for Kafka's producers and consumers.

Those of its authentication are the ones of the listener for Kafka's brokers, with the prefix
listener.name.NAME.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from quorate.applications.sessions import EXPIRATION_MS_MAX, EXPIRATION_MS_MIN
from quorate.common.config_types import ConfigType, milliseconds
from quorate.common.setting import Setting, setting
from quorate.controller.kafka.security import KafkaSecurity
from quorate.controller.kafka.settings import LISTENER, LISTENER_NAME
from quorate.metadata.limits import topic_name_fault
from quorate.process.config_reader import VOTERS
from quorate.process.properties import ParsedProperties

TOPIC_LISTENER = "quorate.topic.listener.name"
TOPIC_NAME = "quorate.topic.name"
EXPIRATION = "quorate.topic.producer.expiration.ms"


def _topic_name(text: str) -> str:
    if fault := topic_name_fault(text):
        raise ValueError(fault)
    return text


@dataclass(frozen=True, slots=True)
class TopicListenerSettings:
    """The listener for Kafka's producers and consumers."""

    listener: str | None = None
    """The name of the listener, None if there is none."""
    name: str = setting(
        TOPIC_NAME,
        ConfigType("string", "a topic's name", _topic_name),
        "records",
        "Quorate-specific. The name of the topic that has the records of applications, on the "
        "listener quorate.topic.listener.name. All controllers need the same.",
    )
    expiration_ms: int = setting(
        EXPIRATION,
        milliseconds(EXPIRATION_MS_MIN, EXPIRATION_MS_MAX),
        "86400000",
        "Quorate-specific. How long after its last batch an idempotent producer on this listener "
        "may send the next one. Like producer.id.expiration.ms of Kafka's brokers, but such a "
        "producer then fails and has to be created again.",
    )
    security: KafkaSecurity = field(default_factory=KafkaSecurity)


TOPIC_LISTENER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        TOPIC_LISTENER,
        LISTENER_NAME,
        None,
        "Quorate-specific. The one of controller.listener.names to which Kafka's producers and "
        "consumers connect, to append and read the records of applications as a topic with one "
        "partition. It cannot be the first, nor quorate.kafka.listener.name. PLAINTEXT, SSL, "
        "SASL_PLAINTEXT or SASL_SSL, like the listener for Kafka's brokers. If not set, there is "
        "no such topic.",
    ),
)


def read_topic_listener(
    parsed: ParsedProperties, declared: TopicListenerSettings, security: KafkaSecurity
) -> TopicListenerSettings:
    """Check which listener it is. Raises ConfigError."""
    listener: str | None = parsed.get(TOPIC_LISTENER)
    if listener is None:
        for name in (TOPIC_NAME, EXPIRATION):
            if name in parsed:
                parsed.warnings.append(
                    f"{parsed.places[name]}: {name} has no effect without {TOPIC_LISTENER}: ignored"
                )
        return declared
    names: tuple[str, ...] = parsed.require("controller.listener.names")
    if listener not in names:
        parsed.fail(TOPIC_LISTENER, "it is not in controller.listener.names")
    if listener == names[0]:
        parsed.fail(TOPIC_LISTENER, "the first of controller.listener.names is for the controllers")
    if listener == parsed.get(LISTENER):
        parsed.fail(TOPIC_LISTENER, f"{listener} is {LISTENER}, which serves Kafka's brokers")
    if parsed.get(VOTERS):
        parsed.fail(
            TOPIC_LISTENER,
            f"the log does not have the addresses of static voters ({VOTERS}), so clients would "
            "not find the leader: upgrade kraft.version to 1, and remove that setting",
        )
    return replace(declared, listener=listener, security=security)
