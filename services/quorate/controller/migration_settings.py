"""The settings of the migration from ZooKeeper, read from the controller's own properties.

They have Kafka's names. The environment overrides the file, as for every setting
(QUORATE_ZOOKEEPER_CONNECT is zookeeper.connect). What does not fit together is a ConfigError that
names the setting.

| misconfiguration | said of |
|---|---|
| the migration without an ensemble | zookeeper.connect |
| the migration in a process that is a broker too | zookeeper.metadata.migration.enable |
| an ensemble that is asked for with TLS | zookeeper.ssl.client.enable |
| a value that is no boolean, number or list of addresses | the setting itself |
| a cluster that was never in ZooKeeper, or has left it for good | the log: ...migration.enable |
| a leader without the setting while others have it | it resigns; the log: ...migration.enable |

Source: KIP-866, "Configuration" and "Misconfigurations".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate.controller.config import ConfigError, ControllerConfig, load_config, read_properties
from quorate.controller.settings import BY_NAME, Form, Setting, parse_address, split_list

ENABLE = "zookeeper.metadata.migration.enable"
CONNECT = "zookeeper.connect"
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
SECURE = "zookeeper.ssl.client.enable"


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("not a boolean")
    return text.lower() == "true"


def _parse_connect(text: str) -> str:
    """`host:port,host:port/chroot`; a port may be left out."""
    hosts, slash, root = text.partition("/")
    for entry in split_list(hosts):
        parse_address(entry if ":" in entry.rpartition("]")[2] else f"{entry}:2181")
    if not split_list(hosts):
        raise ValueError("it names no host")
    if slash and (not root or root.endswith("/")):
        raise ValueError(f"{slash}{root} is no path")
    return text


def _parse_milliseconds(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= 2**31 - 1:
        raise ValueError("not a number from 1 to 2147483647")
    return int(text)


_BOOLEAN = Form("boolean", "true, false", _parse_boolean)

SETTINGS: tuple[Setting, ...] = (
    Setting(ENABLE, _BOOLEAN, "false", "Whether this quorum takes over a cluster from ZooKeeper."),
    Setting(
        CONNECT,
        Form("string", "host:port,…/chroot", _parse_connect),
        None,
        "The ZooKeeper ensemble of the cluster that is migrated.",
    ),
    Setting(
        SESSION_TIMEOUT,
        Form("int (ms)", "1 to 2147483647", _parse_milliseconds),
        "18000",
        "How long ZooKeeper waits for this controller before it forgets the connection.",
    ),
    Setting(SECURE, _BOOLEAN, "false", "TLS to ZooKeeper: not supported."),
)


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """connect: None where no migration is asked for."""

    enabled: bool = False
    connect: str | None = None
    session_timeout_ms: int = 18_000


def load_migrating_config(
    path: Path | None, environment: Mapping[str, str] | None = None
) -> tuple[ControllerConfig, MigrationSettings]:
    """A controller's configuration, and its part of the migration. ConfigError."""
    environment = os.environ if environment is None else environment
    texts, places = _given(path, environment)
    settings = _build(texts, places, str(path) if path is not None else "the environment")
    # The reader of the other settings refuses names that it does not know.
    for setting in SETTINGS:
        BY_NAME.setdefault(setting.name, setting)
    return load_config(path, environment), settings


def _given(
    path: Path | None, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What is written, and where."""
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    if path is not None:
        for name, (text, line) in read_properties(path).items():
            texts[name], places[name] = text.strip(), f"{path}:{line}"
    for setting in (*SETTINGS, BY_NAME["process.roles"]):
        for variable in setting.variables:
            if variable in environment:
                texts[setting.name] = environment[variable].strip()
                places[setting.name] = f"environment variable {variable}"
    return texts, places


def _build(texts: Mapping[str, str], places: Mapping[str, str], source: str) -> MigrationSettings:
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        text = texts.get(setting.name) or setting.default
        try:
            values[setting.name] = None if text is None else setting.form.parse(text)
        except ValueError as error:
            raise ConfigError(
                f"{places[setting.name]}: {setting.name}={text}: {error}; "
                f"accepted: {setting.form.accepts}"
            ) from None
    enabled = values[ENABLE]
    if enabled and "broker" in split_list(texts.get("process.roles", "")):
        raise ConfigError(
            f"{places[ENABLE]}: {ENABLE}=true: a process that is a broker too cannot migrate; "
            "process.roles must be controller"
        )
    if enabled and values[CONNECT] is None:
        raise ConfigError(
            f"{source}: {CONNECT} is not set, and {ENABLE} is true; it takes host:port,…/chroot"
        )
    if values[SECURE]:
        raise ConfigError(f"{places[SECURE]}: {SECURE}=true: ZooKeeper over TLS is not supported")
    return MigrationSettings(enabled, values[CONNECT], values[SESSION_TIMEOUT])
