"""How a command connects to a quorum: addresses, TLS, timeouts and error messages.

`--bootstrap-controller`, `--bootstrap-server` and `--command-config` are accepted before the
subcommand, as in Kafka's tools, and after it. Without an address option, a command uses the
bootstrap servers of the controller's own configuration, so that it needs no options inside a
controller's pod.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from quorate.cli.option_groups import declare
from quorate.cli.output import CommandError, UsageError, one_line, print_warning

if TYPE_CHECKING:
    from quorate.common.config_types import Address
    from quorate.rpc.client.quorum_client import QuorumClient
    from quorate.rpc.tls import TlsConfig
    from quorate.rpc.wire.values import QuorumDescription

T = TypeVar("T")

BOOTSTRAP_VARIABLE = "QUORATE_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS"
KEY = "quorate.cli.connection"
SECTION = "Connection"
"""Where the help lists these options."""

BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT,…",
        help="Controllers to connect to; default: the configuration's bootstrap servers.",
        rich_help_panel=SECTION,
    ),
]
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help="Same as --bootstrap-controller: brokers and controllers both work.",
        rich_help_panel=SECTION,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client properties (security.protocol, ssl.…), or a controller's properties file.",
        rich_help_panel=SECTION,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="How long to wait; default: 10 for reads, 30 for changes. The leader waits at most "
        "600 for a change and 60 for a transfer of leadership.",
        rich_help_panel=SECTION,
    ),
]

READ_TIMEOUT_S = 10.0
CHANGE_TIMEOUT_S = 30.0
"""KIP-853: the tool sets AddVoter's TimeoutMs to 30 seconds."""
REQUEST_MS_MIN = 100
"""The least time that `reach` leaves for the request itself, milliseconds."""

TLS_FILES = (
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.ca.location",
    "ssl.keystore.location",
    "ssl.truststore.location",
)
CLIENT_SETTINGS = (
    *TLS_FILES,
    "security.protocol",
    "ssl.keystore.type",
    "ssl.truststore.type",
    "default.api.timeout.ms",
)


@dataclass(slots=True)
class ConnectionOptions:
    """The connection options of the command line, given before or after the subcommand."""

    bootstrap_controller: str | None = None
    bootstrap_server: str | None = None
    command_config: Path | None = None
    timeout: float | None = None

    @classmethod
    def of(cls, context: typer.Context) -> ConnectionOptions:
        """Return the options of the running command."""
        options: ConnectionOptions = context.meta.setdefault(KEY, cls())
        return options


_PLACE: dict[str, Any] = {
    "bootstrap_controller": BootstrapController,
    "bootstrap_server": BootstrapServer,
    "command_config": CommandConfig,
}


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select the quorum to a command or a group.

    `ConnectionOptions.of(context)` holds their values, merged with those given before the
    subcommand.
    """
    return _with_options(command, _PLACE)


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `connected`, and the timeout, to a command that sends requests."""
    return _with_options(command, _PLACE | {"timeout": Timeout})


def _with_options(command: Callable[..., None], added: dict[str, Any]) -> Callable[..., None]:
    @functools.wraps(command)
    def run_command(context: typer.Context, **given: Any) -> None:
        options = ConnectionOptions.of(context)
        for name in added:
            setattr(options, name, given.pop(name) or getattr(options, name))
        command(context, **given)

    parameters = inspect.signature(command, eval_str=True).parameters.values()
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in added.items()
    ]
    declare(run_command, [*parameters, *more])
    return run_command


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """How to reach the quorum."""

    addresses: tuple[Address, ...]
    tls: TlsConfig | None = None
    timeout_s: float | None = None
    """The timeout from the properties, None if they do not set it."""


def resolve(options: ConnectionOptions) -> ConnectionConfig:
    """Resolve the options to a connection. Raises UsageError and ConfigError."""
    from quorate.common.config_types import parse_address, split_list

    if options.bootstrap_controller is not None and options.bootstrap_server is not None:
        raise UsageError("--bootstrap-controller and --bootstrap-server cannot be used together")
    connection = read_connection(options.command_config)
    given = options.bootstrap_controller or options.bootstrap_server
    text = given
    if text is None and not connection.addresses:
        text = os.environ.get(BOOTSTRAP_VARIABLE)
        if text is None:
            raise UsageError(
                "--bootstrap-controller HOST:PORT is missing, and neither a controller's "
                f"properties (--command-config) nor {BOOTSTRAP_VARIABLE} give the addresses"
            )
    if text is None:
        return connection
    try:
        addresses = tuple(parse_address(entry) for entry in split_list(text))
    except ValueError as error:
        where = "--bootstrap-controller" if options.bootstrap_controller else "--bootstrap-server"
        raise UsageError(f"{where if given else BOOTSTRAP_VARIABLE}: {error}") from None
    if not addresses:
        raise UsageError("--bootstrap-controller contains no address")
    return replace(connection, addresses=addresses)


def read_connection(path: Path | None) -> ConnectionConfig:
    """Read the connection from a properties file: a controller's own, or a client's."""
    if path is None:
        return ConnectionConfig(())
    from quorate.controller.config_reader import load_config
    from quorate.process.properties import ConfigError, nearest, read_properties

    given = read_properties(path)
    if "process.roles" in given:
        config = load_config(path)
        # The bootstrap servers are those of the first listener, so only its protocol counts.
        files = config.tls if config.listeners[0].tls else None
        tls = None if files is None else files.mutual
        return ConnectionConfig(config.bootstrap_servers, tls)
    for name, (_, line) in given.items():
        if name not in CLIENT_SETTINGS:
            if near := nearest(name, CLIENT_SETTINGS):
                raise ConfigError(
                    f"{path}:{line}: {name} is not a client setting; did you mean {near}?"
                )
            print_warning(f"{path}:{line}: {name} does not apply to this command: ignored")
    values = {name: text.strip() for name, (text, _) in given.items()}
    return ConnectionConfig((), _client_tls(path, values), _client_timeout(path, values))


def _client_tls(path: Path, values: dict[str, str]) -> TlsConfig | None:
    from quorate.process.properties import ConfigError
    from quorate.rpc.tls import TlsConfig

    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return None
    if protocol != "SSL":
        raise ConfigError(f"{path}: security.protocol={protocol}: accepted: PLAINTEXT, SSL")
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        if values.get(name, "PEM").upper() != "PEM":
            raise ConfigError(f"{path}: {name}={values[name]}: accepted: PEM")
    files = {name: Path(values[name]) for name in TLS_FILES if values.get(name)}
    store = files.get("ssl.keystore.location")
    return TlsConfig(
        files.get("ssl.certificate.location", store),
        files.get("ssl.key.location", store),
        files.get("ssl.ca.location", files.get("ssl.truststore.location")),
    )


def _client_timeout(path: Path, values: dict[str, str]) -> float | None:
    from quorate.process.properties import ConfigError

    name = "default.api.timeout.ms"
    text = values.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"{path}: {name}={text}: expected a positive number of milliseconds")
    return int(text) / 1000


async def reach(client: QuorumClient) -> QuorumDescription:
    """Describe the quorum before the actual request, and deduct the time from the client's timeout.

    At least REQUEST_MS_MIN remains for the request. Raises UnreachableError within about two
    seconds if no node answers.
    """
    started = time.monotonic()
    description = await client.describe_quorum()
    spent_ms = int((time.monotonic() - started) * 1000)
    client.request_timeout_ms = max(REQUEST_MS_MIN, client.request_timeout_ms - spent_ms)
    return description


@contextmanager
def plainly(look: str | None, waits_s: float) -> Iterator[None]:
    """Turn errors for unreachable nodes and unknown outcomes into a CommandError with advice.

    look: how to check whether a change took effect; None for a command that changes nothing.
    waits_s: the timeout that the user knows; a part of it may have passed before the request.
    """
    try:
        yield
    except Exception as error:
        from quorate.cli.errors import unknown_outcome
        from quorate.rpc.errors import NoLeaderError, UnreachableError

        if isinstance(error, NoLeaderError):
            reasons = "; ".join(f"{where}: {why}" for where, why in error.attempts.items())
            raise CommandError(f"no leader within {waits_s:g} s ({reasons})") from error
        if isinstance(error, UnreachableError):
            advice = _advice(list(error.attempts.values()))
            raise CommandError(f"{error}: {advice}") from error
        if look is not None and unknown_outcome(error):
            text = f"{one_line(error).rstrip('.')}. The change may still take effect: {look}"
            raise CommandError(f"{text} before retrying; a retry is harmless") from error
        raise


def _advice(reasons: Sequence[str]) -> str:
    """What to check if no node answers, for these reasons."""
    from quorate.rpc.client.handshake_faults import is_handshake_fault

    if any(map(is_handshake_fault, reasons)):
        return "check security.protocol and the ssl settings in the file of --command-config"
    return "check the addresses, and that the controllers are running"


def run(
    context: typer.Context,
    ask: Callable[[QuorumClient], Awaitable[T]],
    default_timeout: float,
    *,
    changes: bool = False,
    reach_first: bool = True,
    look: str = "check with `quorate metadata-quorum … describe --status`",
) -> T:
    """Run `ask` with a client of the quorum that the options select.

    The timeout comes from the command line, else from the properties, else default_timeout,
    seconds. changes: whether a missing response leaves the outcome unknown, so that the error
    advises to `look`. reach_first: whether to call `reach` first, because `ask` alone retries until
    its timeout.
    """
    options = ConnectionOptions.of(context)
    connection = resolve(options)
    from quorate.rpc.client.quorum_client import QuorumClient

    waits = options.timeout or connection.timeout_s or default_timeout

    async def whole() -> T:
        async with QuorumClient(
            [str(address) for address in connection.addresses],
            tls=connection.tls,
            request_timeout_ms=int(waits * 1000),
        ) as client:
            if reach_first:
                await reach(client)
            return await ask(client)

    with plainly(look if changes else None, waits):
        return asyncio.run(whole())
