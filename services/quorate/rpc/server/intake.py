"""Decodes requests within the limits of their method.

Rules:
1. A request that is too large, or has too many parts, is rejected before any of it is decoded.
2. A request that weighs more than `INLINE_WEIGHT_MAX` is weighed and decoded in a thread, so that
   the event loop keeps running: one at a time, since threads share one interpreter. A response
   with more than `INLINE_PARTS_MAX` parts is encoded in the same thread.
3. The thread decodes a request in slices of whole fields. The decoder holds the interpreter's lock
   until it returns, 60 ms for half a million fields, and the event loop would wait as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from google.protobuf.message import Message

from quorate.raft.errors import ViolationError
from quorate.rpc.wire.methods import RpcMethod
from quorate.rpc.wire.weighing import WEIGHT_PER_BYTE_MAX, weigh

V = TypeVar("V")
M = TypeVar("M")

INLINE_WEIGHT_MAX = 8_192
"""A thousand nested messages, or the sizes of 32,768 records: a few milliseconds."""
LIGHT_BYTES_MAX = INLINE_WEIGHT_MAX // WEIGHT_PER_BYTE_MAX
"""A request of at most this size cannot exceed `INLINE_WEIGHT_MAX`, so it is not weighed."""

INLINE_PARTS_MAX = 500

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="decode")


async def read_request(method: RpcMethod, data: bytes, decode: Callable[[Any], V]) -> V:
    """Check and decode a request. decode: converts the message to the value.

    Raises ViolationError if the request exceeds a limit or `decode` rejects it; DecodeError if the
    bytes are not a message.
    """
    if len(data) > method.bytes_max:
        raise ViolationError(
            f"a request of {len(data)} bytes: {method.name} takes at most "
            f"{method.bytes_max}; split it"
        )
    if (
        len(data) <= LIGHT_BYTES_MAX
        or _weight(method, data, INLINE_WEIGHT_MAX) <= INLINE_WEIGHT_MAX
    ):
        return decode(method.request.FromString(data))
    return await asyncio.get_running_loop().run_in_executor(
        _THREAD, _read_heavy, method, data, decode
    )


async def write_answer(encode: Callable[[V], M], answer: V, parts: int) -> M:
    """Encode a response. parts: the number of nested messages in it."""
    if parts <= INLINE_PARTS_MAX:
        return encode(answer)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, encode, answer)


def _weight(method: RpcMethod, data: bytes, limit: int, slices: list[int] | None = None) -> int:
    """See `weigh`. Raises ViolationError if the weight exceeds the method's limit."""
    weight = weigh(data, method.shape, min(limit, method.weight_max), slices)
    if weight > method.weight_max:
        raise ViolationError(
            f"a request of {len(data)} bytes with too many parts: {method.name} takes a "
            f"weight of at most {method.weight_max}; split it"
        )
    return weight


def _read_heavy(method: RpcMethod, data: bytes, decode: Callable[[Any], V]) -> V:
    slices: list[int] = []
    _weight(method, data, method.weight_max, slices)
    return decode(merged(method.request, data, slices))


def merged(message_type: type[Message], data: bytes, slices: Sequence[int]) -> Message:
    """The message, decoded slice by slice. slices: positions between two of its fields.

    Source: the Protocol Buffers encoding specification: concatenated messages merge.
    """
    message = message_type()
    view = memoryview(data)
    for start, end in zip((0, *slices), (*slices, len(data)), strict=True):
        message.MergeFromString(bytes(view[start:end]))
    return message
