"""Runs commands against the metadata controller and reports failures of parts of a request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from quorate.cli.connection import reach, run
from quorate.cli.output import CommandError, UsageError, bar, print_error

if TYPE_CHECKING:
    from quorate.common.error_codes import ErrorCode
    from quorate.rpc.client.quorum_client import QuorumClient
    from quorate.rpc.metadata_client import MetadataClient

T = TypeVar("T")

PROGRESS_PARTS_MIN = 200
"""The least number of parts for which a progress bar is shown."""


def run_metadata(
    context: typer.Context,
    ask: Callable[[MetadataClient], Awaitable[T]],
    default_timeout: float,
    *,
    changes: bool = False,
) -> T:
    """Run `ask` with a client of the metadata controller of the quorum that the options select.

    The timeout comes from the command line, else from the properties, else default_timeout,
    seconds. changes: whether a missing response leaves the outcome unknown.
    """
    from quorate.rpc.metadata_client import MetadataClient

    async def whole(quorum: QuorumClient) -> T:
        # This fails early if no node listens; MetadataClient would wait for a controller.
        description = await reach(quorum)
        async with MetadataClient(
            quorum.bootstrap, tls=quorum.tls, request_timeout_ms=quorum.request_timeout_ms
        ) as client:
            client.learn(description.response.leader)
            return await ask(client)

    look = "check the current state"
    return run(context, whole, default_timeout, changes=changes, reach_first=False, look=look)


class ResponsePart(Protocol):
    """The result of one topic, resource, … in a response."""

    @property
    def error(self) -> ErrorCode: ...
    @property
    def message(self) -> str: ...


def failure(part: ResponsePart) -> str | None:
    """Return the error of a part as text, or None if it succeeded."""
    from quorate.common.error_codes import ErrorCode

    if part.error is ErrorCode.NONE:
        return None
    return f"{part.error.name}: {part.message}" if part.message else part.error.name


def check(part: ResponsePart) -> None:
    """Raise CommandError if a part, or a whole response, failed."""
    text = failure(part)
    if text is not None:
        raise CommandError(text)


def tell_failures(parts: Iterable[tuple[str, ResponsePart]], asked: int) -> None:
    """Raise CommandError if any of the named parts failed.

    The error is the failure itself if there is only one. Otherwise the failures are printed, one
    per line, and the error has their number.
    """
    failures = [(name, text) for name, part in parts if (text := failure(part)) is not None]
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
    """Yield a function that takes the number of parts just done and advances a progress bar.

    The bar appears only if stderr is a terminal and there are PROGRESS_PARTS_MIN parts or more.
    """
    if total < PROGRESS_PARTS_MIN:
        yield lambda _done: None
        return
    with bar(text, total) as update:
        yield lambda done: update(advance=done)


def names_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names without duplicates, in the given order."""
    return tuple(dict.fromkeys(texts))


def topic_expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a --topic option, which may be quoted. Raises UsageError."""
    try:
        return re.compile(pattern.strip().strip("\"'").replace(",", "|"))
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"--topic {pattern}: invalid regular expression: {error}") from None
