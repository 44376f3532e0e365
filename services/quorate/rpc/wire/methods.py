"""The RPCs of controllers and brokers, as tables for servers, authorizers, the throttle and
clients.

A row names a method and holds what must be known before its request is read. The proto defines its
messages and which of them are streams. `codecs` and `convert_metadata` convert the messages to
values; `runtime.authorizer` and `broker.authorizer` authorize calls by `operation`, `resources` and
`callers`.

Rules:
1. A method that is not in the table is not served.
2. A request that is larger than `bytes_max`, or weighs more than `weight_max` (see `weighing`), is
   rejected before it is decoded.

`poe access` writes the part of docs/access.md that follows from the table.

Source: proto/quorate/v1; Kafka's ControllerApis and KafkaApis; the tables of KIP-11, KIP-853,
KIP-919.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from quorate.metadata import requests as r
from quorate.metadata.authorizer import Operation, ResourceType
from quorate.raft import messages as m
from quorate.rpc.wire import values as v
from quorate.rpc.wire.limits import BATCH_RECORDS_MAX, MESSAGE_BYTES_MAX, POSITIONS_MAX
from quorate.rpc.wire.weighing import MESSAGE_WEIGHT, Shape, shape_of
from quorate.v1 import lifecycle_pb2, metadata_pb2, partition_pb2, quorum_pb2, raft_pb2

SMALL_BYTES_MAX = 64 * 1024
SMALL_WEIGHT_MAX = 8_192
"""For requests about replicas and their endpoints: there are few of either."""
METADATA_BYTES_MAX = 1024 * 1024
METADATA_WEIGHT_MAX = 16_384 * MESSAGE_WEIGHT
"""For metadata requests: thousands of topics, or of partitions with their replicas."""
APPEND_WEIGHT_MAX = BATCH_RECORDS_MAX * (MESSAGE_WEIGHT + 2) + SMALL_WEIGHT_MAX
"""A batch of the smallest records, each in its own message with a key and a value."""
FETCH_WEIGHT_MAX = POSITIONS_MAX * (2 * MESSAGE_WEIGHT + 7) + SMALL_WEIGHT_MAX
"""For each position, its message and its partition's, with all their fields."""


class Callers(StrEnum):
    """The callers that a method admits, regardless of the ACLs (see `runtime.authorizer`)."""

    ANYBODY = "anybody"
    NODES = "nodes"
    """If identity is required, callers whose certificate names a node."""
    CONTROLLERS = "controllers"


_CLUSTER = (ResourceType.CLUSTER,)
_TOPIC = (ResourceType.TOPIC,)
_TOPIC_OR_CLUSTER = (ResourceType.TOPIC, ResourceType.CLUSTER)
_CONFIGURED = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)


@dataclass(frozen=True, slots=True)
class RpcMethod:
    """One row of the table of methods."""

    service: str
    name: str
    operation: Operation
    """What the ACLs must allow, on one of the kinds in `resources`. If that is not the cluster
    alone, each part of the request is authorized separately, after it was read.
    """
    resources: tuple[ResourceType, ...] = _CLUSTER
    callers: Callers = Callers.ANYBODY
    takes_turn: bool = True
    """Whether the throttle may delay a call."""
    is_repeatable: bool = True
    """Whether a client may retry a call although an earlier attempt may have been executed."""
    needs_storage: bool = True
    """Whether a node that is not formatted rejects a call."""
    bytes_max: int = SMALL_BYTES_MAX
    weight_max: int = SMALL_WEIGHT_MAX
    or_operation: Operation | None = None
    """Another operation on the cluster that suffices, None for none."""
    values: tuple[type, type] | None = None
    """The classes of requests and responses (see `codecs`); None for appends and the brokers' own
    service.
    """
    request: type[Message] = field(init=False)
    response: type[Message] = field(init=False)
    streams_requests: bool = field(init=False)
    streams_responses: bool = field(init=False)
    shape: Shape = field(init=False, repr=False)

    def __post_init__(self) -> None:
        declared = _DECLARED[self.service].methods_by_name[self.name]
        for name, value in (
            ("request", GetMessageClass(declared.input_type)),
            ("response", GetMessageClass(declared.output_type)),
            ("streams_requests", declared.client_streaming),
            ("streams_responses", declared.server_streaming),
            ("shape", shape_of(declared.input_type, _SHAPES)),
        ):
            object.__setattr__(self, name, value)

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    def stub(self, channel: Any) -> Any:
        """The method on a channel of grpc or grpc.aio, to be called with messages."""
        sent = "stream" if self.streams_requests else "unary"
        received = "stream" if self.streams_responses else "unary"
        return getattr(channel, f"{sent}_{received}")(
            self.path,
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.response.FromString,
        )

    @property
    def is_metadata(self) -> bool:
        """Whether the metadata controller answers it."""
        return self.service in (METADATA_SERVICE, LIFECYCLE_SERVICE)

    @property
    def is_about_cluster(self) -> bool:
        """Whether a request is authorized as a whole."""
        return self.resources == _CLUSTER


_DECLARED: Final[dict[str, Any]] = {
    service.full_name: service
    for file in (raft_pb2, quorum_pb2, metadata_pb2, lifecycle_pb2, partition_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
}
_SHAPES: Final[dict[str, Shape]] = {}

RAFT_SERVICE: Final[str] = raft_pb2.DESCRIPTOR.services_by_name["Raft"].full_name
QUORUM_SERVICE: Final[str] = quorum_pb2.DESCRIPTOR.services_by_name["Quorum"].full_name
METADATA_SERVICE: Final[str] = metadata_pb2.DESCRIPTOR.services_by_name["Metadata"].full_name
LIFECYCLE_SERVICE: Final[str] = lifecycle_pb2.DESCRIPTOR.services_by_name[
    "BrokerLifecycle"
].full_name
PARTITION_SERVICE: Final[str] = partition_pb2.DESCRIPTOR.services_by_name["Partition"].full_name

_ACTION, _ALTER, _DESCRIBE = Operation.CLUSTER_ACTION, Operation.ALTER, Operation.DESCRIBE
_ALTER_CONFIGS, _DESCRIBE_CONFIGS = Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS


def _election(name: str, request: type, response: type) -> RpcMethod:
    """A method between controllers; elections never wait for their turn."""
    return RpcMethod(
        RAFT_SERVICE,
        name,
        _ACTION,
        callers=Callers.CONTROLLERS,
        takes_turn=False,
        values=(request, response),
    )


def _replica(name: str, request: type, response: type, *, takes_turn: bool = False) -> RpcMethod:
    """A method between replicas. Only controllers may call it in the name of a voter."""
    return RpcMethod(
        RAFT_SERVICE,
        name,
        _ACTION,
        callers=Callers.NODES,
        takes_turn=takes_turn,
        values=(request, response),
    )


def _quorum(
    name: str, operation: Operation, request: type, response: type, **fields: Any
) -> RpcMethod:
    return RpcMethod(QUORUM_SERVICE, name, operation, values=(request, response), **fields)


def _append(name: str) -> RpcMethod:
    """A method that appends application records.

    These change the log and are not a resource of Kafka's, so it requires the same permission as
    any change of the cluster.
    """
    return RpcMethod(
        QUORUM_SERVICE,
        name,
        _ALTER,
        is_repeatable=False,
        bytes_max=MESSAGE_BYTES_MAX,
        weight_max=APPEND_WEIGHT_MAX,
    )


def _metadata(
    request: type,
    response: type,
    operation: Operation,
    resources: tuple[ResourceType, ...] = _CLUSTER,
    *,
    service: str = METADATA_SERVICE,
    name: str | None = None,
    callers: Callers = Callers.ANYBODY,
) -> RpcMethod:
    return RpcMethod(
        service,
        name or request.__name__,
        operation,
        resources,
        callers,
        bytes_max=METADATA_BYTES_MAX,
        weight_max=METADATA_WEIGHT_MAX,
        values=(request, response),
    )


def _lifecycle(request: type, response: type) -> RpcMethod:
    """A method that a node calls in its own name."""
    return _metadata(request, response, _ACTION, service=LIFECYCLE_SERVICE, callers=Callers.NODES)


_ROWS: Final[tuple[RpcMethod, ...]] = (
    _election("Vote", m.VoteRequest, m.VoteResponse),
    _election("BeginQuorumEpoch", m.BeginQuorumEpochRequest, m.BeginQuorumEpochResponse),
    _election("EndQuorumEpoch", m.EndQuorumEpochRequest, m.EndQuorumEpochResponse),
    _election("UpdateVoter", m.UpdateVoterRequest, m.AdminResponse),
    _replica("Fetch", m.FetchRequest, m.FetchResponse, takes_turn=True),
    _replica("FetchStream", m.FetchRequest, m.FetchResponse),
    _replica("FetchSnapshot", m.FetchSnapshotRequest, m.FetchSnapshotResponse),
    _replica("ApiVersions", m.ApiVersionsRequest, m.ApiVersionsResponse),
    _replica("ChecksumLog", v.ChecksumLogRequest, v.ChecksumLogResponse, takes_turn=True),
    _quorum("DescribeQuorum", _DESCRIBE, m.DescribeQuorumRequest, m.DescribeQuorumResponse),
    _quorum("AddVoter", _ALTER, m.AddVoterRequest, m.AdminResponse),
    _quorum("RemoveVoter", _ALTER, m.RemoveVoterRequest, m.AdminResponse),
    _quorum("TransferLeadership", _ALTER, m.TransferLeadershipRequest, m.AdminResponse),
    _quorum("DescribeFeatures", _DESCRIBE, v.DescribeFeaturesRequest, v.DescribeFeaturesResponse),
    _quorum("UpdateFeatures", _ALTER, v.UpdateFeaturesRequest, m.AdminResponse),
    _quorum(
        "Format",
        _ALTER,
        v.FormatRequest,
        v.FormatResponse,
        is_repeatable=False,
        needs_storage=False,
    ),
    _quorum("NodeStatus", _DESCRIBE, v.NodeStatusRequest, v.NodeStatus, needs_storage=False),
    _append("Append"),
    _append("AppendStream"),
    # A session that nobody uses is harmless, so a lost response is no reason not to retry.
    # Controllers open sessions for the clients that connect to them (`controller.topic.sessions`).
    _quorum(
        "OpenProducer",
        _ALTER,
        v.OpenProducerRequest,
        v.OpenProducerResponse,
        or_operation=_ACTION,
    ),
    # The raw log also contains credentials.
    _quorum("Read", _ACTION, v.ReadRequest, v.ReadChunk),
    # CREATE and DELETE on the cluster apply to every topic.
    _metadata(r.CreateTopics, r.CreateTopicsResponse, Operation.CREATE, _TOPIC_OR_CLUSTER),
    _metadata(r.DeleteTopics, r.DeleteTopicsResponse, Operation.DELETE, _TOPIC_OR_CLUSTER),
    _metadata(r.CreatePartitions, r.CreatePartitionsResponse, _ALTER, _TOPIC),
    _metadata(r.DescribeTopics, r.DescribeTopicsResponse, _DESCRIBE, _TOPIC),
    _metadata(r.IncrementalAlterConfigs, r.AlterConfigsResponse, _ALTER_CONFIGS, _CONFIGURED),
    _metadata(r.DescribeConfigs, r.DescribeConfigsResponse, _DESCRIBE_CONFIGS, _CONFIGURED),
    _metadata(r.AlterClientQuotas, r.AlterClientQuotasResponse, _ALTER_CONFIGS),
    _metadata(r.DescribeClientQuotas, r.DescribeClientQuotasResponse, _DESCRIBE_CONFIGS),
    _metadata(r.AlterUserScramCredentials, r.AlterUserScramCredentialsResponse, _ALTER),
    _metadata(r.DescribeUserScramCredentials, r.DescribeUserScramCredentialsResponse, _DESCRIBE),
    _metadata(r.CreateAcls, r.CreateAclsResponse, _ALTER),
    _metadata(r.DeleteAcls, r.DeleteAclsResponse, _ALTER),
    _metadata(r.DescribeAcls, r.DescribeAclsResponse, _DESCRIBE),
    _metadata(r.ElectLeaders, r.ElectLeadersResponse, _ALTER),
    _metadata(r.AlterPartitionReassignments, r.AlterPartitionReassignmentsResponse, _ALTER),
    _metadata(r.ListPartitionReassignments, r.ListPartitionReassignmentsResponse, _DESCRIBE),
    _metadata(r.UpdateFeatures, r.UpdateFeaturesResponse, _ALTER, name="UpdateClusterFeatures"),
    _metadata(r.DescribeCluster, r.DescribeClusterResponse, _DESCRIBE),
    _lifecycle(r.RegisterBroker, r.RegisterBrokerResponse),
    _lifecycle(r.BrokerHeartbeat, r.BrokerHeartbeatResponse),
    _metadata(r.UnregisterBroker, r.UnregisterBrokerResponse, _ALTER, service=LIFECYCLE_SERVICE),
    _lifecycle(r.AlterPartition, r.AlterPartitionResponse),
    _lifecycle(r.AllocateProducerIds, r.AllocateProducerIdsResponse),
    _lifecycle(r.AssignReplicasToDirs, r.AssignReplicasToDirsResponse),
    # A broker that registered as a controller would vote (see `runtime.authorizer`).
    _metadata(
        r.RegisterController,
        r.RegisterControllerResponse,
        _ACTION,
        service=LIFECYCLE_SERVICE,
        callers=Callers.CONTROLLERS,
    ),
)

RPC_METHODS: Final[dict[str, RpcMethod]] = {row.name: row for row in _ROWS}
"""The methods of a controller by name. The names are unique across services."""


def _partition(name: str, operation: Operation, **fields: Any) -> RpcMethod:
    """A method for topic records, served by brokers."""
    return RpcMethod(PARTITION_SERVICE, name, operation, **{"resources": _TOPIC, **fields})


_FETCH_SIZES: Final = {"bytes_max": MESSAGE_BYTES_MAX, "weight_max": FETCH_WEIGHT_MAX}

PARTITION_METHODS: Final[dict[str, RpcMethod]] = {
    row.name: row
    for row in (
        _partition("Produce", Operation.WRITE, is_repeatable=False, bytes_max=MESSAGE_BYTES_MAX),
        _partition("Fetch", Operation.READ, **_FETCH_SIZES),
        _partition("ListOffsets", _DESCRIBE),
        _partition(
            "Locate", _DESCRIBE, bytes_max=METADATA_BYTES_MAX, weight_max=METADATA_WEIGHT_MAX
        ),
        _partition("InitProducerId", Operation.WRITE),
    )
}
"""The methods of the brokers' service `quorate.v1.Partition`, by name.

The operation is authorized on the topic of each request; InitProducerId requires it on any topic.
"""
FOLLOWER_FETCH: Final = _partition(
    "Fetch", _ACTION, resources=_CLUSTER, callers=Callers.NODES, **_FETCH_SIZES
)
"""The same method for a follower, whose request acknowledges records."""
