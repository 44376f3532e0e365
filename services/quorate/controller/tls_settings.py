"""The settings of a controller's TLS files, of one listener or of all.

Each is read where Kafka reads it: with the prefix of the listener, or else without. Kafka's stores
must be PEM files.

Source: Kafka's SslConfigs; KIP-651 (PEM stores).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from quorate.common import config_types as types
from quorate.common.setting import Setting
from quorate.process.properties import LISTENER_PREFIX, ConfigError, ParsedProperties
from quorate.rpc.tls import TlsConfig

TLS_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "ssl.keystore.type",
        types.choice("PEM"),
        None,
        "Must be PEM if ssl.keystore.location is set: Java key stores are not supported.",
    ),
    Setting(
        "ssl.keystore.location",
        types.path(),
        None,
        "A PEM file with the private key and the certificate. Alternatively, set "
        "ssl.key.location and ssl.certificate.location. All settings of TLS files may have the "
        "prefix listener.name.NAME.: a listener for Kafka's protocol may have its own files; all "
        "others share theirs.",
    ),
    Setting(
        "ssl.truststore.type",
        types.choice("PEM"),
        None,
        "Must be PEM if ssl.truststore.location is set: Java trust stores are not supported.",
    ),
    Setting(
        "ssl.truststore.location",
        types.path(),
        None,
        "Kafka's name for ssl.ca.location.",
    ),
)

CERTIFICATE = ("ssl.certificate.location", "ssl.keystore.location")
KEY = ("ssl.key.location", "ssl.keystore.location")
CA = ("ssl.ca.location", "ssl.truststore.location")
"""The settings that name each file, the one that takes precedence first."""

TLS_BY_LISTENER: frozenset[str] = frozenset(
    (*CERTIFICATE, *KEY, *CA, *(each.name for each in TLS_SETTINGS))
)
"""The settings that can be overridden for a listener."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `key` and `certificate` may be one file."""

    certificate: Path
    key: Path
    ca: Path
    """The authorities that must have signed the peer's certificate, on incoming and outgoing
    connections.
    """

    @property
    def mutual(self) -> TlsConfig:
        """TLS with these files that requires the client's certificate."""
        return TlsConfig(self.certificate, self.key, self.ca)


def read_tls(
    parsed: ParsedProperties, encrypted: Sequence[str], kafkas: Collection[str]
) -> tuple[TlsFiles | None, dict[str, TlsFiles]]:
    """The files of the gRPC listeners, None without TLS, and of each encrypted listener for Kafka's
    protocol.

    encrypted: the encrypted listeners. kafkas: those for Kafka's protocol. Raises ConfigError.
    """
    for name in sorted(parsed.texts):
        setting = parsed.config_def.setting(name)
        if setting is None or setting.name not in TLS_BY_LISTENER or name == setting.name:
            continue
        if not any(name == f"{_prefix(each)}{setting.name}" for each in encrypted):
            parsed.warnings.append(
                f"{parsed.places[name]}: {name} has no effect without an encrypted listener of "
                "that name: ignored"
            )
    found = {name: _files(parsed, name) for name in encrypted}
    kafka = {name: found.pop(name) for name in kafkas if name in found}
    grpc = next(iter(found.values()), None)
    for name, files in found.items():
        if files != grpc:
            raise ConfigError(
                f"{parsed.source}: the listeners {next(iter(found))} and {name} have different TLS "
                f"files: only listeners for Kafka's protocol may have their own"
            )
    return grpc, kafka


def _prefix(listener: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}."


def _files(parsed: ParsedProperties, listener: str) -> TlsFiles:
    because = f", and the listener {listener} is encrypted"
    certificate, key, ca = (_name_of(parsed, listener, each) for each in (CERTIFICATE, KEY, CA))
    for name in (certificate, key, ca):
        parsed.require(name, because)
    return TlsFiles(
        certificate=parsed.pem(certificate, "CERTIFICATE"),
        key=parsed.pem(key, "PRIVATE KEY"),
        ca=parsed.pem(ca, "CERTIFICATE"),
    )


def _name_of(parsed: ParsedProperties, listener: str, names: tuple[str, ...]) -> str:
    """The name under which a PEM file is set: prefixed, or not; by default the first of `names`."""
    prefixed = tuple(f"{_prefix(listener)}{each}" for each in names)
    return next((each for each in (*prefixed, *names) if each in parsed), names[0])
