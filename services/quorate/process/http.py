"""A small HTTP/1.1 listener for probes and metrics: GET and HEAD of a few fixed paths, unencrypted.

It serves kubelets, Prometheus and people with curl, and limits what misbehaving clients can do:

1. At most `CONNECTIONS_MAX` connections are open at a time. A new connection evicts the oldest one,
   so that slow clients never keep a probe out.
2. At most `COSTLY_MAX` requests for costly pages are pending at a time. Their connections are not
   evicted until the page is rendered. Further requests get a 503. Probes do not wait for costly
   pages. A costly page is sent again for `FRESH_S`, or
   `FRESH_FACTOR` times as long as it took to render but at most `FRESH_S_MAX`, and then rendered
   anew. Rendering therefore takes a hundredth of the node's time, if a page takes 20 ms or less.
3. A request head is at most `HEAD_BYTES_MAX` bytes and must arrive within `HEAD_TIMEOUT_S`. A page
   must be rendered within `ANSWER_TIMEOUT_S`, and the client must read the response within the same
   time again. Bodies are not read.
4. A connection serves one request.
5. An exception in a page is logged, and the client receives a 500 without details.

Source: RFC 9110 and 9112.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

CONNECTIONS_MAX = 128
BACKLOG = 64
"""Less than `CONNECTIONS_MAX`. The event loop accepts at most this many connections per iteration,
so that it does not evict a connection in the iteration that accepted it.
"""
COSTLY_MAX = 4
FRESH_S = 0.25
FRESH_S_MAX = 2.0
FRESH_FACTOR = 100
HEAD_BYTES_MAX = 8 * 1024
HEAD_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 10.0
LINGER_S = 0.5
LINGER_BYTES_MAX = 64 * 1024
"""How long, and how many bytes, the listener keeps reading after it rejected a request. Closing a
connection while data arrives resets it, and the client would not see the response.
"""
LOG_INTERVAL_S = 60.0

TEXT = "text/plain; charset=utf-8"
METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response: status, body and content type."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT

    @classmethod
    def text(cls, status: HTTPStatus, line: str) -> HttpResponse:
        return cls(status, line.encode() + b"\n")


MakePage = Callable[[], Awaitable[HttpResponse]]


class HttpListener:
    """Serves `pages` by path.

    costly: the paths of pages that take long to render. `port` is the port that it listens on, even
    if `start` was called with 0.
    """

    def __init__(self, pages: Mapping[str, MakePage], costly: Collection[str] = ()) -> None:
        self._pages = dict(pages)
        self._costly = frozenset(costly)
        self._server: asyncio.Server | None = None
        self._open: dict[_Conversation, None] = {}
        """Oldest first, without those in `_waiting`."""
        self._waiting: set[_Conversation] = set()
        """Connections that wait for a costly page."""
        self._made: dict[str, tuple[float, HttpResponse]] = {}
        """The latest costly pages by path, with the loop's time in seconds when they expire."""
        self._closed = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def start(self, host: str, port: int) -> None:
        """Listen on `host`, or on every address if it is empty. Raises OSError on failure."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Conversation(self), host or None, port, backlog=BACKLOG
        )

    @property
    def port(self) -> int:
        assert self._server is not None, "start() comes first"
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting connections and abort the open ones."""
        if self._server is not None:
            self._server.close()
        under_way = [*self._open, *self._waiting]
        tasks = [each.task for each in under_way if each.task is not None]
        for conversation in under_way:
            conversation.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    def opened(self, conversation: _Conversation) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            self._close_oldest()
        self._open[conversation] = None

    def ended(self, conversation: _Conversation) -> None:
        self._open.pop(conversation, None)
        self._waiting.discard(conversation)

    def _close_oldest(self) -> None:
        oldest = next(iter(self._open))
        del self._open[oldest]
        self._closed.warning(
            oldest.host,
            "%d client connections are open: closed the oldest one, from %s",
            CONNECTIONS_MAX,
            oldest.host,
        )
        oldest.abort()

    def page_at_once(self, method: str, target: str) -> HttpResponse | None:
        """The response to a request that needs no rendering; None for any other request."""
        if target not in self._pages:
            known = " ".join(sorted(self._pages))
            return HttpResponse.text(HTTPStatus.NOT_FOUND, f"not found; the pages are {known}")
        if method not in METHODS:
            return HttpResponse.text(
                HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are supported"
            )
        if target not in self._costly:
            return None
        expires_s, page = self._made.get(target, (0.0, None))
        if page is not None and asyncio.get_running_loop().time() < expires_s:
            return page
        if len(self._waiting) >= COSTLY_MAX:
            return HttpResponse.text(
                HTTPStatus.SERVICE_UNAVAILABLE, f"too many concurrent requests for {target}"
            )
        return None

    async def make(self, target: str, conversation: _Conversation) -> HttpResponse:
        """Render the page at a path of `pages`; an error page if that fails."""
        clock = asyncio.get_running_loop()
        began_s = clock.time()
        is_costly = target in self._costly
        if is_costly:
            self._open.pop(conversation, None)
            self._waiting.add(conversation)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                page = await self._pages[target]()
        except TimeoutError:
            return HttpResponse.text(HTTPStatus.SERVICE_UNAVAILABLE, "timed out")
        except Exception:
            LOGGER.exception("cannot render %s", target)
            return HttpResponse.text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")
        if is_costly:
            ended_s = clock.time()
            fresh_s = min(max(FRESH_S, FRESH_FACTOR * (ended_s - began_s)), FRESH_S_MAX)
            self._made[target] = ended_s + fresh_s, page
            self._waiting.discard(conversation)
            self.opened(conversation)
        return page


class _Conversation(asyncio.Protocol):
    """One connection, which serves one request.

    It is an asyncio protocol because a flood of requests costs three times as much with streams.
    """

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._received = bytearray()
        self._is_head_complete = False
        self._left: int | None = None
        """How many more bytes of a rejected request are read; None if it was not rejected."""
        self.task: asyncio.Task[None] | None = None
        """Renders the page."""

    @property
    def host(self) -> str:
        return str((self._transport.get_extra_info("peername") or ("an unknown address",))[0])

    def abort(self) -> None:
        self._transport.abort()
        if self.task is not None:
            self.task.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(HEAD_TIMEOUT_S, self._transport.abort)
        self._listener.opened(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._timer.cancel()
        self._listener.ended(self)
        if self.task is not None:
            self.task.cancel()

    def eof_received(self) -> bool:
        """Whether the connection stays open: a client may half-close it after its request."""
        return self._is_head_complete and self._left is None

    def data_received(self, data: bytes) -> None:
        if self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._transport.abort()
        elif not self._is_head_complete:
            self._received += data
            end = self._received.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
            if end >= 0:
                self._is_head_complete = True
                self._set_timer(2 * ANSWER_TIMEOUT_S)
                self._answer(bytes(self._received[:end]))
            elif len(self._received) >= HEAD_BYTES_MAX:
                self._is_head_complete = True
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._send(HttpResponse.text(status, "the request head is too long"))

    def _answer(self, head: bytes) -> None:
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or parts[2] not in ("HTTP/1.0", "HTTP/1.1"):
            self._send(HttpResponse.text(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request"))
            return
        method, target = parts[0], parts[1].split("?", 1)[0]
        page = self._listener.page_at_once(method, target)
        if page is None:
            self.task = self._loop.create_task(self._make(method, target))
        else:
            self._send(page, with_body=method != "HEAD")

    async def _make(self, method: str, target: str) -> None:
        page = await self._listener.make(target, self)
        self._send(page, with_body=method != "HEAD")

    def _send(self, page: HttpResponse, *, with_body: bool = True) -> None:
        if self._transport.is_closing():
            return
        head = _head_of(page)
        self._transport.write(head + page.body if with_body else head)
        if 400 <= page.status < 500:
            self._left = LINGER_BYTES_MAX
            self._transport.write_eof()
            self._set_timer(LINGER_S)
        else:
            self._transport.close()
            self._set_timer(ANSWER_TIMEOUT_S)

    def _set_timer(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._transport.abort)


def _head_of(page: HttpResponse) -> bytes:
    status = page.status
    allow = "Allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{allow}"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    ).encode("latin-1")
