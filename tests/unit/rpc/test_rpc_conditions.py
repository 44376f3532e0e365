"""Conditions and null values in the messages of appends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.common.batch_layout import HEADER_SIZE
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.rpc.errors import ConditionFailedError, renewed
from quorate.rpc.wire.convert_append import (
    CONDITIONS_MAX,
    decode_append_request,
    decode_append_response,
    decode_conditions,
    encode_append_request,
    encode_append_response,
)
from quorate.rpc.wire.limits import RECORD_OVERHEAD_BYTES, batch_bytes
from quorate.rpc.wire.values import AppendOutcome, LogOffsets, OpaqueRecord
from quorate.v1 import quorum_pb2

RECORDS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=5)), st.one_of(st.none(), st.binary(max_size=5))
    ),
    min_size=1,
    max_size=9,
)
OFFSETS = st.integers(min_value=-1, max_value=2**63 - 1)
CONDITIONS = st.builds(
    LogOffsets,
    st.one_of(st.none(), OFFSETS),
    st.lists(st.tuples(st.binary(min_size=1, max_size=5), OFFSETS), max_size=4).map(tuple),
)


@given(RECORDS, CONDITIONS)
def test_requests_keep_conditions_and_null_values(
    records: list[OpaqueRecord], conditions: LogOffsets
) -> None:
    message = encode_append_request(7, records, 900, conditions=conditions)
    message = quorum_pb2.AppendRequest.FromString(message.SerializeToString())
    assert decode_append_request(message) == (records, 900)
    assert decode_conditions(message) == conditions
    for_earlier = (list(message.records), list(message.packed.value_sizes))
    if conditions:
        assert for_earlier == ([], []), "earlier releases would append without looking"
    elif any(value is None for _, value in records):
        # They find a value of 4 GiB missing.
        assert for_earlier == ([], list(message.packed.value_sizes))
        assert 2**32 - 1 in message.packed.value_sizes


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (LogOffsets(-2), "an offset below -1"),
        (LogOffsets(None, ((b"k", -2),)), "an offset below -1"),
        (LogOffsets(None, ((b"", 3),)), "the empty key"),
        (LogOffsets(None, ((b"k", 3),) * (CONDITIONS_MAX + 1)), "1001 conditions"),
    ],
)
def test_conditions_that_cannot_be(conditions: LogOffsets, reason: str) -> None:
    with pytest.raises(ViolationError, match=reason):
        decode_conditions(encode_append_request(1, [(b"k", b"v")], 900, conditions=conditions))


def test_conditions_and_their_own_form_of_records_belong_together() -> None:
    packed = quorum_pb2.PackedRecords(values=b"v", value_sizes=[1])
    plain = quorum_pb2.AppendRequest(packed=packed, expected_last_offset=3)
    checked = quorum_pb2.AppendRequest(checked=packed)
    for message in (plain, checked):
        with pytest.raises(ViolationError, match="`checked`"):
            decode_conditions(message)
    both = quorum_pb2.AppendRequest(packed=packed, checked=packed, expected_last_offset=3)
    with pytest.raises(ViolationError, match="several forms"):
        decode_append_request(both)


@given(CONDITIONS)
def test_responses_keep_the_actual_offsets(actual: LogOffsets) -> None:
    leader = CurrentLeader(3, None)
    outcome = AppendOutcome(ErrorCode.CONDITION_FAILED, leader, 0, "no", actual, 3)
    assert decode_append_response(encode_append_response(9, outcome)) == outcome


def test_null_values_take_no_space() -> None:
    overhead = HEADER_SIZE + 2 * RECORD_OVERHEAD_BYTES
    assert batch_bytes([(b"key", None), (None, None)]) == overhead + 3


def test_the_error_has_the_offsets_for_every_caller() -> None:
    error = ConditionFailedError("no", 5, {b"k": -1})
    copy = renewed(error)
    assert isinstance(copy, ConditionFailedError)
    assert (copy.code, copy.last_offset, copy.key_offsets) == (
        ErrorCode.CONDITION_FAILED,
        5,
        {b"k": -1},
    )
