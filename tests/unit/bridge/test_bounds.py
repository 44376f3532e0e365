"""Requests with too many items are refused before an object is made of one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.bounds import Walk
from quorate.rpc.errors import BadMessageError

from tests.unit.bridge.test_forwarding import _bodies


def check_items(kind: Any, data: bytes, items_max: int) -> None:
    Walk(data, 0, items_max).over(kind)


def items(value: Any) -> int:
    """Elements of arrays at any depth, counted in what was decoded."""
    if isinstance(value, tuple):
        return len(value) + sum(map(items, value))
    if hasattr(value, "__dataclass_fields__"):
        return sum(items(getattr(value, name)) for name in value.__dataclass_fields__)
    return 0


@pytest.mark.parametrize("api_key", sorted(_bodies()))
def test_the_items_of_a_request_are_those_that_are_decoded(api_key: int) -> None:
    body = _bodies()[api_key]
    data = s.write(body)
    count = items(body)
    check_items(type(body), data, count)
    if count:
        with pytest.raises(ValueError, match=f"more than {count - 1} items"):
            check_items(type(body), data, count - 1)


@pytest.mark.parametrize(
    ("api_key", "version"), [(s.CREATE_TOPICS, 7), (s.CREATE_TOPICS, 2), (s.ALTER_CLIENT_QUOTAS, 1)]
)
def test_a_frame_full_of_empty_items_is_refused_at_once(api_key: int, version: int) -> None:
    module = s.request_module(api_key, version)
    if api_key == s.CREATE_TOPICS:
        one = s.make(
            module.CreatableTopic,
            name="",
            num_partitions=1,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
    else:
        one = module.EntryData(entity=(), ops=())
    item = s.write(one)
    count = 2**20 // len(item)
    flexible = type(one).__flexible__
    length = varint(count + 1) if flexible else count.to_bytes(4, "big")
    frame = s.write_header(api_key, version, 1, "x") + length + item * count + bytes(8)
    begun = time.process_time()
    with pytest.raises(BadMessageError, match=f"more than {s.items_max(api_key)} items"):
        s.read_call(frame)
    assert time.process_time() - begun < 0.1


def varint(number: int) -> bytes:
    found = b""
    while number >= 128:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


@settings(max_examples=200)
@given(st.sampled_from(sorted(s.SERVED)), st.binary(max_size=300))
def test_what_is_refused_could_not_be_decoded_or_has_too_many_items(
    api_key: int, data: bytes
) -> None:
    kind = s.request_type(api_key, s.SERVED[api_key][1])
    try:
        check_items(kind, data, 50)
    except ValueError as error:
        if "more than 50 items" in str(error):
            return
        with pytest.raises(BadMessageError):
            s._read(Walk(data, 0, 50), (kind,), "")


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """The tagged fields at the end of a message."""
    return varint(len(fields)) + b"".join(
        varint(tag) + varint(len(value)) + value for tag, value in fields
    )


def test_unknown_tagged_fields_are_skipped() -> None:
    body = s.make(
        s.request_type(s.API_VERSIONS, 4), client_software_name="k", client_software_version="1"
    )
    header = s.write_header(s.API_VERSIONS, 4, 7, "x")
    data = s.write(body)
    assert (header[-1], data[-1]) == (0, 0), "the numbers of tagged fields"
    later = tagged((1, varint(1)), (9000, b"later" * 100))
    call = s.read_call(header[:-1] + tagged((5, b"trace")) + data[:-1] + later)
    assert (call.client_id, call.body) == ("x", body)
    with pytest.raises(BadMessageError, match="truncated"):
        s.read_call(header + data[:-1] + varint(1) + varint(9) + varint(2) + b"x")


def test_unknown_tagged_fields_of_a_part_in_a_tagged_field_are_skipped() -> None:
    """Fetch version 17: the replica's state is itself a tagged field, with fields of its own."""
    module = s.request_module(s.FETCH, 17)
    body = s.make(
        module.FetchRequest,
        cluster_id="quorum",
        replica_state=module.ReplicaState(replica_id=5, replica_epoch=6),
        max_wait=s.milliseconds(500),
        min_bytes=0,
        max_bytes=100,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(),
        forgotten_topics_data=(),
        rack_id="",
    )
    state = s.write(body.replica_state)
    longer = state[:-1] + tagged((3, b"y" * 200))
    plain = s.write(body)
    assert plain.count(varint(len(state)) + state) == 1
    extended = plain.replace(varint(len(state)) + state, varint(len(longer)) + longer)
    assert s._read(Walk(extended, 0, 100), (type(body),), "") == [body]
    header = s.write_header(s.FETCH, 17, 1, "x")
    assert s.read_call(header + extended).body == s.read_call(header + plain).body


@pytest.mark.parametrize("api_key", sorted(s.SERVED))
def test_headers_are_written_as_kio_writes_them(api_key: int) -> None:
    for version in range(s.SERVED[api_key][0], s.SERVED[api_key][1] + 1):
        for client_id in ("", "broker-1", "é" * 200):
            expected = s.request_type(api_key, version).__header_schema__(
                request_api_key=api_key,
                request_api_version=version,
                correlation_id=-5,
                client_id=client_id,
            )
            assert s.write_header(api_key, version, -5, client_id) == s.write(expected)
        response = s.response_type(api_key, version)
        encoded = s.Encoded(response, b"body")
        expected = response.__header_schema__(correlation_id=-5)
        assert s.write_response(-5, encoded) == s.write(expected) + b"body"
