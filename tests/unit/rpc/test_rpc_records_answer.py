"""Answers whose records are appended to the encoding of the rest."""

from __future__ import annotations

import pytest
from quorate.rpc.server.records_answer import LARGE_BYTES, encode_with_records, serialize
from quorate.v1 import quorum_pb2, raft_pb2


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_384, LARGE_BYTES, 8 * LARGE_BYTES])
async def test_a_reader_finds_what_protobuf_would_have_written(size: int) -> None:
    records = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    rest = raft_pb2.FetchResponse(
        error_message="text",
        log_start_offset=1 << 40,
        traces=[raft_pb2.RecordTrace(offset=3, trace_parent="00-a-b-01")],
    )
    half = len(records) // 2
    parts = [memoryview(records)[:half], memoryview(records[half:])]
    encoded = await encode_with_records(rest, "records", parts)
    expected = raft_pb2.FetchResponse()
    expected.CopyFrom(rest)
    expected.records = records
    assert raft_pb2.FetchResponse.FromString(encoded) == expected
    assert len(encoded) == expected.ByteSize()


async def test_the_field_is_found_by_its_name() -> None:
    rest = quorum_pb2.ReadResponse(last=True)
    encoded = await encode_with_records(rest, "records", [b"batch"])
    assert quorum_pb2.ReadResponse.FromString(encoded).records == b"batch"


def test_messages_and_bytes_are_serialized() -> None:
    message = quorum_pb2.ReadResponse(last=True)
    assert serialize(message) == serialize(message.SerializeToString())
