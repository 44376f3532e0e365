"""`quorate broker FILE`: run one broker until it is told to stop."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.output import print_warning


def _help_settings(wanted: bool) -> None:
    if wanted:
        from quorate.cli.broker_settings import settings_text

        print(settings_text(min(100, shutil.get_terminal_size().columns)))
        raise typer.Exit


def broker(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The broker's properties file. Without it, every setting comes from the "
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
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="CLUSTER_ID",
            help="First format directories that are not, for the cluster of this id.",
        ),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT: it hosts partitions and follows the controllers.

    SIGTERM is a controlled shutdown: the controller moves what this broker leads to others first.
    """
    from quorate.broker.formatting import format_broker
    from quorate.broker.main import run_broker
    from quorate.cli.broker_settings import load_broker

    config = load_broker(file)
    for warning in config.warnings:
        print_warning(warning)
    if cluster_id is not None:
        format_broker(config.node_id, cluster_id, config.metadata_log_dir, config.log_dirs)
    raise typer.Exit(run_broker(config))
