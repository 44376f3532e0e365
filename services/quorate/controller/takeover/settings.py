"""Kafka's properties of a controller: which settings Quorate knows, and what it runs with.

Quorate's controllers speak Kafka's protocol on the name, host and port of Kafka's listener, so that
brokers need no change, and gRPC among each other on a listener RAFT whose port is `port_offset`
higher. RAFT is encrypted if Kafka's listener is. The log, or controller.quorum.voters, says where
the voters are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from quorate.common.config_types import split_list
from quorate.common.endpoints import PORT_MAX, Endpoint
from quorate.controller.config import CONTROLLER
from quorate.controller.kafka.security import CLIENT_AUTH
from quorate.controller.kafka.settings import LISTENER
from quorate.controller.takeover.finding import TakeoverCheck, failed, note, ok
from quorate.controller.takeover.kafka_settings import (
    NAMES,
    PROTOCOLS,
    VOTERS,
    WITHOUT_PREFIX,
    KafkaSettings,
)
from quorate.controller.takeover.stores import decryption, unusable_stores
from quorate.process.properties import LISTENER_PREFIX, ConfigError
from quorate.raft.types import VoterSet
from quorate.rpc.wire.limits import format_address

RAFT = "RAFT"
PORT_OFFSET = 100
CLIENT_MECHANISM = "sasl.mechanism.controller.protocol"
REPLACED = (
    *("listeners", "advertised.listeners", "controller.quorum.bootstrap.servers"),
    *(VOTERS, NAMES, PROTOCOLS, LISTENER, "metadata.log.dir"),
)
"""The settings of Kafka's file that Quorate's file has with other values."""

_PROTECTING = frozenset(
    {
        *("ssl.enabled.protocols", "ssl.protocol", "ssl.cipher.suites", "ssl.engine.factory.class"),
        *("principal.builder.class", "security.providers"),
    }
)
"""Settings of Kafka that change who is authenticated, and how, and that Quorate does not have."""

_PROVIDED = re.compile(r"\$\{[^}]+:[^}]*\}")


def quorates_settings(
    kafka: KafkaSettings, voters: VoterSet, directory: Path, port_offset: int = PORT_OFFSET
) -> dict[str, str]:
    """The settings of Quorate's controller in the place of Kafka's. Raises ConfigError.

    voters: with the endpoints that brokers dial.
    """
    name, own = kafka.listener, kafka.endpoint()
    if name is None or own is None:
        raise ConfigError(f"{kafka.path}: listeners has no endpoint of {NAMES}")
    kept = {}
    for each in kafka.texts:
        target = kafka.counterpart(each)
        if target is not None and target not in REPLACED:
            text = kafka.texts[kafka.name_for(target) if target in WITHOUT_PREFIX else each]
            # The text of the reference must not become a password that anybody can know.
            if not _is_provided(kafka, text):
                kept[target] = text
    kept.pop(CLIENT_AUTH, None)
    if kafka.protocol == "SSL":
        kept[f"{kafka.prefix}{CLIENT_AUTH}"] = kafka.client_auth
    settings = kept | {
        "process.roles": "controller",
        NAMES: f"{RAFT},{name}",
        "listeners": f"{_raft(own, port_offset)},{own}",
        PROTOCOLS: f"{RAFT}:{kafka.protocol.removeprefix('SASL_')},{name}:{kafka.protocol}",
        LISTENER: name,
        VOTERS: ",".join(
            f"{voter.id}@{format_address(each.host, each.port + port_offset)}"
            for voter in voters
            for each in voter.endpoints
            if each.name == name
        ),
        "metadata.log.dir": str(directory),
    }
    if (advertised := kafka.endpoint("advertised.listeners")) is not None:
        settings["advertised.listeners"] = f"{_raft(advertised, port_offset)},{advertised}"
    if settings.get("controller.quorum.auto.join.enable") == "true":
        addresses = ",".join(each.partition("@")[2] for each in settings[VOTERS].split(","))
        settings["controller.quorum.bootstrap.servers"] = addresses
    return settings


def _raft(endpoint: Endpoint, port_offset: int) -> Endpoint:
    port = endpoint.port + port_offset
    if port > PORT_MAX:
        raise ConfigError(f"{endpoint}: port {port} is too high: choose another --port-offset")
    return Endpoint(RAFT, endpoint.host, port)


def check_settings(kafka: KafkaSettings, quorates: Path | None = None) -> Iterator[TakeoverCheck]:
    """What Quorate does with each setting of Kafka's file.

    quorates: Quorate's file, if there is one. What it cannot take from Kafka's is only noted then.
    """
    if "broker" in kafka.roles:
        yield failed(
            "process.roles",
            f"{kafka.path}: the process is also a broker",
            "move the broker or the controller into a process of its own: Quorate's controller "
            "has no broker",
        )
    ignored, used, wrong = [], 0, dict(unusable_stores(kafka))
    for name in kafka.texts:
        target = kafka.counterpart(name)
        if target is None:
            if reason := _rejected(kafka, name):
                wrong[name] = reason
            elif name != CLIENT_MECHANISM or not kafka.uses_sasl:
                ignored.append(name)
        else:
            used += 1
            if reason := _invalid(kafka, name, target):
                wrong.setdefault(name, reason)
    for name, reason in wrong.items():
        if quorates is None:
            yield failed("settings", f"{kafka.path}: {name} is rejected", reason)
        else:
            yield note("settings", f"{kafka.path}: {name} cannot be kept in {quorates}: {reason}")
    protecting = {each for each in ignored if _base(each) in _PROTECTING}
    if protecting:
        yield note(
            "security",
            f"{', '.join(sorted(protecting))}: without effect on Quorate, which accepts TLS 1.2 "
            "and 1.3 and names callers by ssl.principal.mapping.rules",
        )
    if others := sorted({*ignored} - protecting):
        yield note("settings", f"{', '.join(others)}: without effect on Quorate")
    if not wrong:
        yield ok("settings", f"{used} settings of {kafka.path} are supported")


def _base(name: str) -> str:
    """The name of a setting without the prefix of a listener."""
    return name.split(".", 3)[-1] if name.startswith(LISTENER_PREFIX) else name


def _is_provided(kafka: KafkaSettings, text: str) -> bool:
    """Whether a value refers to one of Kafka's config providers."""
    return "config.providers" in kafka.texts and _PROVIDED.search(text) is not None


def _rejected(kafka: KafkaSettings, name: str) -> str | None:
    """Why a setting without a counterpart prevents the takeover; None if it does not."""
    is_others = name.startswith(LISTENER_PREFIX) and not name.startswith(kafka.prefix)
    if not is_others and (reason := CONTROLLER.refusal(name)) is not None:
        return f"{reason}; {decryption(kafka)}" if name.endswith("ssl.key.password") else reason
    if name in CONTROLLER.settings or CONTROLLER.ignored(name):
        return None
    return "neither Kafka nor Quorate knows it: remove it"


def _invalid(kafka: KafkaSettings, name: str, target: str) -> str | None:
    """Why the value of a setting cannot be used; None if it can."""
    text, setting = kafka.texts[name], CONTROLLER.setting(target)
    assert setting is not None, target
    if _is_provided(kafka, text):
        return "Quorate has no config providers: write the value itself to Quorate's properties"
    try:
        if name != "process.roles":
            setting.parse(text)
    except ValueError as error:
        return f"{error}; accepted: {setting.type.accepts}"
    return None


def check_listener(kafka: KafkaSettings, voters: VoterSet) -> Iterator[TakeoverCheck]:
    """Whether Quorate can listen in the place of Kafka's controller.

    voters: with the endpoints that brokers dial; empty if they are not known.
    """
    names = split_list(kafka.texts.get(NAMES, ""))
    own = kafka.endpoint()
    if not names or own is None:
        yield failed(
            "listener",
            f"{kafka.path}: listeners has no endpoint of the first of {NAMES}",
            "correct both settings",
        )
        return
    if len(names) > 1:
        yield note("listener", f"{', '.join(names[1:])}: only {names[0]} is kept")
    known = voters.get(-1 if kafka.node_id is None else kafka.node_id)
    addresses = {(each.host, each.port) for each in known.endpoints} if known is not None else set()
    advertised = kafka.endpoint("advertised.listeners") or own
    if addresses and advertised.host and (advertised.host, advertised.port) not in addresses:
        assert known is not None
        yield failed(
            "listener",
            f"brokers dial {', '.join(map(str, known.endpoints))}, and {kafka.path} advertises "
            f"{advertised}",
            "make the two equal, and restart Kafka's controller",
        )
    else:
        yield ok("listener", f"{own}, where brokers stay")
    # `check_configuration` finds what is not supported.
    auth = f", {CLIENT_AUTH}={kafka.client_auth}" if kafka.protocol == "SSL" else ""
    yield note("security", f"{own.name} is {kafka.protocol}{auth}")
    if kafka.uses_sasl:
        yield note(
            "security",
            f"{CLIENT_MECHANISM} is for Kafka's controllers only: Quorate's do not authenticate to "
            f"each other by SASL on {RAFT}",
        )
