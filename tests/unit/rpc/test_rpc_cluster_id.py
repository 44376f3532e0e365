"""Clients at addresses where nodes of another cluster listen: nothing is executed there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.raft.messages import AdminResponse
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import AdminError, QuorumClient, UnreachableError
from quorate.rpc.errors import OutcomeUnknownError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.cluster_id import CLUSTER_ID_KEY, cluster_in, cluster_metadata
from quorate.rpc.wire.convert_append import encode_append_request
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.v1 import quorum_pb2

from tests.unit.rpc.rpc_support import CLUSTER, NO_HANG_S, Node, Pair, address_of, serving

ANOTHER = "AnotherAnotherAnother1"
VOTER = ReplicaKey(7, "AAAAAAAAAAAAAAAAAAAABw")
ENDPOINTS = (Endpoint("CONTROLLER", "seven", 9093),)
RECORDS = [(b"key", b"value")]


class Controller(Node):
    """A node that also answers metadata requests."""

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        self.asked.append(request)
        return MetadataAnswer(ErrorCode.NONE, self.leader, r.DescribeAclsResponse(()))


async def first_of(client: QuorumClient, *, follow: bool) -> Any:
    async with aclosing(client.read(0, follow=follow)) as records:
        return await anext(records)


CALLS: dict[str, Callable[[QuorumClient], Awaitable[Any]]] = {
    "append": lambda client: client.append(RECORDS),
    "append_value": lambda client: client.append_value(b"value"),
    "read": lambda client: first_of(client, follow=False),
    "follow": lambda client: first_of(client, follow=True),
    "read_index": lambda client: client.read_index(),
    "describe_quorum": lambda client: client.describe_quorum(),
    "add_voter": lambda client: client.add_voter(VOTER, ENDPOINTS),
    "remove_voter": lambda client: client.remove_voter(VOTER),
    "transfer_leadership": lambda client: client.transfer_leadership(VOTER),
    "describe_features": lambda client: client.describe_features(),
    "update_features": lambda client: client.update_features("kraft.version", 1),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_node_of_another_cluster_executes_nothing(name: str) -> None:
    node = Node(cluster_id=ANOTHER)
    node.store(RECORDS)
    async with serving(node) as server, asyncio.timeout(NO_HANG_S):
        async with QuorumClient([address_of(server)], cluster_id=CLUSTER) as client:
            with pytest.raises(AdminError) as raised:
                await CALLS[name](client)
        assert raised.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        for part in (CLUSTER, ANOTHER, address_of(server)):
            assert part in str(raised.value)
        assert "\n" not in str(raised.value)
    assert (node.asked, node.appended, node.end_offset) == ([], [], 1)


async def test_metadata_requests_are_rejected_too() -> None:
    node = Controller(cluster_id=ANOTHER)
    async with serving(node) as server, MetadataClient([address_of(server)]) as knows_none:
        assert await knows_none.ask(r.DescribeAcls()) == r.DescribeAclsResponse(())
        node.asked.clear()
        async with MetadataClient([address_of(server)], cluster_id=CLUSTER) as client:
            for ask in (client.ask(r.DescribeAcls()), client.quorum_client().read_index()):
                with pytest.raises(AdminError, match="INCONSISTENT_CLUSTER_ID") as raised:
                    await ask
                assert ANOTHER in str(raised.value)
    assert node.asked == []


@pytest.mark.parametrize("name", ["append", "read", "follow", "read_index", "add_voter"])
async def test_the_client_goes_on_to_nodes_of_its_cluster(name: str) -> None:
    foreign, own = Node(cluster_id=ANOTHER), Node()
    own.store(RECORDS)
    async with serving(foreign) as first, serving(own) as second, asyncio.timeout(NO_HANG_S):
        addresses = [address_of(first), address_of(second)]
        async with QuorumClient(addresses, cluster_id=CLUSTER) as client:
            await CALLS[name](client)
    assert foreign.asked == []
    assert len(own.asked) == 1


async def test_other_errors_hide_no_foreign_node() -> None:
    """A node of the cluster may come back, so the client waits for it."""
    async with serving(Node(cluster_id=ANOTHER)) as foreign:
        addresses = [address_of(foreign), "127.0.0.1:1"]
        async with QuorumClient(addresses, cluster_id=CLUSTER, request_timeout_ms=500) as client:
            with pytest.raises(UnreachableError) as raised:
                await client.append(RECORDS)
    assert ANOTHER in raised.value.attempts[address_of(foreign)]


# --- a client that does not know its cluster ------------------------------------------------------


async def append_anew(client: QuorumClient) -> None:
    """Append after the node has ended: its stream may break just while the append is written."""
    with contextlib.suppress(OutcomeUnknownError):
        await client.append(RECORDS)
    await client.append(RECORDS)


@pytest.mark.parametrize("name", CALLS)
async def test_the_node_that_answers_first_says_which_cluster_it_is(name: str) -> None:
    """Another cluster's node takes its address afterwards."""
    own, foreign = Node(cluster_id=ANOTHER), Node()
    own.store(RECORDS)
    async with asyncio.timeout(NO_HANG_S):
        async with serving(own) as server:
            address = address_of(server)
            client = QuorumClient([address])
            with contextlib.suppress(AdminError):  # a rejection also says who gives it
                await CALLS[name](client)
        async with client, serving(foreign, port=server.ports[0]):
            with pytest.raises(AdminError, match="INCONSISTENT_CLUSTER_ID") as raised:
                await append_anew(client)
            assert ANOTHER in str(raised.value)
            with pytest.raises(AdminError, match="INCONSISTENT_CLUSTER_ID"):
                await client.describe_quorum()
    assert foreign.asked == []


async def test_a_watch_does_not_continue_in_another_cluster() -> None:
    own, foreign = Node(), Node(cluster_id=ANOTHER)
    own.store(RECORDS)
    foreign.store([(b"key", b"one"), (b"key", b"two")])
    async with asyncio.timeout(NO_HANG_S):
        async with serving(own) as server:
            client = QuorumClient([address_of(server)])
            records = client.read(0, follow=True)
            assert (await anext(records)).value == b"value"
        async with client, serving(foreign, port=server.ports[0]):
            with pytest.raises(AdminError, match="INCONSISTENT_CLUSTER_ID"):
                await anext(records)
    assert foreign.asked == []


async def test_a_late_answer_of_another_cluster_is_dropped() -> None:
    """Both were asked before either answered."""
    foreign, own = Node(cluster_id=ANOTHER, delay_s=3.0, delays_sessions=True), Node()
    async with (
        asyncio.timeout(NO_HANG_S),
        serving(foreign) as first,
        serving(own) as second,
        QuorumClient([address_of(first), address_of(second)]) as client,
    ):
        append = asyncio.create_task(client.append(RECORDS))
        read = asyncio.create_task(client.read_index())
        while foreign.asked_sessions + len(foreign.asked) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await client.describe_quorum()).cluster_id == CLUSTER
        assert own.appended == []
        assert (await append).base_offset == 0
        await read
        assert own.appended == [RECORDS]
        done = len(foreign.asked)
        await client.append(RECORDS)
        assert len(foreign.asked) == done


async def test_a_rejection_by_the_request_itself_counts_as_well(pair: Pair) -> None:
    """Earlier versions check the cluster id in the requests that have one."""

    class Earlier(Node):
        async def handle(self, request: Any) -> Any:
            self.asked.append(request)
            return AdminResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, self.leader, "another")

    earlier = Earlier()
    async with serving(earlier) as server:
        addresses = [address_of(server), *pair.addresses]
        async with QuorumClient(addresses) as client:
            await client.add_voter(VOTER, ENDPOINTS)
        async with QuorumClient(addresses[:1]) as client:
            with pytest.raises(AdminError, match="INCONSISTENT_CLUSTER_ID: 127"):
                await client.remove_voter(VOTER)
    assert len(earlier.asked) == 2
    assert pair.nodes[1].voters.get(7) is not None


# --- the metadata of a call -----------------------------------------------------------------------


async def called(address: str, metadata: tuple[tuple[str, str], ...] | None) -> Any:
    """The call of an Append with this metadata, which an earlier or hostile client sends."""
    async with grpc.aio.insecure_channel(address) as channel:
        method: Any = channel.unary_unary(
            RPC_METHODS["Append"].path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=quorum_pb2.AppendResponse.FromString,
        )
        call = method(encode_append_request(1, RECORDS, 1_000), metadata=metadata)
        await call
        return call


async def test_a_call_without_the_metadata_is_served_as_before() -> None:
    node = Node()
    async with serving(node) as server:
        call = await called(address_of(server), None)
        assert cluster_in(await call.initial_metadata()) is None
        call = await called(address_of(server), cluster_metadata(""))
        assert cluster_in(await call.initial_metadata()) == CLUSTER
    assert len(node.appended) == 2


@pytest.mark.parametrize("wanted", ["x" * 4_000, "%0A%1B[2J", "%", "%ff", " "])
async def test_hostile_ids_are_rejected_with_a_short_line(wanted: str) -> None:
    node = Node()
    async with serving(node) as server:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await called(address_of(server), ((CLUSTER_ID_KEY, wanted),))
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert len(raised.value.details() or "") < 200
    assert node.appended == []


@pytest.mark.parametrize("cluster_id", [CLUSTER, "my cluster ", "größe", "100%", "a\nb"])
def test_any_id_can_be_sent(cluster_id: str) -> None:
    metadata = cluster_metadata(cluster_id)
    assert cluster_in(metadata) == cluster_id
    assert metadata[0][1].isascii()
    assert metadata[0][1].isprintable()
