"""Requests for Kafka's leader, read as this project's bridge reads them; and the responses back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.leader_messages import CONVERSIONS, UNANSWERED, completed, since
from quorate.bridge.requests.forwarding import FORWARDED
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata import requests as r
from quorate.raft import messages as m
from quorate.raft.types import ReplicaKey, Voter, VoterSet

from tests.unit.bridge.bridge_support import LEADER, uuid_of

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
TIMEOUT_MS = 1_234
FAILED, WHY = ErrorCode.INVALID_REQUEST, "for a reason"
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
TOPIC, GROUP = r.ConfigResource(2, "a"), r.ConfigResource(32, "g")
ALICE, DEFAULT = (("user", "alice"),), (("client-id", None), ("user", None))
ACL = r.Acl(2, "a", 3, "User:alice", "*", 3, 3)
VOTER = ReplicaKey(3, uuid_of(3))
ENDPOINTS = (Endpoint("CONTROLLER", "a", 1), Endpoint("KAFKA", "a", 2))

CREATION = r.CreateTopics(
    (
        r.NewTopic("a", 3, 2, configs=(("retention.ms", "5"), ("cleanup.policy", None))),
        r.NewTopic("b", -1, -1, ((1, 2), (2, 3)), partition_numbers=(0, 1)),
    ),
    validate_only=True,
)
DELETION = r.DeleteTopics((r.TopicRef("a"), r.TopicRef("", uuid_of(2))))
GROWTH = r.CreatePartitions(
    (r.NewPartitions("a", 4), r.NewPartitions("b", 3, ((1, 2),))), validate_only=True
)
ELECTION = r.ElectLeaders(1, (("a", 0), ("a", 2), ("b", 1)))
REASSIGNMENT = r.AlterPartitionReassignments(
    (r.Reassignment("a", 0, (1, 2)), r.Reassignment("a", 1, None), r.Reassignment("b", 0, (3,)))
)
CONFIGS = r.IncrementalAlterConfigs(
    (
        r.ConfigChange(TOPIC, (r.ConfigOp("x", "1"), r.ConfigOp("y", None, 1))),
        r.ConfigChange(GROUP, (r.ConfigOp("z", "2", 2),)),
    )
)
QUOTAS = r.AlterClientQuotas(
    (
        r.QuotaChange(ALICE, (r.QuotaOp("a", 1.5), r.QuotaOp("b", None))),
        r.QuotaChange(DEFAULT, (r.QuotaOp("a", 2.0),)),
    ),
    validate_only=True,
)
SCRAM = r.AlterUserScramCredentials(
    (r.ScramUpsertion("alice", 1, 4096, b"salt", b"salted"),), (r.ScramDeletion("bob", 2),)
)
ACLS = r.CreateAcls((ACL, replace(ACL, resource_name="b")))
FILTERS = r.DeleteAcls((r.AclFilter(2, "a", 3, "User:alice", "*", 3, 3), r.AclFilter()))
FEATURES = r.UpdateFeatures(
    (r.FeatureUpdate("metadata.version", 28), r.FeatureUpdate("group.version", 0, 3)), True
)
UNREGISTRATION = r.UnregisterBroker(7)
ADDITION = m.AddVoterRequest(CLUSTER, VOTER, ENDPOINTS, TIMEOUT_MS, ack_when_committed=False)
REMOVAL = m.RemoveVoterRequest(CLUSTER, VOTER)
REQUESTS = (
    CREATION, DELETION, GROWTH, ELECTION, r.ElectLeaders(0), REASSIGNMENT,
    replace(REASSIGNMENT, allow_replication_factor_change=False), CONFIGS, QUOTAS, SCRAM, ACLS,
    FILTERS, FEATURES, UNREGISTRATION, ADDITION, REMOVAL, m.DescribeQuorumRequest(""),
)  # fmt: skip


def versions(request: Any) -> range:
    return range(since(request), s.SERVED[CONVERSIONS[type(request)].api_key][1] + 1)


def read(request: Any, version: int) -> Any:
    """The body of a request, as the leader reads it."""
    conversion = CONVERSIONS[type(request)]
    body = conversion.write(request, version, TIMEOUT_MS)
    header = s.write_header(conversion.api_key, version, 5, "a client")
    return s.read_call(header + body).body


def returned(request: Any, response: Any, version: int) -> Any:
    """The value of a response that the leader wrote."""
    conversion = CONVERSIONS[type(request)]
    module = s.response_module(conversion.api_key, version)
    written = FORWARDED[conversion.api_key].write(module, response)
    body = s.read_response(conversion.api_key, version, s.write_response(5, written))[1]
    return conversion.read(request, body)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_the_leader_reads_what_was_asked(request_: Any) -> None:
    assert versions(request_)
    for version in versions(request_):
        body = read(request_, version)
        assert FORWARDED[CONVERSIONS[type(request_)].api_key].read(body) == request_
        if hasattr(body, "timeout"):
            assert body.timeout == s.milliseconds(TIMEOUT_MS)


def outcomes(*keys: tuple[str, int]) -> tuple[r.PartitionOutcome, ...]:
    return tuple(r.PartitionOutcome(*key, error=FAILED, message=WHY) for key in keys)


RESPONSES = (
    (
        DELETION,
        r.DeleteTopicsResponse(
            (r.DeletedTopic("a", uuid_of(1)), r.DeletedTopic("b", uuid_of(2), FAILED, WHY))
        ),
    ),
    (
        GROWTH,
        r.CreatePartitionsResponse((r.PartResult("a"), r.PartResult("b", FAILED, WHY))),
    ),
    (ELECTION, r.ElectLeadersResponse(outcomes(("a", 0), ("a", 2), ("b", 1)))),
    (ELECTION, r.ElectLeadersResponse((), error=FAILED)),
    (
        REASSIGNMENT,
        r.AlterPartitionReassignmentsResponse(outcomes(("a", 0), ("a", 1), ("b", 0))),
    ),
    (REASSIGNMENT, r.AlterPartitionReassignmentsResponse((), error=FAILED, message=WHY)),
    (
        CONFIGS,
        r.AlterConfigsResponse((r.ConfigOutcome(TOPIC), r.ConfigOutcome(GROUP, FAILED, WHY))),
    ),
    (
        QUOTAS,
        r.AlterClientQuotasResponse(
            (r.QuotaOutcome(ALICE), r.QuotaOutcome(DEFAULT, error=FAILED, message=WHY))
        ),
    ),
    (
        SCRAM,
        r.AlterUserScramCredentialsResponse(
            (r.PartResult("bob", FAILED, WHY), r.PartResult("alice"))
        ),
    ),
    (ACLS, r.CreateAclsResponse((r.PartResult("a"), r.PartResult("b", FAILED, WHY)))),
    (
        FILTERS,
        r.DeleteAclsResponse((r.DeletedAcls((ACL,)), r.DeletedAcls(error=FAILED, message=WHY))),
    ),
    (FEATURES, r.UpdateFeaturesResponse()),
    (UNREGISTRATION, r.UnregisterBrokerResponse(error=FAILED, message=WHY)),
    (REMOVAL, m.AdminResponse(FAILED, m.CurrentLeader(0), WHY)),
    (ADDITION, m.AdminResponse(ErrorCode.NONE, m.CurrentLeader(0))),
)


@pytest.mark.parametrize(("request_", "response"), RESPONSES, ids=lambda each: type(each).__name__)
def test_responses_are_read_in_every_version(request_: Any, response: Any) -> None:
    shown = response
    if isinstance(response, r.UpdateFeaturesResponse):
        shown = FORWARDED[s.UPDATE_FEATURES].fail(request_, FAILED, WHY)
        response = r.UpdateFeaturesResponse(error=FAILED, message=WHY)
    for version in versions(request_):
        assert returned(request_, shown, version) == response


def test_every_forwarded_request_is_tested() -> None:
    assert {type(each) for each in REQUESTS} == set(CONVERSIONS)


def test_a_created_topic_has_its_own_configs() -> None:
    own = (("retention.ms", "5"),)
    creation = replace(CREATION, topics=CREATION.topics[::-1])
    response = r.CreateTopicsResponse(
        (
            r.CreatedTopic("a", topic_id=uuid_of(1), partitions=3, replication_factor=2),
            r.CreatedTopic("b", FAILED, WHY),
        )
    )
    module = s.response_module(s.CREATE_TOPICS, 7)
    written = FORWARDED[s.CREATE_TOPICS].write(module, response)
    configs = tuple(
        module.CreatableTopicConfigs(
            name=name, value=value, read_only=False, config_source=source, is_sensitive=False
        )
        for name, value, source in (("retention.ms", "5", 1), ("flush.ms", "9", 5))
    )
    topics = (replace(written.topics[0], configs=configs), written.topics[1])
    found = CONVERSIONS[r.CreateTopics].read(creation, replace(written, topics=topics))
    refused, created = found.topics
    assert refused == response.topics[1], "in the order of the request"
    assert created == replace(response.topics[0], configs=own)


@pytest.mark.parametrize(
    ("request_", "empty", "field"),
    [
        (CREATION, r.CreateTopicsResponse(()), "topics"),
        (DELETION, r.DeleteTopicsResponse(()), "topics"),
        (GROWTH, r.CreatePartitionsResponse(()), "topics"),
        (CONFIGS, r.AlterConfigsResponse(()), "resources"),
        (QUOTAS, r.AlterClientQuotasResponse(()), "entries"),
        (ACLS, r.CreateAclsResponse(()), "results"),
    ],
)
def test_a_part_without_a_result_has_an_error(request_: Any, empty: Any, field: str) -> None:
    """The authorizer merges results by position, so none may be missing."""
    parts = getattr(returned(request_, empty, versions(request_)[-1]), field)
    assert [(part.error, part.message) for part in parts] == [(UNKNOWN, UNANSWERED)] * 2


def test_results_have_the_order_of_the_request() -> None:
    response = r.AlterConfigsResponse((r.ConfigOutcome(GROUP, FAILED, WHY), r.ConfigOutcome(TOPIC)))
    assert returned(CONFIGS, response, 1).resources == response.resources[::-1]


def test_an_unknown_error_of_kafkas_is_an_error() -> None:
    conversion = CONVERSIONS[r.UnregisterBroker]
    module = s.response_module(conversion.api_key, 0)
    body = s.answer(module, error_code=s.code_field(128), error_message=None)
    assert conversion.read(UNREGISTRATION, body).error is UNKNOWN


# --- DescribeQuorum -------------------------------------------------------------------------------

OTHER = ReplicaKey(1, uuid_of(1))
OBSERVER = ReplicaKey(5, uuid_of(5))
VIEW = m.DescribeQuorumResponse(
    ErrorCode.NONE,
    m.CurrentLeader(4, 1),
    90,
    1,
    (
        m.ReplicaStatus(OTHER, 100, 11, 12, (Endpoint("KAFKA", "b", 2),)),
        m.ReplicaStatus(VOTER, 95, 9, 8, ENDPOINTS),
    ),
    (m.ReplicaStatus(OBSERVER, 90, 7, -1),),
    VoterSet.of((Voter(OTHER, (Endpoint("KAFKA", "b", 2),)), Voter(VOTER, ENDPOINTS))),
)


def test_the_leaders_view_is_read_and_completed_by_the_log() -> None:
    view = returned(m.DescribeQuorumRequest(""), VIEW, 2)
    assert view == replace(VIEW, kraft_version=0)
    levels = VersionRange(0, 2)
    log = VoterSet.of((Voter(VOTER, ENDPOINTS[:1], levels),))
    own = m.DescribeQuorumResponse(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, LEADER, 50, 1, voter_set=log, committed_voters=log
    )
    found = completed(view, own)
    assert found == replace(
        VIEW,
        voter_set=VoterSet.of((*(v for v in VIEW.voter_set if v.key == OTHER),
                               Voter(VOTER, ENDPOINTS, levels))),
        committed_voters=log,
    )  # fmt: skip
    assert completed(replace(view, voter_set=VoterSet.of([Voter(VOTER)]), voters=view.voters[1:]),
                     own).voter_set == log, "without endpoints in the response"  # fmt: skip


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE])
def test_without_a_view_there_is_an_error(error: ErrorCode) -> None:
    request = m.DescribeQuorumRequest("")
    module = s.response_module(s.DESCRIBE_QUORUM, 2)
    part = s.make(module.PartitionData, partition_index=0, **s.error_fields(error, WHY),
                  leader_id=-1, leader_epoch=0, high_watermark=-1, current_voters=(),
                  observers=())  # fmt: skip
    topic = module.TopicData(topic_name="__cluster_metadata", partitions=(part,))
    topics = () if error is ErrorCode.NONE else (topic,)
    body = s.answer(module, **s.error_fields(ErrorCode.NONE), topics=topics, nodes=())
    found = CONVERSIONS[type(request)].read(request, body)
    wanted = (UNKNOWN, UNANSWERED) if error is ErrorCode.NONE else (error, WHY)
    assert (found.error, found.message) == wanted
