"""Reading the properties file that a command names, or the environment where it names none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.output import UsageError

if TYPE_CHECKING:
    from quorate.controller.config import ControllerConfig

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The controller's properties file. May be left out where the environment holds the "
        "settings (QUORATE_NODE_ID, …).",
    ),
]


def load(path: Path | None, option: str = "the properties FILE") -> ControllerConfig:
    """The configuration in `path`, or in the environment if that names a node at all.

    Raises ConfigError, and UsageError if there is neither.
    """
    if path is None and "QUORATE_NODE_ID" not in os.environ:
        raise UsageError(
            f"{option} is missing, and QUORATE_NODE_ID is not in the environment either"
        )
    from quorate.controller.config import load_config

    return load_config(path)
