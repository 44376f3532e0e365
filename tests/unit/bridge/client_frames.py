"""Frames of Kafka's protocol on asyncio's streams, independent of the listener's own code."""

from __future__ import annotations

import asyncio
import struct

LENGTH = struct.Struct(">i")


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame, None at the end of the connection."""
    head = await reader.read(1)
    if not head:
        return None
    (length,) = LENGTH.unpack(head + await reader.readexactly(LENGTH.size - 1))
    return await reader.readexactly(length)


def write_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(LENGTH.pack(len(data)) + data)
