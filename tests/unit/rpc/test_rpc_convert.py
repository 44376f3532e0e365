"""Values to the wire and back, and what malformed messages lead to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.common.error_codes import ErrorCode
from quorate.raft import messages as m
from quorate.raft.batches import Batch
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.types import ReplicaKey
from quorate.records.batch import build_data_batch, stamp
from quorate.rpc import fields
from quorate.rpc.server.records_answer import encode_with_records
from quorate.rpc.wire import convert
from quorate.rpc.wire import values as v
from quorate.rpc.wire.codecs import CODECS
from quorate.rpc.wire.values import Buffer
from quorate.v1 import common_pb2, quorum_pb2, raft_pb2

from tests.unit.rpc.rpc_values import (
    INT64,
    UINT32,
    directories,
    endpoint_lists,
    epochs,
    errors,
    ids,
    keys,
    known_or_not,
    leaders,
    names,
    offsets,
    positions,
    ranges,
    statuses,
    texts,
    timeouts_ms,
    times_ms,
    voter_lists,
    voter_sets,
    voters,
)


def admin_cases() -> list[Any]:
    """The methods that answer with an AdminResponse."""
    admin = st.builds(m.AdminResponse, errors, leaders, texts)
    names = ("AddVoter", "RemoveVoter", "TransferLeadership", "UpdateFeatures", "UpdateVoter")
    found = [CODECS[name] for name in names]
    return [(admin, c.encode_response, c.method.response, c.decode_response) for c in found]


RAFT_CASES = [
    (
        st.builds(m.VoteRequest, texts, epochs, keys, keys, epochs, offsets, st.booleans()),
        CODECS["Vote"].encode_request,
        raft_pb2.VoteRequest,
        CODECS["Vote"].decode_request,
    ),
    (
        st.builds(m.VoteResponse, errors, leaders, st.booleans(), texts, st.booleans()),
        CODECS["Vote"].encode_response,
        raft_pb2.VoteResponse,
        CODECS["Vote"].decode_response,
    ),
    (
        st.builds(m.BeginQuorumEpochRequest, texts, epochs, keys, endpoint_lists, keys),
        CODECS["BeginQuorumEpoch"].encode_request,
        raft_pb2.BeginQuorumEpochRequest,
        CODECS["BeginQuorumEpoch"].decode_request,
    ),
    (
        st.builds(m.BeginQuorumEpochResponse, errors, leaders, texts),
        CODECS["BeginQuorumEpoch"].encode_response,
        raft_pb2.BeginQuorumEpochResponse,
        CODECS["BeginQuorumEpoch"].decode_response,
    ),
    (
        st.builds(
            m.EndQuorumEpochRequest,
            texts,
            epochs,
            keys,
            st.lists(keys, max_size=4).map(tuple),
            endpoint_lists,
        ),
        CODECS["EndQuorumEpoch"].encode_request,
        raft_pb2.EndQuorumEpochRequest,
        CODECS["EndQuorumEpoch"].decode_request,
    ),
    (
        st.builds(m.EndQuorumEpochResponse, errors, leaders, texts),
        CODECS["EndQuorumEpoch"].encode_response,
        raft_pb2.EndQuorumEpochResponse,
        CODECS["EndQuorumEpoch"].decode_response,
    ),
    (
        st.builds(
            m.FetchRequest,
            texts,
            keys,
            epochs,
            offsets,
            epochs,
            known_or_not,
            times_ms,
            times_ms,
            st.integers(0, INT64),
            endpoint_lists,
            st.integers(0, 2**64 - 1),
        ),
        convert.encode_fetch_request,
        raft_pb2.FetchRequest,
        convert.decode_fetch_request,
    ),
    (
        st.builds(
            m.FetchResponse,
            errors,
            leaders,
            known_or_not,
            offsets,
            st.none() | positions,
            st.none() | positions,
            st.none() | offsets,
            read_round=offsets,
            message=texts,
            acknowledged=st.none() | positions,
        ),
        convert.encode_fetch_response,
        raft_pb2.FetchResponse,
        convert.decode_fetch_response,
    ),
    (
        st.builds(m.FetchSnapshotRequest, texts, keys, epochs, positions, offsets, times_ms),
        CODECS["FetchSnapshot"].encode_request,
        raft_pb2.FetchSnapshotRequest,
        CODECS["FetchSnapshot"].decode_request,
    ),
    (
        st.builds(
            m.FetchSnapshotResponse,
            errors,
            leaders,
            st.none() | positions,
            offsets,
            offsets,
            data=st.binary(max_size=50),
            message=texts,
        ),
        CODECS["FetchSnapshot"].encode_response,
        raft_pb2.FetchSnapshotResponse,
        CODECS["FetchSnapshot"].decode_response,
    ),
    (
        st.builds(m.UpdateVoterRequest, texts, epochs, voters),
        CODECS["UpdateVoter"].encode_request,
        raft_pb2.UpdateVoterRequest,
        CODECS["UpdateVoter"].decode_request,
    ),
    (
        st.builds(m.ApiVersionsRequest, texts),
        CODECS["ApiVersions"].encode_request,
        raft_pb2.ApiVersionsRequest,
        CODECS["ApiVersions"].decode_request,
    ),
    (
        st.builds(m.ApiVersionsResponse, errors, keys, ranges, texts),
        CODECS["ApiVersions"].encode_response,
        raft_pb2.ApiVersionsResponse,
        CODECS["ApiVersions"].decode_response,
    ),
    (
        st.builds(v.ChecksumLogRequest, texts, keys, keys, offsets, offsets),
        CODECS["ChecksumLog"].encode_request,
        raft_pb2.ChecksumLogRequest,
        CODECS["ChecksumLog"].decode_request,
    ),
    (
        st.builds(v.ChecksumLogResponse, errors, st.integers(0, UINT32), offsets, texts),
        CODECS["ChecksumLog"].encode_response,
        raft_pb2.ChecksumLogResponse,
        CODECS["ChecksumLog"].decode_response,
    ),
]

QUORUM_CASES = [
    (
        st.builds(m.AddVoterRequest, texts, keys, endpoint_lists, timeouts_ms, st.booleans()),
        CODECS["AddVoter"].encode_request,
        quorum_pb2.AddVoterRequest,
        CODECS["AddVoter"].decode_request,
    ),
    (
        st.builds(m.RemoveVoterRequest, texts, keys, timeouts_ms, st.booleans()),
        CODECS["RemoveVoter"].encode_request,
        quorum_pb2.RemoveVoterRequest,
        CODECS["RemoveVoter"].decode_request,
    ),
    (
        st.builds(m.TransferLeadershipRequest, texts, keys, timeouts_ms),
        CODECS["TransferLeadership"].encode_request,
        quorum_pb2.TransferLeadershipRequest,
        CODECS["TransferLeadership"].decode_request,
    ),
    (
        st.builds(m.DescribeQuorumRequest, texts),
        CODECS["DescribeQuorum"].encode_request,
        quorum_pb2.DescribeQuorumRequest,
        CODECS["DescribeQuorum"].decode_request,
    ),
    (
        st.builds(
            m.DescribeQuorumResponse,
            errors,
            leaders,
            known_or_not,
            st.integers(0, 1),
            statuses,
            statuses,
            voter_sets,
            voter_sets,
            texts,
        ),
        CODECS["DescribeQuorum"].encode_response,
        quorum_pb2.DescribeQuorumResponse,
        CODECS["DescribeQuorum"].decode_response,
    ),
    (
        st.builds(
            v.DescribeFeaturesResponse,
            errors,
            leaders,
            st.lists(st.builds(v.Feature, names, ranges, st.none() | epochs), max_size=3).map(
                tuple
            ),
            known_or_not,
            texts,
        ),
        CODECS["DescribeFeatures"].encode_response,
        quorum_pb2.DescribeFeaturesResponse,
        CODECS["DescribeFeatures"].decode_response,
    ),
    (
        st.builds(
            v.UpdateFeaturesRequest,
            texts,
            names,
            epochs,
            st.sampled_from(list(v.UpgradeType)),
            st.booleans(),
            timeouts_ms,
        ),
        CODECS["UpdateFeatures"].encode_request,
        quorum_pb2.UpdateFeaturesRequest,
        CODECS["UpdateFeatures"].decode_request,
    ),
    (
        st.builds(
            v.FormatRequest,
            names,
            st.just(v.FormatMode.INITIAL_CONTROLLERS),
            voter_lists.filter(bool),
            directories,
        )
        | st.builds(
            v.FormatRequest,
            names,
            st.sampled_from([v.FormatMode.STANDALONE, v.FormatMode.NO_INITIAL_CONTROLLERS]),
            directory_id=directories,
        ),
        CODECS["Format"].encode_request,
        quorum_pb2.FormatRequest,
        CODECS["Format"].decode_request,
    ),
    (
        st.builds(v.OpenProducerRequest, texts, st.integers(1_000, 604_800_000), timeouts_ms),
        CODECS["OpenProducer"].encode_request,
        quorum_pb2.OpenProducerRequest,
        CODECS["OpenProducer"].decode_request,
    ),
    (
        st.builds(v.OpenProducerResponse, errors, leaders, texts, known_or_not, epochs),
        CODECS["OpenProducer"].encode_response,
        quorum_pb2.OpenProducerResponse,
        CODECS["OpenProducer"].decode_response,
    ),
    (
        st.builds(v.FormatResponse, errors, texts, directories, texts),
        CODECS["Format"].encode_response,
        quorum_pb2.FormatResponse,
        CODECS["Format"].decode_response,
    ),
    (
        st.builds(
            v.NodeStatus,
            ids,
            st.booleans(),
            texts,
            directories,
            names,
            epochs,
            st.none() | ids,
            known_or_not,
            offsets,
            offsets,
            st.booleans(),
            st.booleans(),
            texts,
            st.integers(0, UINT32),
        ),
        CODECS["NodeStatus"].encode_response,
        quorum_pb2.NodeStatusResponse,
        CODECS["NodeStatus"].decode_response,
    ),
    (
        st.builds(
            v.ReadRequest,
            offsets,
            st.none() | offsets,
            st.booleans(),
            st.booleans(),
            timeouts_ms,
        ),
        CODECS["Read"].encode_request,
        quorum_pb2.ReadRequest,
        CODECS["Read"].decode_request,
    ),
    (
        st.builds(
            v.ReadChunk,
            errors,
            leaders,
            known_or_not,
            known_or_not,
            offsets,
            st.none() | positions,
            st.binary(max_size=50),
            st.booleans(),
            texts,
        ),
        CODECS["Read"].encode_response,
        quorum_pb2.ReadResponse,
        CODECS["Read"].decode_response,
    ),
    *admin_cases(),
]
CASES = RAFT_CASES + QUORUM_CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[2].__name__)
def test_every_value_comes_back_as_it_was(case: Any) -> None:
    values, encode, message_type, decode = case

    @settings(max_examples=25)
    @given(values)
    def comes_back(value: Any) -> None:
        sent = encode(value).SerializeToString()
        assert decode(message_type.FromString(sent)) == value

    comes_back()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[2].__name__)
def test_hostile_bytes_are_a_value_or_a_violation(case: Any) -> None:
    """Any message that protobuf can read: a value, or ViolationError, and nothing else."""
    _, _, message_type, decode = case

    @settings(max_examples=40)
    @given(st.binary(max_size=60))
    def is_taken_or_refused(raw: bytes) -> None:
        try:
            message = message_type.FromString(raw)
        except Exception:
            return
        try:
            decode(message)
        except ViolationError:
            return

    is_taken_or_refused()


def test_every_message_of_the_protocol_has_a_way_to_the_wire() -> None:
    """All of raft.messages but what stays inside a node."""
    rows = [codec.method.values for codec in CODECS.values()]
    covered = {kind.__name__ for row in rows if row is not None for kind in row}
    inside = {"UpdateKRaftVersionRequest", "ReadIndexRequest", "ReadIndexResponse"}
    everything = {kind.__name__ for kind in (*m.Request.__args__, *m.Response.__args__)}
    assert everything - inside <= covered
    tested = {case[2].DESCRIPTOR.full_name for case in CASES}
    sent = {
        message.DESCRIPTOR.full_name
        for codec in CODECS.values()
        for message in (codec.method.request, codec.method.response)
    }
    assert sent - tested == {"quorate.v1.DescribeFeaturesRequest", "quorate.v1.NodeStatusRequest"}


async def fetched(response: m.FetchResponse, records: Sequence[Buffer]) -> raft_pb2.FetchResponse:
    """The message that a follower receives."""
    rest = convert.encode_fetch_response(response)
    return raft_pb2.FetchResponse.FromString(await encode_with_records(rest, "records", records))


async def test_the_records_of_a_fetch_arrive_as_batches_of_the_same_bytes() -> None:
    first = build_data_batch([(b"", b"a"), (b"", b"b")], 1)
    second = build_data_batch([(b"", b"c")], 2)
    stamp(first, 10, 3)
    stamp(second, 12, 4)
    value = m.FetchResponse(ErrorCode.NONE, m.CurrentLeader(4, 1), records_from=10, max_bytes=99)
    message = await fetched(value, [memoryview(first), second])
    got = convert.decode_fetch_response(message)
    assert [(b.base_offset, b.last_offset, b.epoch) for b in got.batches] == [
        (10, 11, 3),
        (12, 12, 4),
    ]
    assert [bytes(batch.data) for batch in got.batches] == [first, second]
    assert all(isinstance(batch, Batch) for batch in got.batches)
    assert got.max_bytes == 0, "a note for the leader's own use"


async def test_a_fetch_with_a_flipped_bit_is_a_violation() -> None:
    batch = build_data_batch([(b"", b"value")], 1)
    batch[-3] ^= 1
    message = await fetched(m.FetchResponse(ErrorCode.NONE, m.CurrentLeader(1)), [batch])
    with pytest.raises(ViolationError, match="checksum"):
        convert.decode_fetch_response(message)


def test_the_error_codes_are_the_protocols() -> None:
    assert dict(common_pb2.ErrorCode.items()) == {code.name: int(code) for code in ErrorCode}


def test_an_unknown_error_code_is_a_server_error() -> None:
    assert fields.error_from_wire(12_345) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_sixteen_zero_bytes_are_no_directory() -> None:
    assert fields.directory_from_wire(bytes(16)) is None
    assert fields.directory_to_wire("A" * 22) == b""


def test_an_own_directory_id_that_is_no_uuid_is_misuse() -> None:
    with pytest.raises(MisuseError):
        fields.directory_to_wire("not a uuid")


KEY = common_pb2.ReplicaKey(id=1)


@pytest.mark.parametrize(
    ("message", "decode", "text"),
    [
        (
            raft_pb2.VoteRequest(candidate=KEY),
            CODECS["Vote"].decode_request,
            "VoteRequest.voter: it is missing",
        ),
        (
            raft_pb2.FetchRequest(replica=common_pb2.ReplicaKey(id=-1)),
            convert.decode_fetch_request,
            "-1, which is negative",
        ),
        (
            raft_pb2.FetchRequest(replica=common_pb2.ReplicaKey(id=1, directory_id=b"short")),
            convert.decode_fetch_request,
            "16 bytes, not 5",
        ),
        (
            raft_pb2.FetchRequest(replica=KEY, offset=-5),
            convert.decode_fetch_request,
            "the fetch offset is -5",
        ),
        (
            raft_pb2.FetchRequest(replica=KEY, endpoints=[common_pb2.Endpoint(host="h", port=0)]),
            convert.decode_fetch_request,
            "is 0, not 1 to 65535",
        ),
        (
            raft_pb2.FetchRequest(
                replica=KEY, endpoints=[common_pb2.Endpoint(host="h", port=70_000)]
            ),
            convert.decode_fetch_request,
            "70000",
        ),
        (
            raft_pb2.FetchRequest(replica=KEY, endpoints=[common_pb2.Endpoint(port=1)]),
            convert.decode_fetch_request,
            "host of endpoint '' is empty",
        ),
        (
            raft_pb2.FetchRequest(
                replica=KEY, endpoints=[common_pb2.Endpoint(host="h", port=1)] * 9
            ),
            convert.decode_fetch_request,
            "9 endpoints: at most 8 are allowed",
        ),
        (
            raft_pb2.FetchRequest(
                replica=KEY, endpoints=[common_pb2.Endpoint(name="n", host="h" * 256, port=1)]
            ),
            convert.decode_fetch_request,
            "its host 256: at most 255 are allowed",
        ),
        (
            raft_pb2.FetchRequest(
                replica=KEY, endpoints=[common_pb2.Endpoint(name="n" * 300, host="h", port=1)]
            ),
            convert.decode_fetch_request,
            "an endpoint's name has 300 characters",
        ),
        (
            raft_pb2.ApiVersionsResponse(
                replica=KEY, kraft_version=common_pb2.VersionRange(min=2, max=1)
            ),
            CODECS["ApiVersions"].decode_response,
            "2 to 1",
        ),
        (
            quorum_pb2.DescribeQuorumResponse(
                voter_set=[common_pb2.Voter(key=KEY), common_pb2.Voter(key=KEY)]
            ),
            CODECS["DescribeQuorum"].decode_response,
            "twice",
        ),
        (
            quorum_pb2.FormatRequest(cluster_id="c"),
            CODECS["Format"].decode_request,
            "is not a format mode",
        ),
        (
            quorum_pb2.FormatRequest(cluster_id="c", mode=quorum_pb2.INITIAL_CONTROLLERS),
            CODECS["Format"].decode_request,
            "initial_controllers: 0 given",
        ),
        (
            quorum_pb2.UpdateFeaturesRequest(feature="f", upgrade_type=9),  # type: ignore[arg-type]
            CODECS["UpdateFeatures"].decode_request,
            "9 is not an upgrade type",
        ),
        (
            quorum_pb2.ReadRequest(from_offset=-1),
            CODECS["Read"].decode_request,
            "negative",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_message_is_a_violation_that_says_what_is_wrong(
    message: Any, decode: Any, text: str
) -> None:
    with pytest.raises(ViolationError, match=text):
        decode(message)


def test_what_a_simple_client_leaves_out_has_the_kips_defaults() -> None:
    add = CODECS["AddVoter"].decode_request(quorum_pb2.AddVoterRequest(voter=KEY))
    assert (add.timeout_ms, add.ack_when_committed) == (30_000, True)
    fetch = convert.decode_fetch_request(raft_pb2.FetchRequest(replica=KEY))
    assert (fetch.high_watermark, fetch.max_wait_ms, fetch.max_bytes) == (-1, 500, 8 << 20)
    assert fetch.incarnation == 0
    leader = common_pb2.CurrentLeader(epoch=1)
    vote = CODECS["Vote"].decode_response(raft_pb2.VoteResponse(current_leader=leader))
    assert not vote.granted_if_all
    fetched = convert.decode_fetch_response(raft_pb2.FetchResponse(current_leader=leader))
    assert fetched.acknowledged is None
    read = CODECS["Read"].decode_request(quorum_pb2.ReadRequest())
    assert (read.linearizable, read.max_records) == (True, None)


TIMED: list[tuple[type[Message], Callable[[Any], Any], int]] = [
    (quorum_pb2.AddVoterRequest, CODECS["AddVoter"].decode_request, 600_000),
    (quorum_pb2.RemoveVoterRequest, CODECS["RemoveVoter"].decode_request, 600_000),
    (quorum_pb2.UpdateFeaturesRequest, CODECS["UpdateFeatures"].decode_request, 600_000),
    (quorum_pb2.TransferLeadershipRequest, CODECS["TransferLeadership"].decode_request, 60_000),
    (quorum_pb2.ReadRequest, CODECS["Read"].decode_request, 60_000),
]


@pytest.mark.parametrize(
    ("kind", "decode", "limit"), TIMED, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_timeout_is_limited(
    kind: type[Message], decode: Callable[[Any], Any], limit: int
) -> None:
    message: Any = kind()
    for name in ("voter", "target"):
        if name in kind.DESCRIPTOR.fields_by_name:
            getattr(message, name).id = 1
    if kind is quorum_pb2.UpdateFeaturesRequest:
        message.feature = "kraft.version"
    assert decode(message).timeout_ms == 30_000
    for sent, taken in ((1, 1), (limit, limit), (limit + 1, limit), (UINT32, limit)):
        message.timeout_ms = sent
        assert decode(message).timeout_ms == taken
    message.timeout_ms = 0
    with pytest.raises(ViolationError, match="timeout_ms is 0"):
        decode(message)


def test_a_removal_that_is_not_forced_is_what_it_was_before_there_was_force() -> None:
    """An older leader ignores the field; an older client does not send it."""
    wanted = m.RemoveVoterRequest("", ReplicaKey(1), 1_000)
    plain = CODECS["RemoveVoter"].encode_request(wanted)
    assert not plain.HasField("force")
    assert CODECS["RemoveVoter"].decode_request(plain) == wanted
    forced = CODECS["RemoveVoter"].encode_request(replace(wanted, force=True))
    assert CODECS["RemoveVoter"].decode_request(forced).force
