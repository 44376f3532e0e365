"""Nodes that answer the operator over gRPC as those of a quorum do, without one.

They hold a voter set and a disk each, and node 0 leads. A test changes them between two steps of
the operator; `pods` puts the objects of their pods into the API server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from quorate.rpc.fields import directory_to_wire
from quorate.v1 import common_pb2, quorum_pb2
from quorate_operator import naming
from quorate_operator.kube.api import path

from tests.unit.operator.fake_api import Object, Store

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
HOST = "127.0.0.1"
REVISION = "1"
NOW_MS = 100_000
LEADER = common_pb2.CurrentLeader(epoch=7, id=0)


def disk(ordinal: int, which: str = "A") -> str:
    """A directory id."""
    return f"{which * 20}{'AEIMQUYcg'[ordinal]}{'A'}"


class FakeNodes:
    """disks: the directory id of each node, None if it is empty. silent: nodes that do not answer.
    removals: the voters that were removed, by id. error: rejects removals with this message.
    """

    def __init__(self, size: int) -> None:
        self.disks: list[str | None] = [disk(ordinal) for ordinal in range(size)]
        self.voters: dict[int, str] = {ordinal: disk(ordinal) for ordinal in range(size)}
        self.silent: set[int] = set()
        self.removals: list[int] = []
        self.error = ""
        self.ports: list[int] = []

    def locate(self, _quorum: str, _namespace: str, ordinal: int) -> tuple[str, int]:
        return HOST, self.ports[ordinal]

    # --- what they answer -------------------------------------------------------------------------

    def status(self, ordinal: int) -> quorum_pb2.NodeStatusResponse:
        found = self.disks[ordinal]
        if found is None:
            return quorum_pb2.NodeStatusResponse(node_id=ordinal)
        return quorum_pb2.NodeStatusResponse(
            node_id=ordinal,
            cluster_id=CLUSTER,
            directory_id=directory_to_wire(found),
            formatted=True,
            version="1",
        )

    def describe(self) -> quorum_pb2.DescribeQuorumResponse:
        states = [self._state(node, directory) for node, directory in self.voters.items()]
        voters = [
            common_pb2.Voter(
                key=_key(node, directory),
                endpoints=[_endpoint(self.ports[node])],
            )
            for node, directory in self.voters.items()
        ]
        return quorum_pb2.DescribeQuorumResponse(
            current_leader=LEADER,
            high_watermark=10,
            kraft_version=1,
            voters=states,
            voter_set=voters,
            committed_voters=voters,
        )

    def _state(self, node: int, directory: str) -> quorum_pb2.ReplicaState:
        is_alive = node not in self.silent and self.disks[node] == directory
        return quorum_pb2.ReplicaState(
            replica=_key(node, directory),
            log_end_offset=10,
            last_fetch_timestamp_ms=NOW_MS,
            last_caught_up_timestamp_ms=NOW_MS if is_alive else 0,
        )

    def remove(self, request: quorum_pb2.RemoveVoterRequest) -> quorum_pb2.RemoveVoterResponse:
        if self.error:
            return quorum_pb2.RemoveVoterResponse(
                error_code=common_pb2.REQUEST_TIMED_OUT, error_message=self.error
            )
        self.removals.append(request.voter.id)
        del self.voters[request.voter.id]
        return quorum_pb2.RemoveVoterResponse()

    # --- their pods -------------------------------------------------------------------------------

    def pods(self, store: Store) -> None:
        """Make the objects of the pods, all of the current template, and what their controller
        writes.
        """
        found = store.objects[path("StatefulSet", "lab", "q")]
        found["status"] = {"updateRevision": REVISION}
        for ordinal in range(len(self.disks)):
            labels = naming.labels("q") | {"controller-revision-hash": REVISION}
            name = naming.pod("q", ordinal)
            ready = {"type": "Ready", "status": "True"}
            status = {"phase": "Running", "podIP": HOST, "conditions": [ready]}
            body: Object = {"metadata": {"name": name, "labels": labels}, "status": status}
            store.handle("POST", path("Pod", "lab"), body)

    def break_pod(self, store: Store, ordinal: int, waiting: Object) -> None:
        """A container of the pod waits: its process does not run."""
        self.silent.add(ordinal)
        container = {"name": "controller", "state": {"waiting": waiting}}
        status = {"phase": "Pending", "containerStatuses": [container]}
        store.objects[path("Pod", "lab", naming.pod("q", ordinal))]["status"] = status


def _endpoint(port: int) -> common_pb2.Endpoint:
    return common_pb2.Endpoint(name=naming.LISTENER, host=HOST, port=port)


def _key(node: int, directory: str) -> common_pb2.ReplicaKey:
    return common_pb2.ReplicaKey(id=node, directory_id=directory_to_wire(directory))


@asynccontextmanager
async def serving(nodes: FakeNodes) -> AsyncIterator[FakeNodes]:
    """Serve each node on its own port of loopback."""
    servers = []
    for ordinal in range(len(nodes.disks)):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_handlers(nodes, ordinal),))
        nodes.ports.append(server.add_insecure_port(f"{HOST}:0"))
        await server.start()
        servers.append(server)
    try:
        yield nodes
    finally:
        for server in servers:
            await server.stop(None)


def _handlers(nodes: FakeNodes, ordinal: int) -> grpc.GenericRpcHandler[Any, Any]:
    async def node_status(_request: Any, _context: Any) -> quorum_pb2.NodeStatusResponse:
        return nodes.status(ordinal)

    async def describe(_request: Any, _context: Any) -> quorum_pb2.DescribeQuorumResponse:
        if ordinal:
            return quorum_pb2.DescribeQuorumResponse(
                error_code=common_pb2.NOT_LEADER_OR_FOLLOWER,
                current_leader=LEADER,
            )
        return nodes.describe()

    async def remove(
        request: quorum_pb2.RemoveVoterRequest, _context: Any
    ) -> quorum_pb2.RemoveVoterResponse:
        return nodes.remove(request)

    methods: dict[str, tuple[Any, Any]] = {
        "NodeStatus": (node_status, quorum_pb2.NodeStatusRequest),
        "DescribeQuorum": (describe, quorum_pb2.DescribeQuorumRequest),
        "RemoveVoter": (remove, quorum_pb2.RemoveVoterRequest),
    }
    return grpc.method_handlers_generic_handler(
        "quorate.v1.Quorum",
        {
            name: grpc.unary_unary_rpc_method_handler(
                method,
                request_deserializer=request.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for name, (method, request) in methods.items()
        },
    )
