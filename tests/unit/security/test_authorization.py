"""What each method needs, and what becomes of a request's parts; who speaks for which node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from quorate.metadata import requests as r
from quorate.metadata.authorizer import CLUSTER, AclAuthorizer, Operation, Resource, ResourceType
from quorate.raft import messages as m
from quorate.raft.errors import ErrorCode
from quorate.raft.types import Endpoint, OffsetAndEpoch, ReplicaKey, Voter
from quorate.rpc.gate import Admission, Refusal
from quorate.rpc.principals import Caller
from quorate.runtime.authorization import CLUSTER_OPERATIONS, PART_OPERATIONS, admit_parts
from quorate.runtime.gate import NodeGate, PeerIdentity
from quorate.v1 import lifecycle_pb2, metadata_pb2, quorum_pb2, raft_pb2

FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
IDS = {"idA" * 7: "a", "idB" * 7: "b"}
ID_A, ID_B = IDS


def only(*allowed: tuple[Operation, Resource]) -> Callable[[Operation, Resource], bool]:
    return lambda operation, resource: (operation, resource) in allowed


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def test_every_method_is_in_the_table_once() -> None:
    methods = {
        method.input_type.name.removesuffix("Request")
        for module in (raft_pb2, quorum_pb2, metadata_pb2, lifecycle_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert methods == CLUSTER_OPERATIONS.keys() | PART_OPERATIONS.keys()
    assert not CLUSTER_OPERATIONS.keys() & PART_OPERATIONS.keys()


def test_a_method_that_nobody_knows_is_refused() -> None:
    gate = NodeGate(identity=PeerIdentity.OFF, authorizer=AclAuthorizer())
    assert isinstance(gate.refusal(Caller("User:CN=x"), "Novel", object()), Refusal)


def test_topics_are_created_one_by_one() -> None:
    request = r.CreateTopics((r.NewTopic("a"), r.NewTopic("b"), r.NewTopic("c")))
    admitted = admit_parts("CreateTopics", request, only((Operation.CREATE, topic("b"))), {})
    assert [t.name for t in admitted.request.topics] == ["b"]
    response = admitted.finish(r.CreateTopicsResponse((r.CreatedTopic("b"),)))
    assert [(t.name, t.error) for t in response.topics] == [
        ("a", FAILED),
        ("b", ErrorCode.NONE),
        ("c", FAILED),
    ]


def test_what_is_left_of_nothing_is_answered_at_once() -> None:
    request = r.CreateTopics((r.NewTopic("a"),))
    admitted = admit_parts("CreateTopics", request, only(), {})
    assert admitted.answer == r.CreateTopicsResponse((r.CreatedTopic("a", FAILED),))


@pytest.mark.parametrize("name", ["CreateTopics", "DeleteTopics"])
def test_create_and_delete_of_the_cluster_are_of_every_topic(name: str) -> None:
    request: Any = r.CreateTopics((r.NewTopic("a"),))
    if name == "DeleteTopics":
        request = r.DeleteTopics((r.TopicRef("a"),))
    allows = only((PART_OPERATIONS[name], CLUSTER))
    assert admit_parts(name, request, allows, {}) == Admission(request)


def test_topics_are_deleted_by_name_or_id() -> None:
    unknown = "idC" * 7
    request = r.DeleteTopics(
        (r.TopicRef("a"), r.TopicRef("", ID_B), r.TopicRef("", unknown), r.TopicRef("", ID_A))
    )
    admitted = admit_parts("DeleteTopics", request, only((Operation.DELETE, topic("a"))), IDS)
    assert admitted.request.topics == (r.TopicRef("a"), r.TopicRef("", ID_A))
    done = r.DeleteTopicsResponse((r.DeletedTopic("a", ID_A), r.DeletedTopic("a", ID_A)))
    assert [t.error for t in admitted.finish(done).topics] == [
        ErrorCode.NONE,
        FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
    ]


def test_configs_of_topics_groups_and_the_cluster() -> None:
    resources = [r.ConfigResource(kind, name) for kind, name in ((2, "a"), (4, "1"), (32, "g"))]
    changes = tuple(r.ConfigChange(each, ()) for each in resources)
    request = r.IncrementalAlterConfigs(changes)
    admitted = admit_parts("IncrementalAlterConfigs", request, only(), {})
    assert [each.error for each in admitted.answer.resources] == [
        FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ]
    allows = only((Operation.ALTER_CONFIGS, CLUSTER))
    assert admit_parts("IncrementalAlterConfigs", request, allows, {}).request.changes == (
        changes[1],
    )


def test_partitions_are_added_topic_by_topic() -> None:
    request = r.CreatePartitions((r.NewPartitions("a", 2), r.NewPartitions("b", 2)))
    admitted = admit_parts("CreatePartitions", request, only((Operation.ALTER, topic("b"))), {})
    response = admitted.finish(r.CreatePartitionsResponse((r.Outcome("b"),)))
    assert [each.error for each in response.topics] == [FAILED, ErrorCode.NONE]


def test_a_list_of_all_topics_leaves_out_what_one_may_not_see() -> None:
    request = r.DescribeTopics(None, limit=1)
    admitted = admit_parts("DescribeTopics", request, only((Operation.DESCRIBE, topic("b"))), IDS)
    assert admitted.request == r.DescribeTopics((r.TopicRef("b"),), limit=1)
    described = r.DescribeTopicsResponse((r.TopicDescription("b", ID_B),))
    assert admitted.finish(described) == described


def test_who_asks_by_id_does_not_learn_the_name() -> None:
    request = r.DescribeTopics((r.TopicRef("", ID_A), r.TopicRef("b")))
    admitted = admit_parts("DescribeTopics", request, only(), IDS)
    assert admitted.request.topics == ()
    assert admitted.finish(r.DescribeTopicsResponse(())).topics == (
        r.TopicDescription("", ID_A, error=FAILED),
        r.TopicDescription("b", error=FAILED),
    )


def test_configs_that_one_may_not_see() -> None:
    a, b = r.ConfigResource(2, "a"), r.ConfigResource(2, "b")
    found = r.DescribeConfigsResponse((r.ResourceConfigs(a), r.ResourceConfigs(b)))
    allows = only((Operation.DESCRIBE_CONFIGS, topic("b")))
    asked = admit_parts("DescribeConfigs", r.DescribeConfigs((a, b)), allows, {})
    assert [each.error for each in asked.finish(found).resources] == [FAILED, ErrorCode.NONE]
    everything = admit_parts("DescribeConfigs", r.DescribeConfigs(all_of_type=2), allows, {})
    assert everything.finish(found).resources == (r.ResourceConfigs(b),)


# --- identity -------------------------------------------------------------------------------------

KEY = ReplicaKey(2, "AAAAAAAAAAAAAAAAAAAAAQ")
OTHER = ReplicaKey(1, "AAAAAAAAAAAAAAAAAAAAAg")
FROM_2: list[tuple[str, object]] = [
    ("Vote", m.VoteRequest("c", 1, KEY, OTHER, 0, 0)),
    ("BeginQuorumEpoch", m.BeginQuorumEpochRequest("c", 1, KEY, (), OTHER)),
    ("EndQuorumEpoch", m.EndQuorumEpochRequest("c", 1, KEY, ())),
    ("Fetch", m.FetchRequest("c", KEY, 1, 0, 0)),
    ("FetchSnapshot", m.FetchSnapshotRequest("c", KEY, 1, OffsetAndEpoch(1, 1), 0)),
    ("UpdateVoter", m.UpdateVoterRequest("c", 1, Voter(KEY, (Endpoint("C", "h", 1),)))),
    ("RegisterBroker", r.RegisterBroker(2, "i", (Endpoint("C", "h", 1),))),
    ("BrokerHeartbeat", r.BrokerHeartbeat(2, 1, 1)),
    ("AlterPartition", r.AlterPartition(2, 1, ())),
    ("AllocateProducerIds", r.AllocateProducerIds(2, 1)),
    ("AssignReplicasToDirs", r.AssignReplicasToDirs(2, 1, ())),
]


def certificate_of(*nodes: int) -> Caller:
    return Caller("User:CN=x", "h", frozenset(nodes), has_certificate=True)


@pytest.mark.parametrize(("name", "request_"), FROM_2, ids=[name for name, _ in FROM_2])
def test_a_certificate_speaks_for_its_node_only(name: str, request_: object) -> None:
    gate = NodeGate(names_itself=True)
    assert gate.refusal(certificate_of(2), name, request_) is None
    refused = gate.refusal(certificate_of(1, 3), name, request_)
    assert refused is not None
    assert refused.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert refused.message == "the certificate is of node-1, node-3, and the sender says 2"
    assert gate.refusal(certificate_of(), name, request_) is not None
    assert NodeGate(identity=PeerIdentity.OFF).refusal(certificate_of(1), name, request_) is None


def test_where_no_certificate_names_nodes_none_is_asked_for() -> None:
    vote = FROM_2[0][1]
    assert NodeGate(names_itself=False).refusal(certificate_of(), "Vote", vote) is None
    strict = NodeGate(identity=PeerIdentity.REQUIRED)
    assert strict.refusal(certificate_of(), "Vote", vote) is not None
    assert strict.refusal(Caller(), "Vote", vote) is not None
    assert NodeGate(names_itself=True).refusal(Caller(), "Vote", vote) is None


def test_administrators_need_no_node() -> None:
    gate = NodeGate(names_itself=True)
    added = m.AddVoterRequest("c", KEY, ())
    assert gate.refusal(certificate_of(), "AddVoter", added) is None
    assert gate.refusal(certificate_of(), "ApiVersions", m.ApiVersionsRequest("c")) is not None


# --- only controllers vote ------------------------------------------------------------------------

CONTROLLERS = ("User:CN=c-1", "User:CN=c-2")


@pytest.mark.parametrize("identity", list(PeerIdentity))
@pytest.mark.parametrize("name", ["Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "UpdateVoter"])
def test_only_listed_principals_take_part_in_elections(name: str, identity: PeerIdentity) -> None:
    gate = NodeGate(identity=identity, names_itself=True, controllers=CONTROLLERS)
    assert not gate.is_open
    request = dict(FROM_2)[name]
    nodes = frozenset({2})
    for principal in CONTROLLERS:
        caller = Caller(principal, "h", nodes, has_certificate=True)
        assert gate.refusal(caller, name, request) is None
    for caller in (Caller("User:CN=x", "h", nodes, has_certificate=True), Caller()):
        refused = gate.refusal(caller, name, request)
        assert refused is not None
        assert refused.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    unmapped = gate.refusal(Caller(None, "h", nodes, has_certificate=True), name, request)
    assert unmapped is not None


def test_super_users_do_not_vote() -> None:
    authorizer = AclAuthorizer(["User:CN=x"])
    gate = NodeGate(identity=PeerIdentity.OFF, controllers=CONTROLLERS, authorizer=authorizer)
    assert gate.refusal(certificate_of(), "Vote", dict(FROM_2)["Vote"]) is not None
    assert gate.refusal(certificate_of(), "AddVoter", m.AddVoterRequest("c", KEY, ())) is None
