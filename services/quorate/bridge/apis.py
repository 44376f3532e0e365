"""The Kafka APIs served to Kafka's brokers: the table for the bridge, authorization and ACCESS.md.

`schemas.SERVED` has the served versions of each API, `rpc.wire.methods` what each method requires.

Rules:
1. An API that is not in the table is not served.
2. An API that only brokers use (`from_brokers`) is authorized by the header of the request, before
   its body is decoded, and again with the body; every other API with the body.
3. An envelope may contain only requests of APIs that are `forwarded`.

Source: Kafka's ControllerApis; KIP-590 "Envelope".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quorate.bridge import schemas as s


@dataclass(frozen=True, slots=True)
class KafkaApi:
    """One row. method: the gRPC method (`rpc.wire.methods`) whose rules apply; "Envelope" is not a
    gRPC method, and ApiVersions has none.
    """

    key: int
    name: str
    method: str = ""
    from_brokers: bool = False
    forwarded: bool = False

    @property
    def versions(self) -> tuple[int, int]:
        """The lowest and the highest served version."""
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
