"""The configuration of an embedded node, and formatting its directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path

from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import config_of, load_config
from quorate.controller.formatting import (
    FormatError,
    Formatted,
    format_directory,
    parse_initial_controllers,
)
from quorate.controller.tls_settings import TlsFiles
from quorate.process.properties import ConfigError
from quorate.rpc.wire.values import FormatMode

Config = Mapping[str, object] | Path | str
"""The settings of `quorate controller`: by name, or the path of a properties file."""

DEFAULTS = {"process.roles": "controller", "controller.listener.names": "CONTROLLER"}

SOURCE = "the node's configuration"


def read_config(config: Config) -> ControllerConfig:
    """The configuration of a controller. Raises ConfigError.

    In a mapping, process.roles and controller.listener.names have the defaults controller and
    CONTROLLER, a list is written with commas. The environment overrides a file, as for `quorate
    controller`, but not a mapping. Relative paths begin at the current directory of the call.
    """
    if not isinstance(config, Mapping):
        return _absolute(load_config(Path(config)))
    texts = DEFAULTS | {_name(name): _text(name, value) for name, value in config.items()}
    return _absolute(config_of(texts, SOURCE))


def _absolute(config: ControllerConfig) -> ControllerConfig:
    """With absolute paths: the program may change its current directory while the node runs."""

    def files(tls: TlsFiles | None) -> TlsFiles | None:
        if tls is None:
            return None
        return TlsFiles(tls.certificate.absolute(), tls.key.absolute(), tls.ca.absolute())

    return replace(
        config,
        metadata_log_dir=config.metadata_log_dir.absolute(),
        log_dirs=tuple(each.absolute() for each in config.log_dirs),
        tls=files(config.tls),
        kafka_tls=files(config.kafka_tls),
        topic_tls=files(config.topic_tls),
    )


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{SOURCE}: the name {name!r} is not text")
    return name


def _text(name: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float() | PathLike():
            return str(value)
        case list() | tuple():
            return ",".join(_text(name, each) for each in value)
    raise ConfigError(
        f"{SOURCE}: {name}={value!r} is not text, a number, a path, a boolean or a list of them"
    )


def format_storage(
    config: Config,
    cluster_id: str,
    *,
    standalone: bool = False,
    initial_controllers: str | None = None,
    features: Mapping[str, int] | None = None,
) -> Formatted:
    """Format the directories of a node once, before its first start, like `storage format`.

    standalone: the node is the only voter of a new quorum. initial_controllers: the voters of a new
    quorum, as ID-DIRECTORYID@HOST:PORT,…. With neither, the node is a new replica of a quorum, to
    be added as a voter; controller.quorum.voters makes it a static voter. Use `standalone` once per
    quorum: a node that lost its directory is a new replica. Raises ConfigError, FormatError,
    OSError.

    Example:
        settings = {
            "node.id": 1,
            "listeners": "CONTROLLER://127.0.0.1:9093",
            "controller.quorum.bootstrap.servers": ["127.0.0.1:9093"],
            "metadata.log.dir": "/var/lib/program",
        }
        quorate.format_storage(settings, "yFPgY5iXQYqr5sMxfdxu0Q", standalone=True)
    """
    read = read_config(config)
    if standalone and initial_controllers is not None:
        raise FormatError("a quorum is either standalone or has initial controllers")
    mode: FormatMode | None = FormatMode.NO_INITIAL_CONTROLLERS
    voters = None
    if standalone:
        mode = FormatMode.STANDALONE
    elif initial_controllers is not None:
        mode = FormatMode.INITIAL_CONTROLLERS
        try:
            voters = parse_initial_controllers(initial_controllers, read.controller_listener)
        except ValueError as error:
            raise FormatError(f"initial_controllers: {error}") from error
    elif len(read.static_voters):
        mode = None
    return format_directory(read, cluster_id, mode, voters, features=features)
