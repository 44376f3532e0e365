"""The properties file of Kafka's controller, and which settings of Quorate its values are for.

Settings with the prefix of the controllers' listener take precedence, as in Kafka. Those of SASL
keep the prefix. Quorate's gRPC listener needs the TLS files, too: they are without the prefix.

Source: Kafka's KafkaConfig, ListenerName and SaslConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quorate.common.config_types import PROTOCOLS as SECURITY_PROTOCOLS
from quorate.common.config_types import listeners, protocols, split_list, static_voters
from quorate.common.endpoints import Endpoint
from quorate.controller.config import CONTROLLER
from quorate.controller.kafka.security import CLIENT_AUTH, JAAS, PLAIN_JAAS
from quorate.controller.kafka.settings import CONNECTIONS_MAX
from quorate.controller.tls_settings import TLS_BY_LISTENER
from quorate.process.properties import LISTENER_PREFIX, read_properties
from quorate.raft.types import ReplicaKey, Voter, VoterSet

VOTERS = "controller.quorum.voters"
NAMES = "controller.listener.names"
PROTOCOLS = "listener.security.protocol.map"
WITHOUT_PREFIX = TLS_BY_LISTENER | {CONNECTIONS_MAX, "ssl.principal.mapping.rules"}
"""The settings whose prefixed values Quorate's file has without the prefix."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Kafka's file."""

    path: Path
    texts: Mapping[str, str]
    """All properties in the file."""

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
        default = self.listener if self.listener in SECURITY_PROTOCOLS else "PLAINTEXT"
        return known.get(self.listener or "", default)

    @property
    def uses_sasl(self) -> bool:
        """Whether `listener` requires SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def prefix(self) -> str:
        """The prefix of the settings that concern only `listener`."""
        return f"{LISTENER_PREFIX}{(self.listener or '').lower()}."

    def name_for(self, name: str) -> str:
        """The name under which the setting `name` applies to `listener`."""
        return prefixed if (prefixed := f"{self.prefix}{name}") in self.texts else name

    def counterpart(self, name: str) -> str | None:
        """The setting of Quorate with the meaning of Kafka's `name`; None if there is none."""
        base = name.removeprefix(self.prefix)
        if name.endswith(JAAS):
            return name if base == PLAIN_JAAS else None
        if base in WITHOUT_PREFIX or not name.startswith(LISTENER_PREFIX):
            return base if base in CONTROLLER.settings else None
        is_own = name.startswith(self.prefix)
        return name if is_own and CONTROLLER.setting(name) is not None else None

    @property
    def client_auth(self) -> str:
        """The ssl.client.auth of `listener` if it is SSL. Kafka's default is none."""
        return self.texts.get(self.name_for(CLIENT_AUTH), "none")

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
