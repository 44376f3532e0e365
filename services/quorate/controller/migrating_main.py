"""The process of a controller that may take part in the migration from ZooKeeper (see `migrating`).

It is the controller's own with the migration beside its node. A controller without
`zookeeper.metadata.migration.enable` has it too: it must not lead while others migrate, and says so
in the log; the library that speaks to ZooKeeper is needed by those with the setting alone.
"""

from __future__ import annotations

from quorate.controller.config import ConfigError, ControllerConfig
from quorate.controller.main import Prepare, run_controller
from quorate.controller.migrating import Migration
from quorate.controller.migration_settings import ENABLE

EXTRA = "migration"


def run_migrating_controller(config: ControllerConfig, prepare: Prepare | None = None) -> int:
    """As `run_controller`, with the migration. ConfigError."""
    if config.migration.enabled:
        _require_extra(config)
    return run_controller(config, prepare, Migration)


def _require_extra(config: ControllerConfig) -> None:
    try:
        import quorate.migration.office  # noqa: F401, PLC0415 - only where it is wanted
    except ImportError as error:
        raise ConfigError(
            f"{config.source}: {ENABLE}=true needs the extra {EXTRA!r}, and {error.name} is not "
            f"installed: pip install 'quorate[{EXTRA}]'"
        ) from None
