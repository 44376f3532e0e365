"""`quorate console`: the web console of a quorum."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from quorate.cli.connection import Options, connected, resolve
from quorate.cli.output import CommandError


@connected
def console(
    context: typer.Context,
    *,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="The address to listen at. The console has no login: who reaches it may use it.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="And the port.")] = 8080,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, change nothing.")
    ] = False,
) -> None:
    """Serve a page that shows voters, observers, elections, lag and latency as they are now.

    It works while there is no leader, and says why there is none. Ctrl-C ends it.
    """
    wanted = resolve(Options.of(context))
    _check_port(host, port)
    try:
        from quorate.console.page import serve
    except ModuleNotFoundError as error:
        if error.name != "nicegui":
            raise
        raise CommandError("the console needs nicegui: pip install 'quorate[console]'") from None
    from quorate.console.watch import Watch

    watch = Watch([str(address) for address in wanted.addresses], wanted.tls)
    print(f"http://{host}:{port}", flush=True)
    serve(watch, host, port, read_only=read_only)


def _check_port(host: str, port: int) -> None:
    """The server would say this in many lines."""
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise CommandError(f"cannot listen at {host}:{port}: {error.strerror}") from None
