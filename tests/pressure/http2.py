"""Frames of HTTP/2 (RFC 9113), for what no client of gRPC would send."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Mapping

from tests.integration.support import HOST
from tests.pressure.target import Aim

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
ACK = END_STREAM = 1
END_HEADERS = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INITIAL_WINDOW_SIZE = 4
CANCEL = 8


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes((kind, flags))
        + struct.pack(">I", stream)
        + payload
    )


def settings(**values: int) -> bytes:
    """values: by the number of the setting, as `_4`."""
    pairs = (struct.pack(">HI", int(name[1:]), value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def _text(data: bytes) -> bytes:
    if len(data) < 127:
        return bytes((len(data),)) + data
    rest, length = len(data) - 127, bytearray(b"\x7f")
    while rest >= 128:
        length.append(rest & 127 | 128)
        rest >>= 7
    length.append(rest)
    return bytes(length) + data


def field(name: str, value: str) -> bytes:
    """A header as a literal without indexing (RFC 7541, 6.2.2)."""
    return b"\0" + _text(name.encode()) + _text(value.encode())


def call_headers(path: str, more: Mapping[str, str] | None = None) -> bytes:
    """Of a call of gRPC."""
    given = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
        **(more or {}),
    }
    return b"".join(field(name, value) for name, value in given.items())


def message(data: bytes, *, is_compressed: bool = False) -> bytes:
    """The length-prefixed message of gRPC."""
    return struct.pack(">?I", is_compressed, len(data)) + data


def data_frames(stream: int, data: bytes, *, ends: bool = True, size: int = 16_384) -> bytes:
    parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
    last = len(parts) - 1
    return b"".join(
        frame(DATA, END_STREAM if ends and number == last else 0, stream, part)
        for number, part in enumerate(parts)
    )


class Connection:
    """One to the gRPC listener. Answers pings and settings, so that it stays open; gives windows
    only as it is told. is_closed: the other side has ended it.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._window = asyncio.Event()
        self.window = 65_535
        self._streams: dict[int, int] = {}
        self._initial = 65_535
        self.resets = 0
        self.received = 0
        """Bytes of messages, of all streams."""
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, aim: Aim, **values: int) -> Connection:
        context = aim.client_context() if aim.tls else None
        reader, writer = await asyncio.open_connection(HOST, aim.grpc, ssl=context)
        made = cls(reader, writer)
        writer.write(PREFACE + settings(**values))
        return made

    @property
    def is_closed(self) -> bool:
        return self._task.done()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_data(self, stream: int, data: bytes, *, ends: bool) -> None:
        """Within the windows that the other side gives."""
        at = 0
        while at < len(data):
            left = min(self.window, self._streams.get(stream, 0) + self._initial, 16_384)
            if left <= 0:
                self._window.clear()
                await self._window.wait()
                if self.is_closed:
                    raise ConnectionResetError
                continue
            part = data[at : at + left]
            at += len(part)
            self.window -= len(part)
            self._streams[stream] = self._streams.get(stream, 0) - len(part)
            is_last = ends and at == len(data)
            await self.send(frame(DATA, END_STREAM if is_last else 0, stream, part))

    async def close(self) -> None:
        self._task.cancel()
        self.writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._task

    async def closed(self) -> None:
        """Until the other side ends it."""
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                size = int.from_bytes(head[:3], "big")
                kind, flags = head[3], head[4]
                stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
                payload = await self._reader.readexactly(size)
                if kind == SETTINGS and not flags & ACK:
                    for at in range(0, size, 6):
                        name, value = struct.unpack_from(">HI", payload, at)
                        if name == INITIAL_WINDOW_SIZE:
                            self._initial = value
                    self._window.set()
                    self.writer.write(frame(SETTINGS, ACK, 0))
                elif kind == PING and not flags & ACK:
                    self.writer.write(frame(PING, ACK, 0, payload))
                elif kind == DATA:
                    self.received += size
                elif kind == RST_STREAM:
                    self.resets += 1
                elif kind == WINDOW_UPDATE:
                    more = int.from_bytes(payload, "big") & 0x7FFFFFFF
                    if stream == 0:
                        self.window += more
                    else:
                        self._streams[stream] = self._streams.get(stream, 0) + more
                    self._window.set()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._window.set()
