"""docs/access.md: which caller may call which method, as the authorizer of a controller decides.

    python tests/tools/access.py write
    python tests/tools/access.py check        exit status 1 if the page is out of date

The rows are `rpc.wire.methods`, the answers those of `runtime.authorizer.NodeAuthorizer`, asked as
a server does: before the request is read, and again with a request that its caller sends in its own
name. `tests/integration/test_access.py` makes the same calls to a real controller.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from google.protobuf.message import Message

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "services"), str(ROOT)]

from quorate.common.endpoints import Endpoint  # noqa: E402
from quorate.common.features import VersionRange  # noqa: E402
from quorate.metadata import requests as r  # noqa: E402
from quorate.raft import messages as m  # noqa: E402
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter  # noqa: E402
from quorate.rpc.server.authorizer import Denial  # noqa: E402
from quorate.rpc.wire.codecs import CODECS  # noqa: E402
from quorate.rpc.wire.convert_append import encode_append_request  # noqa: E402
from quorate.rpc.wire.convert_metadata import METADATA_CODECS  # noqa: E402
from quorate.rpc.wire.methods import RPC_METHODS, Callers, RpcMethod  # noqa: E402
from quorate.rpc.wire.values import (  # noqa: E402
    ChecksumLogRequest,
    DescribeFeaturesRequest,
    FormatMode,
    FormatRequest,
    NodeStatusRequest,
    OpenProducerRequest,
    ReadRequest,
    UpdateFeaturesRequest,
)
from quorate.runtime.authorizer import NodeAuthorizer  # noqa: E402

from tests.tools import access_broker, access_kafka, access_web  # noqa: E402
from tests.tools.callers import (  # noqa: E402
    COLUMNS,
    DIRECTORY,
    OTHER_CLUSTER,
    RECEIVER,
    Column,
    authorizer,
)
from tests.tools.pages import Page  # noqa: E402


def values_from(node: int) -> Mapping[str, Any]:
    """A request for each method, by name, which `node` sends in its own name and which changes
    nothing that matters. Messages where a method has no class of its own.
    """
    sender, receiver = ReplicaKey(node, DIRECTORY), ReplicaKey(RECEIVER, DIRECTORY)
    somebody = ReplicaKey(9, DIRECTORY)
    cluster, endpoints = OTHER_CLUSTER, (Endpoint("CONTROLLER", "h", 1),)
    fetch = m.FetchRequest(cluster, sender, 1, 0, 0)
    append = encode_append_request(1, [(b"", b"v")], 1_000)
    whole_metadata = {
        codec.method.name: request()
        for request, codec in METADATA_CODECS.items()
        if request in (r.DescribeTopics, r.DescribeAcls, r.DescribeCluster, r.DescribeConfigs)
    }
    return {
        "Vote": m.VoteRequest(cluster, 1, sender, receiver, 0, 0, pre_vote=True),
        "BeginQuorumEpoch": m.BeginQuorumEpochRequest(cluster, 1, sender, endpoints, receiver),
        "EndQuorumEpoch": m.EndQuorumEpochRequest(cluster, 1, sender, ()),
        "UpdateVoter": m.UpdateVoterRequest(
            cluster, 1, Voter(sender, endpoints, VersionRange(0, 1))
        ),
        "Fetch": fetch,
        "FetchStream": fetch,
        "FetchSnapshot": m.FetchSnapshotRequest(cluster, sender, 1, OffsetAndEpoch(1, 1), 0),
        "ApiVersions": m.ApiVersionsRequest(cluster),
        "ChecksumLog": ChecksumLogRequest(cluster, sender, receiver, 0, 1),
        "DescribeQuorum": m.DescribeQuorumRequest(cluster),
        "AddVoter": m.AddVoterRequest(cluster, somebody, endpoints, 1),
        "RemoveVoter": m.RemoveVoterRequest(cluster, somebody, 1),
        "TransferLeadership": m.TransferLeadershipRequest(cluster, somebody, 1),
        "DescribeFeatures": DescribeFeaturesRequest(cluster),
        "UpdateFeatures": UpdateFeaturesRequest(cluster, "kraft.version", 1, timeout_ms=1),
        "Format": FormatRequest(cluster, FormatMode.NO_INITIAL_CONTROLLERS),
        "NodeStatus": NodeStatusRequest(),
        "Append": append,
        "AppendStream": append,
        "OpenProducer": OpenProducerRequest(cluster),
        "Read": ReadRequest(0, 1),
        "CreateTopics": r.CreateTopics(()),
        "DeleteTopics": r.DeleteTopics(()),
        "CreatePartitions": r.CreatePartitions(()),
        "IncrementalAlterConfigs": r.IncrementalAlterConfigs(()),
        "AlterClientQuotas": r.AlterClientQuotas(()),
        "DescribeClientQuotas": r.DescribeClientQuotas(()),
        "AlterUserScramCredentials": r.AlterUserScramCredentials(()),
        "DescribeUserScramCredentials": r.DescribeUserScramCredentials(),
        "CreateAcls": r.CreateAcls(()),
        "DeleteAcls": r.DeleteAcls(()),
        "ElectLeaders": r.ElectLeaders(0),
        "AlterPartitionReassignments": r.AlterPartitionReassignments(()),
        "ListPartitionReassignments": r.ListPartitionReassignments(),
        "UpdateClusterFeatures": r.UpdateFeatures(()),
        "RegisterBroker": r.RegisterBroker(node, DIRECTORY, endpoints, cluster),
        "BrokerHeartbeat": r.BrokerHeartbeat(node, 1, 1),
        "UnregisterBroker": r.UnregisterBroker(9),
        "AlterPartition": r.AlterPartition(node, 1, ()),
        "AllocateProducerIds": r.AllocateProducerIds(node, 1),
        "AssignReplicasToDirs": r.AssignReplicasToDirs(node, 1, ()),
        "RegisterController": r.RegisterController(node, DIRECTORY, endpoints, ()),
        **whole_metadata,
    }


def message_of(rpc: RpcMethod, value: Any) -> Message:
    """A value of `values_from` as it is sent."""
    if rpc.is_metadata:
        return METADATA_CODECS[rpc.values[0]].encode_request(value, 1_000)
    if rpc.name.startswith("Append"):
        return cast(Message, value)
    return CODECS[rpc.name].encode_request(value)


def is_allowed(authorizer: NodeAuthorizer, column: Column, rpc: RpcMethod) -> bool:
    """Whether the call comes to its handler."""
    caller = column.caller
    if caller is None or authorizer.refusal(caller, rpc.name) is not None:
        return False
    if rpc.name.startswith("Append"):
        return True  # nothing in the request tells its sender
    value = values_from(column.node)[rpc.name]
    if not rpc.is_metadata:
        return authorizer.refusal(caller, rpc.name, value) is None
    return not isinstance(authorizer.authorize(caller, rpc.name, value), Denial)


def rows() -> list[tuple[RpcMethod, list[bool]]]:
    """Each method, and for each column whether it is allowed."""
    decides = authorizer()
    return [
        (rpc, [is_allowed(decides, column, rpc) for column in COLUMNS])
        for rpc in RPC_METHODS.values()
    ]


def _size(count: int) -> str:
    return f"{count // 1024} KiB" if count < 1024 * 1024 else f"{count // (1024 * 1024)} MiB"


def _needs(rpc: RpcMethod) -> str:
    kinds = " or ".join(f"{kind.name.lower()}" for kind in rpc.resources)
    operations = rpc.operation.name
    if rpc.or_operation is not None:
        operations += f" or {rpc.or_operation.name}"
    return f"{operations} on {kinds}"


def _restriction(rpc: RpcMethod) -> str:
    return "" if rpc.callers is Callers.ANYBODY else f"{rpc.callers} only"


def sections() -> str:
    """The generated part of the page."""
    return "\n\n".join(
        (
            "## Controllers: gRPC",
            table(),
            "## Controllers: quorate.kafka.listener.name",
            access_kafka.table(authorizer()),
            "## Controllers and brokers: quorate.http.listener",
            access_web.http_table(),
            "## Brokers: quorate.v1.Partition",
            access_broker.table(),
            "## quorate console",
            access_web.console_table(),
        )
    )


def table() -> str:
    """The methods of controllers."""
    head = ["method", "needs", "besides", "at most", *(column.title for column in COLUMNS)]
    lines = []
    service = ""
    for rpc, allowed in rows():
        if rpc.service != service:
            service = rpc.service
            lines += ["", f"### {service}", "", "| " + " | ".join(head) + " |"]
            lines.append("|" + " --- |" * len(head))
        cells = [rpc.name, _needs(rpc), _restriction(rpc), _size(rpc.bytes_max)]
        cells += ["yes" if each else "no" for each in allowed]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines[1:])


PAGE = Page(ROOT / "docs" / "access.md", "access", sections)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # the authorizer writes what it refuses
    sys.exit(PAGE.run(sys.argv[1:], __doc__))
