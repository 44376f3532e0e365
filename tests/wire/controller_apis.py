"""How Quorate's controllers differ from Kafka's by API: the part that no version range tells.

`test_controller_apis` compares names and versions with Kafka's jar. docs/compatibility.md has both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OF_VOTERS: Final = "rejected unless `quorate.peer.protocol=kafka`"
_INVALID_VALUES: Final = (
    "rejects invalid values of brokers' configs, which Kafka's controllers store; does not know "
    "the limits of groups' configs that Kafka's controllers can be configured with; rejects loggers"
)
_NO_AUTHORIZER: Final = "without an authorizer, Kafka's controllers fail with SECURITY_DISABLED"

DIFFERENCES: Final[Mapping[str, str]] = {
    "AddRaftVoter": (
        "rejects Kafka's controllers unless `quorate.peer.protocol=kafka`; the text of "
        "REQUEST_TIMED_OUT"
    ),
    "AlterConfigs": _INVALID_VALUES,
    "BrokerRegistration": "POLICY_VIOLATION if the log has records of applications",
    "BeginQuorumEpoch": _OF_VOTERS,
    "ControllerRegistration": "POLICY_VIOLATION if the log has records of applications",
    "CreateAcls": _NO_AUTHORIZER,
    "DeleteAcls": _NO_AUTHORIZER,
    "DescribeAcls": _NO_AUTHORIZER,
    "DescribeConfigs": (
        "does not list configs that cannot be changed while a node runs, nor documentation; "
        "rejects loggers"
    ),
    "DescribeQuorum": "a voter also has its gRPC endpoint",
    "EndQuorumEpoch": _OF_VOTERS,
    "Envelope": (
        "with an authorizer, only from authenticated brokers, and not for super users unless "
        "`quorate.kafka.forwarded.super.users=allow`"
    ),
    "Fetch": (
        "POLICY_VIOLATION if the log has records of applications; of voters, "
        "rejected unless `quorate.peer.protocol=kafka`"
    ),
    "IncrementalAlterConfigs": _INVALID_VALUES,
    "RemoveRaftVoter": (
        "REQUEST_TIMED_OUT while the remaining voters that fetch are no majority; the text of "
        "VOTER_NOT_FOUND"
    ),
    "SaslHandshake": "no GSSAPI",
    "UpdateFeatures": "kraft.version and other features of one request are not updated atomically",
    "UpdateRaftVoter": _OF_VOTERS,
    "Vote": _OF_VOTERS,
}
"""By the name of the API."""

COMPARED: Final = frozenset(
    {
        *("AlterClientQuotas", "AlterPartitionReassignments", "AlterUserScramCredentials"),
        *("ApiVersions", "CreateDelegationToken", "CreatePartitions", "CreateTopics"),
        *("DeleteTopics", "DescribeCluster", "DescribeUserScramCredentials", "ElectLeaders"),
        *("ExpireDelegationToken", "ListPartitionReassignments", "RenewDelegationToken"),
        "UnregisterBroker",
    }
)
"""The APIs without a difference whose responses the compared tools and clients show. Kafka's
brokers use the others in `test_brokers`, which compares nothing.
"""
