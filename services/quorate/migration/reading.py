"""Znodes to metadata records: what the initial copy writes, domain by domain.

The order is that of KIP-866's copy: topics with their partitions and configurations, broker
configurations, quotas and SCRAM credentials, the producer id block, ACLs, delegation tokens.
Topics with a pending deletion are left out: the migration completes the deletion.

A partition's epoch is the version of its state znode, so that the epochs in brokers' later ISR
changes match what they read from ZooKeeper. A partition without a state (its topic has just been
created) is led by its first replica.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from quorate.common.scram import MECHANISM_NAMES, MECHANISM_NUMBERS
from quorate.migration import entities, znodes
from quorate.migration.errors import ZNodeError
from quorate.migration.znodes import Tree, ZNode
from quorate.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    TopicRecord,
    UserScramCredentialRecord,
)

UUID_BYTES = 16
NewId = Callable[[], str]
"""A source of unique ids, 22 characters each."""
Batch = list[MetadataRecord]


def read_all(tree: Tree, new_id: NewId) -> Iterator[Batch]:
    """All records, in batches that belong together. Raises ZNodeError, which names the znode."""
    for topic in topic_names(tree):
        yield read_topic(tree, topic)
    yield from read_broker_configs(tree)
    yield from read_client_configs(tree)
    yield from read_producer_ids(tree)
    yield from read_acls(tree, new_id)
    yield from read_delegation_tokens(tree)


def pending_deletions(tree: Tree) -> frozenset[str]:
    """The topics that ZooKeeper's controller has not finished deleting."""
    return frozenset(node.name for node in tree.children(znodes.DELETE_TOPICS))


def topic_names(tree: Tree) -> list[str]:
    """The topics without a pending deletion."""
    gone = pending_deletions(tree)
    return [node.name for node in tree.children(znodes.TOPICS) if node.name not in gone]


def known_brokers(tree: Tree) -> frozenset[int]:
    """Every broker that must take part: it is registered, assigned a replica, or configured.

    Registrations are ephemeral, so a broker that is down is known only from its assignments and
    its configuration (KIP-866 "ZK Broker Presence").
    """
    found = {_integer(node, node.name) for node in tree.children(znodes.BROKER_IDS)}
    for node in tree.children(f"{znodes.CONFIG}/brokers"):
        if node.name != entities.DEFAULT:
            found.add(_integer(node, node.name))
    for topic in topic_names(tree):
        node = tree[f"{znodes.TOPICS}/{topic}"]
        for replicas in _assignment(node, "partitions").values():
            found.update(replicas)
    return frozenset(found)


# --- topics ---------------------------------------------------------------------------------------


def read_topic(tree: Tree, name: str) -> Batch:
    """The records of a topic, its partitions and its configuration. Raises ZNodeError."""
    node = tree[f"{znodes.TOPICS}/{name}"]
    topic_id = _topic_id(node)
    batch: Batch = [TopicRecord(name=name, topic_id=topic_id)]
    adding, removing = _assignment(node, "adding_replicas"), _assignment(node, "removing_replicas")
    for partition, replicas in sorted(_assignment(node, "partitions").items()):
        state = tree.get(f"{node.path}/partitions/{partition}/state")
        batch.append(
            replace(
                _partition(partition, topic_id, replicas, state),
                adding_replicas=adding.get(partition, ()),
                removing_replicas=removing.get(partition, ()),
            )
        )
    config = tree.get(f"{znodes.CONFIG}/topics/{name}")
    if config is not None:
        batch += _configs(config, entities.TOPIC_RESOURCE, name)
    return batch


def _topic_id(node: ZNode) -> str:
    text = node.object().get("topic_id")
    if not isinstance(text, str):
        raise ZNodeError(
            node.path,
            "the topic has no id: its cluster never ran with inter.broker.protocol.version 2.8 or "
            "later; upgrade it before the migration",
        )
    try:
        value = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != UUID_BYTES:
        raise ZNodeError(node.path, f"topic_id {text!r} is not a UUID")
    return text


def _assignment(node: ZNode, field: str) -> dict[int, tuple[int, ...]]:
    """{partition: broker ids}"""
    value = node.object().get(field, {})
    if not isinstance(value, dict):
        raise ZNodeError(node.path, f"{field} is not an object")
    return {_integer(node, key): _integers(node, field, ids) for key, ids in value.items()}


def _partition(
    partition: int, topic_id: str, replicas: tuple[int, ...], state: ZNode | None
) -> PartitionRecord:
    if state is None:
        isr, leader, leader_epoch, partition_epoch, recovery = replicas, replicas[0], 0, 0, 0
    else:
        fields = state.object()
        isr = _integers(state, "isr", fields.get("isr"))
        leader = _integer(state, fields.get("leader"))
        leader_epoch = _integer(state, fields.get("leader_epoch"))
        recovery = _integer(state, fields.get("leader_recovery_state", 0))
        partition_epoch = state.version
    return PartitionRecord(
        partition_id=partition,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_recovery_state=recovery,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


# --- configurations, quotas, SCRAM ----------------------------------------------------------------


def read_broker_configs(tree: Tree) -> Iterator[Batch]:
    """Dynamic broker configurations; an empty resource name means the default of all brokers."""
    for node in tree.children(f"{znodes.CONFIG}/brokers"):
        name = "" if node.name == entities.DEFAULT else node.name
        if batch := _configs(node, entities.BROKER_RESOURCE, name):
            yield batch


def _configs(node: ZNode, resource_type: int, name: str) -> Batch:
    return [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in sorted(_config(node).items())
    ]


def _config(node: ZNode) -> dict[str, str]:
    if not node.data:
        return {}
    value = node.object().get("config", {})
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ZNodeError(node.path, "its config is not an object with string values")
    return value


def read_client_configs(tree: Tree) -> Iterator[Batch]:
    """Quotas of users, clients, user-client pairs and IPs, and SCRAM credentials of users."""
    for folder in entities.QUOTA_TYPES:
        for node in tree.children(f"{znodes.CONFIG}/{folder}"):
            entity = (_entity(folder, node),)
            if batch := _quotas(node, entity):
                yield batch
            for child in tree.children(f"{node.path}/clients"):
                if batch := _quotas(child, (*entity, _entity("clients", child))):
                    yield batch


def _entity(folder: str, node: ZNode) -> QuotaEntity:
    name = entities.entity_name(folder, node.name)
    return QuotaEntity(entity_type=entities.QUOTA_TYPES[folder], entity_name=name)


def _quotas(node: ZNode, entity: tuple[QuotaEntity, ...]) -> Batch:
    batch: Batch = []
    for key, value in sorted(_config(node).items()):
        mechanism = MECHANISM_NUMBERS.get(key)
        if mechanism is not None:
            batch.append(_scram(node, entity[0].entity_name or "", mechanism, value))
            continue
        try:
            batch.append(ClientQuotaRecord(entity=entity, key=key, value=float(value)))
        except ValueError:
            raise ZNodeError(node.path, f"{key}={value!r} is not a number") from None
    return batch


def _scram(node: ZNode, user: str, mechanism: int, text: str) -> UserScramCredentialRecord:
    """`salt=…,stored_key=…,server_key=…,iterations=…`, the keys in base64."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=base64.b64decode(fields["salt"], validate=True),
            stored_key=base64.b64decode(fields["stored_key"], validate=True),
            server_key=base64.b64decode(fields["server_key"], validate=True),
            iterations=int(fields["iterations"]),
        )
    except (KeyError, ValueError, binascii.Error):
        name = MECHANISM_NAMES[mechanism]
        # The text contains keys, so the error does not show it.
        raise ZNodeError(node.path, f"its {name} credential cannot be read") from None


# --- producer ids, ACLs, delegation tokens --------------------------------------------------------


def read_producer_ids(tree: Tree) -> Iterator[Batch]:
    """The next block begins where the last allocated one ends.

    Kafka leaves the znode empty until it allocates the first block.
    """
    node = tree.get(znodes.PRODUCER_IDS)
    if node is not None and node.data:
        fields = node.object()
        broker, end = _integer(node, fields.get("broker")), _integer(node, fields.get("block_end"))
        yield [ProducerIdsRecord(broker_id=broker, broker_epoch=-1, next_producer_id=end + 1)]


def read_acls(tree: Tree, new_id: NewId) -> Iterator[Batch]:
    """One batch per resource. Literal ACLs have their own tree; other pattern types share one."""
    roots = [(znodes.LITERAL_ACLS, "literal")]
    roots += [(node.path, node.name) for node in tree.children(znodes.EXTENDED_ACLS)]
    for root, pattern in roots:
        for folder in tree.children(root):
            for node in tree.children(folder.path):
                if batch := _acls(node, pattern, folder.name, new_id):
                    yield batch


def _acls(node: ZNode, pattern: str, resource: str, new_id: NewId) -> Batch:
    entries = node.object().get("acls", [])
    if not isinstance(entries, list):
        raise ZNodeError(node.path, "its acls are not a list")
    return [
        AccessControlEntryRecord(
            id=new_id(),
            resource_type=_code(node, "resource type", entities.RESOURCE_TYPES, resource),
            resource_name=node.name,
            pattern_type=_code(node, "pattern type", entities.PATTERN_TYPES, pattern),
            principal=_text(node, entry, "principal"),
            host=_text(node, entry, "host"),
            operation=_code(
                node, "operation", entities.OPERATIONS, _text(node, entry, "operation")
            ),
            permission_type=_code(
                node, "permission", entities.PERMISSIONS, _text(node, entry, "permissionType")
            ),
        )
        for entry in entries
    ]


def read_delegation_tokens(tree: Tree) -> Iterator[Batch]:
    for node in tree.children(znodes.DELEGATION_TOKENS):
        fields = node.object()
        renewers = fields.get("renewers", [])
        yield [
            DelegationTokenRecord(
                owner=_text(node, fields, "owner"),
                requester=str(fields.get("tokenRequester") or _text(node, fields, "owner")),
                renewers=tuple(str(each) for each in renewers),
                issue_timestamp=_integer(node, fields.get("issueTimestamp")),
                max_timestamp=_integer(node, fields.get("maxTimestamp")),
                expiration_timestamp=_integer(node, fields.get("expiryTimestamp")),
                token_id=_text(node, fields, "tokenId"),
            )
        ]


# --- values ---------------------------------------------------------------------------------------


def _integer(node: ZNode, value: object) -> int:
    """A number, or a number as text, which Kafka writes for longs."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ZNodeError(node.path, f"{value!r} is not a number")
    try:
        return int(value)
    except ValueError:
        raise ZNodeError(node.path, f"{value!r} is not a number") from None


def _integers(node: ZNode, field: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ZNodeError(node.path, f"{field} is not a list")
    return tuple(_integer(node, each) for each in value)


def _text(node: ZNode, fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name) if isinstance(fields, Mapping) else None
    if not isinstance(value, str):
        raise ZNodeError(node.path, f"{name} is missing or not a string")
    return value


def _code(node: ZNode, what: str, codes: Mapping[str, int], name: str) -> int:
    if name not in codes:
        raise ZNodeError(
            node.path, f"{name!r} is not a known {what}: expected one of {', '.join(codes)}"
        )
    return codes[name]
