"""Loads a controller's settings from a properties file or the environment."""

from __future__ import annotations

import os
from pathlib import Path

from quorate.cli.output import UsageError
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config


def load(path: Path | None, option: str = "the properties FILE") -> ControllerConfig:
    """Load the configuration from `path`, or from the environment if that has QUORATE_NODE_ID.

    Raises ConfigError, and UsageError if there is neither.
    """
    if path is None and "QUORATE_NODE_ID" not in os.environ:
        raise UsageError(f"{option} is missing, and QUORATE_NODE_ID is not set in the environment")
    return load_config(path)
