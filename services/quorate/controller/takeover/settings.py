"""Kafka's properties of a controller: which settings Quorate knows, and what it runs with.

Quorate's controllers speak Kafka's protocol on the name, host and port of Kafka's listener, so that
brokers need no change, and gRPC among each other on a listener RAFT whose port is `port_offset`
higher. The log, or controller.quorum.voters, says where the voters are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from quorate.controller.config import CONTROLLER, ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.controller.kafka.settings import FORWARDED_SUPER_USERS, LISTENER
from quorate.controller.takeover.finding import TakeoverCheck, failed, note, ok
from quorate.process.config_types import listeners, protocols, split_list, static_voters
from quorate.process.node_config import AUTHORIZER
from quorate.process.properties import ConfigError, read_properties
from quorate.raft.types import Endpoint, ReplicaKey, Voter, VoterSet
from quorate.rpc.tls import dns_names
from quorate.rpc.wire.limits import format_address

RAFT = "RAFT"
PORT_OFFSET = 100
PORT_MAX = 65_535

VOTERS = "controller.quorum.voters"
NAMES = "controller.listener.names"
PROTOCOLS = "listener.security.protocol.map"
REPLACED = (
    *("listeners", "advertised.listeners", "controller.quorum.bootstrap.servers"),
    *(VOTERS, NAMES, PROTOCOLS, LISTENER, "metadata.log.dir"),
)
"""The settings of Kafka's file that Quorate's file has with other values."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Kafka's file. texts: all its properties."""

    path: Path
    texts: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> KafkaSettings:
        """Raises ConfigError."""
        return cls(path, {k: text.strip() for k, (text, _) in read_properties(path).items()})

    @property
    def roles(self) -> set[str]:
        return set(split_list(self.texts.get("process.roles", "")))

    @property
    def node_id(self) -> int | None:
        text = self.texts.get("node.id", "")
        return int(text) if text.isdecimal() else None

    @property
    def listener(self) -> str | None:
        """The name of the listener that brokers dial."""
        names = split_list(self.texts.get(NAMES, ""))
        return names[0].upper() if names else None

    @property
    def directory(self) -> Path | None:
        """The directory of the metadata log."""
        texts = self.texts
        dirs = split_list(texts.get("log.dirs") or texts.get("log.dir") or "")
        text = texts.get("metadata.log.dir") or next(iter(dirs), None)
        return None if text is None else Path(text)

    @property
    def protocol(self) -> str:
        """The security protocol of `listener`."""
        try:
            known = protocols().parse(self.texts.get(PROTOCOLS, ""))
        except ValueError:
            known = {}
        default = "SSL" if self.listener == "SSL" else "PLAINTEXT"
        return known.get(self.listener or "", default)

    def endpoint(self, name: str = "listeners") -> Endpoint | None:
        """Where this controller listens, or is advertised, by `listener`."""
        try:
            found = listeners().parse(self.texts.get(name, ""))
        except ValueError:
            return None
        return next((each for each in found if each.name == self.listener), None)

    @property
    def static_voters(self) -> VoterSet:
        """Those of controller.quorum.voters, at the addresses that Kafka's nodes dial."""
        try:
            found = static_voters().parse(self.texts.get(VOTERS, ""))
        except ValueError:
            found = ()
        name = self.listener or ""
        return VoterSet.of(
            Voter(ReplicaKey(each.id), (Endpoint(name, *each.address),)) for each in found
        )


def quorates_settings(
    kafka: KafkaSettings, voters: VoterSet, directory: Path, port_offset: int = PORT_OFFSET
) -> dict[str, str]:
    """The settings of Quorate's controller in the place of Kafka's. Raises ConfigError.

    voters: with the endpoints that brokers dial.
    """
    name, own = kafka.listener, kafka.endpoint()
    if name is None or own is None:
        raise ConfigError(f"{kafka.path}: listeners has no endpoint of {NAMES}")
    kept = {
        k: text for k, text in kafka.texts.items() if k in CONTROLLER.settings and k not in REPLACED
    }
    protocol = kafka.protocol
    settings = kept | {
        "process.roles": "controller",
        NAMES: f"{RAFT},{name}",
        "listeners": f"{_raft(own, port_offset)},{own}",
        PROTOCOLS: f"{RAFT}:{protocol},{name}:{protocol}",
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


def check_settings(kafka: KafkaSettings) -> Iterator[TakeoverCheck]:
    """What Quorate does with each setting of Kafka's file."""
    if "broker" in kafka.roles:
        yield failed(
            "process.roles",
            f"{kafka.path}: the process is also a broker",
            "move the broker or the controller into a process of its own: Quorate's controller "
            "has no broker",
        )
    ignored, used, wrong = [], 0, []
    for name, text in kafka.texts.items():
        if name in CONTROLLER.refused:
            wrong.append((name, CONTROLLER.refused[name]))
        elif name in CONTROLLER.settings:
            used += 1
            try:
                if name != "process.roles":
                    CONTROLLER.settings[name].parse(text)
            except ValueError as error:
                accepts = CONTROLLER.settings[name].type.accepts
                wrong.append((name, f"{error}; accepted: {accepts}"))
        elif CONTROLLER.ignored(name):
            ignored.append(name)
        else:
            wrong.append((name, "neither Kafka nor Quorate knows it: remove it"))
    for name, reason in wrong:
        yield failed("settings", f"{kafka.path}: {name} is rejected", reason)
    if ignored:
        yield note("settings", f"{', '.join(sorted(ignored))}: without effect on Quorate")
    if not wrong:
        yield ok("settings", f"{used} settings of {kafka.path} are supported")


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
    dialled = {(each.host, each.port) for each in known.endpoints} if known is not None else set()
    advertised = kafka.endpoint("advertised.listeners") or own
    if dialled and advertised.host and (advertised.host, advertised.port) not in dialled:
        assert known is not None
        yield failed(
            "listener",
            f"brokers dial {', '.join(map(str, known.endpoints))}, and {kafka.path} advertises "
            f"{advertised}",
            "make the two equal, and restart Kafka's controller",
        )
    else:
        yield ok("listener", f"{own}, where brokers stay")
    # `check_configuration` finds protocols that are not supported.
    yield note("security", f"{own.name} is {kafka.protocol}")


def check_configuration(
    settings: Mapping[str, str], source: Path | None
) -> tuple[ControllerConfig | None, list[TakeoverCheck]]:
    """Quorate's configuration with these settings, or in the file `source`; None if it is invalid.

    Whatever else the configuration's reader rejects is found here.
    """
    try:
        if source is not None:
            config = load_config(source)
        else:
            known = CONTROLLER.settings
            config = load_config(None, {known[k].variable: text for k, text in settings.items()})
    except ConfigError as error:
        return None, [
            failed("configuration", str(error), "see `quorate controller --help-settings`")
        ]
    found = [ok("configuration", f"{', '.join(map(str, config.endpoints))}")]
    return config, found + list(_check_security(config))


def _check_security(config: ControllerConfig) -> Iterator[TakeoverCheck]:
    if config.kafka.name is None:
        yield failed(
            "configuration",
            f"{LISTENER} is not set, so brokers have no controller",
            "set it to the listener that brokers dial",
        )
        return
    if config.security.authorizer and not config.kafka_listener_authenticates:
        yield failed(
            "security",
            f"{AUTHORIZER} is set and {config.kafka.name} does not authenticate all "
            "callers, so requests that brokers forward for their clients would be rejected",
            f"map {config.kafka.name} to SSL, SASL_SSL or SASL_PLAINTEXT on Kafka's nodes "
            "first, or remove the authorizer",
        )
    elif config.security.authorizer and not config.kafka.forwards_super_users:
        yield note(
            "security",
            "brokers may not forward requests of super users, unless "
            f"{FORWARDED_SUPER_USERS}=allow",
        )
    if config.tls is not None and config.security.peer_identity != "off":
        name = f"node-{config.node_id}"
        if name not in dns_names(config.tls.certificate):
            yield failed(
                "security",
                f"{config.tls.certificate} has no DNS name {name}, by which controllers and "
                "brokers identify each other",
                "issue certificates with node-ID to all controllers and brokers, or set "
                "quorate.peer.identity=off",
            )


def check_match(
    config: ControllerConfig, voters: VoterSet, node_id: int
) -> Iterator[TakeoverCheck]:
    """Whether brokers and the other voters find this controller with its configuration.

    voters: with the endpoints that brokers dial.
    """
    if config.node_id != node_id:
        yield failed(
            "configuration",
            f"node.id is {config.node_id}, and the directory is of node {node_id}",
            "correct node.id or metadata.log.dir",
        )
    if len(unknown := config.undialled(voters)):
        yield failed(
            "configuration",
            f"{VOTERS} lacks {', '.join(str(voter.id) for voter in unknown)}, which the log knows "
            f"only by {config.kafka.name}",
            f"add ID@HOST:PORT of the listener {config.endpoints[0].name} of each",
        )
    own = voters.get(node_id)
    if own is None:
        return
    kafkas = [each for each in config.endpoints if each.name == config.kafka.name]
    if kafkas and kafkas[0] not in own.endpoints:
        yield failed(
            "configuration",
            f"{kafkas[0]} is not where brokers dial: {', '.join(map(str, own.endpoints))}",
            "correct listeners or advertised.listeners",
        )
