"""The HTTP listener: what it answers, and what it does not put up with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
import pytest_asyncio
import uvloop
from quorate.process import http
from quorate.process.http import (
    CONNECTIONS_MAX,
    COSTLY_MAX,
    HEAD_BYTES_MAX,
    HttpListener,
    HttpResponse,
)

HOST = "127.0.0.1"


async def _fine() -> HttpResponse:
    return HttpResponse.text(HTTPStatus.OK, "fine")


async def _broken() -> HttpResponse:
    raise ValueError("a secret")


async def _endless() -> HttpResponse:
    await asyncio.sleep(3600)
    raise AssertionError


@pytest_asyncio.fixture
async def listener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpListener]:
    monkeypatch.setattr(http, "HEAD_TIMEOUT_S", 0.3)
    monkeypatch.setattr(http, "ANSWER_TIMEOUT_S", 0.5)
    pages = {"/fine": _fine, "/broken": _broken, "/endless": _endless}
    listener = HttpListener(pages, costly=("/endless",))
    await listener.start(HOST, 0)
    yield listener
    await listener.stop()


async def ask(listener: HttpListener, request: bytes) -> tuple[int, bytes]:
    """Send bytes; the status, 0 for no answer, and all that came."""
    reader, writer = await asyncio.open_connection(HOST, listener.port)
    try:
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return 0, b""
    finally:
        writer.close()
    return (int(answer.split(b" ")[1]) if answer else 0), answer


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_pages(listener: HttpListener) -> None:
    status, answer = await ask(listener, get("/fine"))
    assert status == 200
    assert answer.endswith(b"\r\n\r\nfine\n")
    assert b"Content-Length: 5\r\n" in answer
    assert b"Connection: close\r\n" in answer
    assert (await ask(listener, get("/fine?x=1")))[0] == 200
    status, answer = await ask(listener, b"HEAD /fine HTTP/1.0\r\n\r\n")
    assert status == 200
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "wanted"),
    [
        (get("/other"), 404),
        (b"POST /fine HTTP/1.1\r\n\r\n", 405),
        (b"GET /fine\r\n\r\n", 400),
        (b"GET /fine SPDY/3\r\n\r\n", 400),
        (b"\xff\xfe\x00 \x80 \r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (get("/" + "x" * HEAD_BYTES_MAX), 431),
        (get("/endless"), 503),
    ],
)
async def test_request_validation(
    listener: HttpListener, request_bytes: bytes, wanted: int
) -> None:
    assert (await ask(listener, request_bytes))[0] == wanted
    assert (await ask(listener, get("/fine")))[0] == 200


async def test_a_page_that_fails_tells_nothing(listener: HttpListener) -> None:
    status, answer = await ask(listener, get("/broken"))
    assert status == 500
    assert b"secret" not in answer


async def test_who_is_slow_is_cut_off(listener: HttpListener) -> None:
    assert await ask(listener, b"GET /fine HT") == (0, b"")
    assert await ask(listener, b"") == (0, b"")


async def test_slow_connections_keep_nobody_out(
    listener: HttpListener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "HEAD_TIMEOUT_S", 30.0)
    opened = []
    for _ in range(CONNECTIONS_MAX + 5):
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        writer.write(b"G")
        opened.append((reader, writer))
    for _ in range(20):
        assert (await ask(listener, get("/fine")))[0] == 200
    # The oldest were closed, one for each that came later.
    for reader, _ in opened[:5]:
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
    assert f"{CONNECTIONS_MAX} client connections" in caplog.text
    assert len(caplog.records) == 1, "one line an address and a minute"
    for _, writer in opened:
        writer.close()


async def test_costly_pages_keep_no_probe_out(
    listener: HttpListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "ANSWER_TIMEOUT_S", 3.0)
    asked = [asyncio.create_task(ask(listener, get("/endless"))) for _ in range(COSTLY_MAX)]
    await asyncio.sleep(0.2)
    for _ in range(CONNECTIONS_MAX + 5):
        await asyncio.open_connection(HOST, listener.port)
    status, answer = await ask(listener, get("/endless"))
    assert status == 503
    assert b"too many concurrent requests for /endless" in answer
    assert (await ask(listener, get("/fine")))[0] == 200
    # What is being made is made, whoever connects.
    assert [status for status, _ in await asyncio.gather(*asked)] == [503] * COSTLY_MAX


async def test_stop_ends_what_is_open() -> None:
    listener = HttpListener({"/endless": _endless})
    await listener.start(HOST, 0)
    asked = asyncio.create_task(ask(listener, get("/endless")))
    await asyncio.sleep(0.1)
    await asyncio.wait_for(listener.stop(), 2)
    assert (await asked)[0] == 0


async def test_a_costly_page_is_made_at_most_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = 0

    async def make() -> HttpResponse:
        nonlocal made
        made += 1
        return HttpResponse.text(HTTPStatus.OK, str(made))

    listener = HttpListener({"/metrics": make}, costly=("/metrics",))
    await listener.start(HOST, 0)
    try:
        monkeypatch.setattr(http, "FRESH_S_MAX", 60.0)
        monkeypatch.setattr(http, "FRESH_S", 60.0)
        answers = [await ask(listener, get("/metrics")) for _ in range(3)]
        assert [answer.rpartition(b"\r\n\r\n")[2] for _, answer in answers] == [b"1\n"] * 3
    finally:
        await listener.stop()


@pytest.mark.parametrize(("factor", "expected"), [(1_000_000, b"1\n"), (0, b"2\n")])
async def test_a_page_stays_in_use_in_proportion_to_its_rendering_time(
    monkeypatch: pytest.MonkeyPatch, factor: int, expected: bytes
) -> None:
    made = 0

    async def make() -> HttpResponse:
        nonlocal made
        made += 1
        await asyncio.sleep(0.001)
        return HttpResponse.text(HTTPStatus.OK, str(made))

    monkeypatch.setattr(http, "FRESH_S", 0.0)
    monkeypatch.setattr(http, "FRESH_S_MAX", 60.0)
    monkeypatch.setattr(http, "FRESH_FACTOR", factor)
    listener = HttpListener({"/metrics": make}, costly=("/metrics",))
    await listener.start(HOST, 0)
    try:
        for _ in range(2):
            answer = await ask(listener, get("/metrics"))
        assert answer[1].endswith(b"\r\n\r\n" + expected)
    finally:
        await listener.stop()


def test_it_serves_on_the_event_loop_of_the_nodes() -> None:
    async def serve() -> None:
        listener = HttpListener({"/fine": _fine})
        await listener.start(HOST, 0)
        try:
            assert (await ask(listener, get("/fine")))[0] == 200
            assert (await ask(listener, get("/none")))[0] == 404
        finally:
            await listener.stop()

    uvloop.run(serve())
