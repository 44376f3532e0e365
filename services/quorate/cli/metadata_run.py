"""How a command asks the metadata controller, and how it tells what became of many parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from quorate.cli.connection import Options, plainly, reach, resolve
from quorate.cli.output import CommandError, print_error

if TYPE_CHECKING:
    from quorate.raft.errors import ErrorCode
    from quorate.rpc.metadata_client import MetadataClient

T = TypeVar("T")

PROGRESS_PARTS_MIN = 200
"""From so many parts on a bar is shown, if somebody watches."""


def run_metadata(
    context: typer.Context,
    ask: Callable[[MetadataClient], Awaitable[T]],
    default_timeout: float,
    *,
    changes: bool = False,
) -> T:
    """Run `ask` with a client of the metadata controller that the options lead to.

    It waits as long as the command line says; else the properties; else default_timeout, seconds.
    changes: whether an answer that does not come leaves open what was done.
    """
    options = Options.of(context)
    connection = resolve(options)
    from quorate.rpc.client import QuorumClient
    from quorate.rpc.metadata_client import MetadataClient

    timeout_ms = int((options.timeout or connection.timeout_s or default_timeout) * 1000)
    addresses = [str(address) for address in connection.addresses]

    async def whole() -> T:
        # Where nobody listens, this says so at once; the client proper waits for a controller.
        async with QuorumClient(
            addresses, tls=connection.tls, request_timeout_ms=timeout_ms
        ) as quorum:
            description = await reach(quorum)
            left_ms = quorum.request_timeout_ms
        async with MetadataClient(
            addresses, tls=connection.tls, request_timeout_ms=left_ms
        ) as client:
            client.learn(description.response.leader)
            return await ask(client)

    with plainly("describe" if changes else None):
        return asyncio.run(whole())


class Part(Protocol):
    """What a response says of one topic, resource, …"""

    @property
    def error(self) -> ErrorCode: ...
    @property
    def message(self) -> str: ...


def failure(part: Part) -> str | None:
    """What went wrong with a part, None if nothing did."""
    from quorate.raft.errors import ErrorCode

    if part.error is ErrorCode.NONE:
        return None
    return f"{part.error.name}: {part.message}" if part.message else part.error.name


def check(part: Part) -> None:
    """CommandError for a part, or a whole response, that failed."""
    text = failure(part)
    if text is not None:
        raise CommandError(text)


def tell_failures(failures: Sequence[tuple[str, str]], asked: int) -> None:
    """CommandError if anything failed: the one failure, or each on a line and how many."""
    if not failures:
        return
    if len(failures) == 1:
        name, text = failures[0]
        raise CommandError(f"{name}: {text}")
    for name, text in failures:
        print_error(f"{name}: {text}")
    raise CommandError(f"{len(failures)} of {asked} failed")


def chunks(parts: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(parts), size):
        yield parts[start : start + size]


@contextmanager
def progress_bar(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for much work, if somebody watches; what is yielded takes what is done."""
    import sys

    if total < PROGRESS_PARTS_MIN or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, advance=done)


def names_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Names without doubles, in the order given."""
    return tuple(dict.fromkeys(texts))
