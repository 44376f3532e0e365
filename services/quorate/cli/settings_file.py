"""Options that load a node's settings, and `--help-settings`, which explains them.

The settings come from the properties file that the command names, or else from the environment.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The controller's properties file. Optional if the settings are in the environment "
        "(QUORATE_NODE_ID, …).",
    ),
]


def help_settings(module: str) -> Any:
    """Return the option `--help-settings`. module: the module whose `settings_text` it prints."""

    def explain(wanted: bool) -> None:
        if wanted:
            text = importlib.import_module(module).settings_text
            print(text(min(100, shutil.get_terminal_size().columns)))
            raise typer.Exit

    return typer.Option(
        "--help-settings", callback=explain, is_eager=True, help="Explain every setting and exit."
    )
