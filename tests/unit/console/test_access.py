"""Whom the console lets in: host names, origins, the token, and the headers of every response."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from quorate.console.access import (
    HEADERS,
    OTHER_ORIGIN,
    UNKNOWN_CALLER,
    UNKNOWN_HOST,
    Access,
    Message,
)
from quorate.console.watch import Watch
from quorate.raft.errors import MisuseError
from quorate.raft.types import ReplicaKey

LOCAL = "127.0.0.1:8080"


class Response:
    """What an ASGI application sent."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        start = messages[0]
        self.status = start.get("status")
        self.headers = {k.decode(): v.decode() for k, v in start.get("headers", ())}
        self.body = b"".join(m.get("body", b"") for m in messages).decode()


async def application(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
    await send({"type": "http.response.body", "body": b"the page"})


async def ask(
    access: Access, path: str = "/", query: str = "", kind: str = "http", **headers: str
) -> Response:
    """Headers without the console's cookie unless they have it."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": f"{kind}.connect"}

    given = {"host": LOCAL, **headers}
    raw = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": kind, "method": "GET", "path": path, "query_string": query.encode()}
    await access.around(application)({**scope, "headers": raw}, receive, send)
    return Response(sent)


def token_of(access: Access) -> str:
    return parse_qs(urlsplit(access.url).query)["token"][0]


def cookie_of(access: Access) -> str:
    return f'other=a"b; quorate-console-8080={token_of(access)}'


async def test_the_printed_url_sets_a_cookie_and_leaves_the_address_bar() -> None:
    access = Access("127.0.0.1", 8080)
    assert access.url.startswith("http://127.0.0.1:8080/?token=")
    assert len(token_of(access)) >= 43
    first = await ask(access, query=urlsplit(access.url).query)
    assert (first.status, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert "; HttpOnly" in cookie
    assert "; SameSite=Strict" in cookie
    assert first.headers["referrer-policy"] == "no-referrer"
    page = await ask(access, cookie=cookie.split(";")[0])
    assert (page.status, page.body, page.headers["x"]) == (200, "the page", "y")


@pytest.mark.parametrize("query", ["", "token=", "token=x", "token=%ff", "other=1"])
async def test_without_the_token_there_is_one_plain_line(query: str) -> None:
    refused = await ask(Access("127.0.0.1", 8080), query=query, cookie="quorate-console-8080=x")
    assert (refused.status, refused.body) == (403, f"{UNKNOWN_CALLER}\n")
    assert refused.headers["content-type"].startswith("text/plain")


async def test_each_console_has_its_own_token() -> None:
    one, other = Access("127.0.0.1", 8080), Access("127.0.0.1", 8080)
    assert (await ask(one, cookie=cookie_of(other))).status == 403


@pytest.mark.parametrize("path", ["/_nicegui/3/static/nicegui.js", "/_nicegui_ws/socket.io/"])
async def test_the_token_in_the_url_opens_the_page_only(path: str) -> None:
    access = Access("127.0.0.1", 8080)
    assert (await ask(access, path, urlsplit(access.url).query)).status == 403


@pytest.mark.parametrize(
    ("bound", "names", "allowed", "refused"),
    [
        ("127.0.0.1", (), ["localhost:8080", "LOCALHOST.:1", "[::1]:8080"], ["10.0.0.1"]),
        ("::1", (), ["[::1]:8080", "127.0.0.1"], ["[::2]:8080"]),
        ("10.0.0.1", (), ["10.0.0.1:8080"], ["localhost", "127.0.0.1:8080"]),
        ("0.0.0.0", ("console.test",), ["console.test", "localhost"], ["0.0.0.0", "10.0.0.1"]),
    ],
)
async def test_only_known_host_names_are_served(
    bound: str, names: tuple[str, ...], allowed: list[str], refused: list[str]
) -> None:
    access = Access(bound, 8080, names)
    for host in allowed:
        assert (await ask(access, host=host, cookie=cookie_of(access))).status == 200, host
    for host in [*refused, "attacker.example", "127.0.0.1.attacker.example", "", "[", "a@b:c"]:
        found = await ask(access, host=host, cookie=cookie_of(access))
        assert (found.status, found.body) == (403, f"{UNKNOWN_HOST}\n"), host


async def test_pages_of_other_sites_are_refused_also_with_the_cookie() -> None:
    access = Access("127.0.0.1", 8080)
    cookie = cookie_of(access)
    for origin in ("http://attacker.example", "null", "http://127.0.0.1:3000", "http://127.0.0.1"):
        found = await ask(access, origin=origin, cookie=cookie)
        assert (found.status, found.body) == (403, f"{OTHER_ORIGIN}\n")
        socket = await ask(access, "/_nicegui_ws/", kind="websocket", origin=origin, cookie=cookie)
        assert socket.messages[0]["type"] == "websocket.close"
    for origin in (f"http://{LOCAL}", f"https://{LOCAL}"):
        assert (await ask(access, kind="websocket", origin=origin, cookie=cookie)).status == 200


async def test_a_websocket_needs_the_token() -> None:
    access = Access("127.0.0.1", 8080)
    origin = f"http://{LOCAL}"
    query = urlsplit(access.url).query
    found = await ask(access, query=query, kind="websocket", origin=origin)
    assert found.messages[0] == {"type": "websocket.close", "code": 1008, "reason": UNKNOWN_CALLER}


async def raw(access: Access, *headers: tuple[bytes, bytes], query: bytes = b"") -> Any:
    """The status of a request for the page with exactly these headers."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query}
    await access.around(application)({**scope, "headers": list(headers)}, receive, send)
    return sent[0]["status"]


async def test_headers_that_two_parties_would_read_differently_are_refused() -> None:
    access = Access("127.0.0.1", 8080)
    cookie = (b"cookie", cookie_of(access).encode())
    mine, other = (b"host", LOCAL.encode()), (b"host", b"attacker.example")
    assert await raw(access, mine, cookie) == 200
    for hosts in ((mine, other), (other, mine), (mine, mine), ((b"host", b"127.0.0.1\0.x"),), ()):
        assert await raw(access, *hosts, cookie) == 403, hosts
    own, foreign = (b"origin", b"http://" + LOCAL.encode()), (b"origin", b"null")
    assert await raw(access, mine, cookie, own) == 200
    assert await raw(access, mine, cookie, own, foreign) == 403


async def test_cookies_of_another_server_on_the_host_neither_open_nor_close_the_console() -> None:
    """Any port of the host can set a cookie of this name, which comes first or last."""
    access = Access("127.0.0.1", 8080)
    host = (b"host", LOCAL.encode())
    own = f"quorate-console-8080={token_of(access)}".encode()
    for tossed in (
        b"quorate-console-8080=x",
        b"quorate-console-8080",
        b"quorate-console-8080=\xff",
    ):
        assert await raw(access, host, (b"cookie", tossed)) == 403
        for both in (tossed + b"; " + own, own + b"; " + tossed):
            assert await raw(access, host, (b"cookie", both)) == 200
    for query in (b"token=", b"token=%00", b"token=%ff", b"token=x&token=y", b"token"):
        assert await raw(access, host, query=query) == 403


async def test_every_response_has_the_headers() -> None:
    access = Access("127.0.0.1", 8080)
    for cookie in ("", cookie_of(access)):
        found = await ask(access, cookie=cookie)
        assert {name.lower(): value for name, value in HEADERS.items()}.items() <= (
            found.headers.items()
        )


def test_the_url_of_a_console_that_listens_everywhere_can_be_opened() -> None:
    assert Access("0.0.0.0", 8080).url.startswith("http://localhost:8080/")
    assert Access("::", 8080, ("console.test",)).url.startswith("http://console.test:8080/")
    assert Access("::1", 8080).url.startswith("http://[::1]:8080/")


@pytest.mark.parametrize(
    ("allow_changes", "why"), [(False, "--allow-changes"), (True, "while there is no leader")]
)
async def test_without_permission_or_leader_a_watch_refuses_every_change(
    allow_changes: bool, why: str
) -> None:
    watch = Watch(["127.0.0.1:1"], None, allow_changes=allow_changes)
    key = ReplicaKey(1, "A" * 22)
    try:
        for change in (watch.add(key, "h", 1), watch.remove(key), watch.transfer(key)):
            with pytest.raises(MisuseError, match=why):
                await change
    finally:
        await watch.close()
