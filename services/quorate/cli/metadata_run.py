"""How a command asks the metadata controller, and how it tells what became of many parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from quorate.cli.connection import KEY, Options, reach, resolve
from quorate.cli.output import CommandError, one_line, print_error

if TYPE_CHECKING:
    from quorate.raft.errors import ErrorCode
    from quorate.rpc.metadata_client import MetadataClient

T = TypeVar("T")

PROGRESS_PARTS_MIN = 200
"""From so many parts on a bar is shown, if somebody watches."""


def run_metadata(
    context: typer.Context,
    ask: Callable[[MetadataClient], Awaitable[T]],
    timeout: float | None,
    default_timeout: float,
    *,
    changes: bool = False,
) -> T:
    """Run `ask` with a client of the metadata controller that the options lead to.

    timeout: seconds, of the command line; else that of the properties; else the default. changes:
    whether an answer that does not come leaves open what was done.
    """
    connection = resolve(context.meta.setdefault(KEY, Options()))
    from quorate.rpc.client import QuorumClient
    from quorate.rpc.metadata_client import MetadataClient

    timeout_ms = int((timeout or connection.timeout_s or default_timeout) * 1000)
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

    try:
        return asyncio.run(whole())
    except Exception as error:
        from quorate.cli.errors import unknown_outcome
        from quorate.rpc.errors import UnreachableError

        if isinstance(error, UnreachableError):
            text = f"{error}: check the addresses, and that controllers run there"
            raise CommandError(text) from error
        if changes and unknown_outcome(error):
            text = f"{one_line(error).rstrip('.')}. The change may still take effect: describe"
            raise CommandError(f"{text} before trying again, which does no harm") from error
        raise


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
