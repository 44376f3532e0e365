"""The bytes that are kept for alike records, against building each record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.records import record_parts as module
from quorate.records.batch import build_data_batch, iter_records, read_header
from quorate.records.record_parts import ALIKE_MAX, ALIKE_MIN, KEY_BYTES_MAX, KeyValue, record_parts

KEYS = st.none() | st.binary(max_size=3) | st.just(bytes(KEY_BYTES_MAX + 1))


@given(KEYS, st.integers(0, 300), st.integers(1, 300))
def test_alike_records_are_those_that_are_built_one_by_one(
    key: bytes | None, size: int, count: int
) -> None:
    records: list[KeyValue] = [(key, (b"%d" % n).ljust(size, b".")[:size]) for n in range(count)]
    alike = record_parts(records, b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ALIKE_MIN", count + 1)
        assert b"".join(alike) == b"".join(record_parts(records, b""))


@pytest.mark.parametrize(
    "count", [ALIKE_MIN - 1, ALIKE_MIN, 63, 64, 65, 1_000, ALIKE_MAX, ALIKE_MAX + 1, 9_000]
)
def test_they_are_read_as_they_were_written(count: int) -> None:
    records: list[KeyValue] = [(b"k", b"%09d" % number) for number in range(count)]
    batch = memoryview(build_data_batch(records, 1))
    found = list(iter_records(batch, read_header(batch)))
    assert [(each.key, each.value) for each in found] == records
    assert [each.offset for each in found] == list(range(count))


@given(st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2)), min_size=1, max_size=40))
def test_records_that_differ_are_read_as_they_were_written(records: list[KeyValue]) -> None:
    batch = memoryview(build_data_batch(records, 1))
    found = iter_records(batch, read_header(batch))
    assert [(each.key, each.value) for each in found] == records


def test_what_is_kept_is_bounded() -> None:
    for size in range(10 * module.KEPT_MAX):
        record_parts([(b"k", bytes(size))] * ALIKE_MIN, b"")
    assert module._heads.cache_info().currsize <= module.KEPT_MAX
