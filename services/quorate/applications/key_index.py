"""The offset of the last record of each key.

A key that was never written and a key whose last record has a null value both have no offset, so
the index does not depend on when such records are compacted away. The empty key is not indexed.

Keys are replaced by their digests, whose size does not depend on the key's. Copies share their
shards until one of them changes: a copy costs 256 references, a later change that of one shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final

DIGEST_BYTES = 16
SHARDS = 256

NO_OFFSET: Final = -1
"""There is no record, or the last one has a null value."""
UNKNOWN_OFFSET: Final = -2
"""There is a record, from a snapshot that does not say at which offset it was in the log."""


def digest_of(key: bytes) -> bytes:
    """16 bytes in place of a key."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class KeyIndex:
    """Maps digests of keys to offsets. Only one thread may change it; copies are independent."""

    __slots__ = ("_is_shared", "_shards")

    def __init__(self) -> None:
        self._shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]
        self._is_shared = bytearray(SHARDS)

    def get(self, digest: bytes) -> int:
        """The offset of the key's last record; NO_OFFSET, UNKNOWN_OFFSET."""
        return self._shards[digest[0]].get(digest, NO_OFFSET)

    def update(self, offsets: Mapping[bytes, int]) -> None:
        """Set the offsets of keys; NO_OFFSET removes a key."""
        for digest, offset in offsets.items():
            shard = self._owned(digest[0])
            if offset == NO_OFFSET:
                shard.pop(digest, None)
            else:
                shard[digest] = offset

    def _owned(self, number: int) -> dict[bytes, int]:
        """A shard that no copy shares."""
        if self._is_shared[number]:
            self._shards[number] = self._shards[number].copy()
            self._is_shared[number] = 0
        return self._shards[number]

    def copy(self) -> KeyIndex:
        other = KeyIndex.__new__(KeyIndex)
        other._shards = self._shards.copy()
        self._is_shared = bytearray(b"\x01" * SHARDS)
        other._is_shared = bytearray(b"\x01" * SHARDS)
        return other

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyIndex) and self._shards == other._shards

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def items(self) -> Iterator[tuple[bytes, int]]:
        """All digests with their offsets, in no particular order."""
        for shard in self._shards:
            yield from shard.items()
