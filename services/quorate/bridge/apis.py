"""The Kafka APIs that the listener for Kafka's brokers serves: the one table for the bridge, its
authorization and ACCESS.md.

Which versions of a request are served, `schemas.SERVED` says; what a method needs, `rpc.methods`.

Rules:
1. An API that is not in the table is not served.
2. An API that only brokers use (`from_brokers`) is authorized by the header of the request, before
   its body is decoded, and again with the body; every other API with the body.
3. An envelope may hold the requests that are `forwarded`, and nothing else.

Source: Kafka's ControllerApis; KIP-590 "Envelope".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quorate.bridge import schemas as s


@dataclass(frozen=True, slots=True)
class KafkaApi:
    """One row. method: the gRPC method (`rpc.methods`) whose rules apply; "Envelope" is no such
    method, and ApiVersions has none.
    """

    key: int
    name: str
    method: str = ""
    from_brokers: bool = False
    forwarded: bool = False

    @property
    def versions(self) -> tuple[int, int]:
        """The lowest and the highest that is served."""
        return s.SERVED[self.key]


def _brokers(key: int, name: str, method: str | None = None) -> KafkaApi:
    return KafkaApi(key, name, method or name, from_brokers=True)


def _forwarded(key: int, name: str, method: str | None = None) -> KafkaApi:
    return KafkaApi(key, name, method or name, forwarded=True)


_ROWS: Final = (
    _brokers(s.FETCH, "Fetch"),
    KafkaApi(s.API_VERSIONS, "ApiVersions"),
    _forwarded(s.CREATE_TOPICS, "CreateTopics"),
    _forwarded(s.DELETE_TOPICS, "DeleteTopics"),
    _forwarded(s.CREATE_ACLS, "CreateAcls"),
    _forwarded(s.DELETE_ACLS, "DeleteAcls"),
    _forwarded(s.CREATE_PARTITIONS, "CreatePartitions"),
    _forwarded(s.ELECT_LEADERS, "ElectLeaders"),
    _forwarded(s.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs"),
    _forwarded(s.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments"),
    _forwarded(s.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments"),
    _forwarded(s.ALTER_CLIENT_QUOTAS, "AlterClientQuotas"),
    _forwarded(s.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials"),
    _forwarded(s.DESCRIBE_QUORUM, "DescribeQuorum"),
    _brokers(s.ALTER_PARTITION, "AlterPartition"),
    _forwarded(s.UPDATE_FEATURES, "UpdateFeatures", "UpdateClusterFeatures"),
    _brokers(s.ENVELOPE, "Envelope"),
    _brokers(s.FETCH_SNAPSHOT, "FetchSnapshot"),
    _brokers(s.BROKER_REGISTRATION, "BrokerRegistration", "RegisterBroker"),
    _brokers(s.BROKER_HEARTBEAT, "BrokerHeartbeat"),
    _forwarded(s.UNREGISTER_BROKER, "UnregisterBroker"),
    _brokers(s.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds"),
    _brokers(s.ASSIGN_REPLICAS_TO_DIRS, "AssignReplicasToDirs"),
)

KAFKA_APIS: Final[dict[int, KafkaApi]] = {row.key: row for row in _ROWS}
"""Every API that is served, by its key."""
