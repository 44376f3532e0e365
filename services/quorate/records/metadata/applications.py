"""Tagged fields of NoOpRecord that belong to the records of applications.

They are not declared, since they are not Kafka's: earlier releases and Kafka's tools skip them, and
dump such a record as any other NoOpRecord (KIP-482). Each record has one of them.

| tag | field | content |
|---|---|---|
| 10001 | APPLICATION_STATE | in snapshots: `ApplicationSummary` |
| 10002 | PRODUCER_SESSION | `OpenedSession`: opens a session, whose id is the record's offset |
| 10003 | INDEX_CHUNK | in snapshots: pairs of a key's digest (16 bytes) and an offset (int64) |
| 10004 | STATE_CHUNK | in snapshots: bytes of a state machine's own snapshot |
| 10005 | SESSIONS_CHUNK | in snapshots: open sessions (`quorate.applications.sessions`) |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from quorate.records.metadata.cluster import NoOpRecord
from quorate.records.metadata.registry import UnknownRecord
from quorate.records.primitives import Buffer, Reader, Writer


class ApplicationTag(IntEnum):
    """The tags, which follow that of KAFKA_NODES."""

    APPLICATION_STATE = 10_001
    PRODUCER_SESSION = 10_002
    INDEX_CHUNK = 10_003
    STATE_CHUNK = 10_004
    SESSIONS_CHUNK = 10_005


HAS_STATE = UnknownRecord(NoOpRecord.API_KEY, 1, b"\0")
"""A record of a version that does not exist. Snapshots have it if they have a state, so that
earlier releases, which would skip the state, reject the snapshot."""

_TAGS = frozenset(int(tag) for tag in ApplicationTag)


def application_record(tag: ApplicationTag, content: bytes) -> NoOpRecord:
    """A NoOpRecord with one of the fields."""
    return NoOpRecord(unknown_tags=((int(tag), content),), version=0)


def application_field(record: object) -> tuple[ApplicationTag, bytes] | None:
    """The tag and the content of a record's field; None for any other record."""
    if not isinstance(record, NoOpRecord):
        return None
    for tag, content in record.unknown_tags:
        if tag in _TAGS:
            return ApplicationTag(tag), content
    return None


@dataclass(frozen=True, slots=True)
class ApplicationSummary:
    """What a snapshot says of the state of applications as a whole. Each field has a default, so
    that later releases can add fields.
    """

    last_offset: int = -1
    """The offset of the last application record before the snapshot's offset; -1 if there is
    none.
    """
    time_ms: int = -1
    """The largest timestamp; -1 if there is none."""

    def to_bytes(self) -> bytes:
        writer = Writer()
        writer.int64(self.last_offset)
        writer.int64(self.time_ms)
        writer.tagged_fields({})
        return writer.to_bytes()

    @classmethod
    def from_bytes(cls, content: Buffer) -> ApplicationSummary:
        """Raises CorruptBatchError. Fields of later releases are skipped."""
        reader = Reader(content)
        summary = cls(reader.int64(), reader.int64())
        reader.tagged_fields()
        reader.expect_end("the state of applications")
        return summary


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """The record that opens a producer session. Later releases may add fields."""

    expiration_ms: int
    """How long the session lasts after its last batch."""

    def to_bytes(self) -> bytes:
        writer = Writer()
        writer.int64(self.expiration_ms)
        writer.tagged_fields({})
        return writer.to_bytes()

    @classmethod
    def from_bytes(cls, content: Buffer) -> OpenedSession:
        """Raises CorruptBatchError. Fields of later releases are skipped."""
        reader = Reader(content)
        opened = cls(reader.int64())
        reader.tagged_fields()
        reader.expect_end("a producer session")
        return opened
