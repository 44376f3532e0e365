"""The key index and the state of a state machine in chunks, both directions."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.applications import chunks
from quorate.applications.chunks import (
    CHUNK_BYTES,
    LAST,
    MORE,
    index_chunks,
    index_entries,
    joined_state,
    state_chunks,
)
from quorate.records.errors import RecordsError

DIGEST = st.binary(min_size=16, max_size=16)
OFFSET = st.integers(-2, (1 << 63) - 1)


@given(st.dictionaries(DIGEST, OFFSET, max_size=50))
def test_an_index_comes_back(index: dict[bytes, int]) -> None:
    found = dict(chain.from_iterable(map(index_entries, index_chunks(index.items()))))
    assert found == index


def test_a_large_index_is_several_chunks() -> None:
    index = {number.to_bytes(16, "big"): number for number in range(100_000)}
    parts = list(index_chunks(index.items()))
    assert len(parts) == 3
    assert all(len(part) <= CHUNK_BYTES for part in parts)
    assert dict(chain.from_iterable(map(index_entries, parts))) == index


@given(st.binary(max_size=100).filter(lambda chunk: len(chunk) % 24))
def test_a_part_of_an_entry_is_an_error(chunk: bytes) -> None:
    with pytest.raises(RecordsError, match="incomplete"):
        index_entries(chunk)


@given(st.lists(st.binary(max_size=60), max_size=8), st.integers(1, 9))
def test_a_state_comes_back_with_its_boundaries(state: list[bytes], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", size)
        parts = list(state_chunks(state))
        assert all(len(part) <= 1 + size for part in parts)
        assert list(joined_state(parts)) == state


def test_a_state_is_read_as_a_stream() -> None:
    asked = []

    def endless() -> chunks.Iterator[bytes]:
        for number in range(1 << 60):
            asked.append(number)
            yield b"%d" % number

    found = joined_state(state_chunks(endless()))
    assert [next(found), next(found)] == [b"0", b"1"]
    assert asked == [0, 1]


@pytest.mark.parametrize("parts", [[b""], [b"\x02x"], [LAST + b"a", MORE + b"b"]])
def test_damaged_state_is_an_error(parts: list[bytes]) -> None:
    with pytest.raises(RecordsError):
        list(joined_state(parts))
