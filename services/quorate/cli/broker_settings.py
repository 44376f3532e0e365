"""Reads a broker's settings from a properties file and the environment into a `BrokerConfig`.

An invalid setting raises a one-line `ConfigError`. Settings of Kafka and of Quorate's controllers
that do not apply to a broker are ignored, each with a warning. Any other name is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from quorate.broker.config import BROKER_SETTINGS, BrokerConfig
from quorate.broker.config_reader import build_config
from quorate.cli.output import UsageError
from quorate.controller.config import CONTROLLER
from quorate.controller.migration.settings import ENABLE
from quorate.process.properties import ConfigDef, parse_properties

BROKER = ConfigDef(
    "broker",
    BROKER_SETTINGS,
    {
        **CONTROLLER.refused,
        ENABLE: "a Quorate broker is never in ZooKeeper mode; this setting belongs to controllers",
    },
    lambda name: name in CONTROLLER.settings or CONTROLLER.ignored(name),
    "quorate broker --help-settings",
)


def settings_text(width: int) -> str:
    """Explain each setting: type, default, environment variable and meaning, in `width` columns."""
    from quorate.cli.config_docs import explained

    return explained(sorted(BROKER.settings.values(), key=lambda each: each.name), width)


def load_broker(path: Path | None, environment: Mapping[str, str] | None = None) -> BrokerConfig:
    """Load the configuration in `path`; the environment (default: `os.environ`) overrides it.

    Raises ConfigError, and UsageError if there is neither file nor QUORATE_NODE_ID.
    """
    environment = os.environ if environment is None else environment
    if path is None and "QUORATE_NODE_ID" not in environment:
        raise UsageError("the properties FILE is missing, and QUORATE_NODE_ID is not set")
    return build_config(parse_properties(path, environment, BROKER))
