"""The Kafka APIs served to Kafka's nodes and tools: the table for the bridge, for authorization
and for docs/access.md.

`schemas.SERVED` has the served versions of each API, `rpc.wire.methods` what each method requires.

Rules:
1. An API that is not in the table is not served.
2. An API that only nodes use (`from_brokers`) is authorized by the header of the request, before
   its body is decoded, and again with the body; every other API with the body.
3. The APIs in `schemas.VOTERS_APIS` are served only if controllers talk to each other over Kafka's
   protocol. Otherwise they are treated like APIs that are not in the table.
4. An envelope may contain only requests of APIs that are `forwarded`.

Source: Kafka's ControllerApis; KIP-590 "Envelope".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quorate.bridge.messages import schemas as s


@dataclass(frozen=True, slots=True)
class KafkaApi:
    """One row of the table of APIs."""

    key: int
    name: str
    method: str = ""
    """The gRPC method (`rpc.wire.methods`) whose rules apply. "Envelope" and "DescribeControllers"
    are not gRPC methods, ApiVersions and SASL's have none, and those of delegation tokens have
    rules of their own (`tokens`).
    """
    from_brokers: bool = False
    forwarded: bool = False

    @property
    def versions(self) -> tuple[int, int]:
        """The lowest and the highest served version."""
        return s.SERVED[self.key]


def _brokers(key: int, name: str, method: str | None = None) -> KafkaApi:
    return KafkaApi(key, name, method or name, from_brokers=True)


def _voters(key: int, name: str, method: str | None = None) -> KafkaApi:
    """An API for voters. Like an API for brokers, it is authorized by its header first."""
    return KafkaApi(key, name, method or name, from_brokers=True)


def _forwarded(key: int, name: str, method: str | None = None) -> KafkaApi:
    return KafkaApi(key, name, method or name, forwarded=True)


def _direct(key: int, name: str, method: str | None = None) -> KafkaApi:
    """An API for administrators that connect to a controller (KIP-919)."""
    return KafkaApi(key, name, method or name)


_ROWS: Final = (
    _brokers(s.FETCH, "Fetch"),
    KafkaApi(s.SASL_HANDSHAKE, "SaslHandshake"),
    KafkaApi(s.API_VERSIONS, "ApiVersions"),
    _forwarded(s.CREATE_TOPICS, "CreateTopics"),
    _forwarded(s.DELETE_TOPICS, "DeleteTopics"),
    _direct(s.DESCRIBE_ACLS, "DescribeAcls"),
    _forwarded(s.CREATE_ACLS, "CreateAcls"),
    _forwarded(s.DELETE_ACLS, "DeleteAcls"),
    _direct(s.DESCRIBE_CONFIGS, "DescribeConfigs"),
    _forwarded(s.ALTER_CONFIGS, "AlterConfigs", "IncrementalAlterConfigs"),
    KafkaApi(s.SASL_AUTHENTICATE, "SaslAuthenticate"),
    _forwarded(s.CREATE_PARTITIONS, "CreatePartitions"),
    KafkaApi(s.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", forwarded=True),
    KafkaApi(s.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", forwarded=True),
    KafkaApi(s.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", forwarded=True),
    KafkaApi(s.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken"),
    _forwarded(s.ELECT_LEADERS, "ElectLeaders"),
    _forwarded(s.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs"),
    _forwarded(s.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments"),
    _forwarded(s.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments"),
    _forwarded(s.ALTER_CLIENT_QUOTAS, "AlterClientQuotas"),
    _direct(s.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials"),
    _forwarded(s.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials"),
    _voters(s.VOTE, "Vote"),
    _voters(s.BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch"),
    _voters(s.END_QUORUM_EPOCH, "EndQuorumEpoch"),
    _forwarded(s.DESCRIBE_QUORUM, "DescribeQuorum"),
    _brokers(s.ALTER_PARTITION, "AlterPartition"),
    _forwarded(s.UPDATE_FEATURES, "UpdateFeatures", "UpdateClusterFeatures"),
    _brokers(s.ENVELOPE, "Envelope"),
    _brokers(s.FETCH_SNAPSHOT, "FetchSnapshot"),
    _direct(s.DESCRIBE_CLUSTER, "DescribeCluster", "DescribeControllers"),
    _brokers(s.BROKER_REGISTRATION, "BrokerRegistration", "RegisterBroker"),
    _brokers(s.BROKER_HEARTBEAT, "BrokerHeartbeat"),
    _forwarded(s.UNREGISTER_BROKER, "UnregisterBroker"),
    _brokers(s.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds"),
    _brokers(s.CONTROLLER_REGISTRATION, "ControllerRegistration", "RegisterController"),
    _brokers(s.ASSIGN_REPLICAS_TO_DIRS, "AssignReplicasToDirs"),
    _forwarded(s.ADD_RAFT_VOTER, "AddRaftVoter", "AddVoter"),
    _forwarded(s.REMOVE_RAFT_VOTER, "RemoveRaftVoter", "RemoveVoter"),
    _voters(s.UPDATE_RAFT_VOTER, "UpdateRaftVoter", "UpdateVoter"),
)

KAFKA_APIS: Final[dict[int, KafkaApi]] = {row.key: row for row in _ROWS}
"""Every API that is served, by its key."""
