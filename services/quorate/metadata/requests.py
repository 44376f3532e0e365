"""What is asked of the metadata, and what is answered, as frozen values.

Rules:
1. A request that changes something is a `Request`: the active controller handles it
   (`controller.MetadataController`). A `Read` is answered from a committed image
   (`describe.answer`). Each has one response class.
2. Errors are values: an `Outcome` per part, and an `error` on the whole response where Kafka has
   one. A message is English text for people, empty if there is nothing to add.
3. Topic ids, directory ids and incarnation ids are UUIDs in Kafka's text form; `ZERO_UUID` is none.
4. Kafka's numbers stay numbers where Kafka's wire has them: resource types, operations, mechanisms
   (`configs`, `acls`, `scram` name them).

Import everything from here; the classes stand in `requests_topics`, `requests_settings` and
`requests_cluster`.

Source: the messages of KIP-631, KIP-497, KIP-841, KIP-903 (lifecycle), KIP-4, KIP-455, KIP-460,
KIP-546, KIP-554, KIP-584 and KIP-966 (administration).
"""

from __future__ import annotations

from dataclasses import dataclass

from quorate.metadata.requests_cluster import (
    AllocateProducerIds,
    AllocateProducerIdsResponse,
    AlteredPartition,
    AlteredTopic,
    AlterPartition,
    AlterPartitionResponse,
    AssignedReplica,
    AssignReplicasToDirs,
    AssignReplicasToDirsResponse,
    BrokerDescription,
    BrokerFeature,
    BrokerHeartbeat,
    BrokerHeartbeatResponse,
    ControllerDescription,
    ControllerFeature,
    DescribeCluster,
    DescribeClusterResponse,
    FeatureDescription,
    FeatureUpdate,
    IsrMember,
    PartitionProposal,
    RegisterBroker,
    RegisterBrokerResponse,
    RegisterController,
    RegisterControllerResponse,
    ReplicaAssignment,
    TopicProposals,
    UnregisterBroker,
    UnregisterBrokerResponse,
    UpdateFeatures,
    UpdateFeaturesResponse,
)
from quorate.metadata.requests_common import (
    DEFAULT_COUNT,
    NO_BROKER,
    NO_EPOCH,
    Outcome,
)
from quorate.metadata.requests_settings import (
    Acl,
    AclFilter,
    AlterClientQuotas,
    AlterClientQuotasResponse,
    AlterConfigsResponse,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResponse,
    ConfigChange,
    ConfigOp,
    ConfigOutcome,
    ConfigResource,
    ConfigValue,
    CreateAcls,
    CreateAclsResponse,
    DeleteAcls,
    DeleteAclsResponse,
    DeletedAcls,
    DescribeAcls,
    DescribeAclsResponse,
    DescribeClientQuotas,
    DescribeClientQuotasResponse,
    DescribeConfigs,
    DescribeConfigsResponse,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResponse,
    IncrementalAlterConfigs,
    QuotaChange,
    QuotaEntityKey,
    QuotaFilter,
    QuotaOp,
    QuotaOutcome,
    ResourceConfigs,
    ScramDeletion,
    ScramUpsertion,
    UserScramCredentials,
)
from quorate.metadata.requests_topics import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsResponse,
    DescribeTopics,
    DescribeTopicsResponse,
    ElectLeaders,
    ElectLeadersResponse,
    ListPartitionReassignments,
    ListPartitionReassignmentsResponse,
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    PartitionDescription,
    PartitionOutcome,
    Reassignment,
    TopicDescription,
    TopicRef,
)
from quorate.raft.errors import ErrorCode

__all__ = [
    "DEFAULT_COUNT",
    "NO_BROKER",
    "NO_EPOCH",
    "Acl",
    "AclFilter",
    "AllocateProducerIds",
    "AllocateProducerIdsResponse",
    "AlterClientQuotas",
    "AlterClientQuotasResponse",
    "AlterConfigsResponse",
    "AlterPartition",
    "AlterPartitionReassignments",
    "AlterPartitionReassignmentsResponse",
    "AlterPartitionResponse",
    "AlterUserScramCredentials",
    "AlterUserScramCredentialsResponse",
    "AlteredPartition",
    "AlteredTopic",
    "AssignReplicasToDirs",
    "AssignReplicasToDirsResponse",
    "AssignedReplica",
    "BrokerDescription",
    "BrokerFeature",
    "BrokerHeartbeat",
    "BrokerHeartbeatResponse",
    "ConfigChange",
    "ConfigOp",
    "ConfigOutcome",
    "ConfigResource",
    "ConfigValue",
    "ControllerDescription",
    "ControllerFeature",
    "CreateAcls",
    "CreateAclsResponse",
    "CreatePartitions",
    "CreatePartitionsResponse",
    "CreateTopics",
    "CreateTopicsResponse",
    "CreatedTopic",
    "DeleteAcls",
    "DeleteAclsResponse",
    "DeleteTopics",
    "DeleteTopicsResponse",
    "DeletedAcls",
    "DeletedTopic",
    "DescribeAcls",
    "DescribeAclsResponse",
    "DescribeClientQuotas",
    "DescribeClientQuotasResponse",
    "DescribeCluster",
    "DescribeClusterResponse",
    "DescribeConfigs",
    "DescribeConfigsResponse",
    "DescribeTopics",
    "DescribeTopicsResponse",
    "DescribeUserScramCredentials",
    "DescribeUserScramCredentialsResponse",
    "ElectLeaders",
    "ElectLeadersResponse",
    "FeatureDescription",
    "FeatureUpdate",
    "IncrementalAlterConfigs",
    "IsrMember",
    "ListPartitionReassignments",
    "ListPartitionReassignmentsResponse",
    "NewPartitions",
    "NewTopic",
    "OngoingReassignment",
    "Outcome",
    "PartitionDescription",
    "PartitionOutcome",
    "PartitionProposal",
    "QuotaChange",
    "QuotaEntityKey",
    "QuotaFilter",
    "QuotaOp",
    "QuotaOutcome",
    "Read",
    "Reassignment",
    "Refused",
    "RegisterBroker",
    "RegisterBrokerResponse",
    "RegisterController",
    "RegisterControllerResponse",
    "ReplicaAssignment",
    "Request",
    "ResourceConfigs",
    "Response",
    "ScramDeletion",
    "ScramUpsertion",
    "TopicDescription",
    "TopicProposals",
    "TopicRef",
    "UnregisterBroker",
    "UnregisterBrokerResponse",
    "UpdateFeatures",
    "UpdateFeaturesResponse",
    "UserScramCredentials",
]


@dataclass(frozen=True, slots=True)
class Refused:
    """The request as a whole was refused: no response of its own class can say so."""

    error: ErrorCode
    message: str = ""


Request = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | IncrementalAlterConfigs
    | AlterClientQuotas
    | AlterUserScramCredentials
    | CreateAcls
    | DeleteAcls
    | ElectLeaders
    | AlterPartitionReassignments
    | UpdateFeatures
    | AllocateProducerIds
    | UnregisterBroker
    | RegisterBroker
    | RegisterController
    | BrokerHeartbeat
    | AlterPartition
    | AssignReplicasToDirs
)

Read = (
    DescribeTopics
    | DescribeConfigs
    | DescribeClientQuotas
    | DescribeUserScramCredentials
    | DescribeAcls
    | DescribeCluster
    | ListPartitionReassignments
)

Response = (
    CreateTopicsResponse
    | DeleteTopicsResponse
    | CreatePartitionsResponse
    | AlterConfigsResponse
    | AlterClientQuotasResponse
    | AlterUserScramCredentialsResponse
    | CreateAclsResponse
    | DeleteAclsResponse
    | ElectLeadersResponse
    | AlterPartitionReassignmentsResponse
    | UpdateFeaturesResponse
    | AllocateProducerIdsResponse
    | UnregisterBrokerResponse
    | RegisterBrokerResponse
    | RegisterControllerResponse
    | BrokerHeartbeatResponse
    | AlterPartitionResponse
    | AssignReplicasToDirsResponse
    | DescribeTopicsResponse
    | DescribeConfigsResponse
    | DescribeClientQuotasResponse
    | DescribeUserScramCredentialsResponse
    | DescribeAclsResponse
    | DescribeClusterResponse
    | ListPartitionReassignmentsResponse
    | Refused
)
