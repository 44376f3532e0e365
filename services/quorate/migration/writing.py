"""The image as znodes: what ZooKeeper must hold, and the operations that bring it there.

`wanted` maps an image to znodes, and `operations` compares those with ZooKeeper's tree. Both serve
the synchronization (the whole tree against the whole image) and the dual write (only what changed).
Writes are therefore idempotent: repeating one, or retrying one whose response was lost, has the
same result.

Rules:
1. Parents are created before their children, and a topic is deleted from its leaves up. If a write
   fails halfway, the next comparison repairs what it left.
2. A znode whose meaning is unchanged is not written: neither the order of JSON fields nor the
   controller epoch in a partition's state counts as a difference.
3. A topic that the image lacks is deleted from ZooKeeper with its configuration and its deletion
   request, which completes deletions that were pending when ZooKeeper was claimed (KIP-866, "Topic
   Deletions"). The configuration of other entities is emptied and not deleted, as Kafka does.
4. Brokers in ZooKeeper mode are notified of configurations, ACLs and tokens by sequential znodes,
   also when a topic loses its last override. Creating an empty configuration notifies nobody.

Source: KIP-866, "Dual Write Mode"; the forms are those of Kafka 3.9.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quorate.common.scram import MECHANISM_NAMES
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.producer_ids import BLOCK_SIZE
from quorate.migration import entities, znodes
from quorate.migration.errors import ZNodeError
from quorate.migration.operations import Create, CreateSequential, Delete, SetData, ZNodeOperation
from quorate.migration.znodes import Tree, ZNode
from quorate.records.metadata import AccessControlEntryRecord, PartitionRecord

CONFIG_VERSION = 1
TOPIC_VERSION = 3
STATE_VERSION = 1
ACL_VERSION = 1
TOKEN_VERSION = 3
BLOCK_VERSION = 1
NOTICE_VERSION = 2

Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A znode that must exist."""

    path: str
    value: Value | None = None
    """The content of the znode; None for a folder, whose data is ignored."""
    meaning: Callable[[Mapping[str, Any]], object] = dict
    """Returns the part of the value that is compared."""
    notice: CreateSequential | None = None
    """The notification of a change for brokers."""
    notifies_creation: bool = True
    """Whether brokers are also notified when the znode is created."""


@dataclass(slots=True)
class Scope:
    """The znodes and subtrees of ZooKeeper to read."""

    nodes: set[str] = field(default_factory=set)
    trees: set[str] = field(default_factory=set)

    def ancestors(self) -> set[str]:
        """The ancestors of all paths, without the root."""
        found: set[str] = set()
        for path in (*self.nodes, *self.trees):
            while (path := path.rpartition("/")[0]) and path not in found:
                found.add(path)
        return found


# --- what is compared -----------------------------------------------------------------------------


def scope(image: MetadataImage, changes: MetadataDelta) -> Scope:
    """The part of ZooKeeper that these changes affect."""
    found = Scope()
    names = image.topics.names
    whole = [names[topic_id] for topic_id in changes.topics_created if topic_id in names]
    for name in (*whole, *changes.topics_deleted.values()):
        found.trees |= {
            f"{znodes.TOPICS}/{name}",
            f"{znodes.CONFIG}/topics/{name}",
            f"{znodes.DELETE_TOPICS}/{name}",
        }
    for topic_id, index in changes.partitions:
        if topic_id in names:
            topic = f"{znodes.TOPICS}/{names[topic_id]}"
            found.nodes |= {topic, f"{topic}/partitions"}
            found.trees.add(f"{topic}/partitions/{index}")
    for resource_type, name in changes.configs:
        if resource_type == entities.TOPIC_RESOURCE:
            found.nodes.add(f"{znodes.CONFIG}/topics/{name}")
        elif resource_type == entities.BROKER_RESOURCE:
            found.nodes.add(f"{znodes.CONFIG}/brokers/{name or entities.DEFAULT}")
    if changes.quotas or changes.scram_users:
        found.trees |= {f"{znodes.CONFIG}/{folder}" for folder in entities.QUOTA_TYPES}
    if changes.acls:
        found.trees |= {znodes.LITERAL_ACLS, znodes.EXTENDED_ACLS}
    if changes.producer_ids:
        found.nodes.add(znodes.PRODUCER_IDS)
    if changes.delegation_tokens:
        found.trees.add(znodes.DELEGATION_TOKENS)
    if found.nodes or found.trees:
        found.nodes |= set(znodes.NOTICES)
    return found


def wanted(
    image: MetadataImage, zk_epoch: int, changes: MetadataDelta | None = None
) -> Iterator[Wanted]:
    """The znodes for an image: for all of it, or for what `changes` affects.

    zk_epoch: the number in `/controller_epoch`, which goes into new partition states.
    """
    yield from _topics(image, zk_epoch, changes)
    yield from _configs(image, changes)
    if changes is None or changes.quotas or changes.scram_users:
        yield from _clients(image)
    if changes is None or changes.producer_ids:
        yield from _producer_ids(image)
    if changes is None or changes.acls:
        yield from _acls(image)
    if changes is None or changes.delegation_tokens:
        yield from _tokens(image)


def operations(tree: Tree, nodes: Iterable[Wanted]) -> Iterator[ZNodeOperation]:
    """The operations that make a tree hold `nodes` and remove what is superfluous."""
    known: set[str] = set()
    for node in nodes:
        known.add(node.path)
        there = tree.get(node.path)
        if there is None:
            yield from _create(tree, known, node)
        elif node.value is not None and not _means(there, node):
            yield SetData(node.path, _json(node.value))
        else:
            continue
        if node.notice is not None and (there is not None or node.notifies_creation):
            yield from _ancestors(tree, known, node.notice.prefix)
            yield node.notice
    for path in sorted(tree, reverse=True):
        if path not in known:
            for operation in _superfluous(tree[path]):
                if isinstance(operation, CreateSequential):
                    yield from _ancestors(tree, known, operation.prefix)
                yield operation


def _create(tree: Tree, known: set[str], node: Wanted) -> Iterator[ZNodeOperation]:
    yield from _ancestors(tree, known, node.path)
    yield Create(node.path, None if node.value is None else _json(node.value))


def _ancestors(tree: Tree, known: set[str], path: str) -> Iterator[ZNodeOperation]:
    missing = []
    while (path := path.rpartition("/")[0]) and path not in tree and path not in known:
        missing.append(path)
    for parent in reversed(missing):
        known.add(parent)
        yield Create(parent, None)


def _means(there: ZNode, node: Wanted) -> bool:
    """Whether a znode already has the wanted meaning; False if its data cannot be parsed."""
    assert node.value is not None, "folders have no value"
    try:
        return node.meaning(there.object()) == node.meaning(node.value)
    except (ZNodeError, KeyError, TypeError, ValueError, AttributeError):
        return False


def _superfluous(node: ZNode) -> Iterator[ZNodeOperation]:
    """The operations for a znode that has no counterpart in the image (rule 3)."""
    parts = node.path.split("/")
    match parts[1:]:
        case (
            ["brokers", "topics", _, *_]
            | ["admin", "delete_topics", _]
            | ["config", "topics", _]
            | ["kafka-acl", _, _]
            | ["kafka-acl-extended", _, _, _]
            | ["delegation_token", "tokens", _]
        ):
            yield Delete(node.path)
            if parts[1] == "kafka-acl":
                yield _acl_notice(parts[2], parts[3], "literal")
            elif parts[1] == "kafka-acl-extended":
                yield _acl_notice(parts[3], parts[4], parts[2])
            elif parts[1] == "delegation_token":
                yield _token_notice(parts[3])
        case ["config", "users" | "clients" | "ips" | "brokers", _, *rest] if len(
            rest
        ) != 1 and _is_configured(node):
            yield SetData(node.path, _json(_config({})))
            yield _config_notice("/".join(parts[2:]))


def _is_configured(node: ZNode) -> bool:
    try:
        return bool(node.data) and node.object().get("config", {}) != {}
    except ZNodeError:
        return True


# --- topics ---------------------------------------------------------------------------------------


def _topics(image: MetadataImage, zk_epoch: int, changes: MetadataDelta | None) -> Iterator[Wanted]:
    names = image.topics.names
    if changes is None:
        whole = list(names)
    else:
        # A topic may have been deleted and created again with the same name.
        again = {image.topics.ids.get(name, "") for name in changes.topics_deleted.values()}
        whole = sorted(each for each in changes.topics_created | again if each in names)
    for topic_id in whole:
        name = names[topic_id]
        yield _wanted_config("topics", name, image.configs.of(entities.TOPIC_RESOURCE, name))
        yield from _topic(image, zk_epoch, topic_id, image.topics.partitions(topic_id))
    if changes is not None:
        chosen: dict[str, list[int]] = {}
        for topic_id, index in changes.partitions:
            if topic_id in names:
                chosen.setdefault(topic_id, []).append(index)
        for topic_id in sorted(chosen.keys() - set(whole)):
            yield from _topic(image, zk_epoch, topic_id, chosen[topic_id])


def _topic(
    image: MetadataImage, zk_epoch: int, topic_id: str, indexes: Iterable[int]
) -> Iterator[Wanted]:
    """The topic, and the states of the partitions `indexes`."""
    name = image.topics.names[topic_id]
    partitions = image.topics.partitions(topic_id)
    ordered = sorted(partitions.items())
    path = f"{znodes.TOPICS}/{name}"
    value = {
        "partitions": {str(index): list(each.replicas) for index, each in ordered},
        "topic_id": topic_id,
        "adding_replicas": _replicas(ordered, "adding_replicas"),
        "removing_replicas": _replicas(ordered, "removing_replicas"),
        "version": TOPIC_VERSION,
    }
    yield Wanted(path, value, _topic_meaning)
    yield Wanted(f"{path}/partitions")
    for index in sorted(indexes):
        partition = partitions.get(index)
        if partition is not None:
            yield Wanted(f"{path}/partitions/{index}")
            yield Wanted(
                f"{path}/partitions/{index}/state", _state(partition, zk_epoch), _state_meaning
            )


def _replicas(partitions: list[tuple[int, PartitionRecord]], name: str) -> dict[str, list[int]]:
    return {str(index): list(getattr(p, name)) for index, p in partitions if getattr(p, name)}


def _topic_meaning(value: Mapping[str, Any]) -> object:
    empty: dict[str, list[int]] = {}
    return (
        value["topic_id"],
        value["partitions"],
        value.get("adding_replicas", empty),
        value.get("removing_replicas", empty),
    )


def _state(partition: PartitionRecord, zk_epoch: int) -> Value:
    value = {
        "controller_epoch": zk_epoch,
        "leader": partition.leader,
        "version": STATE_VERSION,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
    }
    if partition.leader_recovery_state:
        value["leader_recovery_state"] = partition.leader_recovery_state
    return value


def _state_meaning(value: Mapping[str, Any]) -> object:
    recovery = value.get("leader_recovery_state", 0)
    return value["leader"], value["leader_epoch"], value["isr"], recovery


# --- configurations -------------------------------------------------------------------------------


def _configs(image: MetadataImage, changes: MetadataDelta | None) -> Iterator[Wanted]:
    """Broker configurations, and changed ones of existing topics; `_topics` yields the others."""
    keys = image.configs.resources if changes is None else sorted(changes.configs)
    for resource_type, name in keys:
        configs = image.configs.of(resource_type, name)
        if resource_type == entities.BROKER_RESOURCE and configs:
            yield _wanted_config("brokers", name or entities.DEFAULT, configs)
        elif (
            changes is not None
            and resource_type == entities.TOPIC_RESOURCE
            and image.topics.ids.get(name, "") not in ("", *changes.topics_created)
        ):
            yield _wanted_config("topics", name, configs)


def _wanted_config(folder: str, entity: str, configs: Mapping[str, str]) -> Wanted:
    where = f"{folder}/{entity}"
    path, notice = f"{znodes.CONFIG}/{where}", _config_notice(where)
    # For brokers an empty configuration equals a missing one, so creating it changes nothing.
    return Wanted(path, _config(configs), _config_meaning, notice, notifies_creation=bool(configs))


def _config(configs: Mapping[str, str]) -> Value:
    return {"version": CONFIG_VERSION, "config": dict(configs)}


def _config_meaning(value: Mapping[str, Any]) -> object:
    found = dict(value.get("config", {}))
    for key, text in found.items():
        # The same number may have different texts.
        if key in entities.NUMBERS:
            found[key] = float(text)
    return found


def _config_notice(where: str) -> CreateSequential:
    value = {"version": NOTICE_VERSION, "entity_path": where}
    return CreateSequential(f"{znodes.CONFIG_CHANGES}/config_change_", _json(value))


def _clients(image: MetadataImage) -> Iterator[Wanted]:
    """Quotas of users, clients, user-client pairs and IPs; SCRAM credentials of users."""
    found: dict[str, dict[str, str]] = {}
    for entity, quotas in image.quotas.entities.items():
        where = _entity_path(dict(entity))
        found.setdefault(where, {}).update({k: _number(v) for k, v in quotas.items()})
    for (user, mechanism), credential in image.scram.credentials.items():
        where = f"users/{entities.entity_segment('users', user)}"
        keys = (credential.salt, credential.stored_key, credential.server_key)
        salt, stored, server = (base64.b64encode(each).decode() for each in keys)
        found.setdefault(where, {})[MECHANISM_NAMES[mechanism]] = (
            f"salt={salt},stored_key={stored},server_key={server},"
            f"iterations={credential.iterations}"
        )
    for where, configs in sorted(found.items()):
        folder, _, entity_name = where.partition("/")
        yield _wanted_config(folder, entity_name, configs)


def _entity_path(entity: Mapping[str, str | None]) -> str:
    if "user" in entity and "client-id" in entity:
        user = entities.entity_segment("users", entity["user"])
        return f"users/{user}/clients/{entities.entity_segment('clients', entity['client-id'])}"
    ((kind, name),) = entity.items()
    folder = entities.QUOTA_FOLDERS[kind]
    return f"{folder}/{entities.entity_segment(folder, name)}"


def _number(value: float) -> str:
    """Format a whole number without a decimal point: brokers parse byte rates as integers."""
    return str(int(value)) if value.is_integer() else repr(value)


# --- producer ids, ACLs, delegation tokens --------------------------------------------------------


def _producer_ids(image: MetadataImage) -> Iterator[Wanted]:
    last = image.producer_ids.last
    if last is None:
        return
    value = {
        "version": BLOCK_VERSION,
        "broker": last.broker_id,
        "block_start": str(last.next_producer_id - BLOCK_SIZE),
        "block_end": str(last.next_producer_id - 1),
    }
    yield Wanted(znodes.PRODUCER_IDS, value, lambda v: (v["broker"], int(v["block_end"])))


def _acls(image: MetadataImage) -> Iterator[Wanted]:
    found: dict[tuple[int, int, str], list[AccessControlEntryRecord]] = {}
    for acl in image.acls.acls.values():
        key = (acl.pattern_type, acl.resource_type, acl.resource_name)
        found.setdefault(key, []).append(acl)
    for (pattern_type, resource_type, name), acls in found.items():
        pattern = entities.PATTERN_NAMES[pattern_type]
        resource = entities.RESOURCE_NAMES[resource_type]
        is_literal = pattern_type == entities.LITERAL
        root = znodes.LITERAL_ACLS if is_literal else f"{znodes.EXTENDED_ACLS}/{pattern}"
        value = {"version": ACL_VERSION, "acls": [_acl(each) for each in acls]}
        notice = _acl_notice(resource, name, pattern)
        yield Wanted(f"{root}/{resource}/{name}", value, _acls_meaning, notice)


def _acl(acl: AccessControlEntryRecord) -> Value:
    return {
        "principal": acl.principal,
        "permissionType": entities.PERMISSION_NAMES[acl.permission_type],
        "host": acl.host,
        "operation": entities.OPERATION_NAMES[acl.operation],
    }


def _acls_meaning(value: Mapping[str, Any]) -> object:
    return {tuple(sorted(acl.items())) for acl in value["acls"]}


def _acl_notice(resource: str, name: str, pattern: str) -> CreateSequential:
    kind = entities.JAVA_RESOURCES[resource]
    if pattern == "literal":
        return CreateSequential("/kafka-acl-changes/acl_changes_", f"{kind}:{name}".encode())
    value = {"version": 1, "resourceType": kind, "name": name, "patternType": pattern.upper()}
    return CreateSequential("/kafka-acl-extended-changes/acl_changes_", _json(value))


def _tokens(image: MetadataImage) -> Iterator[Wanted]:
    for token in image.tokens.tokens.values():
        value = {
            "version": TOKEN_VERSION,
            "owner": token.owner,
            "tokenRequester": token.requester,
            "renewers": list(token.renewers),
            "issueTimestamp": token.issue_timestamp,
            "maxTimestamp": token.max_timestamp,
            "expiryTimestamp": token.expiration_timestamp,
            "tokenId": token.token_id,
        }
        path = f"{znodes.DELEGATION_TOKENS}/{token.token_id}"
        yield Wanted(path, value, _token_meaning, _token_notice(token.token_id))


def _token_meaning(value: Mapping[str, Any]) -> object:
    return {key: each for key, each in value.items() if key != "version"}


def _token_notice(token_id: str) -> CreateSequential:
    return CreateSequential("/delegation_token/token_changes/token_change_", token_id.encode())


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
