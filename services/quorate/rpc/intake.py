"""From the bytes of a request to its value, within the limits of its method.

Rules:
1. What is too large, or holds too many parts, is refused before anything of it is decoded.
2. A request that weighs more than `INLINE_WEIGHT_MAX` is weighed and decoded in a thread: one at a
   time, since threads share one interpreter. The loop goes on meanwhile. So is an answer encoded
   that has more than `INLINE_PARTS_MAX` parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from quorate.raft.errors import ViolationError
from quorate.rpc.methods import RpcMethod
from quorate.rpc.weighing import WEIGHT_PER_BYTE_MAX, weigh

V = TypeVar("V")
M = TypeVar("M")

INLINE_WEIGHT_MAX = 8_192
"""A thousand messages, or the sizes of 32,768 records: a few milliseconds."""
LIGHT_BYTES_MAX = INLINE_WEIGHT_MAX // WEIGHT_PER_BYTE_MAX
"""Need not be weighed."""

INLINE_PARTS_MAX = 500

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="decode")


async def read_request(method: RpcMethod, data: bytes, decode: Callable[[Any], V]) -> V:
    """The request as a value. decode: makes it of the message.

    ViolationError where it breaks a limit or `decode` says so; DecodeError where the bytes are no
    message.
    """
    if len(data) > method.bytes_max:
        raise ViolationError(
            f"a request of {len(data)} bytes, and {method.name} takes {method.bytes_max}: split it"
        )
    if len(data) <= LIGHT_BYTES_MAX or _is_within(method, data, INLINE_WEIGHT_MAX):
        return decode(method.request.FromString(data))
    return await asyncio.get_running_loop().run_in_executor(
        _THREAD, _read_heavy, method, data, decode
    )


async def write_answer(encode: Callable[[V], M], answer: V, parts: int) -> M:
    """An answer as a message. parts: how many it has, each a message in it."""
    if parts <= INLINE_PARTS_MAX:
        return encode(answer)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, encode, answer)


def _is_within(method: RpcMethod, data: bytes, limit: int) -> bool:
    """Whether it weighs no more than `limit`. ViolationError for more than the method takes."""
    weight = weigh(data, method.shape, min(limit, method.weight_max))
    if weight > method.weight_max:
        raise ViolationError(
            f"a request of {len(data)} bytes with too many parts: {method.name} takes requests "
            f"that weigh {method.weight_max}; split it"
        )
    return weight <= limit


def _read_heavy(method: RpcMethod, data: bytes, decode: Callable[[Any], V]) -> V:
    _is_within(method, data, method.weight_max)
    return decode(method.request.FromString(data))
