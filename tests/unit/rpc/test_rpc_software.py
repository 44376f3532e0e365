"""Which software replicas run, from what they answer and what they have registered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata.requests import ControllerDescription
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.client.routing import Route
from quorate.rpc.software import UNKNOWN, Software, grpc_endpoints, software_of
from quorate.rpc.wire.values import NodeStatus

GRPC, BOTH = Endpoint("CONTROLLER", "c", 9093), Endpoint("KAFKA", "c", 9094)
KAFKAS = Endpoint("KAFKA", "a", 9093)
VOTERS = VoterSet.of(
    [
        Voter(ReplicaKey(1), (KAFKAS,)),
        Voter(ReplicaKey(2), (replace(KAFKAS, host="b"),)),
        Voter(ReplicaKey(3), (GRPC, BOTH)),
    ]
)
VIEW = DescribeQuorumResponse(
    ErrorCode.NONE,
    CurrentLeader(1, 1),
    voters=tuple(ReplicaStatus(voter.key, 1, 1, 1, voter.endpoints) for voter in VOTERS),
    observers=(ReplicaStatus(ReplicaKey(7), 1, 1, 1),),
    voter_set=VOTERS,
)
OURS = NodeStatus(3, True, version="0.2.0")


def registered(node_id: int, level: int, *endpoints: Endpoint) -> ControllerDescription:
    features = (("metadata.version", VersionRange(7, level)),)
    return ControllerDescription(node_id, "A" * 22, endpoints, features)


@pytest.mark.parametrize(
    ("level", "version"),
    [(25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3"), (31, "after 4.3")],
)
def test_a_registration_identifies_kafkas_release(level: int, version: str) -> None:
    found = software_of(VIEW, [OURS], [registered(1, level, KAFKAS)])
    assert found == {
        1: Software("kafka", version),
        2: Software("kafka"),
        3: Software("quorate", "0.2.0"),
        7: UNKNOWN,
    }
    assert [str(found[each]) for each in (1, 2, 3, 7)] == [
        f"kafka {version}",
        "kafka",
        "quorate 0.2.0",
        "unknown",
    ]


def test_a_controller_of_quorate_that_is_down_is_unknown() -> None:
    assert software_of(VIEW, [])[3] is UNKNOWN
    after = registered(1, 30, Endpoint("CONTROLLER", "a", 1), KAFKAS)
    found = software_of(VIEW, [], [after])
    assert found[1] is UNKNOWN, "its registration is newer than the voter set"
    assert found[2] == Software("kafka")


def test_without_a_listener_for_kafka_no_controller_is_kafkas() -> None:
    """The log has one endpoint of each voter, whose name says nothing."""
    alike = VoterSet.of(Voter(voter.key, voter.endpoints[:1]) for voter in VOTERS)
    found = software_of(replace(VIEW, voter_set=alike), [OURS])
    assert found == {1: UNKNOWN, 2: UNKNOWN, 3: Software("quorate", "0.2.0"), 7: UNKNOWN}


def test_a_client_does_not_ask_kafkas_controllers() -> None:
    """They would end the connection, and log an invalid request."""
    places = [voter.endpoints for voter in VOTERS]
    assert grpc_endpoints(places) == (GRPC,)
    assert grpc_endpoints([(KAFKAS,), (GRPC,)]) == (KAFKAS, GRPC)
    route = Route([("c", 9093)])
    route.learn_nodes(grpc_endpoints(places))
    route.confirm(("c", 9093), 4)
    assert route.learn(CurrentLeader(4, 1)) == (), "the leader is named without endpoints"
    assert route.order() == [("c", 9093)]
