"""AlterPartition's own codec beside kio's, which reads Kafka's schemas."""

from __future__ import annotations

import random
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.isr_messages import write_isr_changed
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID, uuid_from_bytes
from quorate.metadata import requests as r
from quorate.rpc.errors import BadMessageError

VERSIONS = pytest.mark.parametrize("version", [2, 3])
HEADER = s.write_header(s.ALTER_PARTITION, 3, 11, "broker-1")
ERRORS = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH)


def some(rng: random.Random, bits: int) -> int:
    """A signed integer of at most so many bits, extremes included."""
    return rng.choice((-(1 << bits - 1), -1, 0, 1, (1 << bits - 1) - 1, rng.getrandbits(bits - 1)))


def isr_of(rng: random.Random) -> tuple[int, ...]:
    return tuple(some(rng, 32) for _ in range(rng.choice((0, 1, 3, 200))))


def proposals(rng: random.Random, version: int) -> r.AlterPartition:
    def proposal() -> r.PartitionProposal:
        isr = tuple(
            r.IsrMember(each, some(rng, 64)) if version == 3 else r.IsrMember(each)
            for each in isr_of(rng)
        )
        return r.PartitionProposal(*(some(rng, 32) for _ in range(3)), isr, some(rng, 8))

    topics = tuple(
        r.TopicProposals(
            tuple(proposal() for _ in range(rng.randrange(4))), uuid_from_bytes(rng.randbytes(16))
        )
        for _ in range(rng.randrange(4))
    )
    return r.AlterPartition(some(rng, 32), some(rng, 64), topics, version)


def message(request: r.AlterPartition) -> Any:
    """The request as kio's object."""
    module = s.request_module(s.ALTER_PARTITION, request.version)

    def isr(members: tuple[r.IsrMember, ...]) -> dict[str, Any]:
        if request.version == 2:
            return {"new_isr": tuple(each.id for each in members)}
        return {
            "new_isr_with_epochs": tuple(
                module.BrokerState(broker_id=each.id, broker_epoch=each.broker_epoch)
                for each in members
            )
        }

    return module.AlterPartitionRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        topics=tuple(
            module.TopicData(
                topic_id=s.uuid_field(topic.topic_id),
                partitions=tuple(
                    module.PartitionData(
                        partition_index=each.partition,
                        leader_epoch=each.leader_epoch,
                        leader_recovery_state=each.leader_recovery_state,
                        partition_epoch=each.partition_epoch,
                        **isr(each.isr),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def frame(request: r.AlterPartition) -> bytes:
    header = s.write_header(s.ALTER_PARTITION, request.version, 11, "broker-1")
    return header + s.write(message(request))


def small(version: int) -> r.AlterPartition:
    isr = tuple(r.IsrMember(each, 7 if version == 3 else -1) for each in (4, 5))
    proposal = r.PartitionProposal(1, 2, 3, isr)
    return r.AlterPartition(4, 7, (r.TopicProposals((proposal,), "A" * 21 + "g"),), version)


@VERSIONS
def test_requests_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(200):
        request = proposals(rng, version)
        read = s.read_call(frame(request))
        assert (read.body, read.client_id) == (request, "broker-1")


@VERSIONS
def test_responses_are_written_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    module = s.response_module(s.ALTER_PARTITION, version)
    for _ in range(200):
        topics = tuple(
            r.AlteredTopic(
                tuple(
                    r.AlteredPartition(
                        some(rng, 32),
                        rng.choice(ERRORS),
                        some(rng, 32),
                        some(rng, 32),
                        isr_of(rng),
                        some(rng, 32),
                        rng.choice((0, 1)),
                    )
                    for _ in range(rng.randrange(4))
                ),
                rng.choice((ZERO_UUID, uuid_from_bytes(rng.randbytes(16)))),
            )
            for _ in range(rng.choice((0, 1, 3, 130)))
        )
        response = r.AlterPartitionResponse(topics, error=rng.choice(ERRORS))
        expected = module.AlterPartitionResponse(
            throttle_time=s.milliseconds(),
            error_code=s.error_field(response.error),
            topics=tuple(
                module.TopicData(
                    topic_id=s.uuid_field(topic.topic_id),
                    partitions=tuple(
                        module.PartitionData(
                            partition_index=each.partition,
                            error_code=s.error_field(each.error),
                            leader_id=0 if each.error else each.leader,
                            leader_epoch=0 if each.error else each.leader_epoch,
                            isr=each.isr,
                            leader_recovery_state=each.leader_recovery_state,
                            partition_epoch=0 if each.error else each.partition_epoch,
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in topics
            ),
        )
        assert write_isr_changed(response) == s.write(expected)


@VERSIONS
def test_tagged_fields_of_later_releases_are_skipped(version: int) -> None:
    request = small(version)
    data = bytearray(frame(request))
    read = 0
    # From the end: a tagged field for the request, its topic, the partition, and each member.
    ends = [len(data) - 1, len(data) - 2, len(data) - 3]
    if version == 3:
        ends += [len(data) - 3 - 5 - 1, len(data) - 3 - 5 - 1 - 13]
    for at in ends:
        assert data[at] == 0, "the number of tagged fields"
        data[at : at + 1] = b"\1\x63\2hi"
        read += 1
        assert s.read_call(bytes(data)).body == request
    assert read == (5 if version == 3 else 3)


@VERSIONS
def test_a_truncated_request_is_rejected_wherever_it_ends(version: int) -> None:
    whole = frame(small(version))
    for size in range(8, len(whole)):
        with pytest.raises(BadMessageError):
            s.read_call(whole[:size])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\0", "an array is null"),
        (b"\2" + bytes(16) + b"\0", "an array is null"),
        (b"\2" + bytes(16) + b"\2" + bytes(8) + b"\0", "an array is null"),
        (b"\xff\xff\xff\xff\x0f", "more than 200000 items"),
        (b"\2" + bytes(16) + b"\2" + bytes(8) + b"\xff\xff\xff\xff\x0f", "more than 200000 items"),
        (b"\x80\x80\x80\x80\x80\x80", "a number of more than five bytes"),
    ],
)
def test_a_malformed_request_is_rejected(body: bytes, reason: str) -> None:
    with pytest.raises(BadMessageError, match=reason):
        s.read_call(HEADER + bytes(12) + body)
