"""The derived state of applications, against dictionaries."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.applications import (
    NO_OFFSET,
    UNKNOWN_OFFSET,
    ApplicationState,
    BatchChanges,
    KeyIndex,
    StateLoader,
    WorkingState,
    changes_of,
    digest_of,
    state_records,
)
from quorate.records.batch import (
    BatchHeader,
    build_data_batch,
    iter_keys,
    iter_records,
    keep_base_offset,
    read_header,
    stamp,
)
from quorate.records.errors import CorruptBatchError
from quorate.records.metadata import (
    ApplicationSummary,
    ApplicationTag,
    NoOpRecord,
    application_field,
    application_record,
    decode,
    encode,
)
from quorate.records.primitives import Writer

Pairs = list[tuple[bytes | None, bytes | None]]

PAIRS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.sampled_from([b"", b"a", b"b"]), st.binary(max_size=200)),
        st.one_of(st.none(), st.binary(max_size=200)),
    ),
    min_size=1,
    max_size=200,
)


def batch_of(pairs: Pairs, base_offset: int = 0, time_ms: int = 1_000) -> bytearray:
    batch = build_data_batch(pairs, time_ms)
    stamp(batch, base_offset, 1)
    return batch


def changed(pairs: Pairs, base_offset: int = 0, time_ms: int = 1_000) -> BatchChanges:
    batch = batch_of(pairs, base_offset, time_ms)
    return changes_of(batch, read_header(batch), base_offset)


def applied(state: ApplicationState, *batches: Pairs) -> ApplicationState:
    """The state after batches of the log that begins at offset 0."""
    offset = 0
    for number, pairs in enumerate(batches):
        state.apply(changed(pairs, offset, 1_000 + number))
        offset += len(pairs)
    return state


class Model:
    """The state in the plainest form: the log itself."""

    def __init__(self) -> None:
        self.log: Pairs = []

    def offset_of(self, key: bytes) -> int:
        found = NO_OFFSET
        for offset, (each, value) in enumerate(self.log):
            if each == key:
                found = NO_OFFSET if value is None else offset
        return found

    @property
    def last_offset(self) -> int:
        keyed = [offset for offset, (key, _) in enumerate(self.log) if key is not None]
        return keyed[-1] if keyed else NO_OFFSET


@given(PAIRS)
def test_the_keys_of_a_batch_are_those_of_its_records(pairs: Pairs) -> None:
    batch = batch_of(pairs, 70)
    header = read_header(batch)
    records = list(iter_records(memoryview(batch), header))
    assert list(iter_keys(batch, header)) == [
        (record.offset - 70, record.key, record.value is not None) for record in records
    ]


@given(PAIRS, st.data())
def test_a_damaged_batch_has_no_keys_beyond_its_end(pairs: Pairs, data: Any) -> None:
    batch = batch_of(pairs)
    header = read_header(batch)
    cut = data.draw(st.integers(min_value=61, max_value=len(batch) - 1))
    with pytest.raises(CorruptBatchError):
        list(iter_keys(batch[:cut], header))


@given(st.binary(max_size=40), st.integers(min_value=1, max_value=5))
def test_arbitrary_bytes_are_rejected_or_have_keys_within_them(data: bytes, count: int) -> None:
    batch = batch_of([(b"k", b"v")])[:61] + data
    header = read_header(batch)._replace(count=count)
    assert isinstance(header, BatchHeader)
    try:
        found = list(iter_keys(batch, header))
    except CorruptBatchError:
        return
    assert all(key is None or key in data for _, key, _ in found)


@given(st.lists(PAIRS, max_size=6))
def test_the_state_is_that_of_the_log(batches: list[Pairs]) -> None:
    model = Model()
    for pairs in batches:
        model.log += pairs
    state = applied(ApplicationState(), *batches)
    assert state.last_offset == model.last_offset
    assert state.time_ms == (999 + len(batches) if batches else -1)
    keys = {key for key, _ in model.log if key}
    expected = {key: model.offset_of(key) for key in keys}
    assert {key: state.index.get(digest_of(key)) for key in keys} == expected
    assert len(state.index) == sum(offset != NO_OFFSET for offset in expected.values())


def test_a_deleted_key_is_like_one_that_was_never_written() -> None:
    state = applied(ApplicationState(), [(b"a", b"1"), (b"b", b"2")], [(b"a", None)])
    assert state.index.get(digest_of(b"a")) == state.index.get(digest_of(b"never")) == NO_OFFSET
    assert state.last_offset == 2, "the record that deletes it is a record of the log"
    assert state.index == applied(ApplicationState(), [(b"", b"1"), (b"b", b"2")]).index


def test_timestamps_may_go_back() -> None:
    state = ApplicationState()
    state.apply(changed([(b"a", b"1")], 0, 5_000))
    state.apply(changed([(b"a", b"1")], 1, 3_000))
    assert state.time_ms == 5_000


def test_copies_of_an_index_are_independent() -> None:
    source = random.Random(3)
    keys = [digest_of(str(number).encode()) for number in range(2_000)]
    pairs: list[tuple[KeyIndex, dict[bytes, int]]] = [(KeyIndex(), {})]
    for _ in range(60):
        index, expected = source.choice(pairs)
        if source.random() < 0.3:
            pairs.append((index.copy(), expected.copy()))
        for digest in source.sample(keys, 100):
            offset = source.choice([NO_OFFSET, source.randrange(10**6)])
            index.update({digest: offset})
            if offset == NO_OFFSET:
                expected.pop(digest, None)
            else:
                expected[digest] = offset
        for index, expected in pairs:
            assert dict(index.items()) == expected
            assert len(index) == len(expected)


# --- the working state ------------------------------------------------------------------------


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([b"", b"a", b"b", b"c", b"d"]),
                st.sampled_from([None, b"x"]),
            ),
            min_size=1,
            max_size=4,
        ),
        max_size=20,
    ),
    st.integers(min_value=0, max_value=2**32),
)
def test_a_working_state_is_that_of_the_whole_log(batches: list[Pairs], seed: int) -> None:
    """Whatever of it is committed, and however late the working state is notified of that."""
    source = random.Random(seed)
    committed, model = ApplicationState(), Model()
    working = WorkingState(0)
    waiting: list[BatchChanges] = []
    end_committed = 0
    for pairs in batches:
        changes = changed(pairs, len(model.log))
        model.log += pairs
        working.appended(changes)
        waiting.append(changes)
        for _ in range(source.randrange(3)):
            if waiting:
                done = waiting.pop(0)
                committed.apply(done)
                end_committed = done.end_offset
        if source.random() < 0.5:
            working.passed(end_committed)
        assert working.last_offset(committed) == model.last_offset
        for key in (b"a", b"b", b"c", b"d", b"never"):
            assert working.offset_of(digest_of(key), committed) == model.offset_of(key)
    working.passed(len(model.log))
    assert len(working) == 0


# --- snapshots --------------------------------------------------------------------------------


def loaded(batches: list[bytearray], *records: NoOpRecord) -> ApplicationState:
    loader = StateLoader()
    loader.add_records(records)
    for batch in batches:
        loader.add_batch(batch, read_header(batch))
    return loader.finish()


def kept(pairs: Pairs, base_offset: int, position: int) -> bytearray:
    """A batch of a snapshot, where it has another offset than in the log."""
    batch = batch_of(pairs, position, 9_000)
    keep_base_offset(batch, base_offset)
    return batch


def test_a_snapshot_has_the_state() -> None:
    first: Pairs = [(b"a", b"1"), (b"b", b"2")]
    second: Pairs = [(b"a", None), (b"", b"3")]
    state = applied(ApplicationState(), first, second)
    records = [decode(encode(record, 0)) for record in state_records(state)]
    assert all(isinstance(record, NoOpRecord) for record in records)
    found = loaded([kept(first, 0, 40), kept(second, 2, 42)], *records)  # type: ignore[arg-type]
    assert found == state, "timestamps of the batches do not count again"


def test_offsets_that_a_snapshot_does_not_say_are_unknown() -> None:
    state = loaded([batch_of([(b"a", b"1"), (b"b", b"2"), (b"b", None)], 7)])
    assert state.index.get(digest_of(b"a")) == UNKNOWN_OFFSET
    assert state.index.get(digest_of(b"b")) == NO_OFFSET
    assert state.last_offset == UNKNOWN_OFFSET
    assert state.time_ms == -1
    state.apply(changed([(b"a", b"2")], 100))
    assert (state.index.get(digest_of(b"a")), state.last_offset) == (100, 100)


def test_an_unknown_last_offset_stays_unknown_without_its_record() -> None:
    """The state of a state machine may replace the record: the log is not empty for that."""
    state = loaded([batch_of([(b"a", b"1")], 7)])
    assert loaded([], *state_records(state)).last_offset == UNKNOWN_OFFSET


def test_a_summary_of_a_later_release_can_be_read() -> None:
    writer = Writer()
    writer.int64(7)
    writer.int64(8)
    writer.tagged_fields({3: b"more"})
    assert ApplicationSummary.from_bytes(writer.to_bytes()) == ApplicationSummary(7, 8)
    for cut in range(len(writer.data)):
        with pytest.raises(CorruptBatchError):
            ApplicationSummary.from_bytes(writer.to_bytes()[:cut])


def test_fields_of_other_records_are_left_alone() -> None:
    mine = application_record(ApplicationTag.STATE_CHUNK, b"chunk")
    assert application_field(mine) == (ApplicationTag.STATE_CHUNK, b"chunk")
    assert application_field(NoOpRecord(unknown_tags=((10_000, b"\x01"),))) is None
    assert application_field(NoOpRecord(unknown_tags=((20_000, b"\x01"),))) is None
    assert application_field("no record") is None
