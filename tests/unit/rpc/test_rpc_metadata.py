"""Requests for metadata as messages and back, broken ones too; the services and their client."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.common.identifiers import uuid_from_bytes
from quorate.metadata import requests as r
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.rpc.errors import AdminError, NoLeaderError, UnreachableError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.codec import UNSENT, Codec
from quorate.rpc.wire.convert_metadata import (
    METADATA_CODECS,
    TIMEOUT_MS,
    TIMEOUT_MS_MAX,
    MetadataAnswer,
)
from quorate.v1 import metadata_pb2

from tests.processes import free_ports
from tests.unit.rpc.rpc_support import KEY, Node, address_of, endpoint_of, serving

LEADER = CurrentLeader(5, 2, (Endpoint("CONTROLLER", "127.0.0.1", 9093),))

UUIDS = st.binary(min_size=16, max_size=16).map(uuid_from_bytes)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=10)
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
UUID_FIELDS = (
    *("topic_id", "directory_id", "incarnation_id", "log_dirs"),
    *("offline_log_dirs", "cordoned_log_dirs"),
)


def values(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Values of a declared type; `name` tells UUIDs from other texts."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is str:
        return UUIDS if name in UUID_FIELDS else TEXTS
    if hint is int:
        return INTS
    if hint is bool:
        return st.booleans()
    if hint is float:
        return st.floats(allow_nan=False)
    if hint is bytes:
        return st.binary(max_size=10)
    if hint is ErrorCode:
        return st.sampled_from(ErrorCode)
    if hint is Endpoint:
        return st.builds(Endpoint, TEXTS, TEXTS.filter(bool), st.integers(1, 65535))
    if hint is VersionRange:
        return st.integers(0, 9).map(lambda top: VersionRange(0, top))
    if type(None) in arguments:
        (inner,) = (each for each in arguments if each is not type(None))
        return st.none() | values(inner, name)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0], name), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(each) for each in arguments))
    hints = typing.get_type_hints(hint)
    sent = [each for each in dataclasses.fields(hint) if each.name not in UNSENT]
    return st.builds(hint, **{f.name: values(hints[f.name], f.name) for f in sent})


@pytest.mark.parametrize("codec", METADATA_CODECS.values(), ids=lambda codec: codec.method.name)
@settings(max_examples=25)
@given(data=st.data())
def test_requests_and_responses_survive_the_wire(codec: Codec, data: st.DataObject) -> None:
    assert codec.method.values is not None
    request_type, response_type = codec.method.values
    request = data.draw(values(request_type))
    sent = codec.encode_request(request, 1234).SerializeToString()
    assert codec.decode_request(codec.method.request.FromString(sent)) == (request, 1234)
    response = data.draw(values(response_type))
    answer = MetadataAnswer(ErrorCode.NONE, LEADER, response)
    back = codec.method.response.FromString(codec.encode_response(answer).SerializeToString())
    assert codec.decode_response(back) == answer


def test_every_request_has_a_method() -> None:
    asked = {
        kind
        for kind in vars(r).values()
        if isinstance(kind, type) and issubclass(kind, r.Request | r.Read)
    }
    # Over gRPC there are neither delegation tokens nor the requests that AlterConfigs was before
    # IncrementalAlterConfigs.
    kafkas = {
        r.AlterConfigs,
        r.CreateDelegationToken,
        r.ExpireDelegationToken,
        r.RenewDelegationToken,
    }
    assert set(METADATA_CODECS) == asked - {r.Request, r.Read} - kafkas


def test_a_request_that_says_no_time_gets_the_default_and_none_gets_for_ever() -> None:
    codec = METADATA_CODECS[r.DescribeTopics]
    assert codec.decode_request(metadata_pb2.DescribeTopicsRequest())[1] == TIMEOUT_MS
    long = metadata_pb2.DescribeTopicsRequest(timeout_ms=(1 << 31) - 1)
    assert codec.decode_request(long)[1] == TIMEOUT_MS_MAX
    with pytest.raises(ViolationError, match="timeout_ms is -1"):
        codec.decode_request(metadata_pb2.DescribeTopicsRequest(timeout_ms=-1))


def test_what_is_broken_is_named() -> None:
    broken = metadata_pb2.DeleteTopicsRequest(topics=[metadata_pb2.TopicRef(topic_id=b"short")])
    with pytest.raises(ViolationError, match=r"topic_id: a UUID has 16 bytes, not 5"):
        METADATA_CODECS[r.DeleteTopics].decode_request(broken)
    lacks = metadata_pb2.IncrementalAlterConfigsRequest(changes=[metadata_pb2.ConfigChange()])
    with pytest.raises(ViolationError, match="resource: it is missing"):
        METADATA_CODECS[r.IncrementalAlterConfigs].decode_request(lacks)
    too_many = r.CreateTopics((r.NewTopic("t", partitions=1 << 40),))
    with pytest.raises(MisuseError, match="partitions"):
        METADATA_CODECS[r.CreateTopics].encode_request(too_many, 1)


def test_a_refusal_of_the_whole_is_the_answers_error() -> None:
    codec = METADATA_CODECS[r.CreateTopics]
    refused = r.Refused(ErrorCode.POLICY_VIOLATION, "too much")
    message = codec.encode_response(MetadataAnswer(ErrorCode.NONE, LEADER, refused))
    decoded = codec.decode_response(message)
    assert (decoded.error, decoded.message, decoded.response) == (
        ErrorCode.POLICY_VIOLATION,
        "too much",
        None,
    )


class Controller(Node):
    """A node that answers for metadata, or says who does."""

    def __init__(self, *answers: MetadataAnswer | Exception) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requests: list[tuple[Any, int]] = []

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        self.requests.append((request, timeout_ms))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


REQUEST = r.DescribeAcls()
DONE = MetadataAnswer(ErrorCode.NONE, LEADER, r.DescribeAclsResponse(()))


async def test_the_client_follows_the_leader() -> None:
    follower, leader = Controller(), Controller(DONE, DONE)
    async with serving(follower) as first, serving(leader) as second:
        at = CurrentLeader(5, 2, (endpoint_of(second),))
        follower.answers = [MetadataAnswer(ErrorCode.NOT_CONTROLLER, at)]
        async with MetadataClient([address_of(first)]) as client:
            assert await client.ask(REQUEST) == DONE.response
            asked = await client.ask_whole(REQUEST, timeout_ms=3_000)
            assert (asked.response, asked.repeated) == (DONE.response, False)
    assert len(follower.requests) == 1
    assert leader.requests[1][0] == REQUEST
    assert leader.requests[1][1] <= 3_000


class ForCaller:
    """Answers in a caller's name."""

    def __init__(self, node: Forwarding, peer: str) -> None:
        self.node = node
        self.peer = peer

    async def handle(self, request: Any) -> Any:
        self.node.peers.append(self.peer)
        return await self.node.handle(request)

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        self.node.peers.append(self.peer)
        return await self.node.metadata(request, timeout_ms)


class Forwarding(Controller):
    """A node that is led by another one, and answers for it. peers: the callers."""

    def __init__(self, *answers: MetadataAnswer | Exception) -> None:
        super().__init__(*answers)
        self.peers: list[str] = []

    def for_call(self, context: Any) -> ForCaller:
        return ForCaller(self, context.peer())


async def test_a_node_that_forwards_knows_the_caller_and_keeps_the_client() -> None:
    """Its responses name a leader without endpoints, which the client does not look for."""
    named = CurrentLeader(5, 2)
    node = Forwarding(
        dataclasses.replace(DONE, leader=named), dataclasses.replace(DONE, leader=named)
    )
    async with serving(node) as server, MetadataClient([address_of(server)]) as client:
        for _ in range(2):
            assert await client.ask(REQUEST) == DONE.response
        async with client.quorum_client() as quorum:
            await quorum.add_voter(KEY, [endpoint_of(server)])
    assert [peer.rpartition(":")[0] for peer in node.peers] == ["ipv4:127.0.0.1"] * 3


async def test_leadership_lost_during_a_request_is_reported_in_its_response() -> None:
    node = Controller()
    async with serving(node) as server:
        here = CurrentLeader(5, 1, (endpoint_of(server),))
        text = "it may still be committed"
        node.answers = [MetadataAnswer(ErrorCode.NOT_CONTROLLER, here, message=text), DONE]
        async with MetadataClient([address_of(server)]) as client:
            assert (await client.ask_whole(REQUEST)).repeated


async def test_errors_of_the_whole_are_raised_and_those_of_a_handler_hidden() -> None:
    refused = MetadataAnswer(ErrorCode.POLICY_VIOLATION, LEADER, message="too much")
    node = Controller(refused, RuntimeError("secret"))
    async with serving(node) as server, MetadataClient([address_of(server)]) as client:
        with pytest.raises(AdminError, match="POLICY_VIOLATION: too much"):
            await client.ask(REQUEST)
        with pytest.raises(AdminError, match=r"internal error: RuntimeError$"):
            await client.ask(REQUEST)
        with pytest.raises(MisuseError, match="PartResult is not a request"):
            await client.ask(r.PartResult("x"))


async def test_nobody_there_and_no_metadata_there_are_told_apart() -> None:
    async with serving(Node(), port=free_ports(1)[0]) as server:
        address = address_of(server)
        async with MetadataClient([address]) as client:
            with pytest.raises(NoLeaderError, match="serves no metadata"):
                await client.ask(REQUEST, timeout_ms=2_000)
    async with MetadataClient([address]) as client:
        with pytest.raises(UnreachableError):
            await client.ask(REQUEST, timeout_ms=300)
