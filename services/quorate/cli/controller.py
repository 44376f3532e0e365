"""`quorate controller FILE`: run one controller until it is told to stop."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.output import print_warning


def _help_settings(wanted: bool) -> None:
    if wanted:
        from quorate.cli.config_docs import settings_text

        print(settings_text(min(100, shutil.get_terminal_size().columns)))
        raise typer.Exit


def controller(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The controller's properties file. Without it, every setting comes from the "
            "environment (node.id from QUORATE_NODE_ID).",
        ),
    ] = None,
    help_settings: Annotated[  # noqa: ARG001 - the callback acts on it
        bool,
        typer.Option(
            "--help-settings",
            callback=_help_settings,
            is_eager=True,
            help="Explain every setting, and exit.",
        ),
    ] = False,
) -> None:
    """Run a controller until SIGTERM or SIGINT.

    Its directory must have been formatted: see `quorate storage format --help`. With
    zookeeper.metadata.migration.enable it takes over a cluster: see `quorate migrate --help`.
    """
    from quorate.cli.settings_file import load

    config = load(file)
    for warning in config.warnings:
        print_warning(warning)
    from quorate.controller.migrating_main import run_migrating_controller
    from quorate.recovery.staged import apply_staged

    raise typer.Exit(run_migrating_controller(config, apply_staged))
