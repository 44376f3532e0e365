"""Fetch of the metadata log as bytes, without kio's objects.

Every replica fetches after each batch, so a commit takes two Fetches of each follower, and a change
of the metadata at least one of each broker. kio takes half a millisecond for a Fetch and its
response. Requests are read and responses written from version 13 on, the first that names the log's
topic by its id; requests are written and responses read from version 17 on. Version 18 has the
tagged fields that Quorate's controllers add for each other (`extensions`).

The rules of `isr_messages` hold.

Source: Kafka's FetchRequest.json and FetchResponse.json; KIP-227, KIP-482, KIP-516, KIP-595,
KIP-853, KIP-903, KIP-1166.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from quorate.bridge.messages.bounds import Walk
from quorate.bridge.messages.extensions import FIRST_TAG
from quorate.common.identifiers import UUID_BYTES, ZERO_UUID, uuid_to_bytes
from quorate.log.offset_files import METADATA_PARTITION
from quorate.records.primitives import encode_unsigned_varint as varint

TOPIC_ID: Final = f"{'A' * 21}Q"
"""The id of `__cluster_metadata`. Source: KIP-595."""

TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
ENDPOINTS_SINCE: Final = 16
DIRECTORIES_SINCE: Final = 17
HIGH_WATERMARK_SINCE: Final = 18
EXTENDED: Final = 18
"""The version that `extensions` extends."""

NO_HIGH_WATERMARK: Final = 2**63 - 1
"""Of a Fetch whose sender does not tell what it knows."""
UNKNOWN: Final = -1
"""Of an epoch, an offset or a node."""

_REQUEST: Final = struct.Struct(">iiibii")
"""Wait time in ms, minimum and maximum of bytes, isolation level, id and epoch of the session."""
_ASKED: Final = struct.Struct(">iiqiqi")
"""Partition, leader epoch, offset, last epoch, log start offset, maximum of bytes."""
_SENDER: Final = struct.Struct(">iqB")
"""A replica's id and epoch; no tagged fields."""
_RESPONSE: Final = struct.Struct(">ihi")
"""Throttle time in ms, error, session."""
_FOUND: Final = struct.Struct(">ihqqq")
"""Partition, error, high watermark, last stable offset, log start offset."""
_AFTER_FOUND: Final = struct.Struct(">Bi")
"""No aborted transactions, and the preferred replica."""
_DIVERGING: Final = struct.Struct(">iqB")
"""Epoch, offset; no tagged fields."""
_SNAPSHOT: Final = struct.Struct(">qiB")
_LEADER: Final = struct.Struct(">iiB")
_LONG: Final = struct.Struct(">q")
_UNSIGNED_LONG: Final = struct.Struct(">Q")
_INT: Final = struct.Struct(">i")
_LOG: Final = uuid_to_bytes(TOPIC_ID)
_NO_TAGS: Final = b"\0"
_ONE: Final = b"\2"
"""The length of an array with one item."""
_NONE: Final = b"\1"


@dataclass(frozen=True, slots=True)
class LogFetch:
    """A Fetch. is_log: whether it names the metadata log and nothing else. cluster_id, directory:
    None if it names none.
    """

    cluster_id: str | None
    replica_id: int
    directory: str | None
    is_log: bool
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int = NO_HIGH_WATERMARK
    max_wait_ms: int = 0
    max_bytes: int = 0
    read_round: int = 0
    incarnation: int = 0


class LogPosition(NamedTuple):
    """An epoch, and an offset where it or a snapshot ends; `UNKNOWN` for none."""

    end_offset: int = UNKNOWN
    epoch: int = UNKNOWN


class FoundLeader(NamedTuple):
    """A leader and its epoch; `UNKNOWN` for none."""

    leader_id: int = UNKNOWN
    leader_epoch: int = UNKNOWN


class NodeEndpoint(NamedTuple):
    """The endpoint of a node."""

    node_id: int
    host: str
    port: int


class Found(NamedTuple):
    """The part of a response about the metadata log."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    current_leader: FoundLeader = FoundLeader()
    diverging_epoch: LogPosition = LogPosition()
    snapshot_id: LogPosition = LogPosition()
    records: bytes | memoryview = b""


class LogFetched(NamedTuple):
    """A response. parts: one for each partition."""

    error_code: int
    parts: tuple[Found, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
    read_round: int = 0
    acknowledged: LogPosition = LogPosition()


# --- requests -------------------------------------------------------------------------------------


def read_log_fetch(found: Walk, version: int) -> LogFetch:
    """Decode a request from the walk's position on. Raises ValueError."""
    replica_id = UNKNOWN
    if version < REPLICA_STATE_SINCE:
        replica_id = found.number(4)
    max_wait_ms, _, max_bytes, _, _, _ = _REQUEST.unpack(found.take(_REQUEST.size))
    asked: list[tuple[bytes, tuple[int, ...], str | None, int]] = []
    for _ in range(found.length()):
        topic_id = found.take(UUID_BYTES)
        asked += [(topic_id, *_read_asked(found, version)) for _ in range(found.length())]
        found.skip_tagged()
    for _ in range(found.length()):
        found.skip(UUID_BYTES)
        found.skip(_INT.size * found.length())
        found.skip_tagged()
    _text(found)  # the rack
    cluster_id = None
    read_round = incarnation = 0
    for tag, size in found.tagged():
        if tag == 0:
            cluster_id = _text(found)
        elif tag == 1 and version >= REPLICA_STATE_SINCE:
            replica_id = found.number(_INT.size)
            found.skip(_LONG.size)
            found.skip_tagged()
        elif tag == FIRST_TAG and version >= EXTENDED:
            read_round = found.number(_LONG.size)
        elif tag == FIRST_TAG + 1 and version >= EXTENDED:
            (incarnation,) = _UNSIGNED_LONG.unpack(found.take(_UNSIGNED_LONG.size))
        else:
            found.skip(size)
    fixed: tuple[int, ...] = (UNKNOWN,) * 6
    directory, high_watermark, is_log = None, NO_HIGH_WATERMARK, False
    if len(asked) == 1:
        ((topic_id, fixed, directory, high_watermark),) = asked
        is_log = topic_id == _LOG and fixed[0] == METADATA_PARTITION
    _, epoch, offset, last_epoch, _, _ = fixed
    return LogFetch(
        cluster_id,
        replica_id,
        directory,
        is_log,
        epoch,
        offset,
        last_epoch,
        high_watermark,
        max_wait_ms,
        max_bytes,
        read_round,
        incarnation,
    )


def _read_asked(found: Walk, version: int) -> tuple[tuple[int, ...], str | None, int]:
    """The fixed fields of a partition in a request, its directory and its high watermark."""
    fixed = _ASKED.unpack(found.take(_ASKED.size))
    directory = None
    high_watermark = NO_HIGH_WATERMARK
    for tag, size in found.tagged():
        if tag == 0 and version >= DIRECTORIES_SINCE:
            text = found.uuid()
            directory = None if text == ZERO_UUID else text
        elif tag == 1 and version >= HIGH_WATERMARK_SINCE:
            high_watermark = found.number(_LONG.size)
        else:
            found.skip(size)
    return fixed, directory, high_watermark


def write_log_fetch(request: LogFetch, version: int) -> bytes:
    """Encode a request for the metadata log, from version 17 on."""
    asked = []
    if request.directory is not None:
        asked.append((0, uuid_to_bytes(request.directory)))
    if request.high_watermark != NO_HIGH_WATERMARK and version >= HIGH_WATERMARK_SINCE:
        asked.append((1, _LONG.pack(request.high_watermark)))
    tags = []
    if request.cluster_id is not None:
        tags.append((0, _written_text(request.cluster_id)))
    if request.replica_id != UNKNOWN:
        tags.append((1, _SENDER.pack(request.replica_id, UNKNOWN, 0)))
    if version >= EXTENDED and request.read_round:
        tags.append((FIRST_TAG, _LONG.pack(request.read_round)))
    if version >= EXTENDED and request.incarnation:
        tags.append((FIRST_TAG + 1, _UNSIGNED_LONG.pack(request.incarnation)))
    return b"".join(
        (
            _REQUEST.pack(request.max_wait_ms, 0, request.max_bytes, 0, 0, UNKNOWN),
            _ONE,
            _LOG,
            _ONE,
            _ASKED.pack(
                METADATA_PARTITION, request.epoch, request.offset, request.last_epoch, UNKNOWN, 0
            ),
            _tagged(asked),
            _NO_TAGS,
            _NONE,  # forgotten topics
            _NONE,  # the rack
            _tagged(tags),
        )
    )


# --- responses ------------------------------------------------------------------------------------


def write_log_fetched(
    found: LogFetched,
    version: int,
    records: Sequence[bytes | bytearray | memoryview] = (),
    header: bytes = b"",
) -> bytes:
    """Encode a response. records: of its only part, in place of `Found.records`. header: what
    precedes the body.
    """
    pieces: list[bytes | bytearray | memoryview] = [header, _RESPONSE.pack(0, found.error_code, 0)]
    if found.parts:
        (part,) = found.parts
        data = records or (part.records,)
        pieces += (
            _ONE,
            _LOG,
            _ONE,
            _FOUND.pack(
                METADATA_PARTITION,
                part.error_code,
                part.high_watermark,
                UNKNOWN,
                part.log_start_offset,
            ),
            _AFTER_FOUND.pack(1, UNKNOWN),
            varint(sum(map(len, data)) + 1),
            *data,
            _tagged(_part_tags(part)),
            _NO_TAGS,
        )
    else:
        pieces.append(_NONE)
    tags = []
    if found.node_endpoints and version >= ENDPOINTS_SINCE:
        tags.append((0, _written_nodes(found.node_endpoints)))
    if version >= EXTENDED:
        if found.read_round:
            tags.append((FIRST_TAG, _LONG.pack(found.read_round)))
        if found.acknowledged.end_offset != UNKNOWN:
            tags.append((FIRST_TAG + 1, _LONG.pack(found.acknowledged.end_offset)))
        if found.acknowledged.epoch != UNKNOWN:
            tags.append((FIRST_TAG + 2, _INT.pack(found.acknowledged.epoch)))
    pieces.append(_tagged(tags))
    return b"".join(pieces)


def _part_tags(part: Found) -> list[tuple[int, bytes]]:
    tags = []
    if part.diverging_epoch != LogPosition():
        end_offset, epoch = part.diverging_epoch
        tags.append((0, _DIVERGING.pack(epoch, end_offset, 0)))
    if part.current_leader != FoundLeader():
        tags.append((1, _LEADER.pack(*part.current_leader, 0)))
    if part.snapshot_id != LogPosition():
        tags.append((2, _SNAPSHOT.pack(*part.snapshot_id, 0)))
    return tags


def _written_nodes(nodes: Sequence[NodeEndpoint]) -> bytes:
    return varint(len(nodes) + 1) + b"".join(
        # Without a rack, and without tagged fields.
        _INT.pack(each.node_id) + _written_text(each.host) + _INT.pack(each.port) + b"\0\0"
        for each in nodes
    )


def read_log_fetched(frame: bytes | bytearray, version: int) -> tuple[int, LogFetched]:
    """Decode the correlation id and body of a response, from version 17 on. Raises ValueError."""
    found = Walk(frame, 0, sys.maxsize)
    correlation_id = found.number(_INT.size)
    found.skip_tagged()
    _, error, _ = _RESPONSE.unpack(found.take(_RESPONSE.size))
    parts = []
    for _ in range(found.length()):
        found.skip(UUID_BYTES)
        parts += [_read_found(found) for _ in range(found.length())]
        found.skip_tagged()
    nodes: tuple[NodeEndpoint, ...] = ()
    read_round = 0
    offset = epoch = UNKNOWN
    for tag, size in found.tagged():
        if tag == 0:
            nodes = tuple([_read_node(found) for _ in range(found.length())])
        elif tag == FIRST_TAG and version >= EXTENDED:
            read_round = found.number(_LONG.size)
        elif tag == FIRST_TAG + 1 and version >= EXTENDED:
            offset = found.number(_LONG.size)
        elif tag == FIRST_TAG + 2 and version >= EXTENDED:
            epoch = found.number(_INT.size)
        else:
            found.skip(size)
    known = LogPosition(offset, epoch)
    return correlation_id, LogFetched(error, tuple(parts), nodes, read_round, known)


def _read_found(found: Walk) -> Found:
    _, error, high_watermark, _, start = _FOUND.unpack(found.take(_FOUND.size))
    for _ in range(max(0, found.varint() - 1)):  # aborted transactions
        found.skip(2 * _LONG.size)
        found.skip_tagged()
    found.skip(_INT.size)  # the preferred replica
    records = found.view(max(0, found.varint() - 1))
    leader, diverging, snapshot = FoundLeader(), LogPosition(), LogPosition()
    for tag, size in found.tagged():
        if tag == 0:
            epoch, end_offset = found.number(_INT.size), found.number(_LONG.size)
            diverging = LogPosition(end_offset, epoch)
            found.skip_tagged()
        elif tag == 1:
            leader = FoundLeader(found.number(_INT.size), found.number(_INT.size))
            found.skip_tagged()
        elif tag == 2:
            snapshot = LogPosition(found.number(_LONG.size), found.number(_INT.size))
            found.skip_tagged()
        else:
            found.skip(size)
    return Found(error, high_watermark, start, leader, diverging, snapshot, records)


def _read_node(found: Walk) -> NodeEndpoint:
    node_id = found.number(_INT.size)
    host = _text(found)
    port = found.number(_INT.size)
    _text(found)  # the rack
    found.skip_tagged()
    if host is None:
        raise ValueError("a host is null")
    return NodeEndpoint(node_id, host, port)


# --- parts of both --------------------------------------------------------------------------------


def _text(found: Walk) -> str | None:
    """A compact string; None for null."""
    size = found.varint() - 1
    return None if size < 0 else found.take(size).decode()


def _written_text(text: str) -> bytes:
    data = text.encode()
    return varint(len(data) + 1) + data


def _tagged(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """The tagged fields at the end of a message or part of one."""
    pieces = [varint(tag) + varint(len(data)) + data for tag, data in fields]
    return varint(len(pieces)) + b"".join(pieces) if pieces else _NO_TAGS
