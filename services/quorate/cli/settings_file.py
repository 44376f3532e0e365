"""The settings of a node: read from the properties file that a command names, or the environment
where it names none; explained where `--help-settings` asks.
"""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


def help_settings(module: str) -> Any:
    """The option `--help-settings`. module: whose `settings_text` explains them."""

    def explain(wanted: bool) -> None:
        if wanted:
            text = importlib.import_module(module).settings_text
            print(text(min(100, shutil.get_terminal_size().columns)))
            raise typer.Exit

    return typer.Option(
        "--help-settings", callback=explain, is_eager=True, help="Explain every setting, and exit."
    )


def load(path: Path | None, option: str = "the properties FILE") -> ControllerConfig:
    """The configuration in `path`, or in the environment if that names a node at all.

    Raises ConfigError, and UsageError if there is neither.
    """
    if path is None and "QUORATE_NODE_ID" not in os.environ:
        raise UsageError(
            f"{option} is missing, and QUORATE_NODE_ID is not in the environment either"
        )
    from quorate.controller.config_reader import load_config

    return load_config(path)
