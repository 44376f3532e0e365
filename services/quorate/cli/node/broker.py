"""`quorate broker FILE`: run one broker until SIGTERM or SIGINT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.settings_file import help_settings


def broker(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The broker's properties file. Without it, every setting comes from the "
            "environment (node.id from QUORATE_NODE_ID).",
        ),
    ] = None,
    explained: Annotated[  # noqa: ARG001 - the option's callback does the work
        bool, help_settings("quorate.cli.broker_settings")
    ] = False,
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="CLUSTER_ID",
            help="Before starting, format unformatted directories for the cluster with this id.",
        ),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT. It hosts partitions and follows the controllers.

    SIGTERM is a controlled shutdown: the controller first moves leadership to other brokers.
    """
    from quorate.cli.node.start import start_broker

    raise typer.Exit(start_broker(file, cluster_id))
