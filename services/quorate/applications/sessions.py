"""The producer sessions of a log, which detect batches that a client sends again.

A record of the log opens a session; its offset is the session's producer id. A batch of the session
carries an epoch, and the number of its first record among all records of the epoch, so it is the
next one, or one that the log has already, or invalid. For each session, the last batches are kept
with their offsets, with which a duplicate is answered.

Rules:
1. The state depends on the log alone, so all nodes have the same. Time is the largest timestamp of
   any batch so far, so it never goes back, whatever the clocks of leaders say.
2. A session ends once more time than its expiration has passed since its last batch. If there are
   `SESSIONS_MAX`, opening another one ends the one whose last batch is the oldest.
3. A batch of an unknown session is never new, whatever its sequence number: the session may have
   ended after the batch was appended.
4. A client begins a new epoch with a batch whose sequence number is 0, for example after a batch
   that it has given up. Batches of earlier epochs are rejected from then on.

Source: KIP-98 "Idempotent producer guarantees"; Ongaro 6.3 (client sessions).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from quorate.common.batch_layout import SEQUENCE_MODULUS
from quorate.common.error_codes import ErrorCode
from quorate.records.batch import BatchProducer
from quorate.records.errors import CorruptBatchError
from quorate.records.primitives import Reader, Writer

FIRST_EPOCH: Final = 0
"""The epoch in which a session begins. Clients of Quorate begin no other."""
BATCHES_MAX: Final = 32
"""The number of batches kept per session: twice as many as a client may have in flight."""
SESSIONS_MAX: Final = 10_000
EXPIRATION_MS_MIN: Final = 1_000
EXPIRATION_MS_MAX: Final = 7 * 24 * 60 * 60 * 1000
EXPIRATION_MS: Final = 60 * 60 * 1000
"""The expiration of a session whose client does not choose one."""

NO_TIME: Final = -1

_CHUNK_BYTES = 64 * 1024
_STALE_MAX = 1_000


class Duplicate(NamedTuple):
    """The log has the batch already, from this offset on."""

    base_offset: int


class ProducerSession(NamedTuple):
    """The state of one session."""

    expiration_ms: int
    used_ms: int
    """The time of the last batch."""
    end: int = 0
    """The number of records that the session has appended in its epoch; modulo 2^31, the sequence
    number of the next one.
    """
    batches: tuple[tuple[int, int], ...] = ()
    """The (number of the first record, offset) of the last batches of the epoch, oldest first,
    without gaps.
    """
    epoch: int = FIRST_EPOCH

    def find(self, epoch: int, base_sequence: int, count: int) -> Duplicate | ErrorCode:
        """See `ProducerSessions.check`."""
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > self.epoch:
            is_first = base_sequence == 0
            return ErrorCode.NONE if is_first else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        behind = (self.end - base_sequence) % SEQUENCE_MODULUS
        if behind == 0:
            return ErrorCode.NONE
        first = self.end - behind
        if behind > SEQUENCE_MODULUS // 2 or first < 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not self.batches or first < self.batches[0][0]:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        ends = (*(start for start, _ in self.batches[1:]), self.end)
        for (start, offset), end in zip(self.batches, ends, strict=True):
            if (start, end) == (first, first + count):
                return Duplicate(offset)
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProducerSessions:
    """All sessions. Copies share their sessions, which never change."""

    __slots__ = ("_deadlines", "_sessions", "time_ms")

    def __init__(self, time_ms: int = NO_TIME) -> None:
        self.time_ms = time_ms
        self._sessions: OrderedDict[int, ProducerSession] = OrderedDict()
        """By producer id, those whose last batch is the oldest first."""
        self._deadlines: list[tuple[int, int]] = []
        """A heap of (time, producer id), one for each session: it does not end before that time."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerSessions):
            return NotImplemented
        return (self.time_ms, self._sessions) == (other.time_ms, other._sessions)

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def copy(self) -> ProducerSessions:
        """An independent copy."""
        other = ProducerSessions(self.time_ms)
        other._sessions = self._sessions.copy()
        other._deadlines = self._deadlines.copy()
        return other

    def items(self) -> Iterator[tuple[int, ProducerSession]]:
        """All sessions with their producer ids, those whose last batch is the oldest first."""
        yield from self._sessions.items()

    # --- what is in the log -----------------------------------------------------------------------

    def advance(self, timestamp_ms: int) -> None:
        """Apply the timestamp of the next batch: sessions end. Call this first for each batch."""
        if timestamp_ms <= self.time_ms:
            return
        self.time_ms = timestamp_ms
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] < timestamp_ms:
            _, producer_id = heappop(deadlines)
            session = self._sessions.get(producer_id)
            if session is None:
                continue
            deadline_ms = session.used_ms + session.expiration_ms
            if deadline_ms < timestamp_ms:
                del self._sessions[producer_id]
            else:
                heappush(deadlines, (deadline_ms, producer_id))

    def open(self, producer_id: int, expiration_ms: int) -> None:
        """Apply a record that opens a session. producer_id: the record's offset."""
        if len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        self._sessions[producer_id] = ProducerSession(expiration_ms, self.time_ms)
        heappush(self._deadlines, (self.time_ms + expiration_ms, producer_id))
        if len(self._deadlines) > len(self._sessions) + _STALE_MAX:
            self._rebuild()

    def appended(self, producer: BatchProducer, count: int, base_offset: int) -> None:
        """Apply a batch of `count` records at `base_offset`.

        Batches of unknown sessions, and batches that `check` rejects, change nothing: those of
        sessions that began before this state did.
        """
        session = self._sessions.get(producer.producer_id)
        if session is None:
            return
        epoch = producer.producer_epoch
        if session.find(epoch, producer.base_sequence, count) is not ErrorCode.NONE:
            return
        if epoch != session.epoch:
            session = ProducerSession(session.expiration_ms, session.used_ms, epoch=epoch)
        batches = (*session.batches[1 - BATCHES_MAX :], (session.end, base_offset))
        self._sessions[producer.producer_id] = ProducerSession(
            session.expiration_ms, self.time_ms, session.end + count, batches, epoch
        )
        self._sessions.move_to_end(producer.producer_id)

    def _rebuild(self) -> None:
        """Drop the deadlines of sessions that ended before them."""
        self._deadlines = [
            (session.used_ms + session.expiration_ms, producer_id)
            for producer_id, session in self._sessions.items()
        ]
        heapify(self._deadlines)

    # --- the leader's check -----------------------------------------------------------------------

    def check(
        self, producer: BatchProducer, count: int, timestamp_ms: int
    ) -> Duplicate | ErrorCode:
        """What a batch of `count` records is that a leader may append with this timestamp.

        NONE: the next one of its session, or the first one of a new epoch. UNKNOWN_PRODUCER_ID: the
        session never existed, or ended. INVALID_PRODUCER_EPOCH: the session has a later epoch.
        OUT_OF_ORDER_SEQUENCE_NUMBER: the batch before it is missing, or another one has its
        sequence numbers. DUPLICATE_SEQUENCE_NUMBER: the log has it, but its offset is forgotten.
        """
        session = self._sessions.get(producer.producer_id)
        if session is None:
            return ErrorCode.UNKNOWN_PRODUCER_ID
        if session.used_ms + session.expiration_ms < max(self.time_ms, timestamp_ms):
            return ErrorCode.UNKNOWN_PRODUCER_ID
        return session.find(producer.producer_epoch, producer.base_sequence, count)

    # --- snapshots --------------------------------------------------------------------------------

    def encode(self) -> Iterator[bytes]:
        """The sessions in chunks of about 64 KiB, without the time."""
        writer = Writer()
        for producer_id, session in self._sessions.items():
            _write(writer, producer_id, session)
            if len(writer) >= _CHUNK_BYTES:
                yield writer.to_bytes()
                writer = Writer()
        if len(writer):
            yield writer.to_bytes()

    @staticmethod
    def decode(chunks: Iterable[bytes], time_ms: int) -> ProducerSessions:
        """The sessions of a snapshot. Raises CorruptBatchError."""
        decoded = ProducerSessions(time_ms)
        for chunk in chunks:
            reader = Reader(chunk)
            while not reader.at_end:
                producer_id, session = _read(reader)
                decoded._sessions[producer_id] = session
        decoded._rebuild()
        return decoded


def _write(writer: Writer, producer_id: int, session: ProducerSession) -> None:
    fixed = (producer_id, session.expiration_ms, session.used_ms, session.end, session.epoch)
    for number in fixed:
        writer.varlong(number)
    writer.unsigned_varint(len(session.batches))
    for start, offset in session.batches:
        writer.varlong(start)
        writer.varlong(offset)


def _read(reader: Reader) -> tuple[int, ProducerSession]:
    producer_id, expiration_ms, used_ms, end, epoch = (reader.varlong() for _ in range(5))
    count = reader.unsigned_varint()
    if count > BATCHES_MAX:
        raise CorruptBatchError(0, f"producer session {producer_id} has {count} batches")
    batches = tuple((reader.varlong(), reader.varlong()) for _ in range(count))
    return producer_id, ProducerSession(expiration_ms, used_ms, end, batches, epoch)
