"""What the operator asks of a quorum, and what it does about a refusal."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import quorate_operator
from quorate.raft.types import ReplicaKey
from quorate.v1 import common_pb2, quorum_pb2
from quorate_operator.control.act import ActionFailedError, Actor
from quorate_operator.naming import NodeIds
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.observe import Snapshot
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_api import api_server

VOTER = ReplicaKey(1, "AAAAAAAAAAAAAAAAAAAAAQ")


def test_no_module_of_the_operator_forces_a_removal() -> None:
    modules = Path(quorate_operator.__file__).parent.glob("**/*.py")
    calls = [
        [keyword.arg for keyword in call.keywords]
        for path in modules
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "remove_voter"
    ]
    assert calls == [["timeout_ms"]]


class Leader:
    """Refuses each removal for a reason that may go away, and remembers it."""

    def __init__(self) -> None:
        self.removals: list[quorum_pb2.RemoveVoterRequest] = []

    async def remove_voter(
        self, request: quorum_pb2.RemoveVoterRequest, context: Any
    ) -> quorum_pb2.RemoveVoterResponse:
        self.removals.append(request)
        return quorum_pb2.RemoveVoterResponse(
            error_code=common_pb2.REQUEST_TIMED_OUT, error_message="it could not commit"
        )


@pytest.fixture
async def leader() -> AsyncIterator[tuple[Leader, int]]:
    server, servicer = grpc.aio.server(), Leader()
    handler = grpc.unary_unary_rpc_method_handler(
        servicer.remove_voter,
        request_deserializer=quorum_pb2.RemoveVoterRequest.FromString,
        response_serializer=quorum_pb2.RemoveVoterResponse.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler("quorate.v1.Quorum", {"RemoveVoter": handler})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, port
    await server.stop(None)


async def test_a_removal_that_is_refused_for_now_is_planned_again(
    leader: tuple[Leader, int],
) -> None:
    """REQUEST_TIMED_OUT ends the action, and force is not asked for."""
    servicer, port = leader
    node = p.ObservedNode(
        0, 0, uid="uid", answers=True, directory_id="d", cluster_id="c", ready=True
    )
    observed = p.Observed(ids=NodeIds(0), size=1, nodes=(node,))
    quorum = QuorumResource("q", "lab", spec={"image": "quorate:1", "replicas": 1})

    async def leads() -> bool:
        return True

    with api_server() as (_, kube):
        actor = Actor(kube, leads, lambda *_: ("127.0.0.1", port))
        with pytest.raises(ActionFailedError, match="could not commit"):
            await actor.act(p.RemoveVoter(VOTER), quorum, Snapshot(observed), None)
    assert [request.HasField("force") for request in servicer.removals] == [False]
    assert servicer.removals[0].voter.id == VOTER.id
