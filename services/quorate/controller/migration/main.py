"""The process of a controller that may take part in the migration from ZooKeeper (see `runner`).

It is the controller process with the migration as an extension. A controller without
`zookeeper.metadata.migration.enable` runs the extension too: it must not lead while others migrate,
and logs that it resigns. Only controllers that are configured to talk to ZooKeeper need the library
for that.
"""

from __future__ import annotations

import importlib

from quorate.controller.config import ControllerConfig
from quorate.controller.main import Prepare, run_controller
from quorate.controller.migration.runner import MigrationRunner
from quorate.controller.migration.settings import ENABLE
from quorate.process.properties import ConfigError


def run_migrating_controller(config: ControllerConfig, prepare: Prepare | None = None) -> int:
    """Like `run_controller`, with the migration. Raises ConfigError if the extra is missing."""
    check_extra(config)
    return run_controller(config, prepare, (MigrationRunner,))


def check_extra(config: ControllerConfig) -> None:
    """Raise ConfigError if this controller migrates from ZooKeeper and the extra is missing."""
    if config.migration.enabled:
        try:
            importlib.import_module("quorate.migration.zk_migration_client")
        except ImportError as error:
            raise ConfigError(
                f"{config.source}: {ENABLE}=true needs the extra 'migration', and {error.name} is "
                "not installed: pip install 'quorate[migration]'"
            ) from None
