"""An append's records on the wire: one by one or in columns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.common.error_codes import ErrorCode
from quorate.raft import messages as m
from quorate.raft.errors import ViolationError
from quorate.records.batch import BatchProducer
from quorate.rpc.wire import convert_append
from quorate.rpc.wire import values as v
from quorate.rpc.wire.limits import CHANGE_TIMEOUT_MS_MAX
from quorate.v1 import quorum_pb2

from tests.unit.rpc.rpc_values import UINT32, errors, leaders, offsets, texts


@settings(max_examples=25)
@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=9)), min_size=1),
    st.integers(1, UINT32),
)
def test_an_append_keeps_absent_and_empty_keys_apart(
    correlation_id: int, records: list[v.OpaqueRecord], timeout_ms: int
) -> None:
    message = convert_append.encode_append_request(correlation_id, records, timeout_ms)
    message = quorum_pb2.AppendRequest.FromString(message.SerializeToString())
    assert message.correlation_id == correlation_id
    taken = min(timeout_ms, CHANGE_TIMEOUT_MS_MAX)
    assert convert_append.decode_append_request(message) == (records, taken)


@pytest.mark.parametrize(
    ("sent", "taken"),
    [(0, 30_000), (1, 1), (600_000, 600_000), (600_001, 600_000), (UINT32, 600_000)],
)
def test_a_timeout_is_limited(sent: int, taken: int) -> None:
    message = convert_append.encode_append_request(1, [(None, b"v")], sent)
    assert convert_append.decode_append_request(message)[1] == taken


def packed(**fields: Any) -> quorum_pb2.AppendRequest:
    return quorum_pb2.AppendRequest(packed=quorum_pb2.PackedRecords(**fields))


def test_an_append_may_come_record_by_record() -> None:
    message = quorum_pb2.AppendRequest(
        records=[quorum_pb2.Record(value=b"a"), quorum_pb2.Record(key=b"", value=b"b")]
    )
    records, _ = convert_append.decode_append_request(message)
    assert records == [(None, b"a"), (b"", b"b")]
    assert convert_append.decode_append_request(packed(values=b"ab", value_sizes=[1, 1]))[0] == [
        (b"", b"a"),
        (b"", b"b"),
    ]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (quorum_pb2.AppendRequest(), "without records"),
        (packed(), "without records"),
        (packed(values=b"a"), "the values have 0 bytes by their sizes, not 1"),
        (
            packed(values=b"abc", value_sizes=[1, 1]),
            "the values have 2 bytes by their sizes, not 3",
        ),
        (
            packed(values=b"a", value_sizes=[2**32 - 2]),
            "the values have 4294967294 bytes by their sizes, not 1",
        ),
        (packed(values=b"a", value_sizes=[1], keys=b"k"), "1 records with 0 key sizes"),
        (packed(values=b"a", value_sizes=[1], key_sizes=[0, 0]), "1 records with 2 key sizes"),
        (packed(values=b"a", value_sizes=[1], keys=b"k", key_sizes=[-1]), "the keys have 0 bytes"),
        (packed(value_sizes=[0] * 400_000), "400000 records"),
        (quorum_pb2.AppendRequest(records=[quorum_pb2.Record()] * 400_000), "400000 records"),
        (
            quorum_pb2.AppendRequest(
                records=[quorum_pb2.Record(value=b"a")],
                packed=quorum_pb2.PackedRecords(values=b"a", value_sizes=[1]),
            ),
            "with records in several forms",
        ),
    ],
)
def test_appends_that_make_no_sense_are_refused(
    message: quorum_pb2.AppendRequest, why: str
) -> None:
    with pytest.raises(ViolationError, match=why):
        convert_append.decode_append_request(message)


@settings(max_examples=25)
@given(errors, leaders, offsets, texts)
def test_an_append_is_answered_with_the_epoch_of_its_leader(
    error: ErrorCode, leader: m.CurrentLeader, base: int, text: str
) -> None:
    outcome = v.AppendOutcome(error, leader, base, text)
    message = convert_append.encode_append_response(5, outcome)
    assert message.epoch == leader.epoch
    assert convert_append.decode_append_response(message) == outcome._replace(epoch=leader.epoch)


@settings(max_examples=25)
@given(leaders, offsets, st.integers(0, 2**31 - 1))
def test_a_duplicate_is_answered_with_the_epoch_of_the_original(
    leader: m.CurrentLeader, base: int, epoch: int
) -> None:
    outcome = v.AppendOutcome(ErrorCode.NONE, leader, base, epoch=epoch)
    message = convert_append.encode_append_response(5, outcome)
    assert convert_append.decode_append_response(message) == outcome


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), min_size=1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
)
def test_a_batch_of_a_session_is_empty_to_nodes_that_ignore_sessions(
    records: list[v.OpaqueRecord], producer_id: int, epoch: int, sequence: int
) -> None:
    producer = BatchProducer(producer_id, epoch, sequence)
    message = convert_append.encode_append_request(3, records, 50, "t", producer=producer)
    message = quorum_pb2.AppendRequest.FromString(message.SerializeToString())
    assert convert_append.decode_append_request(message) == (records, 50)
    assert convert_append.decode_producer(message) == producer
    assert not message.records
    assert not message.HasField("packed")


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": -1},
        {"producer_id": 1, "producer_epoch": -1},
        {"producer_id": 1, "producer_epoch": 1 << 15},
        {"producer_id": 1, "base_sequence": -1},
    ],
)
def test_impossible_producers_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ViolationError, match="no batch has"):
        convert_append.decode_producer(quorum_pb2.AppendRequest(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        quorum_pb2.AppendRequest(producer_id=1, records=[quorum_pb2.Record(value=b"a")]),
        quorum_pb2.AppendRequest(
            producer_id=1, packed=quorum_pb2.PackedRecords(values=b"a", value_sizes=[1])
        ),
        quorum_pb2.AppendRequest(checked=quorum_pb2.PackedRecords(values=b"a", value_sizes=[1])),
    ],
)
def test_a_session_has_its_records_where_earlier_versions_find_none(
    message: quorum_pb2.AppendRequest,
) -> None:
    with pytest.raises(ViolationError, match="in `checked`"):
        convert_append.decode_conditions(message)
