"""Starts a node with the settings of a file or the environment.

Nothing here imports the library that parses command lines, see `quorate.cli.main`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quorate.cli.interrupts import ended_by_interrupts
from quorate.cli.output import print_warning


def start_controller(file: Path | None = None) -> int:
    """Run a controller until SIGTERM or SIGINT. Returns the exit status.

    file: its properties; None if they are in the environment.
    """
    with ended_by_interrupts():
        from quorate.cli.controller_settings import load
        from quorate.controller.migration.main import run_migrating_controller
        from quorate.recovery.staged import apply_staged

    config = load(file)
    _warn(config.warnings)
    return run_migrating_controller(config, apply_staged)


def start_broker(file: Path | None = None, cluster_id: str | None = None) -> int:
    """Run a broker until SIGTERM or SIGINT. Returns the exit status.

    file: its properties; None if they are in the environment. cluster_id: of the cluster for which
    unformatted directories are formatted before the start; None if there should be none.
    """
    with ended_by_interrupts():
        from quorate.broker.formatting import format_broker
        from quorate.broker.main import run_broker
        from quorate.cli.broker_settings import load_broker

    config = load_broker(file)
    _warn(config.warnings)
    if cluster_id is not None:
        format_broker(config.node_id, cluster_id, config.metadata_log_dir, config.log_dirs)
    return run_broker(config)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print_warning(warning)
