"""The differences between ZooKeeper and the metadata log, field by field.

Both sides are converted to the same form: a record's identity (its key) and its other fields. ACLs
have ids in the log only, so all other fields of an ACL form its identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from quorate.migration.reading import pending_deletions, read_all
from quorate.migration.znodes import Tree
from quorate.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from quorate.records.metadata.schema import Structure

Identity = tuple[object, ...]
Fields = dict[str, object]
Facts = dict[Identity, Fields]

_IDENTITY: dict[type[MetadataRecord], tuple[str, ...]] = {
    TopicRecord: ("name",),
    PartitionRecord: ("topic_id", "partition_id"),
    ConfigRecord: ("resource_type", "resource_name", "name"),
    ClientQuotaRecord: ("entity", "key"),
    UserScramCredentialRecord: ("name", "mechanism"),
    ProducerIdsRecord: (),
    DelegationTokenRecord: ("token_id",),
    AccessControlEntryRecord: (
        "resource_type",
        "resource_name",
        "pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    ),
}
_ONLY_IN_THE_LOG: dict[type[MetadataRecord], frozenset[str]] = {
    PartitionRecord: frozenset({"directories", "eligible_leader_replicas", "last_known_elr"}),
    AccessControlEntryRecord: frozenset({"id"}),
    ProducerIdsRecord: frozenset({"broker_epoch"}),
    ClientQuotaRecord: frozenset({"remove"}),
}
_NEVER = frozenset({"version", "unknown_tags"})
"""Fields of a record's encoding, not of its content."""
_SECRET = frozenset({"salt", "stored_key", "server_key"})
"""Fields that are compared but never shown."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs, or a whole record that one side lacks (then `field` is "")."""

    kind: str
    identity: str
    field: str
    in_zookeeper: str
    in_the_log: str


def facts(records: Iterable[object]) -> Facts:
    """The fields of records by their identity, without records that ZooKeeper cannot store."""
    found: Facts = {}
    for record in records:
        if not isinstance(record, MetadataRecord):
            continue
        kind = type(record)
        names = _IDENTITY.get(kind)
        if names is None:
            continue
        left_out = _ONLY_IN_THE_LOG.get(kind, frozenset()) | _NEVER | set(names)
        identity = (kind.__name__.removesuffix("Record"), *(_plain(record, n) for n in names))
        found[identity] = {
            each.name: getattr(record, each.name)
            for each in fields(record)
            if each.name not in left_out
        }
    return found


def _plain(record: MetadataRecord, name: str) -> object:
    """A field as a hashable key; a quota's entity is sorted, since its order has no meaning."""
    value = getattr(record, name)
    if isinstance(value, tuple):
        return tuple(sorted((str(each) if isinstance(each, Structure) else each) for each in value))
    return value


def compare(tree: Tree, image: Iterable[object]) -> Iterator[Difference]:
    """Every difference between ZooKeeper's tree and the records of an image.

    Topics with a pending deletion in ZooKeeper must not be in the image. Raises ZNodeError.
    """
    wanted = facts(record for batch in read_all(tree, lambda: "") for record in batch)
    found = facts(image)
    for identity in sorted(wanted.keys() | found.keys(), key=str):
        ours, theirs = found.get(identity), wanted.get(identity)
        kind, name = str(identity[0]), "/".join(map(str, identity[1:]))
        if theirs is None:
            deleted = kind == "Topic" and identity[1] in pending_deletions(tree)
            said = "deletion pending" if deleted else "missing"
            yield Difference(kind, name, "", said, "present")
        elif ours is None:
            yield Difference(kind, name, "", "present", "missing")
        else:
            for field, value in theirs.items():
                if ours[field] != value:
                    shown = ("differs", "differs") if field in _SECRET else (value, ours[field])
                    yield Difference(kind, name, field, str(shown[0]), str(shown[1]))
