"""What each method needs, and what becomes of a request's parts; who speaks for which node."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.acls import LITERAL
from quorate.metadata.authorizer import CLUSTER, AclAuthorizer, Operation, Resource, ResourceType
from quorate.raft import messages as m
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter
from quorate.rpc.principals import Caller
from quorate.rpc.server.authorizer import AuthorizationResult, Denial
from quorate.rpc.wire.methods import RPC_METHODS, Callers, RpcMethod
from quorate.runtime.authorization import PART_OPERATIONS, authorize_parts
from quorate.runtime.authorizer import NodeAuthorizer, PeerIdentity
from quorate.v1 import lifecycle_pb2, metadata_pb2, quorum_pb2, raft_pb2

from tests import certificates
from tests.tools.access import values_from

FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
IDS = {"idA" * 7: "a", "idB" * 7: "b"}
ID_A, ID_B = IDS


def only(*allowed: tuple[Operation, Resource]) -> Callable[[Operation, Resource], bool]:
    return lambda operation, resource: (operation, resource) in allowed


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def test_every_method_of_the_proto_is_in_the_table() -> None:
    methods = [
        f"/{service.full_name}/{method.name}"
        for module in (raft_pb2, quorum_pb2, metadata_pb2, lifecycle_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    assert sorted(methods) == sorted(rpc.path for rpc in RPC_METHODS.values())


PART_METHODS = [rpc for rpc in RPC_METHODS.values() if not rpc.is_about_cluster]


def granting(*granted: tuple[ResourceType, str, Operation], permission: int = 3) -> NodeAuthorizer:
    """An authorizer whose ACLs allow alice this."""
    authorizer = AclAuthorizer(["User:CN=admin"])
    authorizer.use(
        r.Acl(kind, name, LITERAL, "User:CN=alice", "*", operation, permission)
        for kind, name, operation in granted
    )
    node_authorizer = NodeAuthorizer(identity=PeerIdentity.OFF, authorizer=authorizer)
    node_authorizer._loader, node_authorizer._is_stale = SimpleNamespace(has_caught_up=True), False  # type: ignore[assignment]
    return node_authorizer


@pytest.mark.parametrize("rpc", PART_METHODS, ids=lambda rpc: rpc.name)
def test_who_may_do_it_to_nothing_is_refused_before_the_request_is_read(rpc: RpcMethod) -> None:
    alice, admin = Caller("User:CN=alice"), Caller("User:CN=admin")
    other = Operation.CLUSTER_ACTION
    stranger = granting((ResourceType.TOPIC, "t", other), (ResourceType.CLUSTER, "c", other))
    refused = stranger.refusal(alice, rpc.name)
    assert refused is not None
    assert refused.error is FAILED
    assert stranger.refusal(admin, rpc.name) is None
    denied = granting((ResourceType.TOPIC, "t", rpc.operation), permission=2)
    assert denied.refusal(alice, rpc.name) is not None
    for kind in rpc.resources:
        node_authorizer = granting((kind, "x", rpc.operation))
        assert node_authorizer.refusal(alice, rpc.name) is None
        assert node_authorizer.refusal(Caller("User:CN=bob"), rpc.name) is not None
        assert granting((kind, "x", Operation.ALL)).refusal(alice, rpc.name) is None


def test_a_method_that_nobody_knows_is_refused() -> None:
    node_authorizer = NodeAuthorizer(identity=PeerIdentity.OFF, authorizer=AclAuthorizer())
    assert isinstance(node_authorizer.refusal(Caller("User:CN=x"), "Novel", object()), Denial)


def test_topics_are_created_one_by_one() -> None:
    request = r.CreateTopics((r.NewTopic("a"), r.NewTopic("b"), r.NewTopic("c")))
    authorized = authorize_parts("CreateTopics", request, only((Operation.CREATE, topic("b"))), {})
    assert [t.name for t in authorized.request.topics] == ["b"]
    response = authorized.finish(r.CreateTopicsResponse((r.CreatedTopic("b"),)))
    assert [(t.name, t.error) for t in response.topics] == [
        ("a", FAILED),
        ("b", ErrorCode.NONE),
        ("c", FAILED),
    ]


def test_what_is_left_of_nothing_is_answered_at_once() -> None:
    request = r.CreateTopics((r.NewTopic("a"),))
    authorized = authorize_parts("CreateTopics", request, only(), {})
    assert authorized.answer == r.CreateTopicsResponse((r.CreatedTopic("a", FAILED),))


@pytest.mark.parametrize("name", ["CreateTopics", "DeleteTopics"])
def test_create_and_delete_of_the_cluster_are_of_every_topic(name: str) -> None:
    request: Any = r.CreateTopics((r.NewTopic("a"),))
    if name == "DeleteTopics":
        request = r.DeleteTopics((r.TopicRef("a"),))
    allows = only((PART_OPERATIONS[name], CLUSTER))
    assert authorize_parts(name, request, allows, {}) == AuthorizationResult(request)


def test_topics_are_deleted_by_name_or_id() -> None:
    unknown = "idC" * 7
    request = r.DeleteTopics(
        (r.TopicRef("a"), r.TopicRef("", ID_B), r.TopicRef("", unknown), r.TopicRef("", ID_A))
    )
    authorized = authorize_parts("DeleteTopics", request, only((Operation.DELETE, topic("a"))), IDS)
    assert authorized.request.topics == (r.TopicRef("a"), r.TopicRef("", ID_A))
    done = r.DeleteTopicsResponse((r.DeletedTopic("a", ID_A), r.DeletedTopic("a", ID_A)))
    assert [t.error for t in authorized.finish(done).topics] == [
        ErrorCode.NONE,
        FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
    ]


def test_configs_of_topics_groups_and_the_cluster() -> None:
    resources = [r.ConfigResource(kind, name) for kind, name in ((2, "a"), (4, "1"), (32, "g"))]
    changes = tuple(r.ConfigChange(each, ()) for each in resources)
    request = r.IncrementalAlterConfigs(changes)
    authorized = authorize_parts("IncrementalAlterConfigs", request, only(), {})
    assert [each.error for each in authorized.answer.resources] == [
        FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ]
    allows = only((Operation.ALTER_CONFIGS, CLUSTER))
    assert authorize_parts("IncrementalAlterConfigs", request, allows, {}).request.changes == (
        changes[1],
    )


def test_partitions_are_added_topic_by_topic() -> None:
    request = r.CreatePartitions((r.NewPartitions("a", 2), r.NewPartitions("b", 2)))
    authorized = authorize_parts(
        "CreatePartitions", request, only((Operation.ALTER, topic("b"))), {}
    )
    response = authorized.finish(r.CreatePartitionsResponse((r.PartResult("b"),)))
    assert [each.error for each in response.topics] == [FAILED, ErrorCode.NONE]


def test_a_list_of_all_topics_leaves_out_what_one_may_not_see() -> None:
    request = r.DescribeTopics(None, limit=1)
    authorized = authorize_parts(
        "DescribeTopics", request, only((Operation.DESCRIBE, topic("b"))), IDS
    )
    assert authorized.request == r.DescribeTopics((r.TopicRef("b"),), limit=1)
    described = r.DescribeTopicsResponse((r.TopicDescription("b", ID_B),))
    assert authorized.finish(described) == described


def test_who_asks_by_id_does_not_learn_the_name() -> None:
    request = r.DescribeTopics((r.TopicRef("", ID_A), r.TopicRef("b")))
    authorized = authorize_parts("DescribeTopics", request, only(), IDS)
    assert authorized.request.topics == ()
    assert authorized.finish(r.DescribeTopicsResponse(())).topics == (
        r.TopicDescription("", ID_A, error=FAILED),
        r.TopicDescription("b", error=FAILED),
    )


def test_the_time_for_hidden_topics_grows_with_their_number() -> None:
    """A request names up to 14,500 topics: it must not compare each one with all others."""
    allows = only((Operation.DESCRIBE, topic("a")))

    def seconds(count: int) -> float:
        refs = tuple(r.TopicRef("a" if n % 2 else f"h{n}") for n in range(count))
        return min(
            timeit.repeat(
                lambda: authorize_parts("DescribeTopics", r.DescribeTopics(refs), allows, {}),
                number=1,
                repeat=3,
            )
        )

    few, many = 250, 4_000
    assert seconds(many) < 4 * (many / few) * seconds(few)


def test_configs_that_one_may_not_see() -> None:
    a, b = r.ConfigResource(2, "a"), r.ConfigResource(2, "b")
    found = r.DescribeConfigsResponse((r.ResourceConfigs(a), r.ResourceConfigs(b)))
    allows = only((Operation.DESCRIBE_CONFIGS, topic("b")))
    asked = authorize_parts("DescribeConfigs", r.DescribeConfigs((a, b)), allows, {})
    assert [each.error for each in asked.finish(found).resources] == [FAILED, ErrorCode.NONE]
    everything = authorize_parts("DescribeConfigs", r.DescribeConfigs(all_of_type=2), allows, {})
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
    node_authorizer = NodeAuthorizer()
    assert node_authorizer.refusal(certificate_of(2), name, request_) is None
    refused = node_authorizer.refusal(certificate_of(1, 3), name, request_)
    assert refused is not None
    assert refused.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert refused.message == "the certificate names node-1, node-3, but the request is from node 2"
    assert node_authorizer.refusal(certificate_of(), name, request_) is not None
    assert (
        NodeAuthorizer(identity=PeerIdentity.OFF).refusal(certificate_of(1), name, request_) is None
    )


def test_a_certificate_without_a_node_is_refused_with_the_remedy() -> None:
    vote = FROM_2[0][1]
    for identity in (PeerIdentity.AUTO, PeerIdentity.REQUIRED):
        refused = NodeAuthorizer(identity=identity).refusal(certificate_of(), "Vote", vote)
        assert refused is not None
        assert "node-2 among its DNS names" in refused.message
        assert "2@PRINCIPAL to quorate.controller.principals" in refused.message
        assert "quorate.peer.identity=off" in refused.message
    assert NodeAuthorizer(identity=PeerIdentity.OFF).refusal(certificate_of(), "Vote", vote) is None


def test_without_tls_a_node_is_refused_only_where_identity_is_required() -> None:
    vote = FROM_2[0][1]
    assert (
        NodeAuthorizer(identity=PeerIdentity.REQUIRED).refusal(Caller(), "Vote", vote) is not None
    )
    assert NodeAuthorizer().refusal(Caller(), "Vote", vote) is None


def test_all_that_nodes_send_needs_their_certificate_where_identity_is_required() -> None:
    required = NodeAuthorizer(identity=PeerIdentity.REQUIRED)
    values = values_from(2)
    for rpc in RPC_METHODS.values():
        request = values[rpc.name]
        is_nodes = rpc.callers is not Callers.ANYBODY
        unread = required.refusal(Caller(), rpc.name)
        assert (unread is not None) is (is_nodes or rpc.name == "Format"), rpc.name
        if not is_nodes:
            continue
        assert required.refusal(Caller(), rpc.name, request) is not None, rpc.name
        assert isinstance(required.authorize(Caller(), rpc.name, request), Denial), rpc.name
        assert required.refusal(certificate_of(), rpc.name, request) is not None, rpc.name
        assert required.refusal(certificate_of(2), rpc.name, request) is None, rpc.name
        if rpc.name != "ApiVersions":  # which names no sender
            assert required.refusal(certificate_of(3), rpc.name, request) is not None, rpc.name
        assert NodeAuthorizer().refusal(Caller(), rpc.name, request) is None, rpc.name


class Connection:
    """What gRPC says of a caller with this subject."""

    def __init__(self, subject: str, *names: str, has_certificate: bool = True) -> None:
        self._auth: dict[str, list[bytes]] = {}
        if has_certificate:
            self._auth = {
                "x509_pem_cert": [certificates.certificate_of(*map(str.encode, names))],
                "x509_subject": [subject.encode()],
            }

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._auth

    def peer(self) -> str:
        return "ipv4:10.0.0.1:4711"


def test_a_principal_speaks_for_the_nodes_it_is_listed_with() -> None:
    nodes = (("User:CN=kafka-2", 2), ("User:CN=both", 1), ("User:CN=both", 2))
    node_authorizer = NodeAuthorizer(controllers=[name for name, _ in nodes], nodes=nodes)
    vote = FROM_2[0][1]

    def refusal(connection: Connection) -> Denial | None:
        caller = node_authorizer.caller(connection)  # type: ignore[arg-type]  # all that is asked of a context
        return node_authorizer.refusal(caller, "Vote", vote)

    assert refusal(Connection("CN=kafka-2")) is None
    assert refusal(Connection("CN=both")) is None
    assert refusal(Connection("CN=kafka-2", "node-1")) is None
    assert refusal(Connection("CN=kafka-1")) is not None
    wrong = node_authorizer.caller(Connection("CN=kafka-2"))  # type: ignore[arg-type]
    refused = node_authorizer.refusal(
        wrong, "Fetch", m.FetchRequest("c", ReplicaKey(3, None), 1, 0, 0)
    )
    assert refused is not None
    assert refused.message == "the certificate names node-2, but the request is from node 3"


# --- Format ---------------------------------------------------------------------------------------


def test_a_waiting_node_takes_format_from_who_is_listed() -> None:
    node = Caller("User:CN=node-1", "h", frozenset({1}), has_certificate=True)
    operator = Caller("User:CN=operator", "h", has_certificate=True)
    admin = Caller("User:CN=admin", "h", has_certificate=True)
    listed = NodeAuthorizer(formatters=("User:CN=operator",))
    secured = NodeAuthorizer(
        formatters=("User:CN=operator",), authorizer=AclAuthorizer(["User:CN=admin"])
    )
    for node_authorizer, allowed in (
        (NodeAuthorizer(), ()),
        (NodeAuthorizer(identity=PeerIdentity.OFF), ()),
        (listed, (operator,)),
        (secured, (operator, admin)),
        (NodeAuthorizer(identity=PeerIdentity.OFF, formatters=("User:ANONYMOUS",)), (Caller(),)),
    ):
        for caller in (node, operator, admin, Caller(), Caller(None, "h", has_certificate=True)):
            refused = node_authorizer.refusal(caller, "Format", object())
            assert (refused is None) is (caller in allowed), caller
            assert refused is None or "quorate.format.principals" in refused.message


def test_administrators_need_no_node() -> None:
    node_authorizer = NodeAuthorizer()
    added = m.AddVoterRequest("c", KEY, ())
    assert node_authorizer.refusal(certificate_of(), "AddVoter", added) is None
    assert (
        node_authorizer.refusal(certificate_of(), "ApiVersions", m.ApiVersionsRequest("c"))
        is not None
    )


# --- only controllers vote ------------------------------------------------------------------------

CONTROLLERS = ("User:CN=c-1", "User:CN=c-2")


@pytest.mark.parametrize("identity", list(PeerIdentity))
@pytest.mark.parametrize("name", ["Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "UpdateVoter"])
def test_only_listed_principals_take_part_in_elections(name: str, identity: PeerIdentity) -> None:
    node_authorizer = NodeAuthorizer(identity=identity, controllers=CONTROLLERS)
    request = dict(FROM_2)[name]
    nodes = frozenset({2})
    for principal in CONTROLLERS:
        caller = Caller(principal, "h", nodes, has_certificate=True)
        assert node_authorizer.refusal(caller, name, request) is None
    for caller in (Caller("User:CN=x", "h", nodes, has_certificate=True), Caller()):
        refused = node_authorizer.refusal(caller, name, request)
        assert refused is not None
        assert refused.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    unmapped = node_authorizer.refusal(
        Caller(None, "h", nodes, has_certificate=True), name, request
    )
    assert unmapped is not None


def test_super_users_do_not_vote() -> None:
    authorizer = AclAuthorizer(["User:CN=x"])
    node_authorizer = NodeAuthorizer(
        identity=PeerIdentity.OFF, controllers=CONTROLLERS, authorizer=authorizer
    )
    assert node_authorizer.refusal(certificate_of(), "Vote", dict(FROM_2)["Vote"]) is not None
    assert (
        node_authorizer.refusal(certificate_of(), "AddVoter", m.AddVoterRequest("c", KEY, ()))
        is None
    )
