"""The parts of docs/access.md about HTTP: the controllers' listener, and the console.

Paths are those of `process.telemetry`; who may see the console, `console.access` itself is
asked. `tests/integration/test_access.py` asks a real controller for the paths.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from quorate.console.access import Access, Message
from quorate.process.http import METHODS
from quorate.process.telemetry import PATHS

PORT = 8080
HOST = f"127.0.0.1:{PORT}"
OTHER = "other.example"


def http_table() -> str:
    head = ("path", "says", "methods", "whoever can connect")
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    methods = " ".join(METHODS)
    lines += [f"| {path.path} | {path.says} | {methods} | yes |" for path in PATHS]
    lines.append("| any other |  |  | no |")
    return "\n".join(lines)


REQUESTS: Mapping[str, dict[str, str]] = {
    "the page `/`": {"type": "http", "path": "/"},
    "another path": {"type": "http", "path": "/_nicegui/client.js"},
    "WebSocket": {"type": "websocket", "path": "/_nicegui_ws/socket.io/"},
}


def _callers(access: Access) -> Mapping[str, tuple[str, dict[str, str]]]:
    """By column: the query and the headers."""
    query = urlsplit(access.url).query
    cookie = f"quorate-console-{PORT}={query.removeprefix('token=')}"
    mine = {"host": HOST, "cookie": cookie}
    return {
        "no token": ("", {"host": HOST}),
        "token in the URL": (query, {"host": HOST}),
        "token in the cookie": ("", mine),
        "cookie, from another site's page": ("", mine | {"origin": f"http://{OTHER}"}),
        "cookie, for another host name": ("", mine | {"host": OTHER}),
    }


async def _is_let_in(access: Access, query: str, headers: dict[str, str], **scope: str) -> bool:
    """Whether the application gets the request, or the token's bearer its cookie."""
    reached = False
    sent: list[Message] = []

    async def application(_scope: Any, _receive: Any, _send: Any) -> None:
        nonlocal reached
        reached = True

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": f"{scope['type']}.connect"}

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    whole = {**scope, "method": "GET", "query_string": query.encode(), "headers": raw}
    await access.around(application)(whole, receive, send)
    return reached or any(message.get("status") == 303 for message in sent)


async def _console_rows() -> tuple[Sequence[str], list[tuple[str, list[bool]]]]:
    access = Access("127.0.0.1", PORT)
    callers = _callers(access)
    found = []
    for title, scope in REQUESTS.items():
        decided = [await _is_let_in(access, *caller, **scope) for caller in callers.values()]
        found.append((title, decided))
    return tuple(callers), found


def console_rows() -> tuple[Sequence[str], list[tuple[str, list[bool]]]]:
    """The columns, and each kind of request with what becomes of it."""
    return asyncio.run(_console_rows())


def console_table() -> str:
    callers, found = console_rows()
    lines = ["| request | " + " | ".join(callers) + " |", "|" + " --- |" * (len(callers) + 1)]
    for title, decided in found:
        lines.append(f"| {title} | " + " | ".join("yes" if x else "no" for x in decided) + " |")
    return "\n".join(lines)
