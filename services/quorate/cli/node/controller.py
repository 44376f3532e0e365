"""`quorate controller FILE`: run one controller until SIGTERM or SIGINT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.settings_file import help_settings


def controller(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The controller's properties file. Without it, every setting comes from the "
            "environment (node.id from QUORATE_NODE_ID).",
        ),
    ] = None,
    explained: Annotated[  # noqa: ARG001 - the option's callback does the work
        bool, help_settings("quorate.cli.config_docs")
    ] = False,
) -> None:
    """Run a controller until SIGTERM or SIGINT.

    Format its directory first: see `quorate storage format --help`. With
    zookeeper.metadata.migration.enable it takes over a cluster from ZooKeeper: see
    `quorate migrate --help`.
    """
    from quorate.cli.node.start import start_controller

    raise typer.Exit(start_controller(file))
