"""Requests made by hand, and answers to them. The first value is the node that gets them.

  vote 2 3A epoch=5 last=10@4 [pre] [to=2B]       begin 2 1A epoch=5 [to=2B] [endpoint=n1:9093]
  end 2 1A epoch=5 preferred=2A,3A                fetch 1 9X 3@1 epoch=1 [hw=3] [wait=500] [round=0]
  fetch-snapshot 1 9X 5@1 epoch=1 position=0      api-versions 2
  add-voter 1 4A [timeout=5000] [endpoint=h:p] [ack=append]
  remove-voter 1 4A [timeout=5000] [force]
  update-voter 1 2A epoch=1 [endpoint=h:p] [kraft=0-1]
  update-kraft-version 1 1 [timeout=5000] [validate]             transfer 1 2A [timeout=5000]
  read-index 1 [timeout=5000]                     describe 1
  forge 2 epoch=1 leader=1 [batches=3@1,4@2] [diverging=3@1] [snapshot=3@1] [hw=3]
      answers the Fetch of node 2 that is under way

Everywhere: cluster=OTHER for a wrong cluster, as=LABEL for the name in the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.batches import Batch
from quorate.raft.errors import ViolationError
from quorate.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    CurrentLeader,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    ReadIndexRequest,
    RemoveVoterRequest,
    Request,
    TransferLeadershipRequest,
    UpdateKRaftVersionRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from quorate.raft.types import SUPPORTED_KRAFT_VERSION, OffsetAndEpoch, ReplicaKey, Voter

from tests.scenarios.arguments import (
    CLUSTER_ID,
    Arguments,
    parse_endpoint,
    parse_key,
    parse_keys,
    parse_position,
    parse_range,
    usual_endpoint,
)
from tests.scenarios.cluster import is_peers
from tests.scenarios.node import Node

if TYPE_CHECKING:
    from tests.scenarios.harness import Harness

Make = Callable[["Harness", Node, Arguments, str], Request]


def execute(harness: Harness, name: str, arguments: Arguments) -> None:
    node = harness.node(arguments.values[0])
    if name == "forge":
        _forge(harness, node, arguments)
        return
    cluster_id = arguments.options.get("cluster", CLUSTER_ID)
    request = REQUESTS[name](harness, node, arguments, cluster_id)
    default = " ".join([name, *arguments.values[1:2]])
    label = arguments.options.get("as", default)
    with suppress(ViolationError, ValueError):
        # What a message cannot express or its decoder rejects, the protocol's core rejects, too.
        request = harness.cluster.wire.request(request, is_peers=is_peers(request))
    node.feed(node.handle_request, request, label, 0, 0)


def _endpoints(arguments: Arguments, node_id: int) -> tuple[Endpoint, ...]:
    text = arguments.options.get("endpoint")
    if text is None:
        return (usual_endpoint(node_id),)
    return tuple(parse_endpoint(part) for part in text.split(",") if part)


def _receiver(node: Node, arguments: Arguments) -> ReplicaKey:
    return parse_key(arguments.options["to"]) if "to" in arguments.options else node.key


def _epoch(node: Node, arguments: Arguments) -> int:
    """The epoch that the request names; the receiver's own unless it says so."""
    assert node.raft is not None, f"{node.name} is down"
    return int(arguments.options.get("epoch", node.raft.epoch))


def _timeout(arguments: Arguments) -> int:
    return int(arguments.options.get("timeout", "5000"))


def _vote(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    last = parse_position(arguments.options["last"])
    return VoteRequest(
        cluster_id,
        _epoch(node, arguments),
        parse_key(arguments.values[1]),
        _receiver(node, arguments),
        last.epoch,
        last.offset,
        arguments.flag("pre"),
    )


def _begin(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    leader = parse_key(arguments.values[1])
    return BeginQuorumEpochRequest(
        cluster_id,
        _epoch(node, arguments),
        leader,
        _endpoints(arguments, leader.id),
        _receiver(node, arguments),
    )


def _end(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    leader = parse_key(arguments.values[1])
    preferred = tuple(parse_keys(arguments.options.get("preferred", "")))
    endpoints = _endpoints(arguments, leader.id)
    return EndQuorumEpochRequest(cluster_id, _epoch(node, arguments), leader, preferred, endpoints)


def _fetch(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    replica = parse_key(arguments.values[1])
    end = parse_position(arguments.values[2])
    options = arguments.options
    return FetchRequest(
        cluster_id,
        replica,
        _epoch(node, arguments),
        end.offset,
        end.epoch,
        int(options.get("hw", "-1")),
        int(options.get("wait", "500")),
        read_round=int(options.get("round", "0")),
        endpoints=_endpoints(arguments, replica.id),
        incarnation=int(options.get("incarnation", "0")),
    )


def _fetch_snapshot(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    return FetchSnapshotRequest(
        cluster_id,
        parse_key(arguments.values[1]),
        _epoch(node, arguments),
        parse_position(arguments.values[2]),
        int(arguments.options.get("position", "0")),
        int(arguments.options.get("max", "1000")),
    )


def _api_versions(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    return ApiVersionsRequest(cluster_id)


def _add_voter(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    voter = parse_key(arguments.values[1])
    return AddVoterRequest(
        cluster_id,
        voter,
        _endpoints(arguments, voter.id),
        _timeout(arguments),
        arguments.options.get("ack") != "append",
    )


def _remove_voter(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    key, is_forced = parse_key(arguments.values[1]), arguments.flag("force")
    return RemoveVoterRequest(cluster_id, key, _timeout(arguments), is_forced)


def _update_voter(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    key = parse_key(arguments.values[1])
    text = arguments.options.get("kraft")
    versions = parse_range(text) if text else SUPPORTED_KRAFT_VERSION
    voter = Voter(key, _endpoints(arguments, key.id), versions)
    return UpdateVoterRequest(cluster_id, _epoch(node, arguments), voter)


def _upgrade(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    level = int(arguments.values[1])
    validate_only = arguments.flag("validate")
    return UpdateKRaftVersionRequest(cluster_id, level, validate_only, _timeout(arguments))


def _transfer(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    target = parse_key(arguments.values[1])
    return TransferLeadershipRequest(cluster_id, target, _timeout(arguments))


def _read_index(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    return ReadIndexRequest(cluster_id, _timeout(arguments))


def _describe(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    return DescribeQuorumRequest(cluster_id)


def _optional_position(arguments: Arguments, name: str) -> OffsetAndEpoch | None:
    text = arguments.options.get(name)
    return parse_position(text) if text else None


def _forge(harness: Harness, node: Node, arguments: Arguments) -> None:
    assert node.raft is not None
    options = arguments.options
    fetch_id = node.raft.core.fetch_id
    assert fetch_id is not None, f"{node.name} has no Fetch under way"
    harness.cluster.is_checked = False
    leader_id = int(options["leader"])
    leader = CurrentLeader(int(options["epoch"]), leader_id, (usual_endpoint(leader_id),))
    batches = []
    for text in options.get("batches", "").split(","):
        if text:
            position = parse_position(text)
            batches.append(Batch(position.offset, position.offset, position.epoch, (), "forged"))
    response = FetchResponse(
        ErrorCode.NONE,
        leader,
        int(options.get("hw", "-1")),
        diverging=_optional_position(arguments, "diverging"),
        snapshot=_optional_position(arguments, "snapshot"),
        batches=tuple(batches),
        acknowledged=_optional_position(arguments, "acknowledged"),
    )
    harness.cluster.forge(node, fetch_id, response)


def _never(_: Harness, node: Node, arguments: Arguments, cluster_id: str) -> Request:
    raise AssertionError("forge is no request")


REQUESTS: dict[str, Make] = {
    "vote": _vote,
    "begin": _begin,
    "end": _end,
    "fetch": _fetch,
    "fetch-snapshot": _fetch_snapshot,
    "api-versions": _api_versions,
    "add-voter": _add_voter,
    "remove-voter": _remove_voter,
    "update-voter": _update_voter,
    "update-kraft-version": _upgrade,
    "transfer": _transfer,
    "read-index": _read_index,
    "describe": _describe,
    "forge": _never,
}
