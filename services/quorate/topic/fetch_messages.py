"""Responses to a consumer's Fetch as bytes: the records are copied once, from the log.

Source: Kafka's FetchResponse.json; KIP-482 (flexible versions).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.records.primitives import encode_unsigned_varint as varint
from quorate.runtime.driver import Bytes

FLEXIBLE_SINCE: Final = 12
_LOG_START_SINCE = 5
_SESSIONS_SINCE = 7
_PREFERRED_SINCE = 11

_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_TOP: Final = struct.Struct(">ihi")
"""Throttle time in ms, error, session."""
_PART: Final = struct.Struct(">ihqq")
"""Partition, error, high watermark, last stable offset."""
_OFFSET: Final = struct.Struct(">q")
_NO_TAGS: Final = b"\0"
_NO_TRANSACTIONS: Final = 0
_NO_REPLICA: Final = -1


@dataclass(frozen=True, slots=True)
class TopicResponsePart:
    """The part of a response about one partition."""

    topic: str
    index: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    batches: Sequence[Bytes] = ()


def write_fetched(call: s.Call, parts: Iterable[TopicResponsePart]) -> s.Encoded:
    """The response to a Fetch; one without an incremental session."""
    version = call.version
    found = list(parts)
    is_flexible = version >= FLEXIBLE_SINCE
    pieces: list[Bytes] = []
    pieces.append(_TOP.pack(0, 0, 0) if version >= _SESSIONS_SINCE else _INT.pack(0))
    pieces.append(_length(len(found), is_flexible))
    for part in found:
        name = part.topic.encode()
        pieces.append((varint(len(name) + 1) if is_flexible else _SHORT.pack(len(name))) + name)
        pieces.append(_length(1, is_flexible))
        pieces += _written(part, version, is_flexible=is_flexible)
    if is_flexible:
        pieces.append(_NO_TAGS)
    return s.Encoded(s.response_type(call.api_key, version), b"".join(pieces))


def _written(part: TopicResponsePart, version: int, *, is_flexible: bool) -> Iterable[Bytes]:
    known = part.high_watermark
    yield _PART.pack(part.index, part.error, known, known)
    if version >= _LOG_START_SINCE:
        yield _OFFSET.pack(part.log_start_offset)
    yield _length(_NO_TRANSACTIONS, is_flexible)
    if version >= _PREFERRED_SINCE:
        yield _INT.pack(_NO_REPLICA)
    yield _length(sum(map(len, part.batches)), is_flexible)
    yield from part.batches
    if is_flexible:
        yield _NO_TAGS + _NO_TAGS  # of the partition and of the topic


def _length(count: int, is_flexible: bool) -> bytes:
    return varint(count + 1) if is_flexible else _INT.pack(count)
