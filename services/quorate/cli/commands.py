"""The subcommands of `quorate`: finds one, runs it and reports its errors in one line.

A subcommand is imported only when it is used, so that `quorate --help` and completion are fast. A
subcommand's module provides a `typer.Typer` or a function.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
import typer.core
import typer.main

from quorate.cli.help_sections import list_in_sections
from quorate.cli.interrupts import ended_by_interrupts
from quorate.cli.output import (
    FAILED,
    INTERRUPTED,
    USAGE,
    CommandError,
    UsageError,
    print_error,
)
from quorate.version import __version__


class Lazy(NamedTuple):
    """The location of a subcommand, and its text in `quorate --help`."""

    module: str
    attribute: str
    help: str


COMMANDS: dict[str, Lazy] = {
    "quickstart": Lazy(
        "quorate.cli.local.quickstart",
        "quickstart",
        "Run a quorum of real controllers on this machine.",
    ),
    "storage": Lazy(
        "quorate.cli.node.storage", "app", "Format storage directories and inspect them."
    ),
    "controller": Lazy("quorate.cli.node.controller", "controller", "Run a controller."),
    "broker": Lazy("quorate.cli.node.broker", "broker", "Run a broker."),
    "metadata-quorum": Lazy(
        "quorate.cli.quorum.metadata_quorum",
        "app",
        "Describe a quorum; add and remove controllers; move leadership.",
    ),
    "health": Lazy(
        "quorate.cli.quorum.health",
        "health",
        "Check the quorum: a leader, and a majority that has caught up.",
    ),
    "cluster": Lazy(
        "quorate.cli.quorum.cluster", "app", "Show a cluster's id and nodes; unregister brokers."
    ),
    "features": Lazy("quorate.cli.quorum.features", "app", "Describe and change feature levels."),
    "topics": Lazy(
        "quorate.cli.topics.command", "app", "Create, describe, alter, delete and import topics."
    ),
    "configs": Lazy(
        "quorate.cli.configs.command",
        "app",
        "Describe and alter configurations, quotas and SCRAM credentials.",
    ),
    "acls": Lazy("quorate.cli.acls", "app", "List, add and remove access control entries."),
    "metadata-shell": Lazy(
        "quorate.cli.log.metadata_shell",
        "metadata_shell",
        "Explore the cluster metadata in a log or a checkpoint.",
    ),
    "dump-log": Lazy(
        "quorate.cli.log.dump_log",
        "dump_log",
        "Print the contents of log segments and checkpoints.",
    ),
    "read": Lazy(
        "quorate.cli.log.read", "read", "Print the records of a running quorum; follow its log."
    ),
    "recover": Lazy(
        "quorate.cli.recovery.recover",
        "app",
        "Repair stopped directories: a lost majority, renamed endpoints, a damaged log.",
    ),
    "backup": Lazy(
        "quorate.cli.recovery.backup",
        "app",
        "Archive the log of a running quorum; verify archives.",
    ),
    "restore": Lazy(
        "quorate.cli.recovery.restore",
        "restore",
        "Restore an archive into a new quorum, to any offset.",
    ),
    "migrate": Lazy(
        "quorate.cli.recovery.migrate",
        "app",
        "Move a cluster out of ZooKeeper: plan, status, finalize, rollback.",
    ),
    "takeover": Lazy(
        "quorate.cli.recovery.takeover",
        "app",
        "Check whether Kafka's KRaft controllers can be replaced: check, config.",
    ),
    "bench": Lazy(
        "quorate.cli.bench.command", "bench", "Measure commits, failover, catch-up and memory."
    ),
    "console": Lazy("quorate.cli.node.console", "console", "Serve the web console of a quorum."),
    "pipeline": Lazy(
        "quorate.cli.pipeline", "app", "Read metadata logs as tables with Spark; audit them."
    ),
    "config-docs": Lazy("quorate.cli.config_docs", "config_docs", "List a controller's settings."),
}


class LazyGroup(typer.core.TyperGroup):
    """A group that lists its commands by name and imports a command on first use."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        lazy = COMMANDS.get(cmd_name)
        return None if lazy is None else load(cmd_name, lazy)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
            raise UsageError(f"no such command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


def load(name: str, lazy: Lazy) -> Any:
    """Import the command `name`."""
    with ended_by_interrupts():
        found = getattr(importlib.import_module(lazy.module), lazy.attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name)(found)
        found = single
    command = typer.main.get_command(found)
    command.name = name
    list_in_sections(command)
    return command


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # subcommands inherit them
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"quorate {__version__}")
        raise typer.Exit


@app.callback()
def quorate(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A Raft-based metadata store, compatible with Kafka's KRaft, whose members can change.

    `quorate quickstart` runs one on this machine. `quorate COMMAND --help` explains a command.
    """


def run_command(given: Sequence[str]) -> int:
    """Run one command line. Returns the exit status."""
    command = typer.main.get_command(app)
    try:
        status = command.main(
            args=list(given) or ["--help"], prog_name="quorate", standalone_mode=False
        )
    except typer.Abort:
        return INTERRUPTED
    if not given:
        return USAGE
    return status if isinstance(status, int) else 0


def report(error: Exception) -> int:
    """Print the error in one line. Returns the exit status."""
    if isinstance(error, UsageError):
        print_error(f"{error} (see --help)")
        return USAGE
    if isinstance(error, CommandError):
        print_error(error)
        return FAILED
    if hasattr(error, "format_message"):  # from the command-line parser
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "quorate"
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        print_error(f"{message} (see {where} --help)")
        return USAGE
    from quorate.cli.errors import explain

    explained = explain(error)
    if explained is None:
        explained = (
            f"this is a bug: {type(error).__name__}: {error} (set QUORATE_DEBUG=1 for a traceback)"
        )
    print_error(explained)
    return FAILED
