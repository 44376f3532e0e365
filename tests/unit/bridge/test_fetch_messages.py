"""Fetch's own codec beside kio's, which reads Kafka's schemas."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.bounds import Walk
from quorate.bridge.messages.fetch_messages import (
    NO_HIGH_WATERMARK,
    TOPIC_ID,
    Found,
    FoundLeader,
    LogFetch,
    LogFetched,
    LogPosition,
    NodeEndpoint,
    read_log_fetched,
    write_log_fetch,
    write_log_fetched,
)
from quorate.bridge.messages.peer_messages import read_response
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID, uuid_from_bytes
from quorate.rpc.errors import BadMessageError

from tests.unit.bridge.test_bounds import tagged
from tests.unit.bridge.test_isr_messages import some

READ = pytest.mark.parametrize("version", range(13, 19))
WRITTEN = pytest.mark.parametrize("version", [17, 18])


def text(rng: random.Random) -> str:
    return rng.choice(("", "a", "ключ", "x" * 200))


def fetch(rng: random.Random, version: int) -> LogFetch:
    """A Fetch of the metadata log, with what this version can say."""
    directory = uuid_from_bytes(rng.randbytes(16)) if rng.random() < 0.5 else None
    return LogFetch(
        rng.choice((None, text(rng))),
        some(rng, 32),
        directory if version >= 17 else None,
        True,
        some(rng, 32),
        some(rng, 64),
        some(rng, 32),
        some(rng, 64) if version >= 18 else NO_HIGH_WATERMARK,
        some(rng, 32),
        some(rng, 32),
        some(rng, 64) if version >= 18 else 0,
        rng.choice((0, 2**64 - 1, rng.getrandbits(64))) if version >= 18 else 0,
    )


def partition(module: Any, request: LogFetch, index: int = 0) -> Any:
    return s.make(
        module.FetchPartition,
        partition=index,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        partition_max_bytes=0,
        replica_directory_id=s.uuid_field(request.directory or ""),
        high_watermark=request.high_watermark,
    )


def message(request: LogFetch, version: int, topics: Any = None, **others: Any) -> bytes:
    """The request as kio writes it."""
    module = s.request_module(s.FETCH, version)
    state = getattr(module, "ReplicaState", None)
    if topics is None:
        topics = (
            module.FetchTopic(
                topic_id=s.uuid_field(TOPIC_ID), partitions=(partition(module, request),)
            ),
        )
    fields = {"forgotten_topics_data": (), "rack_id": "", "min_bytes": 0} | others
    return s.write(
        s.make(
            s.request_type(s.FETCH, version),
            cluster_id=request.cluster_id,
            replica_id=request.replica_id,
            replica_state=None if state is None else state(replica_id=request.replica_id),
            max_wait=s.milliseconds(request.max_wait_ms),
            max_bytes=request.max_bytes,
            topics=topics,
            read_round=request.read_round,
            incarnation=request.incarnation,
            **fields,
        )
    )


def read(body: bytes, version: int) -> Any:
    return s.read_call(s.write_header(s.FETCH, version, 11, "broker-1") + body).body


@READ
def test_requests_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    module = s.request_module(s.FETCH, version)
    for _ in range(200):
        request = fetch(rng, version)
        forgotten = tuple(
            module.ForgottenTopic(topic_id=None, partitions=(1, 2, 3)[: rng.randrange(4)])
            for _ in range(rng.randrange(3))
        )
        others = {"forgotten_topics_data": forgotten, "rack_id": text(rng), "min_bytes": 9}
        assert read(message(request, version, **others), version) == request


@WRITTEN
def test_requests_are_written_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(200):
        request = fetch(rng, version)
        assert write_log_fetch(request, version) == message(request, version)


def test_what_a_version_cannot_say_is_left_out() -> None:
    request = fetch(random.Random(1), 18)
    known = LogFetch(
        request.cluster_id,
        request.replica_id,
        request.directory,
        True,
        request.epoch,
        request.offset,
        request.last_epoch,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
    )
    assert read(write_log_fetch(request, 17), 17) == known


@READ
def test_other_topics_and_partitions_are_not_the_log(version: int) -> None:
    request = fetch(random.Random(version), version)
    module = s.request_module(s.FETCH, version)
    log, other = s.uuid_field(TOPIC_ID), s.uuid_field("B" * 21 + "A")
    one, two = partition(module, request), partition(module, request, 1)
    for topics in (
        (),
        ((other, (one,)),),
        ((None, (one,)),),
        ((log, ()),),
        ((log, (two,)),),
        ((log, (one, two)),),
        ((log, (one, one)),),
        ((log, (one,)), (other, (one,))),
    ):
        made = tuple(module.FetchTopic(topic_id=each, partitions=found) for each, found in topics)
        found = read(message(request, version, made), version)
        assert not found.is_log
        assert (found.cluster_id, found.replica_id) == (request.cluster_id, request.replica_id)


@READ
def test_a_truncated_request_is_rejected_wherever_it_ends(version: int) -> None:
    request = LogFetch("cluster", 5, "B" * 21 + "A", True, 1, 2, 3, 4, 5, 6, 7, 8)
    whole = message(request, version)
    for size in range(len(whole)):
        with pytest.raises(BadMessageError):
            read(whole[:size], version)


@settings(max_examples=300)
@given(st.sampled_from(range(13, 19)), st.data())
def test_changed_bytes_are_read_as_kio_reads_them_or_rejected(version: int, data: Any) -> None:
    request = LogFetch("cluster", 5, "B" * 21 + "A", True, 1, 2, 3, 4, 5, 6, 7, 8)
    changed = bytearray(message(request, version))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    kind = s.request_type(s.FETCH, version)
    try:
        (body,) = s._read(Walk(bytes(changed), 0, 20_000), (kind,), "")
    except BadMessageError:
        return
    try:
        found = read(bytes(changed), version)
    except BadMessageError as error:
        # kio reads a null array also where the schema has none.
        assert "is null" in str(error)  # noqa: PT017
        return
    assert found.cluster_id == body.cluster_id
    assert found.max_bytes == body.max_bytes
    parts = [(each.topic_id, part) for each in body.topics for part in each.partitions]
    if found.is_log:
        ((topic_id, part),) = parts
        assert (s.uuid_text(topic_id), part.partition) == (TOPIC_ID, 0)
        assert (found.epoch, found.offset) == (part.current_leader_epoch, part.fetch_offset)


# --- responses ------------------------------------------------------------------------------------


def position(rng: random.Random) -> LogPosition:
    return LogPosition(some(rng, 64), some(rng, 32)) if rng.random() < 0.5 else LogPosition()


def fetched(rng: random.Random, version: int) -> LogFetched:
    part = Found(
        rng.choice((0, 6, 74)),
        some(rng, 64),
        some(rng, 64),
        FoundLeader(some(rng, 32), some(rng, 32)) if rng.random() < 0.8 else FoundLeader(),
        position(rng),
        position(rng),
        rng.randbytes(rng.choice((0, 1, 100, 20_000))),
    )
    nodes = tuple(
        NodeEndpoint(some(rng, 32), text(rng), some(rng, 32))
        for _ in range(rng.choice((0, 1, 2, 130)))
    )
    extended = version >= 18
    return LogFetched(
        rng.choice((0, 104)),
        (part,) if rng.random() < 0.9 else (),
        nodes if version >= 16 else (),
        some(rng, 64) if extended else 0,
        position(rng) if extended else LogPosition(),
    )


def response(found: LogFetched, version: int) -> Any:
    """The response as kio's object."""
    module = s.response_module(s.FETCH, version)
    topics = tuple(
        module.FetchableTopicResponse(
            topic_id=s.uuid_field(TOPIC_ID),
            partitions=(
                module.PartitionData(
                    partition_index=0,
                    error_code=s.code_field(part.error_code),
                    high_watermark=part.high_watermark,
                    log_start_offset=part.log_start_offset,
                    diverging_epoch=module.EpochEndOffset(**part.diverging_epoch._asdict()),
                    current_leader=module.LeaderIdAndEpoch(**part.current_leader._asdict()),
                    snapshot_id=module.SnapshotId(**part.snapshot_id._asdict()),
                    aborted_transactions=(),
                    records=part.records,
                ),
            ),
        )
        for part in found.parts
    )
    kind = getattr(module, "NodeEndpoint", None)
    return s.answer(
        module,
        error_code=s.code_field(found.error_code),
        responses=topics,
        node_endpoints=tuple(kind(**each._asdict()) for each in found.node_endpoints)
        if kind
        else (),
        read_round=found.read_round,
        acknowledged_offset=found.acknowledged.end_offset,
        acknowledged_epoch=found.acknowledged.epoch,
    )


@READ
def test_responses_are_written_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(200):
        found = fetched(rng, version)
        assert write_log_fetched(found, version) == s.write(response(found, version))


@WRITTEN
def test_responses_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(200):
        found = fetched(rng, version)
        frame = s.write_response(-7, response(found, version))
        assert read_response(s.FETCH, version, frame) == (-7, found)


def test_records_in_pieces_replace_those_of_the_part() -> None:
    found = LogFetched(0, (Found(0, 1, 2, records=b"of the part"),))
    pieces = (b"first", bytearray(300), memoryview(b"last"))
    whole = found.parts[0]._replace(records=b"".join(pieces))
    assert write_log_fetched(found, 18, pieces) == write_log_fetched(
        found._replace(parts=(whole,)), 18
    )


def test_what_kafkas_leader_may_send_besides_is_skipped() -> None:
    module = s.response_module(s.FETCH, 18)
    part = module.PartitionData(
        partition_index=0,
        error_code=s.error_field(ErrorCode.NONE),
        high_watermark=3,
        last_stable_offset=3,
        log_start_offset=0,
        aborted_transactions=(module.AbortedTransaction(producer_id=1, first_offset=2),),
        preferred_read_replica=4,
        records=None,
    )
    topic = module.FetchableTopicResponse(topic_id=None, partitions=(part, part))
    node = module.NodeEndpoint(node_id=1, host="one", port=9094, rack="a rack")
    body = s.answer(
        module,
        error_code=s.error_field(ErrorCode.NONE),
        session_id=9,
        responses=(topic,),
        node_endpoints=(node,),
    )
    _, found = read_log_fetched(s.write_response(5, body), 18)
    assert found == LogFetched(0, 2 * (Found(0, 3, 0),), (NodeEndpoint(1, "one", 9094),))
    later = s.write_response(
        5, s.answer(module, error_code=s.error_field(ErrorCode.NONE), responses=())
    )
    assert later[-1] == 0, "the number of tagged fields"
    _, found = read_log_fetched(later[:-1] + tagged((9, b"later"), (9_000, b"x" * 200)), 18)
    assert found == LogFetched(0)


@WRITTEN
def test_a_truncated_response_is_rejected_wherever_it_ends(version: int) -> None:
    part = Found(0, 1, 2, FoundLeader(1, 2), LogPosition(3, 4), LogPosition(5, 6), b"records")
    found = LogFetched(0, (part,), (NodeEndpoint(1, "host", 2),), 7, LogPosition(8, 9))
    whole = s.write_response(5, response(found, version))
    for size in range(len(whole)):
        with pytest.raises(BadMessageError, match=f"response to Fetch version {version}"):
            read_response(s.FETCH, version, whole[:size])


def test_a_directory_of_zeros_is_none() -> None:
    request = LogFetch(None, 5, ZERO_UUID, True, 1, 2, 3)
    assert read(write_log_fetch(request, 18), 18).directory is None
