"""A small HTTP/1.1 listener for probes and metrics: GET and HEAD of a few fixed paths, in clear.

It is made for kubelets, Prometheus and people with curl, and for a network that is not always kind:

1. At most `CONNECTIONS_MAX` connections are served at a time; the next ones get a 503 at once, and
   from twice as many on nothing at all.
2. A request's head is at most `HEAD_BYTES_MAX` bytes and arrives within `HEAD_TIMEOUT_S`; an answer
   is made and taken within `ANSWER_TIMEOUT_S`. Bodies are not read.
3. One request a connection: whoever wants the next one connects again.
4. What a page raises is logged and answered with a 500 that says nothing of it.

Source: RFC 9110 and 9112.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

LOGGER = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
HEAD_BYTES_MAX = 8 * 1024
HEAD_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
LINGER_S = 0.5
LINGER_BYTES_MAX = 64 * 1024
"""How long, and for how much, a refused request is read on: a connection that is closed while
something arrives is reset, and the asker would not see the refusal.
"""
WRITE_BYTES_HIGH = 64 * 1024

TEXT = "text/plain; charset=utf-8"


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
    """Serves `pages` by path. `port` is what it listens at, also where 0 was asked for."""

    def __init__(self, pages: Mapping[str, MakePage]) -> None:
        self._pages = dict(pages)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen; an empty host is every address. OSError if that cannot be."""
        self._server = await asyncio.start_server(
            self._connected, host or None, port, limit=HEAD_BYTES_MAX
        )

    @property
    def port(self) -> int:
        assert self._server is not None, "start() comes first"
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no more connections and end those that are open."""
        if self._server is not None:
            self._server.close()
        under_way = list(self._connections)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= 2 * CONNECTIONS_MAX:
            writer.transport.abort()
            return
        is_served = len(self._connections) < CONNECTIONS_MAX
        task = asyncio.create_task(self._converse(reader, writer, is_served=is_served))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_served: bool
    ) -> None:
        writer.transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        try:
            if is_served:
                await self._serve(reader, writer)
            else:
                page = Page.text(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
                await _refuse(reader, writer, page)
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
        if method not in ("GET", "HEAD"):
            return method, Page.text(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only")
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
