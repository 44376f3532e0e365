"""The key index and the state of a state machine, as chunks that fit into records of a snapshot.

- An index chunk is a sequence of entries: the digest of a key (`DIGEST_BYTES`), then the offset of
  its last record, an int64.
- A state chunk is one byte, then a part of a chunk of the state machine: MORE if the next state
  chunk continues the same chunk of the state machine, else LAST. Chunks of the state machine are
  therefore read with the boundaries with which they were written, whatever their size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice

from quorate.applications.key_index import DIGEST_BYTES
from quorate.records.errors import RecordsError

CHUNK_BYTES = 1 << 20
"""The most bytes of an index chunk, or of the content of a state chunk."""
MORE, LAST = b"\x01", b"\x00"

_ENTRY = struct.Struct(f">{DIGEST_BYTES}sq")


def index_chunks(index: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
    """The entries of an index, digests and offsets, in their order."""
    entries = iter(index)
    per_chunk = CHUNK_BYTES // _ENTRY.size
    while chunk := b"".join(_ENTRY.pack(*entry) for entry in islice(entries, per_chunk)):
        yield chunk


def index_entries(chunk: bytes) -> Iterator[tuple[bytes, int]]:
    """(digest, offset) of each entry of an index chunk. Raises RecordsError."""
    if len(chunk) % _ENTRY.size:
        raise RecordsError(f"an index chunk of {len(chunk)} bytes is incomplete")
    return _ENTRY.iter_unpack(chunk)


def state_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """State chunks with the chunks of a state machine, each of which may have any size."""
    for chunk in chunks:
        view = memoryview(chunk)
        while len(view) > CHUNK_BYTES:
            yield MORE + view[:CHUNK_BYTES]
            view = view[CHUNK_BYTES:]
        yield LAST + view


def joined_state(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks of a state machine from state chunks. Raises RecordsError."""
    parts: list[bytes] = []
    for chunk in chunks:
        mark = chunk[:1]
        if mark not in (MORE, LAST):
            raise RecordsError(f"a state chunk begins with {mark!r}")
        parts.append(chunk[1:])
        if mark == LAST:
            yield parts[0] if len(parts) == 1 else b"".join(parts)
            parts = []
    if parts:
        raise RecordsError("the last chunk of the state is incomplete")
