"""Access control of the console: a known host name, the console's own origin, and its token.

The checks are ASGI middleware around the whole application, for HTTP and WebSockets. The checks of
Host and Origin reject requests from other sites' pages in the same browser (DNS rebinding,
cross-site WebSockets). The token rejects users that do not have the printed URL.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from quorate.rpc.wire.limits import format_address

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_BYTES = 32
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    # nicegui's page has inline scripts and styles, and Vue compiles templates in the browser.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

UNKNOWN_HOST = "the console does not serve this host name: start it with --host-name NAME"
OTHER_ORIGIN = "the request comes from a page of another site"
UNKNOWN_CALLER = "open the URL that `quorate console` printed: it contains the token"


class Access:
    """Authorizes requests to a console that listens at host:port.

    names: host names to accept in addition to the address. A loopback or wildcard address also
    accepts the usual names of loopback.
    """

    def __init__(self, host: str, port: int, names: Iterable[str] = ()) -> None:
        given = tuple(names)
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        # Browsers send a cookie to every port of a host, so two consoles need different names.
        self._cookie = f"quorate-console-{port}"
        self._hosts = {_plain(name) for name in given}
        if is_wildcard(host) or is_loopback(host):
            self._hosts.update(LOOPBACK_NAMES)
        if not is_wildcard(host):
            self._hosts.add(_plain(host))
        shown = given[0] if given else "localhost" if is_wildcard(host) else host
        self.url = f"http://{format_address(shown, port)}/?token={self._token}"

    def around(self, app: App) -> App:
        """Wrap the application in these checks, and add the headers to every response."""

        async def checked(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] not in ("http", "websocket"):
                await app(scope, receive, send)
                return

            async def send_with_headers(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
                await send(message)

            refusal = self._refusal(scope)
            if refusal == UNKNOWN_CALLER and self._brings_token(scope):
                await self._let_in(send_with_headers)
            elif refusal is None:
                await app(scope, receive, send_with_headers)
            elif scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": refusal})
            else:
                await _answer(send_with_headers, HTTPStatus.FORBIDDEN, refusal)

        return checked

    def _refusal(self, scope: Scope) -> str | None:
        """Return why the request is rejected, or None if it is authorized."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or _host_of(hosts[0]) not in self._hosts:
            return UNKNOWN_HOST
        origins = _values(scope, b"origin")
        wanted = {f"{scheme}://{hosts[0]}".lower() for scheme in ("http", "https")}
        if any(origin.lower() not in wanted for origin in origins):
            return OTHER_ORIGIN
        cookies = _cookies(_values(scope, b"cookie"), self._cookie)
        return None if any(map(self._is_token, cookies)) else UNKNOWN_CALLER

    def _brings_token(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
            return False
        query = parse_qs(scope["query_string"].decode("latin-1"))
        return any(map(self._is_token, query.get("token", ())))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())

    async def _let_in(self, send: Send) -> None:
        """Move the token from the URL into a cookie that scripts cannot read."""
        cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        more = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
        await _answer(send, HTTPStatus.SEE_OTHER, "see /", more)


def is_wildcard(host: str) -> bool:
    """Whether `host` means every address of the machine."""
    return host in ("", "0.0.0.0", "::")  # noqa: S104  compared, not bound


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return _plain(host) == "localhost"


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _host_of(header: str) -> str | None:
    """Return the name in a Host header; None if it has none."""
    try:
        return _plain(urlsplit(f"//{header}").hostname or "") or None
    except ValueError:
        return None


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _cookies(headers: Iterable[str], name: str) -> list[str]:
    """Return the values of one cookie.

    This does not use `http.cookies`, which stops at a malformed cookie of another server.
    """
    pairs = (part.strip().partition("=") for header in headers for part in header.split(";"))
    return [value for found, _, value in pairs if found == name]


async def _answer(
    send: Send, status: HTTPStatus, line: str, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    body = f"{line}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
