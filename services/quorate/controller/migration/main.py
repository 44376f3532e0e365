"""The process of a controller that may take part in the migration from ZooKeeper (see `runner`).

It is the controller process with the migration as an extension. A controller without
`zookeeper.metadata.migration.enable` runs the extension too: it must not lead while others migrate,
and logs that it resigns. Only controllers that are configured to talk to ZooKeeper or to Kafka's
brokers need the libraries for that.
"""

from __future__ import annotations

import importlib

from quorate.controller.config import ControllerConfig
from quorate.controller.main import Prepare, run_controller
from quorate.controller.migration.runner import MigrationRunner
from quorate.controller.migration.settings import ENABLE, LISTENER
from quorate.process.properties import ConfigError

EXTRA = "migration"


def run_migrating_controller(config: ControllerConfig, prepare: Prepare | None = None) -> int:
    """Like `run_controller`, with the migration. Raises ConfigError if an extra is missing."""
    if config.migration.enabled:
        _require(config, "quorate.migration.zk_migration_client", ENABLE, "true")
    if config.migration.listener is not None:
        _require(config, "quorate.bridge.bridge", LISTENER, config.migration.listener)
    return run_controller(config, prepare, MigrationRunner)


def _require(config: ControllerConfig, module: str, setting: str, value: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{config.source}: {setting}={value} needs the extra {EXTRA!r}, and {error.name} is "
            f"not installed: pip install 'quorate[{EXTRA}]'"
        ) from None
