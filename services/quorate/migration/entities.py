"""Names in ZooKeeper's texts, and their codes in metadata records.

Users and client ids are percent-encoded in paths, since they may contain any character. `<default>`
stands for the default of an entity type; no encoded name can equal it.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

DEFAULT = "<default>"

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

RESOURCE_TYPES = {
    "Topic": 2,
    "Group": 3,
    "Cluster": 4,
    "TransactionalId": 5,
    "DelegationToken": 6,
    "User": 7,
}
JAVA_RESOURCES = {
    "Topic": "TOPIC",
    "Group": "GROUP",
    "Cluster": "CLUSTER",
    "TransactionalId": "TRANSACTIONAL_ID",
    "DelegationToken": "DELEGATION_TOKEN",
    "User": "USER",
}
"""Resource types as ACL change notifications spell them."""
PATTERN_TYPES = {"literal": 3, "prefixed": 4}
LITERAL = PATTERN_TYPES["literal"]
OPERATIONS = {
    "All": 2,
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
    "CreateTokens": 13,
    "DescribeTokens": 14,
}
PERMISSIONS = {"Deny": 2, "Allow": 3}

RESOURCE_NAMES = {code: name for name, code in RESOURCE_TYPES.items()}
PATTERN_NAMES = {code: name for name, code in PATTERN_TYPES.items()}
OPERATION_NAMES = {code: name for name, code in OPERATIONS.items()}
PERMISSION_NAMES = {code: name for name, code in PERMISSIONS.items()}

QUOTA_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
"""The entity type of a ClientQuotaRecord by the folder below /config."""
QUOTA_FOLDERS = {kind: folder for folder, kind in QUOTA_TYPES.items()}
NUMBERS = frozenset(
    {
        "consumer_byte_rate",
        "producer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    }
)
"""The quotas: client configurations whose values are numbers."""
_PLAIN = frozenset({"ips"})
"""Folders whose entity names are not encoded."""


def entity_name(folder: str, segment: str) -> str | None:
    """The entity name for a path segment; None for the default of its type."""
    if segment == DEFAULT:
        return None
    return segment if folder in _PLAIN else unquote(segment)


def entity_segment(folder: str, name: str | None) -> str:
    """The path segment for an entity name: the inverse of `entity_name`."""
    if name is None:
        return DEFAULT
    if folder in _PLAIN:
        return name
    # As Kafka's Sanitizer: Java's URLEncoder, then + to %20 and * to %2A, for JMX object names.
    # URLEncoder also escapes ~, which `quote` never does.
    return quote(name, safe="-._").replace("~", "%7E")
