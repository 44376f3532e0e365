"""The requests of voters as Kafka's messages: what a peer reads is what was sent."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.fetch_messages import NO_HIGH_WATERMARK
from quorate.bridge.messages.peer_messages import (
    API_KEYS,
    ResponseReader,
    can_send,
    read_response,
    unsupported,
    write_request,
)
from quorate.bridge.requests.raft_requests import read_request, refused, write_response
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.raft import messages as m
from quorate.raft.errors import ViolationError
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter
from quorate.records.batch import build_data_batch

from tests.unit.bridge.bridge_support import call

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
LISTENER = "KAFKA"
ONE, TWO = (ReplicaKey(n, f"{'A' * 20}{n}A") for n in (1, 2))
GRPC, KAFKA = Endpoint("CONTROLLER", "one", 9093), Endpoint(LISTENER, "one", 9094)
ENDPOINTS = (GRPC, KAFKA)
VOTER = Voter(ONE, ENDPOINTS, VersionRange(0, 1))
LEADER = m.CurrentLeader(7, 1, ENDPOINTS)

VOTE = m.VoteRequest(CLUSTER, 7, ONE, TWO, 6, 42, pre_vote=True)
BEGIN = m.BeginQuorumEpochRequest(CLUSTER, 7, ReplicaKey(1), ENDPOINTS, TWO)
END = m.EndQuorumEpochRequest(CLUSTER, 7, ReplicaKey(1), (TWO, ONE), ENDPOINTS)
UPDATE = m.UpdateVoterRequest(CLUSTER, 7, VOTER)
FETCH = m.FetchRequest(CLUSTER, ONE, 7, 42, 6, 40, 500, 1 << 20, 5, (), 2**64 - 1)
SNAPSHOT = m.FetchSnapshotRequest(CLUSTER, ONE, 7, OffsetAndEpoch(40, 6), 3, 1000)
REQUESTS = (VOTE, BEGIN, END, UPDATE)
NONE = ErrorCode.NONE


def every_endpoint(replica_id: int, endpoint: Endpoint) -> tuple[Endpoint, ...]:
    assert (replica_id, endpoint) == (1, KAFKA)
    return ENDPOINTS


READER = ResponseReader(LISTENER, every_endpoint)


def sent(request: Any, version: int | None = None) -> s.Call:
    """A request as its receiver decodes it."""
    key = API_KEYS[type(request)]
    version = s.SERVED[key][1] if version is None else version
    return call(key, version, write_request(request, version))


def returned(request: Any, body: Any, version: int | None = None) -> m.Response:
    """A response as the sender of the request decodes it."""
    key = API_KEYS[type(request)]
    version = s.SERVED[key][1] if version is None else version
    _, decoded = read_response(key, version, s.write_response(5, body))
    return READER.read(request, decoded)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_is_read_as_it_was_sent(request_: Any) -> None:
    assert read_request(sent(request_), TWO) == request_


def test_version_0_means_whoever_gets_it() -> None:
    vote = replace(VOTE, pre_vote=False)
    without = replace(vote, candidate=ReplicaKey(1), voter=ReplicaKey(3))
    assert read_request(sent(vote, 0), ReplicaKey(3, TWO.directory_id)) == without
    begin = read_request(sent(BEGIN, 0), TWO)
    assert begin == replace(BEGIN, leader_endpoints=(), voter=ReplicaKey(2))
    end = read_request(sent(END, 0), TWO)
    candidates = (ReplicaKey(2), ReplicaKey(1))
    assert end == replace(END, leader_endpoints=(), preferred_candidates=candidates)


@pytest.mark.parametrize("version", [0, 1])
def test_a_pre_vote_is_never_sent_as_a_vote(version: int) -> None:
    assert not can_send(VOTE, version)
    assert can_send(replace(VOTE, pre_vote=False), version)
    response = unsupported(VOTE, "too old")
    assert response == m.VoteResponse(
        ErrorCode.UNSUPPORTED_VERSION, m.CurrentLeader(0), message="too old"
    )


@pytest.mark.parametrize(
    "response",
    [
        m.VoteResponse(NONE, LEADER, granted=True),
        m.VoteResponse(NONE, m.CurrentLeader(7), granted_if_all=True),
        m.VoteResponse(ErrorCode.INVALID_VOTER_KEY, LEADER),
    ],
)
def test_a_vote_is_answered(response: m.VoteResponse) -> None:
    assert returned(VOTE, write_response(sent(VOTE), response, LISTENER)) == response


def test_kafka_does_not_count_a_vote_that_counts_only_if_all_vote() -> None:
    response = m.VoteResponse(NONE, LEADER, granted_if_all=True)
    vote = sent(replace(VOTE, pre_vote=False), 1)
    answered = write_response(vote, response, LISTENER)
    assert returned(VOTE, answered, 1) == m.VoteResponse(NONE, LEADER)


@pytest.mark.parametrize("error", [NONE, ErrorCode.FENCED_LEADER_EPOCH])
@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (BEGIN, m.BeginQuorumEpochResponse),
        (END, m.EndQuorumEpochResponse),
        (UPDATE, m.AdminResponse),
    ],
)
def test_the_others_are_answered_with_the_leader(request_: Any, kind: Any, error: Any) -> None:
    response = kind(error, LEADER)
    assert returned(request_, write_response(sent(request_), response, LISTENER)) == response
    unknown = kind(error, m.CurrentLeader(3))
    assert returned(request_, write_response(sent(request_), unknown, LISTENER)) == unknown


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_that_is_rejected_names_no_leader(request_: Any) -> None:
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    found = returned(request_, refused(sent(request_), error))
    assert (found.error, found.leader) == (error, m.CurrentLeader(0))
    foreign = m.VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, LEADER)
    answered = write_response(sent(VOTE), foreign, LISTENER)
    assert answered.topics == (), "Kafka expects it at the top level"


def test_what_no_voter_sends_is_a_violation() -> None:
    vote = sent(VOTE)
    (topic,) = vote.body.topics
    (part,) = topic.partitions
    bodies = [
        replace(vote.body, voter_id=-1),
        replace(vote.body, topics=()),
        replace(vote.body, topics=(topic, topic)),
        replace(vote.body, topics=(replace(topic, topic_name="other"),)),
        replace(vote.body, topics=(replace(topic, partitions=(replace(part, last_offset=-1),)),)),
        replace(vote.body, topics=(replace(topic, partitions=(replace(part, replica_id=-1),)),)),
    ]
    for body in bodies:
        with pytest.raises(ViolationError):
            read_request(vote._replace(body=body), TWO)
    update = sent(UPDATE)
    levels = replace(update.body.k_raft_version_feature, min_supported_version=2)
    for changed in ({"k_raft_version_feature": levels}, {"current_leader_epoch": -1}):
        with pytest.raises(ViolationError):
            read_request(update._replace(body=replace(update.body, **changed)), TWO)


def test_a_request_without_a_cluster_is_one_of_another() -> None:
    vote = sent(VOTE)
    found = read_request(vote._replace(body=replace(vote.body, cluster_id=None)), TWO)
    assert found.cluster_id == ""


# --- replication ----------------------------------------------------------------------------------


def test_a_fetch_names_its_process_to_quorate_only() -> None:
    found = sent(FETCH).body
    assert (found.cluster_id, found.replica_id, found.directory) == (CLUSTER, 1, ONE.directory_id)
    assert (found.epoch, found.offset, found.last_epoch, found.high_watermark) == (7, 42, 6, 40)
    assert (found.read_round, found.incarnation) == (5, 2**64 - 1)
    older = sent(FETCH, 17).body
    assert (older.offset, older.read_round, older.incarnation) == (42, 0, 0)
    assert older.high_watermark == NO_HIGH_WATERMARK


def fetched(**fields: Any) -> Any:
    module = s.response_module(s.FETCH, 18)
    partition = module.PartitionData(
        partition_index=0,
        error_code=s.error_field(fields.pop("error", NONE)),
        high_watermark=40,
        log_start_offset=2,
        current_leader=module.LeaderIdAndEpoch(leader_id=1, leader_epoch=7),
        aborted_transactions=(),
        records=fields.pop("records", b""),
        **fields.pop("partition", {}),
    )
    topic = module.FetchableTopicResponse(topic_id=None, partitions=(partition,))
    node = module.NodeEndpoint(node_id=1, host="one", port=9094)
    return s.answer(
        module,
        error_code=s.error_field(NONE),
        responses=(topic,),
        node_endpoints=(node,),
        **fields,
    )


def test_records_are_read_and_their_checksums_verified() -> None:
    data = bytes(build_data_batch([(b"k", b"v")], 1))
    response = returned(FETCH, fetched(records=data))
    assert isinstance(response, m.FetchResponse)
    assert (response.error, response.leader, response.high_watermark) == (NONE, LEADER, 40)
    assert [bytes(batch.data) for batch in response.batches] == [data]
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(ViolationError, match="checksum"):
        returned(FETCH, fetched(records=bytes(damaged)))


def test_what_only_quorate_knows_comes_back() -> None:
    end = {"acknowledged_offset": 30, "acknowledged_epoch": 6}
    response = returned(FETCH, fetched(read_round=9, **end))
    assert isinstance(response, m.FetchResponse)
    assert (response.read_round, response.acknowledged) == (9, OffsetAndEpoch(30, 6))


def test_divergence_snapshot_and_error_are_read() -> None:
    module = s.response_module(s.FETCH, 18)
    diverging = {"diverging_epoch": module.EpochEndOffset(epoch=5, end_offset=30)}
    response = returned(FETCH, fetched(partition=diverging))
    assert isinstance(response, m.FetchResponse)
    assert (response.diverging, response.snapshot) == (OffsetAndEpoch(30, 5), None)
    snapshot = {"snapshot_id": module.SnapshotId(end_offset=30, epoch=5)}
    response = returned(FETCH, fetched(partition=snapshot))
    assert isinstance(response, m.FetchResponse)
    assert (response.diverging, response.snapshot) == (None, OffsetAndEpoch(30, 5))
    response = returned(FETCH, fetched(error=ErrorCode.FENCED_LEADER_EPOCH))
    assert response == m.FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, LEADER)


def snapshot_response(data: bytes, offset: int = 40) -> Any:
    module = s.response_module(s.FETCH_SNAPSHOT, 1)
    part = module.PartitionSnapshot(
        index=0,
        error_code=s.error_field(NONE),
        snapshot_id=module.SnapshotId(end_offset=offset, epoch=6),
        current_leader=module.LeaderIdAndEpoch(leader_id=1, leader_epoch=7),
        size=900,
        position=3,
        unaligned_records=data,
    )
    topic = module.TopicSnapshot(name="__cluster_metadata", partitions=(part,))
    node = module.NodeEndpoint(node_id=1, host="one", port=9094)
    return s.answer(module, error_code=s.error_field(NONE), topics=(topic,), node_endpoints=(node,))


def test_a_range_of_a_snapshot_is_read() -> None:
    response = returned(SNAPSHOT, snapshot_response(b"bytes"))
    assert response == m.FetchSnapshotResponse(
        NONE, LEADER, OffsetAndEpoch(40, 6), 900, 3, data=b"bytes"
    )
    for wrong in (snapshot_response(bytes(1001)), snapshot_response(b"", 41)):
        with pytest.raises(ViolationError):
            returned(SNAPSHOT, wrong)


# --- membership -----------------------------------------------------------------------------------


def test_a_controller_that_joins_is_refused_by_who_does_not_lead() -> None:
    add = m.AddVoterRequest(CLUSTER, ONE, ENDPOINTS, 30_000, ack_when_committed=False)
    body = sent(add).body
    assert (body.cluster_id, body.voter_id, body.ack_when_committed) == (CLUSTER, 1, False)
    assert s.uuid_text(body.voter_directory_id) == ONE.directory_id
    assert [(e.name, e.host, e.port) for e in body.listeners] == [
        (e.name, e.host, e.port) for e in ENDPOINTS
    ]
    module = s.response_module(s.ADD_RAFT_VOTER, 1)
    failed = s.answer(module, **s.error_fields(ErrorCode.NOT_CONTROLLER, "no"))
    leader = m.CurrentLeader(0)
    assert returned(add, failed) == m.AdminResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader, "no")
    remove = m.RemoveVoterRequest(CLUSTER, ONE)
    body = sent(remove).body
    assert (body.voter_id, s.uuid_text(body.voter_directory_id)) == (1, ONE.directory_id)


FIRST_FAILOVER = """
import sys
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages import peer_messages as peer
from quorate.raft import messages as m
from quorate.raft.types import ReplicaKey

if LOADS:
    peer.load_failover_messages()
before = set(sys.modules)
one, two = ReplicaKey(1), ReplicaKey(2)
vote = m.VoteRequest("cluster", 7, one, two, 6, 42)
begin = m.BeginQuorumEpochRequest("cluster", 7, one, (), two)
end = m.EndQuorumEpochRequest("cluster", 7, one, (two,))
for request in (vote, begin, end):
    api_key = peer.API_KEYS[type(request)]
    s.write(peer.write_request(request, s.SERVED[api_key][1]))
    s.response_type(api_key, s.SERVED[api_key][1])
print(len(set(sys.modules) - before))
"""


@pytest.mark.parametrize("loads", [True, False])
def test_a_failover_waits_for_no_import(loads: bool) -> None:
    """Each takes a node 10 ms in which nobody leads."""
    program = f"LOADS = {loads}{FIRST_FAILOVER}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    assert (int(done.stdout) == 0) == loads
