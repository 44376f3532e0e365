"""Compares the records of applications in a checkpoint with those in the log.

A checkpoint has all of them, at their offsets in the log, except those that

- compaction removed: a later record has the same key, or the value is null. The empty key is not
  compacted;
- the state of a state machine replaces: those before the first record that follows the state.

Checkpoints of early releases do not contain the offsets; such records are compared by content.

Both sides are read once, in the order of their offsets. Only the last missing record of each key is
held in memory, as it is right if a later record of the key follows.

Source: `runtime.application_snapshots`, which writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Protocol

CONTENT_BYTES = 16


class ComparedRecord(NamedTuple):
    """A record in place of its bytes.

    key: its digest, empty for the empty key. content: `content_of` it. position: the byte at which
    its batch begins.
    """

    offset: int
    key: bytes
    content: bytes
    has_value: bool
    position: int


class RecordSource(Protocol):
    """The records of applications in a checkpoint, or before its end in the log.

    The attributes of a log may become known only while its records are read.
    """

    @property
    def start(self) -> int:
        """The offset from which on no record of the log is missing."""

    @property
    def unplaced(self) -> Set[bytes]:
        """The contents of records whose offset in the log is unknown."""

    @property
    def is_compact(self) -> bool:
        """Whether a record sets the policy, so that records may have been compacted."""

    @property
    def has_state(self) -> bool:
        """Whether a state replaces records."""

    def records(self) -> Iterable[ComparedRecord]:
        """The other records, by rising offset."""


class RecordDifference(NamedTuple):
    """One kind of difference. position: in the checkpoint, None if nothing is there."""

    offset: int
    text: str
    position: int | None


def content_of(key: bytes, value: bytes | None, timestamp: int) -> bytes:
    """16 bytes in place of a record."""
    state = blake2b(digest_size=CONTENT_BYTES)
    for part in (key, b"" if value is None else b"\1" + value):
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    state.update(timestamp.to_bytes(8, "big", signed=True))
    return state.digest()


@dataclass(slots=True)
class _Found:
    """Records with the same fault: their number, and the first of them."""

    count: int = 0
    first: ComparedRecord | None = None

    def add(self, record: ComparedRecord) -> None:
        self.count += 1
        self.first = self.first or record

    def difference(self, what: str, *, is_there: bool = True) -> Iterator[RecordDifference]:
        if self.first is not None:
            offset = self.first.offset
            text = f"application records {what}: {self.count}, from offset {offset} on"
            yield RecordDifference(offset, text, self.first.position if is_there else None)


@dataclass(slots=True)
class _Missing:
    """The records of the log that the checkpoint lacks."""

    stored: RecordSource
    begins: int | None = None
    """The offset of the checkpoint's first record."""
    found: _Found = field(default_factory=_Found)
    keyless: _Found = field(default_factory=_Found)
    """Those with the empty key."""
    last_of_key: dict[bytes, ComparedRecord] = field(default_factory=dict)
    """Those with a value whose key has no later record."""

    def passed(self, record: ComparedRecord) -> None:
        """Take a record of either side."""
        if self.last_of_key:
            self.last_of_key.pop(record.key, None)

    def add(self, record: ComparedRecord) -> None:
        if self.stored.has_state and (self.begins is None or record.offset < self.begins):
            return
        if record.content in self.stored.unplaced:
            return
        self.found.add(record)
        if not record.key:
            self.keyless.add(record)
        elif record.has_value:
            self.last_of_key[record.key] = record

    def judged(self, *, may_be_compacted: bool) -> _Found:
        """Those that the checkpoint should have."""
        if not may_be_compacted:
            return self.found
        firsts = [*self.last_of_key.values()]
        if self.keyless.first is not None:
            firsts.append(self.keyless.first)
        count = self.keyless.count + len(self.last_of_key)
        return _Found(count, min(firsts, default=None))


def record_differences(
    stored: RecordSource, expected: RecordSource, *, is_own: bool
) -> Iterator[RecordDifference]:
    """Compare a checkpoint's records with those before its end in the log.

    The attributes of `stored` are known before its records are read. is_own: whether `expected`
    comes from the replica that wrote the checkpoint. Another one may have kept records that this
    one compacted while the policy was another.
    """
    changed, added, missing = _Found(), _Found(), _Missing(stored)
    forged = set(stored.unplaced)
    for ours, theirs in _paired(stored.records(), expected.records()):
        if ours is not None:
            missing.begins = ours.offset if missing.begins is None else missing.begins
            missing.passed(ours)
        if theirs is not None:
            missing.passed(theirs)
            forged.discard(theirs.content)
        if ours is None and theirs is not None:
            missing.add(theirs)
        elif ours is not None and theirs is None and ours.offset >= expected.start:
            added.add(ours)
        elif ours is not None and theirs is not None and ours.content != theirs.content:
            changed.add(ours)
    yield from changed.difference("differ")
    yield from added.difference("are superfluous")
    may_be_compacted = stored.is_compact or expected.is_compact
    may_be_compacted |= expected.start > 0 and not is_own
    needed = missing.judged(may_be_compacted=may_be_compacted)
    yield from needed.difference("are missing", is_there=False)
    forged -= expected.unplaced
    if forged and expected.start == 0:
        text = f"application records are superfluous: {len(forged)}"
        yield RecordDifference(0, text, None)


def _paired(
    ours: Iterable[ComparedRecord], theirs: Iterable[ComparedRecord]
) -> Iterator[tuple[ComparedRecord | None, ComparedRecord | None]]:
    """The records of both sides by rising offset, those of one offset together."""
    left, right = iter(ours), iter(theirs)
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.offset < other.offset):
            yield one, None
            one = next(left, None)
        elif one is None or other.offset < one.offset:
            yield None, other
            other = next(right, None)
        else:
            yield one, other
            one, other = next(left, None), next(right, None)
