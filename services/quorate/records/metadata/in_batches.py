"""Reads the metadata records of a whole batch in place.

Most of a large log, and nearly all of a snapshot, is partitions, and most partitions look alike:
as many replicas, no tagged fields. Steps:

1. A record is taken for one that looks like the last partition, its `_Shape`. One call takes it
   apart; that its frame and its place in the batch are what they must be is three comparisons.
2. Its lists, and the bytes that say how long they are, are looked up as they stand. What is found
   was taken apart before, so equal lists are one object wherever they are.
3. Any other record is read by its frame and `registry.decode`; a partition's shape is remembered.
4. A batch that is not as Kafka and Quorate write metadata (keys, headers, gaps, compression), or
   that is broken, is not read here at all: the caller goes through it record by record, and that
   finds out what is wrong, and where.

Source: KIP-98 (records in a batch), KIP-482 (flexible versions), KIP-631.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from quorate.common.batch_layout import HEADER_SIZE
from quorate.common.identifiers import UUID_BYTES
from quorate.records.batch import BatchHeader
from quorate.records.errors import RecordsError
from quorate.records.metadata.decoding import uuid_text, uuid_texts
from quorate.records.metadata.encoding import VARINTS, varint
from quorate.records.metadata.partitions import PartitionRecord
from quorate.records.metadata.registry import UnknownRecord, decode, step_at
from quorate.records.metadata.schema import MetadataRecord

REMEMBERED_MAX: Final = 1 << 14
"""Lists of each kind that are remembered, entries."""
SHAPES_MAX: Final = 256
_COUNTS_MAX = 32
_INT_BYTES = 4
_SINCE = {spec.name: spec.since for spec in PartitionRecord.FIELDS}
_NUMBERS: Final = VARINTS[::2]
"""What stands for the first numbers: a zig-zag varint is twice itself."""
_FRAME = 3
"""Frame version, api key and version, a byte each."""
_ENDS = 2
"""The counts of tagged fields and of headers end a partition's bytes: none, and none."""

_Lists = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]


class _Shape(NamedTuple):
    """Partitions of one length, version and place of the record's number."""

    unpack: Callable[[bytes, int], tuple[Any, ...]]
    size: int
    lead: bytes
    """The bytes before the number, the same in all partitions."""
    frame: bytes
    """The bytes after the number, the same in all partitions."""
    version: int


_NO_SHAPE: Final = _Shape(struct.Struct("").unpack_from, 1 << 62, b"", b"", 0)


class _Remembered(dict[bytes, Any]):
    """What `take_apart` makes of bytes, None for what it cannot: that is not remembered."""

    def __init__(self, take_apart: Callable[[bytes], Any]) -> None:
        self._take_apart = take_apart

    def __missing__(self, raw: bytes) -> Any:
        found = self._take_apart(raw)
        if found is not None:
            if len(self) >= REMEMBERED_MAX:
                self.clear()
            self[raw] = found
        return found


def _lists(raw: bytes) -> _Lists | None:
    """The replicas, the ISR, removing and adding replicas, and the leader behind them."""
    found: list[tuple[int, ...]] = []
    position = 0
    end = len(raw) - _INT_BYTES
    for _ in range(4):
        count = raw[position] - 1
        if not 0 <= count < _COUNTS_MAX or position + 1 + count * _INT_BYTES > end:
            return None
        values = struct.unpack_from(f">{count}i", raw, position + 1)
        # The usual ISR is all of the replicas, in their order.
        found.append(found[0] if found and found[0] == values else values)
        position += 1 + count * _INT_BYTES
    if position != end:
        return None
    (leader,) = struct.unpack_from(">i", raw, end)
    first = found[0]
    if leader in first:
        leader = first[first.index(leader)]
    return found[0], found[1], found[2], found[3], leader


def _directories(raw: bytes) -> tuple[str, ...] | None:
    """The directories, if the version has any, and neither tagged fields nor headers."""
    if not raw.endswith(b"\0\0"):
        return None
    if len(raw) == _ENDS:
        return ()
    count = raw[0] - 1
    if not 0 <= count < _COUNTS_MAX or len(raw) != 1 + count * UUID_BYTES + _ENDS:
        return None
    return uuid_texts(raw[1:-_ENDS])


_LISTS: Final = _Remembered(_lists)
_DIRECTORIES: Final = _Remembered(_directories)
_SHAPES: Final[dict[int, _Shape]] = {}
"""By the first two bytes of a record: its length is in them."""


def plain_records(data: bytes, header: BatchHeader) -> list[MetadataRecord | UnknownRecord] | None:
    """The records of a whole batch, None for one to go through record by record (see 4)."""
    if header.compression or len(data) != header.size_bytes:
        return None
    try:
        return _plain_records(data, header.count)
    except (RecordsError, IndexError, struct.error, _UnusualError):
        return None


def _plain_records(data: bytes, count: int) -> list[MetadataRecord | UnknownRecord]:
    found: list[MetadataRecord | UnknownRecord] = []
    append, new, partition_record = found.append, object.__new__, PartitionRecord
    all_lists, all_directories, numbers = _LISTS, _DIRECTORIES, _NUMBERS
    position, total, number = HEADER_SIZE, len(data), 0
    shape = _NO_SHAPE
    unpack, size, shape_lead, shape_frame, version = shape
    last_uuid, topic_id = b"", ""
    while number < count:
        if position + size <= total:
            (
                lead, at, frame, partition_id, uuid, raw_lists,
                leader_epoch, partition_epoch, raw_directories,
            ) = unpack(data, position)  # fmt: skip
            if (
                lead == shape_lead
                and frame == shape_frame
                and at == (numbers[number] if number < len(numbers) else varint(number << 1))
            ):
                lists = all_lists[raw_lists]
                directories = all_directories[raw_directories]
                if lists is not None and directories is not None:
                    if uuid != last_uuid:
                        topic_id, last_uuid = uuid_text(uuid), uuid
                    # As the class's own initializer, at a third of its time.
                    made: Any = new(partition_record)
                    made.partition_id = partition_id
                    made.topic_id = topic_id
                    (
                        made.replicas, made.isr, made.removing_replicas, made.adding_replicas,
                        made.leader,
                    ) = lists  # fmt: skip
                    made.leader_recovery_state = 0
                    made.leader_epoch = leader_epoch
                    made.partition_epoch = partition_epoch
                    made.directories = directories
                    made.eligible_leader_replicas = None
                    made.last_known_elr = None
                    made.unknown_tags = ()
                    made.version = version
                    append(made)
                    position += size
                    number += 1
                    continue
        other = _SHAPES.get(data[position] << 8 | data[position + 1], shape)
        if other is shape:
            position, other = _any_record(data, position, number, found)
            number += 1
        shape = other
        unpack, size, shape_lead, shape_frame, version = shape
    if position != total:
        raise _UnusualError
    return found


class _UnusualError(Exception):
    """The batch is to be read by somebody else."""


def _any_record(data: bytes, position: int, number: int, out: list[Any]) -> tuple[int, _Shape]:
    """Append the record at `position`; where it ends, and what the next one may look like."""
    start = position
    length, position = _size(data, position)
    end = position + length
    # Attributes, then the timestamp's delta.
    number_at = position + (2 if data[position + 1] < 0x80 else 3)
    delta, position = _size(data, number_at)
    # The key's length is -1: there is none.
    if delta != number or data[position] != 1:
        raise _UnusualError
    number_end = position
    size, position = _size(data, position + 1)
    value_end = position + size
    if value_end + 1 != end or data[value_end] != 0:
        raise _UnusualError
    step = step_at(data, position)
    if step is None:
        out.append(decode(data[position:value_end]))
    elif step(data, position + _FRAME, out) != value_end:
        raise _UnusualError
    record = out[-1]
    if type(record) is not PartitionRecord or step is None:
        return end, _NO_SHAPE
    head = (data[start:number_at], number_end - number_at, data[number_end : position + _FRAME])
    return end, _learned(*head, record, end - start)


def _size(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint of at most three bytes that is not negative, and where it ends."""
    value = data[position]
    if value >= 0x80:
        second = data[position + 1]
        value += (second - 1) << 7
        position += 1
        if second >= 0x80:
            third = data[position + 1]
            if third >= 0x80:
                raise _UnusualError
            value += (third - 1) << 14
            position += 1
    if value & 1:
        raise _UnusualError
    return value >> 1, position + 1


def _learned(
    lead: bytes, number_size: int, frame: bytes, record: PartitionRecord, size: int
) -> _Shape:
    """The shape of a partition of `size` bytes, _NO_SHAPE if it is not one that is read at once."""
    version = record.version
    assert version is not None, "it was decoded"
    lists = (record.replicas, record.isr, record.removing_replicas, record.adding_replicas)
    if max(map(len, (*lists, record.directories))) >= _COUNTS_MAX:
        return _NO_SHAPE
    lists_size = sum(1 + _INT_BYTES * len(each) for each in lists) + _INT_BYTES
    ends = _ENDS
    if version >= _SINCE["directories"]:
        ends += 1 + UUID_BYTES * len(record.directories)
    form = struct.Struct(
        f">{len(lead)}s{number_size}s{len(frame)}si{UUID_BYTES}s{lists_size}sii{ends}s"
    )
    if form.size != size:
        return _NO_SHAPE  # it has tagged fields
    if len(_SHAPES) >= SHAPES_MAX:
        _SHAPES.clear()
    shape = _Shape(form.unpack_from, size, lead, frame, version)
    _SHAPES[lead[0] << 8 | lead[1]] = shape
    return shape
