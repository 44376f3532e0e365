"""A small HTTP/1.1 listener for probes and metrics: GET and HEAD of a few fixed paths, unencrypted.

It is made for kubelets, Prometheus and people with curl, and for a network that is not always kind:

1. At most `CONNECTIONS_MAX` connections are open at a time. A new one takes the place of the one
   that has been open longest, so that slow clients never keep a probe out.
2. Of the costly pages at most `COSTLY_MAX` are made at a time, and those keep their connections;
   the next ones get a 503. Probes wait for none of them.
3. A request's head is at most `HEAD_BYTES_MAX` bytes and arrives within `HEAD_TIMEOUT_S`; an answer
   is made and taken within `ANSWER_TIMEOUT_S`. Bodies are not read.
4. One request a connection: whoever wants the next one connects again.
5. What a page raises is logged and answered with a 500 that says nothing of it.

Source: RFC 9110 and 9112.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

CONNECTIONS_MAX = 128
BACKLOG = 64
"""Fewer than there are places: one turn of the loop accepts no more, so that it does not close what
it has only just accepted.
"""
COSTLY_MAX = 4
HEAD_BYTES_MAX = 8 * 1024
HEAD_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 10.0
LINGER_S = 0.5
LINGER_BYTES_MAX = 64 * 1024
"""How long, and for how much, a refused request is read on: a connection that is closed while
something arrives is reset, and the asker would not see the refusal.
"""
WRITE_BYTES_HIGH = 64 * 1024
LOG_INTERVAL_S = 60.0

TEXT = "text/plain; charset=utf-8"
METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: status, body and its type."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT

    @classmethod
    def text(cls, status: HTTPStatus, line: str) -> Page:
        return cls(status, line.encode() + b"\n")


MakePage = Callable[[], Awaitable[Page]]


class HttpListener:
    """Serves `pages` by path; costly: the paths of those that take long to make. `port` is what it
    listens at, also where 0 was asked for.
    """

    def __init__(self, pages: Mapping[str, MakePage], costly: Collection[str] = ()) -> None:
        self._pages = dict(pages)
        self._costly = frozenset(costly)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        """The oldest is the first; those in `_making` are not among them."""
        self._making: set[asyncio.Task[None]] = set()
        self._closed = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def start(self, host: str, port: int) -> None:
        """Listen; an empty host is every address. OSError if that cannot be."""
        self._server = await asyncio.start_server(
            self._connected, host or None, port, limit=HEAD_BYTES_MAX, backlog=BACKLOG
        )

    @property
    def port(self) -> int:
        assert self._server is not None, "start() comes first"
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no more connections and end those that are open."""
        if self._server is not None:
            self._server.close()
        under_way = [*self._connections, *self._making]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            self._close_oldest()
        task = asyncio.create_task(self._converse(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._ended)

    def _close_oldest(self) -> None:
        task, writer = next(iter(self._connections.items()))
        del self._connections[task]
        host = (writer.get_extra_info("peername") or ("an unknown address",))[0]
        self._closed.warning(
            host,
            "%d connections of clients are open: closed the oldest, from %s",
            CONNECTIONS_MAX,
            host,
        )
        writer.transport.abort()
        task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task, None)
        self._making.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        try:
            await self._serve(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            # Who is slow or gone gets no more.
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            page = Page.text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long")
            await _refuse(reader, writer, page)
            return
        method, page = await self._answer(head)
        if 400 <= page.status < 500:
            await _refuse(reader, writer, page)
            return
        await _send(writer, page, with_body=method != "HEAD")

    def _may_make(self, target: str) -> bool:
        """Whether a page may be made now (rule 2)."""
        if target not in self._costly:
            return True
        if len(self._making) >= COSTLY_MAX:
            return False
        task = asyncio.current_task()
        assert task is not None, "connections are tasks"
        self._connections.pop(task, None)
        self._making.add(task)
        return True

    async def _answer(self, head: bytes) -> tuple[str, Page]:
        line = head.split(b"\r\n", 1)[0].decode("latin-1")
        parts = line.split(" ")
        if len(parts) != 3 or parts[2] not in ("HTTP/1.0", "HTTP/1.1"):
            return "", Page.text(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
        method, target = parts[0], parts[1].split("?", 1)[0]
        make = self._pages.get(target)
        if make is None:
            known = " ".join(sorted(self._pages))
            return method, Page.text(HTTPStatus.NOT_FOUND, f"there is {known}")
        if method not in METHODS:
            return method, Page.text(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only")
        if not self._may_make(target):
            return method, Page.text(HTTPStatus.SERVICE_UNAVAILABLE, f"too many ask for {target}")
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return method, await make()
        except TimeoutError:
            return method, Page.text(HTTPStatus.SERVICE_UNAVAILABLE, "it takes too long")
        except Exception:
            LOGGER.exception("%s failed", target)
            return method, Page.text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, page: Page) -> None:
    await _send(writer, page, with_body=True)
    writer.write_eof()
    left = LINGER_BYTES_MAX
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while left > 0 and (data := await reader.read(left)):
                left -= len(data)


async def _send(writer: asyncio.StreamWriter, page: Page, *, with_body: bool) -> None:
    status = page.status
    allow = "Allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{allow}"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode("latin-1"))
    if with_body:
        writer.write(page.body)
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        await writer.drain()
