"""The Partition service's messages: what goes out comes in, and hostile messages are refused."""

from __future__ import annotations

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.raft.types import OffsetAndEpoch
from quorate.rpc.wire import partition_convert as convert
from quorate.rpc.wire.partition_values import (
    FetchedPartition,
    FetchPosition,
    Located,
    LocatedBroker,
    LocatedPartition,
    LocatedTopic,
    PartitionFetch,
    PartitionFetchResponse,
    PartitionKey,
    PartitionOffsets,
    ProduceRequest,
    ProduceResponse,
    ProducerIdentity,
)
from quorate.v1 import partition_pb2 as pb

KEY = PartitionKey("yFPgY5iXQYqr5sMxfdxu0Q", 3)


def wire(message: pb.ProduceRequest) -> pb.ProduceRequest:
    return pb.ProduceRequest.FromString(message.SerializeToString())


def test_batches_and_their_answers() -> None:
    request = ProduceRequest(KEY, b"batch", acks_all=False, timeout_ms=7)
    message = wire(convert.encode_produce_request(9, request))
    assert message.correlation_id == 9
    assert convert.decode_produce_request(message) == request
    for response in (
        ProduceResponse(ErrorCode.NONE, 0, 0, 0),
        ProduceResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 4, 7, "elsewhere"),
        ProduceResponse(ErrorCode.NOT_ENOUGH_REPLICAS),
    ):
        encoded = convert.encode_produce_response(9, response)
        assert convert.decode_produce_response(encoded) == response


def test_fetches_and_what_they_yield() -> None:
    request = PartitionFetch(
        0,
        12,
        500,
        1 << 20,
        (FetchPosition(KEY, 5, 0, 2, 100), FetchPosition(KEY, 0)),
        (PartitionKey(KEY.topic_id, 4),),
    )
    assert convert.decode_fetch(convert.encode_fetch(request)) == request
    reader = PartitionFetch(-1, -1, 0, 10)
    assert convert.decode_fetch(convert.encode_fetch(reader)) == reader
    response = PartitionFetchResponse(
        ErrorCode.NONE,
        (
            FetchedPartition(KEY, ErrorCode.NONE, 0, 0, 4, 0, 6, None, (b"ab", b"cd")),
            FetchedPartition(KEY, ErrorCode.NONE, 1, 2, diverging=OffsetAndEpoch(3, 1)),
            FetchedPartition(KEY, ErrorCode.FENCED_LEADER_EPOCH),
        ),
    )
    decoded = convert.decode_fetched(convert.encode_fetched(response))
    assert decoded.partitions[0].records == (b"abcd",)
    assert decoded.partitions[1:] == response.partitions[1:]


def test_offsets_places_and_producer_ids() -> None:
    offsets = PartitionOffsets(ErrorCode.NONE, 1, 2, 3, 4, 5)
    assert convert.OFFSETS.decode(convert.OFFSETS.encode(offsets)) == offsets
    identity = ProducerIdentity(ErrorCode.NONE, 1 << 40, 0)
    assert convert.IDENTITY.decode(convert.IDENTITY.encode(identity)) == identity
    located = Located(
        ErrorCode.NONE,
        (LocatedBroker(1, (Endpoint("PLAINTEXT", "h", 9092),), "r", True, True, 17),),
        (
            LocatedTopic(
                "t", ErrorCode.NONE, KEY.topic_id, (LocatedPartition(0, -1, 4, (1, 2), (1,)),)
            ),
            LocatedTopic("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ),
        99,
    )
    assert convert.LOCATED.decode(convert.LOCATED.encode(located)) == located


@pytest.mark.parametrize(
    "message",
    [
        pb.LocateResponse(brokers=[pb.LocatedBroker(id=-1)]),
        pb.LocateResponse(topics=[pb.LocatedTopic(name="t")]),
        pb.LocateResponse(topics=[pb.LocatedTopic(name="t", topic_id=b"short")]),
        pb.LocateResponse(
            topics=[pb.LocatedTopic(topic_id=b"t" * 16, partitions=[pb.LocatedPartition(index=-1)])]
        ),
    ],
)
def test_a_place_without_an_id_is_refused(message: pb.LocateResponse) -> None:
    with pytest.raises(ViolationError):
        convert.LOCATED.decode(message)


@pytest.mark.parametrize(
    "message",
    [
        pb.ProduceRequest(),
        pb.ProduceRequest(partition=pb.PartitionKey(topic_id=b"short")),
        pb.ProduceRequest(partition=pb.PartitionKey(topic_id=bytes(16), index=-1)),
    ],
)
def test_a_batch_for_no_partition_is_refused(message: pb.ProduceRequest) -> None:
    with pytest.raises(ViolationError):
        convert.decode_produce_request(message)


@pytest.mark.parametrize(
    "position",
    [
        pb.FetchPosition(),
        pb.FetchPosition(partition=convert.key_to_wire(KEY), offset=-1),
        pb.FetchPosition(partition=convert.key_to_wire(KEY), last_epoch=-1),
    ],
)
def test_a_position_that_is_none_is_refused(position: pb.FetchPosition) -> None:
    with pytest.raises(ViolationError):
        convert.decode_fetch(pb.PartitionFetchRequest(positions=[position]))
