"""Encodes responses with records; large records are copied once, outside of the event loop.

The encoding of a message is the concatenation of its encoded fields, in any order. Large records
are therefore appended to the encoding of the other fields, in a thread, where the copy releases the
interpreter lock if the records are bytes objects. Source: the Protocol Buffers encoding guide,
"Field Order" and "Length-Delimited Records".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from google.protobuf.message import Message

from quorate.rpc.wire.values import Buffer

LARGE_BYTES = 1024 * 1024
"""From this size on, `bytes.join` releases the interpreter lock."""

_LENGTH_DELIMITED = 2
# Not the loop's default executor: work that waits for a disk may occupy all of its threads.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="encode")


async def encode_with_records(message: Message, field: str, records: Sequence[Buffer]) -> bytes:
    """The encoding of `message` with the records in its bytes field `field`, which is empty."""
    size = sum(map(len, records))
    if size < LARGE_BYTES:
        setattr(message, field, b"".join(records))
        return message.SerializeToString()
    number = message.DESCRIPTOR.fields_by_name[field].number
    head = message.SerializeToString() + _varint(number << 3 | _LENGTH_DELIMITED) + _varint(size)
    parts = [head, *map(_unwrapped, records)]
    return await asyncio.get_running_loop().run_in_executor(_THREAD, b"".join, parts)


def serialize(answer: Message | bytes) -> bytes:
    """Encode a response for gRPC; bytes are already encoded."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def _unwrapped(part: Buffer) -> Buffer:
    """The bytes object that a view covers completely, otherwise the part itself."""
    if isinstance(part, memoryview) and type(part.obj) is bytes and len(part.obj) == part.nbytes:
        return part.obj
    return part


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
