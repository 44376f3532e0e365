"""Producer sessions: what is new, what is a duplicate, what is invalid, and when sessions end."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from quorate.applications import sessions as subject
from quorate.applications.sessions import (
    BATCHES_MAX,
    FIRST_EPOCH,
    SESSIONS_MAX,
    Duplicate,
    ProducerSessions,
)
from quorate.common.batch_layout import SEQUENCE_MODULUS
from quorate.common.error_codes import ErrorCode
from quorate.records.batch import BatchProducer
from quorate.records.errors import CorruptBatchError

ID = 7
HOUR_MS = 3_600_000


def at(sequence: int, producer_id: int = ID, epoch: int = FIRST_EPOCH) -> BatchProducer:
    return BatchProducer(producer_id, epoch, sequence % SEQUENCE_MODULUS)


def opened(expiration_ms: int = HOUR_MS, time_ms: int = 1_000) -> ProducerSessions:
    sessions = ProducerSessions()
    sessions.advance(time_ms)
    sessions.open(ID, expiration_ms)
    return sessions


def filled(count: int, records: int = 2) -> ProducerSessions:
    """A session with `count` batches, at the offsets 100, 200, and so on."""
    sessions = opened()
    for number in range(count):
        sessions.appended(at(number * records), records, (number + 1) * 100)
    return sessions


def test_the_first_batch_begins_at_0() -> None:
    sessions = opened()
    assert sessions.check(at(0), 3, 1_000) is ErrorCode.NONE
    assert sessions.check(at(1), 3, 1_000) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sessions.check(at(-1), 3, 1_000) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 5])
def test_an_unknown_session_is_rejected_also_at_its_beginning(sequence: int) -> None:
    assert ProducerSessions().check(at(sequence), 1, 0) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_an_epoch_begins_at_0() -> None:
    sessions = filled(3)
    assert sessions.check(at(6, epoch=1), 1, 1_000) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sessions.check(at(0, epoch=3), 1, 1_000) is ErrorCode.NONE, "epochs may be left out"
    sessions.appended(at(0, epoch=3), 2, 900)
    assert sessions.check(at(0, epoch=3), 2, 1_000) == Duplicate(900)
    assert sessions.check(at(2, epoch=3), 2, 1_000) is ErrorCode.NONE


@pytest.mark.parametrize("sequence", [0, 2, 6])
def test_earlier_epochs_have_ended(sequence: int) -> None:
    """Also for a batch that is in the log: its client has given it up."""
    sessions = filled(3)
    sessions.appended(at(0, epoch=1), 1, 900)
    assert sessions.check(at(sequence), 2, 1_000) is ErrorCode.INVALID_PRODUCER_EPOCH
    before = sessions.copy()
    sessions.appended(at(sequence), 2, 950)
    assert sessions == before


def test_a_snapshot_keeps_the_epoch() -> None:
    sessions = filled(2)
    sessions.appended(at(0, epoch=5), 1, 900)
    assert ProducerSessions.decode(sessions.encode(), sessions.time_ms) == sessions


def test_a_duplicate_has_the_offset_of_the_original() -> None:
    sessions = filled(3)
    assert sessions.check(at(6), 2, 1_000) is ErrorCode.NONE
    for number in range(3):
        assert sessions.check(at(number * 2), 2, 1_000) == Duplicate((number + 1) * 100)


@pytest.mark.parametrize(("sequence", "count"), [(1, 2), (2, 1), (2, 4), (5, 3)])
def test_other_records_with_the_same_numbers_are_no_duplicate(sequence: int, count: int) -> None:
    code = filled(3).check(at(sequence), count, 1_000)
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_rejected() -> None:
    assert filled(3).check(at(8), 2, 1_000) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_old_batches_are_known_without_their_offsets() -> None:
    sessions = filled(BATCHES_MAX + 1)
    assert sessions.check(at(0), 2, 1_000) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert sessions.check(at(2), 2, 1_000) == Duplicate(200)


def test_sequences_wrap() -> None:
    sessions = opened()
    offset = 0
    for _ in range(4):
        sessions.appended(at(offset), 1 << 29, offset)
        offset += 1 << 29
    sessions.appended(at(offset), 4, offset)
    assert sessions.check(at(0), 4, 1_000) == Duplicate(1 << 31)
    assert sessions.check(at(4), 1, 1_000) is ErrorCode.NONE
    assert sessions.check(at(-(1 << 29)), 1 << 29, 1_000) == Duplicate(3 << 29)


@pytest.mark.parametrize(("timestamp", "is_there"), [(1_500, True), (1_501, False)])
def test_a_batch_must_come_before_its_session_ends(timestamp: int, is_there: bool) -> None:
    sessions = opened(500)
    expected = ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_PRODUCER_ID
    assert sessions.check(at(0), 1, timestamp) is expected
    sessions.advance(timestamp)
    assert len(sessions) == is_there
    assert sessions.check(at(0), 1, timestamp) is expected


def test_a_batch_prolongs_its_session() -> None:
    sessions = opened(500)
    sessions.advance(1_400)
    sessions.appended(at(0), 1, 50)
    sessions.advance(1_900)
    assert sessions.check(at(1), 1, 1_900) is ErrorCode.NONE
    sessions.advance(1_901)
    assert not len(sessions)


def test_time_does_not_go_back() -> None:
    """A leader whose clock is slow ends no session, and prolongs it as the others would."""
    sessions = opened(500, 10_000)
    sessions.advance(3)
    sessions.appended(at(0), 1, 50)
    assert sessions.time_ms == 10_000
    assert sessions.check(at(1), 1, 10_500) is ErrorCode.NONE


def test_the_session_that_was_idle_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "SESSIONS_MAX", 3)
    sessions = ProducerSessions(1_000)
    for producer_id in (1, 2, 3):
        sessions.open(producer_id, HOUR_MS)
    sessions.appended(at(0, 1), 1, 10)
    sessions.open(4, HOUR_MS)
    codes = [sessions.check(at(1, each), 1, 1_000) for each in (1, 2, 3, 4)]
    unknown, gap = ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert codes == [ErrorCode.NONE, unknown, gap, gap]


def test_memory_is_bounded_while_time_stands_still() -> None:
    sessions = ProducerSessions(1 << 60)
    for producer_id in range(3 * SESSIONS_MAX):
        sessions.open(producer_id, HOUR_MS)
    assert len(sessions) == SESSIONS_MAX
    assert len(sessions._deadlines) <= SESSIONS_MAX + 1_000


def test_a_copy_is_independent() -> None:
    sessions = filled(1)
    copy = sessions.copy()
    copy.appended(at(2), 2, 200)
    copy.open(9, HOUR_MS)
    assert sessions.check(at(2), 2, 1_000) is ErrorCode.NONE
    assert sessions == filled(1) != copy
    assert copy.check(at(2), 2, 1_000) == Duplicate(200)


def test_a_snapshot_has_many_chunks() -> None:
    sessions = ProducerSessions(1_000)
    for producer_id in range(2_000):
        sessions.open(producer_id, HOUR_MS)
        for number in range(40):
            sessions.appended(at(number, producer_id), 1, number * 1_000_000)
    chunks = list(sessions.encode())
    assert len(chunks) > 2
    assert max(map(len, chunks)) < 66_000
    decoded = ProducerSessions.decode(chunks, 1_000)
    assert decoded == sessions
    decoded.advance(1_000 + HOUR_MS + 1)
    assert not len(decoded)


@given(st.binary(max_size=40))
@settings(max_examples=50)
def test_damaged_snapshots_are_rejected(data: bytes) -> None:
    try:
        ProducerSessions.decode([data], 0)
    except CorruptBatchError:
        return
    assert ProducerSessions.decode([data], 0) == ProducerSessions.decode([data], 0)


# --- a model: clients that repeat, lose and reorder batches ---------------------------------------


@dataclass
class Client:
    """A client's session: its batches in order, as (first number, count, offset)."""

    expiration_ms: int
    used_ms: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return sum(count for _, count, _ in self.batches)


class SessionModel(RuleBasedStateMachine):
    """The leader's checks, against a model that remembers everything that was appended."""

    ids = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        self.sessions = ProducerSessions(0)
        self.clients: dict[int, Client] = {}
        self.offset = 0
        self.time_ms = 0

    def _append(self, timestamp_ms: int, count: int = 1) -> int:
        """Apply what every batch changes; returns its offset."""
        self.sessions.advance(timestamp_ms)
        self.time_ms = max(self.time_ms, timestamp_ms)
        offset = self.offset
        self.offset += count
        return offset

    @rule(target=ids, later_ms=st.integers(-50, 300), expiration_ms=st.integers(100, 1_000))
    def open(self, later_ms: int, expiration_ms: int) -> int:
        offset = self._append(self.time_ms + later_ms)
        self.sessions.open(offset, expiration_ms)
        self.clients[offset] = Client(expiration_ms, self.time_ms)
        return offset

    @rule(later_ms=st.integers(-50, 900))
    def other_batch(self, later_ms: int) -> None:
        self._append(self.time_ms + later_ms)

    @rule(
        producer_id=ids,
        later_ms=st.integers(-50, 300),
        count=st.integers(1, 4),
        skipped=st.sampled_from((0, 0, 0, 1, 3, -1)),
    )
    def send(self, producer_id: int, later_ms: int, count: int, skipped: int) -> None:
        client = self.clients[producer_id]
        timestamp_ms = self.time_ms + later_ms
        producer = at(client.end + skipped, producer_id)
        code = self.sessions.check(producer, count, timestamp_ms)
        if not self._is_there(client, timestamp_ms):
            assert code is ErrorCode.UNKNOWN_PRODUCER_ID
        elif skipped > 0 or (skipped < 0 and not client.batches):
            assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif skipped < 0:
            last = client.batches[-1]
            assert code == (
                Duplicate(last[2])
                if last[1] == count == 1
                else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            )
        else:
            assert code is ErrorCode.NONE
            offset = self._append(timestamp_ms, count)
            self.sessions.appended(producer, count, offset)
            client.batches.append((client.end, count, offset))
            client.used_ms = self.time_ms

    def _is_there(self, client: Client, timestamp_ms: int) -> bool:
        return client.used_ms + client.expiration_ms >= max(self.time_ms, timestamp_ms)

    @precondition(lambda self: any(client.batches for client in self.clients.values()))
    @rule(producer_id=ids, back=st.integers(1, 40))
    def repeat(self, producer_id: int, back: int) -> None:
        client = self.clients[producer_id]
        if back > len(client.batches):
            return
        start, count, offset = client.batches[-back]
        code = self.sessions.check(at(start, producer_id), count, self.time_ms)
        if not self._is_there(client, self.time_ms):
            assert code is ErrorCode.UNKNOWN_PRODUCER_ID
        elif back <= BATCHES_MAX:
            assert code == Duplicate(offset)
        else:
            assert code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER

    @rule(is_snapshot=st.booleans())
    def replace(self, is_snapshot: bool) -> None:
        """Another node takes over, or a node loads a snapshot: nothing changes."""
        if is_snapshot:
            chunks = list(self.sessions.encode())
            self.sessions = ProducerSessions.decode(chunks, self.sessions.time_ms)
        else:
            self.sessions = self.sessions.copy()

    @invariant()
    def sessions_end_in_time(self) -> None:
        there = sum(self._is_there(client, self.time_ms) for client in self.clients.values())
        assert len(self.sessions) == there


SessionModel.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestSessionModel = SessionModel.TestCase
