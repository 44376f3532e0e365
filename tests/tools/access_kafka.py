"""The part of docs/access.md about the listener for Kafka's brokers: by API and caller.

The rows are `bridge.apis`, the answers those of the authorizer, asked as the bridge does: with the
head of the request, then with its content as `bridge` reads it.
`tests/integration/test_access_kafka.py` sends the same requests to a real controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quorate.bridge.authentication import tokens
from quorate.bridge.bridge import BARE, may_forward
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.peer_messages import API_KEYS, write_request
from quorate.bridge.requests.apis import KAFKA_APIS, KafkaApi
from quorate.bridge.requests.descriptions import DescribeResources
from quorate.bridge.requests.raft_requests import read_request
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.raft import messages as m
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter
from quorate.rpc.principals import Caller
from quorate.rpc.server.authorizer import Denial
from quorate.rpc.wire.methods import RPC_METHODS, Callers
from quorate.runtime.authorization import KAFKA_OPERATIONS
from quorate.runtime.authorizer import NodeAuthorizer

from tests.tools.callers import (
    ADMINISTRATOR,
    COLUMNS,
    DIRECTORY,
    OTHER_CLUSTER,
    RECEIVER,
    super_users,
)

OPEN = {s.API_VERSIONS, s.SASL_HANDSHAKE, s.SASL_AUTHENTICATE}
TOKENS = {
    s.CREATE_DELEGATION_TOKEN,
    s.RENEW_DELEGATION_TOKEN,
    s.EXPIRE_DELEGATION_TOKEN,
    s.DESCRIBE_DELEGATION_TOKEN,
}
"""The APIs that `bridge.tokens` authorizes; their requests of the page are about own tokens."""
CLIENT = "User:CN=client"
METADATA_TOPIC = "__cluster_metadata"
FORWARDED_FOR = {"broker for client": CLIENT, "broker for administrator": ADMINISTRATOR}
"""Columns of what a broker puts into an envelope, and whom it says that it comes from."""
TITLES: Sequence[str] = (*(column.title for column in COLUMNS), *FORWARDED_FOR)


def _voter_bodies(node: int) -> dict[int, Any]:
    """The requests of a voter, in the latest versions."""
    sender, receiver = ReplicaKey(node, DIRECTORY), ReplicaKey(RECEIVER, DIRECTORY)
    voter = Voter(sender, (Endpoint("KAFKA", "localhost", 9),))
    requests = (
        m.VoteRequest(OTHER_CLUSTER, 1, sender, receiver, 0, 0),
        m.BeginQuorumEpochRequest(OTHER_CLUSTER, 1, sender, (), receiver),
        m.EndQuorumEpochRequest(OTHER_CLUSTER, 1, sender, ()),
        m.UpdateVoterRequest(OTHER_CLUSTER, 1, voter),
    )
    return {
        key: write_request(request, KAFKA_APIS[key].versions[1])
        for request in requests
        for key in (API_KEYS[type(request)],)
    }


def _cluster_bodies(node: int) -> dict[int, tuple[str, dict[str, Any]]]:
    soon = s.milliseconds(500)
    return {
        s.API_VERSIONS: (
            "ApiVersionsRequest",
            {"client_software_name": "x", "client_software_version": "1"},
        ),
        s.SASL_HANDSHAKE: ("SaslHandshakeRequest", {"mechanism": "PLAIN"}),
        s.SASL_AUTHENTICATE: ("SaslAuthenticateRequest", {"auth_bytes": b""}),
        s.CREATE_DELEGATION_TOKEN: (
            "CreateDelegationTokenRequest",
            {
                "owner_principal_type": None,
                "owner_principal_name": None,
                "renewers": (),
                "max_lifetime": soon,
            },
        ),
        s.RENEW_DELEGATION_TOKEN: (
            "RenewDelegationTokenRequest",
            {"hmac": b"", "renew_period": soon},
        ),
        s.EXPIRE_DELEGATION_TOKEN: (
            "ExpireDelegationTokenRequest",
            {"hmac": b"", "expiry_time_period": soon},
        ),
        s.DESCRIBE_DELEGATION_TOKEN: ("DescribeDelegationTokenRequest", {"owners": None}),
        s.BROKER_REGISTRATION: (
            "BrokerRegistrationRequest",
            {
                "broker_id": node,
                "cluster_id": OTHER_CLUSTER,
                "incarnation_id": s.uuid_field(DIRECTORY),
                "listeners": (),
                "features": (),
                "rack": None,
            },
        ),
        s.BROKER_HEARTBEAT: (
            "BrokerHeartbeatRequest",
            {
                "broker_id": node,
                "current_metadata_offset": 1,
                "want_fence": False,
                "want_shut_down": False,
            },
        ),
        s.UNREGISTER_BROKER: ("UnregisterBrokerRequest", {"broker_id": 9}),
        s.ALLOCATE_PRODUCER_IDS: ("AllocateProducerIdsRequest", {"broker_id": node}),
        s.ALTER_PARTITION: ("AlterPartitionRequest", {"broker_id": node, "topics": ()}),
        s.ASSIGN_REPLICAS_TO_DIRS: (
            "AssignReplicasToDirsRequest",
            {"broker_id": node, "directories": ()},
        ),
        s.UPDATE_FEATURES: ("UpdateFeaturesRequest", {"timeout": soon, "feature_updates": ()}),
        s.DESCRIBE_CLUSTER: (
            "DescribeClusterRequest",
            {
                "include_cluster_authorized_operations": True,
                "endpoint_type": 2,
                "include_fenced_brokers": False,
            },
        ),
        s.CONTROLLER_REGISTRATION: (
            "ControllerRegistrationRequest",
            {
                "controller_id": node,
                "incarnation_id": s.uuid_field(DIRECTORY),
                "zk_migration_ready": False,
                "listeners": (),
                "features": (),
            },
        ),
        s.ADD_RAFT_VOTER: (
            "AddRaftVoterRequest",
            {
                "cluster_id": OTHER_CLUSTER,
                "timeout": soon,
                "voter_id": 9,
                "voter_directory_id": s.uuid_field(DIRECTORY),
                "listeners": (),
            },
        ),
        s.REMOVE_RAFT_VOTER: (
            "RemoveRaftVoterRequest",
            {
                "cluster_id": OTHER_CLUSTER,
                "voter_id": 9,
                "voter_directory_id": s.uuid_field(DIRECTORY),
            },
        ),
        s.DESCRIBE_USER_SCRAM_CREDENTIALS: (
            "DescribeUserScramCredentialsRequest",
            {"users": None},
        ),
        s.DESCRIBE_ACLS: (
            "DescribeAclsRequest",
            {
                "resource_type_filter": 1,
                "resource_name_filter": None,
                "pattern_type_filter": 1,
                "principal_filter": None,
                "host_filter": None,
                "operation": 1,
                "permission_type": 1,
            },
        ),
    }


def bodies(node: int) -> dict[int, Any]:
    """A request of each API but Envelope, in its highest version. What names its sender is in the
    name of `node`; what changes something is about topics that are not there.
    """
    made = _voter_bodies(node) | {
        key: getattr(_module(key), name)(**fields)
        for key, (name, fields) in _cluster_bodies(node).items()
    }
    soon = s.milliseconds(500)
    f, q, x = _module(s.FETCH), _module(s.DESCRIBE_QUORUM), _module(s.FETCH_SNAPSHOT)
    t, d, p = _module(s.CREATE_TOPICS), _module(s.DELETE_TOPICS), _module(s.CREATE_PARTITIONS)
    c, e = _module(s.INCREMENTAL_ALTER_CONFIGS), _module(s.ELECT_LEADERS)
    a, b = _module(s.CREATE_ACLS), _module(s.DELETE_ACLS)
    u, k = _module(s.ALTER_CLIENT_QUOTAS), _module(s.ALTER_USER_SCRAM_CREDENTIALS)
    w, g = _module(s.ALTER_CONFIGS), _module(s.DESCRIBE_CONFIGS)
    n, o = _module(s.ALTER_PARTITION_REASSIGNMENTS), _module(s.LIST_PARTITION_REASSIGNMENTS)
    return made | {
        s.FETCH: f.FetchRequest(
            replica_state=f.ReplicaState(replica_id=node),
            max_wait=s.milliseconds(1),
            min_bytes=0,
            topics=(
                f.FetchTopic(
                    topic_id=s.uuid_field(f"{'A' * 21}Q"),
                    partitions=(
                        f.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=0),
                    ),
                ),
            ),
            forgotten_topics_data=(),
        ),
        s.FETCH_SNAPSHOT: x.FetchSnapshotRequest(
            replica_id=node,
            topics=(
                x.TopicSnapshot(
                    name=METADATA_TOPIC,
                    partitions=(
                        x.PartitionSnapshot(
                            partition=0,
                            current_leader_epoch=1,
                            snapshot_id=x.SnapshotId(end_offset=1, epoch=1),
                            position=0,
                        ),
                    ),
                ),
            ),
        ),
        s.DESCRIBE_QUORUM: q.DescribeQuorumRequest(
            topics=(
                q.TopicData(
                    topic_name=METADATA_TOPIC, partitions=(q.PartitionData(partition_index=0),)
                ),
            )
        ),
        s.CREATE_TOPICS: t.CreateTopicsRequest(
            topics=(
                t.CreatableTopic(
                    name="a", num_partitions=1, replication_factor=1, assignments=(), configs=()
                ),
            )
        ),
        s.DELETE_TOPICS: d.DeleteTopicsRequest(
            topics=(d.DeleteTopicState(name="a", topic_id=None),), timeout=soon
        ),
        s.CREATE_PARTITIONS: p.CreatePartitionsRequest(
            topics=(p.CreatePartitionsTopic(name="a", count=3, assignments=None),),
            timeout=soon,
            validate_only=True,
        ),
        s.ELECT_LEADERS: e.ElectLeadersRequest(
            election_type=0, topic_partitions=(e.TopicPartitions(topic="a", partitions=(0,)),)
        ),
        s.INCREMENTAL_ALTER_CONFIGS: c.IncrementalAlterConfigsRequest(
            resources=(
                c.AlterConfigsResource(
                    resource_type=2,
                    resource_name="a",
                    configs=(
                        c.AlterableConfig(name="retention.ms", config_operation=0, value="7"),
                    ),
                ),
            ),
            validate_only=True,
        ),
        s.ALTER_CONFIGS: w.AlterConfigsRequest(
            resources=(
                w.AlterConfigsResource(
                    resource_type=2,
                    resource_name="a",
                    configs=(w.AlterableConfig(name="retention.ms", value="7"),),
                ),
            ),
            validate_only=True,
        ),
        s.DESCRIBE_CONFIGS: g.DescribeConfigsRequest(
            resources=(
                g.DescribeConfigsResource(
                    resource_type=2, resource_name="a", configuration_keys=None
                ),
            )
        ),
        s.ALTER_PARTITION_REASSIGNMENTS: n.AlterPartitionReassignmentsRequest(
            topics=(
                n.ReassignableTopic(
                    name="a", partitions=(n.ReassignablePartition(partition_index=0),)
                ),
            )
        ),
        s.LIST_PARTITION_REASSIGNMENTS: o.ListPartitionReassignmentsRequest(topics=None),
        s.ALTER_CLIENT_QUOTAS: u.AlterClientQuotasRequest(
            entries=(
                u.EntryData(
                    entity=(u.EntityData(entity_type="user", entity_name="u"),),
                    ops=(u.OpData(key="producer_byte_rate", value=5.0, remove=False),),
                ),
            ),
            validate_only=True,
        ),
        s.ALTER_USER_SCRAM_CREDENTIALS: k.AlterUserScramCredentialsRequest(
            deletions=(k.ScramCredentialDeletion(name="u", mechanism=1),), upsertions=()
        ),
        s.CREATE_ACLS: a.CreateAclsRequest(
            creations=(
                a.AclCreation(
                    resource_type=99,
                    resource_name="a",
                    principal="User:u",
                    host="*",
                    operation=3,
                    permission_type=3,
                ),
            )
        ),
        s.DELETE_ACLS: b.DeleteAclsRequest(
            filters=(
                b.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="not there",
                    pattern_type_filter=3,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                ),
            )
        ),
    }


def _module(key: int) -> Any:
    return s.request_module(key, KAFKA_APIS[key].versions[1])


def value_of(api: KafkaApi, node: int) -> Any:
    """What the bridge makes of a body."""
    sender = ReplicaKey(node)
    if api.key == s.FETCH:
        return m.FetchRequest(OTHER_CLUSTER, sender, 1, 0, 0)
    if api.key == s.FETCH_SNAPSHOT:
        return m.FetchSnapshotRequest(OTHER_CLUSTER, sender, 1, OffsetAndEpoch(1, 1), 0)
    body = bodies(node)[api.key]
    if api.key in s.VOTERS_APIS:
        return read_request(s.Call(api.key, api.versions[1], 0, "", body), ReplicaKey(RECEIVER))
    sent = s.write_header(api.key, api.versions[1], 0, "") + s.write(body)
    return BARE[api.key].read(s.read_call(sent).body)


def is_allowed(authorizer: NodeAuthorizer, caller: Caller | None, api: KafkaApi, node: int) -> bool:
    """Whether the bridge does what is asked, if only to answer that it cannot be done."""
    if caller is None:
        return False
    if api.key in OPEN:
        return True
    if api.key in TOKENS:
        return tokens.may_request(caller)
    if api.key == s.ENVELOPE:
        return may_forward(authorizer, caller)
    if api.from_brokers and authorizer.refusal(caller, api.method) is not None:
        return False
    value = value_of(api, node)
    if api.method in RPC_METHODS and not RPC_METHODS[api.method].is_metadata:
        return authorizer.refusal(caller, api.method, value) is None
    if isinstance(value, DescribeResources):
        return _may_describe(authorizer, caller, value.read(RECEIVER))
    authorized = authorizer.authorize(caller, api.method, value)
    return not isinstance(authorized, Denial) and authorized.answer is None


def _may_describe(authorizer: NodeAuthorizer, caller: Caller, read: r.DescribeConfigs) -> bool:
    """Whether the first resource is in the response. The others are what is read besides."""
    authorized = authorizer.authorize(caller, "DescribeConfigs", read)
    if isinstance(authorized, Denial):
        return False
    every = r.DescribeConfigsResponse(tuple(map(r.ResourceConfigs, read.resources)))
    return authorized.finish(every).resources[0].error is ErrorCode.NONE


def rows(authorizer: NodeAuthorizer) -> list[tuple[KafkaApi, list[bool | None]]]:
    """Each API, and for each of TITLES whether it is allowed; None for what no envelope holds."""
    found: list[tuple[KafkaApi, list[bool | None]]] = []
    for api in KAFKA_APIS.values():
        decided: list[bool | None] = [
            is_allowed(authorizer, column.caller, api, column.node) for column in COLUMNS
        ]
        # Nobody speaks for a super user, whom `bridge.Bridge` looks for before the authorizer is
        # asked.
        for principal in FORWARDED_FOR.values():
            is_free = principal not in super_users()
            client = Caller(principal, "h", used_sasl=True)
            decided.append(
                (is_free and is_allowed(authorizer, client, api, 0)) if api.forwarded else None
            )
        found.append((api, decided))
    return found


def _needs(api: KafkaApi) -> str:
    if api.key in OPEN | TOKENS:
        return ""
    if api.method in KAFKA_OPERATIONS:
        return f"{KAFKA_OPERATIONS[api.method].name} on cluster"
    rpc = RPC_METHODS[api.method]
    return f"{rpc.operation.name} on {' or '.join(kind.name.lower() for kind in rpc.resources)}"


def _besides(api: KafkaApi) -> str:
    if api.key == s.ENVELOPE:
        return "authenticated callers only"
    if api.key in TOKENS:
        return "authenticated callers without a delegation token only"
    if api.method not in RPC_METHODS:
        return ""
    callers = RPC_METHODS[api.method].callers
    if api.key in s.VOTERS_APIS:
        return f"{callers} only, with quorate.peer.protocol=kafka"
    return "" if callers is Callers.ANYBODY else f"{callers} only"


def table(authorizer: NodeAuthorizer) -> str:
    head = ("API", "key", "versions", "needs", "besides", *TITLES)
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    said = {True: "yes", False: "no", None: ""}
    for api, decided in rows(authorizer):
        low, high = api.versions
        versions = str(low) if low == high else f"{low} to {high}"
        cells = [api.name, str(api.key), versions, _needs(api), _besides(api)]
        lines.append("| " + " | ".join([*cells, *(said[each] for each in decided)]) + " |")
    return "\n".join(lines)
