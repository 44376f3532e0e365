"""`quorate console`: the web console of a quorum."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from quorate.cli.connection import ConnectionOptions, connected, resolve
from quorate.cli.output import CommandError


@connected
def console(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="The port to listen on.")
    ] = 8080,
    host_names: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name",
            metavar="NAME",
            help="Another host name that browsers use for the console; may be repeated.",
        ),
    ] = None,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes", help="Let users add and remove voters and move leadership."
        ),
    ] = False,
) -> None:
    """Serve web pages with the state of the quorum, its brokers, topics and dynamic configs.

    It also works without a leader, and then shows why there is none. The printed URL contains a
    token, which gives access to the console until it stops. Press Ctrl-C to stop it.
    """
    wanted = resolve(ConnectionOptions.of(context))
    _check_port(host, port)
    try:
        from quorate.console.page import serve
    except ModuleNotFoundError as error:
        if error.name != "nicegui":
            raise
        raise CommandError("the console needs nicegui: pip install 'quorate[console]'") from None
    from quorate.console.access import Access
    from quorate.console.watch import Watch

    addresses = [str(address) for address in wanted.addresses]
    watch = Watch(addresses, wanted.tls, allow_changes=allow_changes)
    access = Access(host, port, host_names or ())
    print(access.url, flush=True)
    serve(watch, access, host, port)


def _check_port(host: str, port: int) -> None:
    """Raise a one-line CommandError if the port is taken; the server's error has many lines."""
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise CommandError(f"cannot listen at {host}:{port}: {error.strerror}") from None
