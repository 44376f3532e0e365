"""What is known of a request before it is decoded: its sender, its size, its weight."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import grpc.aio
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import AclAuthorizer
from quorate.raft.errors import ViolationError
from quorate.rpc.server.grpc_server import start_server
from quorate.rpc.server.intake import INLINE_WEIGHT_MAX, LIGHT_BYTES_MAX, merged, read_request
from quorate.rpc.wire import weighing
from quorate.rpc.wire.convert_append import correlation_id_of, encode_append_request
from quorate.rpc.wire.limits import BATCH_RECORDS_MAX
from quorate.rpc.wire.methods import METADATA_WEIGHT_MAX, RPC_METHODS, RpcMethod
from quorate.rpc.wire.weighing import (
    MESSAGE_WEIGHT,
    PACKED_BYTES,
    SLICE_BYTES,
    WEIGHT_PER_BYTE_MAX,
    weigh,
)
from quorate.runtime.authorizer import NodeAuthorizer, PeerIdentity
from quorate.v1 import common_pb2, metadata_pb2, quorum_pb2

from tests.unit.rpc.rpc_support import HOST, Node, address_of, serving

CREATE_TOPICS, APPEND = RPC_METHODS["CreateTopics"], RPC_METHODS["Append"]
ANYTHING = 1 << 40
EMPTY_TOPIC = b"\x12\x00"

UNARY = [
    rpc for rpc in RPC_METHODS.values() if not rpc.streams_requests and not rpc.streams_responses
]


def weight_of(message: Message) -> int:
    """The rules of `weighing`, applied to a message that was decoded."""
    weight = 0
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                weight += MESSAGE_WEIGHT + weight_of(each)
        elif field.is_repeated and field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            weight += len(value)
        elif field.is_repeated:
            only = type(message)()
            getattr(only, field.name).extend(value)
            size = only.ByteSize() - 2  # the tag, and a length of one byte
            weight += 1 + size // PACKED_BYTES
        else:
            weight += 1
    return weight


TOPICS = st.builds(
    metadata_pb2.NewTopic,
    name=st.text(max_size=200),
    partitions=st.integers(-(1 << 31), (1 << 31) - 1),
    assignments=st.lists(
        st.builds(metadata_pb2.Int32List, values=st.lists(st.integers(0, 100), max_size=100)),
        max_size=4,
    ),
    configs=st.lists(
        st.builds(metadata_pb2.ConfigEntry, name=st.text(max_size=5), value=st.text(max_size=5)),
        max_size=4,
    ),
)


@given(st.lists(TOPICS, max_size=8), st.none() | st.integers(-1, 1 << 30))
def test_the_weight_is_that_of_what_would_be_decoded(
    topics: list[metadata_pb2.NewTopic], timeout_ms: int | None
) -> None:
    message = metadata_pb2.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)
    data = message.SerializeToString()
    weight = weigh(data, CREATE_TOPICS.shape, ANYTHING)
    assert weight == weight_of(message)
    assert weight <= WEIGHT_PER_BYTE_MAX * len(data)


@given(st.lists(st.sampled_from([0x12, 0x0A, 0x00, 0x02, 0x01, 0x08, 0x80, 0x0D]), max_size=16))
def test_what_cannot_be_weighed_is_no_message(drawn: list[int]) -> None:
    data = bytes(drawn)
    try:
        weigh(data, CREATE_TOPICS.shape, ANYTHING)
    except DecodeError:
        with pytest.raises(DecodeError):
            metadata_pb2.CreateTopicsRequest.FromString(data)


def test_weighing_ends_at_the_limit() -> None:
    data = EMPTY_TOPIC * 1_000_000
    assert 100 < weigh(data, CREATE_TOPICS.shape, 100) <= 100 + MESSAGE_WEIGHT


@given(st.lists(TOPICS, max_size=8), st.integers(1, 100))
def test_slices_of_whole_fields_decode_to_the_same_message(
    topics: list[metadata_pb2.NewTopic], size: int
) -> None:
    data = metadata_pb2.CreateTopicsRequest(topics=topics, timeout_ms=1).SerializeToString()
    slices: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(weighing, "SLICE_BYTES", size)
        weigh(data, CREATE_TOPICS.shape, ANYTHING, slices)
    assert merged(CREATE_TOPICS.request, data, slices) == CREATE_TOPICS.request.FromString(data)
    lengths = [end - start for start, end in pairwise((0, *slices, len(data)))]
    longest = max((len(each.SerializeToString()) for each in topics), default=0)
    assert all(size <= each for each in lengths[:-1])
    assert max(lengths) <= size + longest + 4


def test_a_heavy_request_is_decoded_in_short_slices() -> None:
    """Decoding a slice holds the interpreter's lock, and takes a few milliseconds."""
    data = EMPTY_TOPIC * 16_000
    slices: list[int] = []
    weigh(data, CREATE_TOPICS.shape, METADATA_WEIGHT_MAX, slices)
    assert slices == [SLICE_BYTES]
    message = merged(CREATE_TOPICS.request, data, slices)
    assert isinstance(message, metadata_pb2.CreateTopicsRequest)
    assert len(message.topics) == 16_000


async def read_in(rpc: RpcMethod, data: bytes) -> str:
    """The name of the thread in which a request is decoded."""
    return await read_request(rpc, data, lambda _: threading.current_thread().name)


async def test_heavy_requests_are_decoded_beside_the_loop() -> None:
    here = threading.current_thread().name
    light = EMPTY_TOPIC * (INLINE_WEIGHT_MAX // MESSAGE_WEIGHT)
    assert await read_in(CREATE_TOPICS, light) == here
    assert await read_in(CREATE_TOPICS, light + EMPTY_TOPIC) != here
    assert len(light) >= LIGHT_BYTES_MAX


async def test_usual_appends_are_decoded_on_the_loop() -> None:
    """A thread would cost more than it saves."""
    records = [(b"", b"v" * 60)] * 16_384
    assert await read_in(APPEND, encode_append_request(1, records, 1).SerializeToString()) == (
        threading.current_thread().name
    )


async def test_a_batch_of_the_smallest_records_is_not_too_heavy() -> None:
    record = quorum_pb2.Record(key=b"", value=b"")
    message = quorum_pb2.AppendRequest(records=[record] * BATCH_RECORDS_MAX, timeout_ms=1)
    decoded = await read_request(APPEND, message.SerializeToString(), lambda each: each)
    assert len(decoded.records) == BATCH_RECORDS_MAX


async def test_too_many_parts_are_refused_undecoded() -> None:
    data = EMPTY_TOPIC * (METADATA_WEIGHT_MAX // MESSAGE_WEIGHT + 1)
    with pytest.raises(ViolationError, match="CreateTopics takes a weight of at most"):
        await read_request(CREATE_TOPICS, data, pytest.fail)
    broken = data + b"\xff"
    with pytest.raises(ViolationError):
        await read_request(CREATE_TOPICS, broken, pytest.fail)


def raw(channel: grpc.aio.Channel, rpc: RpcMethod) -> Any:
    return channel.unary_unary(rpc.path, response_deserializer=rpc.response.FromString)


async def test_a_request_larger_than_its_method_takes_is_refused() -> None:
    methods = [rpc for rpc in UNARY if not rpc.is_metadata and not rpc.name.startswith("Append")]
    async with serving(Node()) as server, grpc.aio.insecure_channel(address_of(server)) as channel:
        for rpc in methods:
            data = b"\x7a\x00" * (rpc.bytes_max // 2 + 1)
            if rpc.name == "NodeStatus":
                with pytest.raises(grpc.aio.AioRpcError, match="NodeStatus takes"):
                    await raw(channel, rpc)(data)
                continue
            answer = await raw(channel, rpc)(data)
            assert answer.error_code == common_pb2.INVALID_REQUEST, rpc.name
            assert f"{rpc.name} takes at most {rpc.bytes_max}" in answer.error_message


async def test_the_gate_decides_before_the_request_is_decoded() -> None:
    """What is sent is no message: that is never found out."""
    authorizer = NodeAuthorizer(identity=PeerIdentity.OFF, authorizer=AclAuthorizer())
    refused = {
        int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    }
    server = await start_server([f"{HOST}:0"], Node(), authorizer=authorizer)
    try:
        async with grpc.aio.insecure_channel(address_of(server)) as channel:
            for rpc in UNARY:
                if rpc.is_metadata:
                    continue  # the node serves no metadata
                if rpc.name == "NodeStatus":
                    with pytest.raises(grpc.aio.AioRpcError) as said:
                        await raw(channel, rpc)(b"\xff")
                    assert said.value.code() is grpc.StatusCode.PERMISSION_DENIED
                    continue
                answer = await raw(channel, rpc)(b"\x08\x07\xff")
                assert answer.error_code in refused, rpc.name
                if rpc.name == "Append":
                    assert answer.correlation_id == 7
    finally:
        await server.stop(0)


@pytest.mark.parametrize(("data", "number"), [
    (b"", 0),
    (b"\x08\x05", 5),
    (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12", (1 << 64) - 1),
    (b"\x08\xff", 0),
    (b"\x08" + b"\xff" * 20, 0),
    (b"\x12\x00\x08\x05", 0),
])  # fmt: skip
def test_the_correlation_id_is_found_in_bytes(data: bytes, number: int) -> None:
    assert correlation_id_of(data) == number
