"""Converts the Partition service's messages to values and back; see `fields` for the rules."""

from __future__ import annotations

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import (
    NO_NODE,
    UUID_BYTES,
    ZERO_UUID,
    uuid_from_bytes,
    uuid_to_bytes,
)
from quorate.raft.errors import ViolationError
from quorate.rpc.fields import (
    endpoints_from_wire,
    endpoints_to_wire,
    error_from_wire,
    error_to_wire,
    known,
    natural,
    position_from_wire,
    position_to_wire,
    required,
)
from quorate.rpc.wire.codec import MessageCodec, Rules, TypeConversion
from quorate.rpc.wire.limits import POSITIONS_MAX
from quorate.rpc.wire.partition_values import (
    NO_EPOCH,
    NO_OFFSET,
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


def _topic_id(raw: bytes) -> str:
    if len(raw) != UUID_BYTES:
        raise ViolationError(f"a topic id has {UUID_BYTES} bytes, not {len(raw)}")
    return uuid_from_bytes(raw)


def key_to_wire(key: PartitionKey) -> pb.PartitionKey:
    return pb.PartitionKey(topic_id=uuid_to_bytes(key.topic_id), index=key.index)


def key_from_wire(message: pb.PartitionKey) -> PartitionKey:
    return PartitionKey(_topic_id(message.topic_id), natural(message.index, "a partition's index"))


# --- produce --------------------------------------------------------------------------------------


def encode_produce_request(correlation_id: int, request: ProduceRequest) -> pb.ProduceRequest:
    return pb.ProduceRequest(
        correlation_id=correlation_id,
        partition=key_to_wire(request.partition),
        records=request.records,
        acks_all=request.acks_all,
        timeout_ms=request.timeout_ms,
    )


def decode_produce_request(message: pb.ProduceRequest) -> ProduceRequest:
    required(message, "partition")
    return ProduceRequest(
        key_from_wire(message.partition), message.records, message.acks_all, message.timeout_ms
    )


def encode_produce_response(correlation_id: int, response: ProduceResponse) -> pb.ProduceResponse:
    return pb.ProduceResponse(
        correlation_id=correlation_id,
        error_code=error_to_wire(response.error),
        error_message=response.message,
        base_offset=known(response.base_offset),
        leader_id=known(response.leader_id),
        leader_epoch=known(response.leader_epoch),
    )


def decode_produce_response(message: pb.ProduceResponse) -> ProduceResponse:
    return ProduceResponse(
        error_from_wire(message.error_code),
        message.base_offset if message.HasField("base_offset") else NO_OFFSET,
        message.leader_id if message.HasField("leader_id") else NO_NODE,
        message.leader_epoch if message.HasField("leader_epoch") else NO_EPOCH,
        message.error_message,
    )


# --- fetch ----------------------------------------------------------------------------------------


def encode_fetch(request: PartitionFetch) -> pb.PartitionFetchRequest:
    return pb.PartitionFetchRequest(
        replica_id=known(request.replica_id),
        broker_epoch=request.broker_epoch,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        positions=[
            pb.FetchPosition(
                partition=key_to_wire(position.partition),
                leader_epoch=known(position.leader_epoch),
                offset=position.offset,
                last_epoch=position.last_epoch,
                max_bytes=position.max_bytes,
            )
            for position in request.positions
        ],
        forgotten=[key_to_wire(key) for key in request.forgotten],
    )


def decode_fetch(message: pb.PartitionFetchRequest) -> PartitionFetch:
    if len(message.positions) > POSITIONS_MAX:
        raise ViolationError(
            f"{len(message.positions)} partitions: at most {POSITIONS_MAX} are allowed"
        )
    return PartitionFetch(
        message.replica_id if message.HasField("replica_id") else NO_NODE,
        message.broker_epoch,
        message.max_wait_ms,
        message.max_bytes,
        tuple(_position(position) for position in message.positions),
        tuple(key_from_wire(key) for key in message.forgotten),
    )


def _position(message: pb.FetchPosition) -> FetchPosition:
    required(message, "partition")
    return FetchPosition(
        key_from_wire(message.partition),
        natural(message.offset, "a fetch's offset"),
        message.leader_epoch if message.HasField("leader_epoch") else NO_EPOCH,
        natural(message.last_epoch, "a fetch's last epoch"),
        message.max_bytes,
    )


def encode_fetched(response: PartitionFetchResponse) -> pb.PartitionFetchResponse:
    return pb.PartitionFetchResponse(
        error_code=error_to_wire(response.error),
        error_message=response.message,
        partitions=[
            pb.FetchedPartition(
                partition=key_to_wire(found.partition),
                error_code=error_to_wire(found.error),
                leader_id=known(found.leader_id),
                leader_epoch=known(found.leader_epoch),
                high_watermark=found.high_watermark,
                log_start=found.log_start,
                log_end=found.log_end,
                diverging=position_to_wire(found.diverging),
                records=b"".join(found.records),
            )
            for found in response.partitions
        ],
    )


def decode_fetched(message: pb.PartitionFetchResponse) -> PartitionFetchResponse:
    return PartitionFetchResponse(
        error_from_wire(message.error_code),
        tuple(_fetched(found) for found in message.partitions),
        message.error_message,
    )


def _fetched(message: pb.FetchedPartition) -> FetchedPartition:
    required(message, "partition")
    return FetchedPartition(
        key_from_wire(message.partition),
        error_from_wire(message.error_code),
        message.leader_id if message.HasField("leader_id") else NO_NODE,
        message.leader_epoch if message.HasField("leader_epoch") else NO_EPOCH,
        natural(message.high_watermark, "a high watermark"),
        natural(message.log_start, "a log's start"),
        natural(message.log_end, "a log's end"),
        position_from_wire(message.diverging, "a diverging epoch")
        if message.HasField("diverging")
        else None,
        (message.records,) if message.records else (),
    )


# --- offsets, places, producer ids ----------------------------------------------------------------


def _check_broker(broker: LocatedBroker) -> LocatedBroker:
    natural(broker.id, "a broker's id")
    return broker


def _check_partition(partition: LocatedPartition) -> LocatedPartition:
    natural(partition.index, "a partition's index")
    return partition


def _check_topic(topic: LocatedTopic) -> LocatedTopic:
    if topic.error is ErrorCode.NONE and topic.topic_id == ZERO_UUID:
        raise ViolationError("the id of a topic is missing")
    return topic


OFFSETS = MessageCodec(PartitionOffsets, pb.ListOffsetsResponse)
IDENTITY = MessageCodec(ProducerIdentity, pb.InitProducerIdResponse)
LOCATED = MessageCodec(
    Located,
    pb.LocateResponse,
    Rules(
        {
            tuple[Endpoint, ...]: TypeConversion(
                endpoints_to_wire, endpoints_from_wire, is_list=True
            )
        },
        {
            LocatedBroker: _check_broker,
            LocatedPartition: _check_partition,
            LocatedTopic: _check_topic,
        },
    ),
)
