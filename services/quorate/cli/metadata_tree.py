"""The cluster's metadata as a tree of directories and files, as Kafka's metadata shell shows it.

The tree is built from the records of an image, so it shows the contents of a snapshot. Each type of
record has its place. Records of a type that this release does not know are below `unknown`.

    /image/topics/byName/orders/{id, name, 0, 1, …}     /image/topics/byId/…
    /image/cluster/brokers/101                           /image/cluster/controllers/1
    /image/configs/TOPIC/orders/retention.ms             (the cluster's default: `(default)`)
    /image/features/…  /image/clientQuotas/…  /image/scram/…  /image/acls/byId/…
    /image/producerIds/nextProducerId                    /image/delegationToken/tokens/…
    /image/provenance                                    /local/version

Source: Kafka's org.apache.kafka.shell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from quorate import __version__
from quorate.cli.secret_fields import config_value, masked
from quorate.records import metadata as m

Node = "Directory | str"

RESOURCE_TYPES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
DEFAULT = "(default)"


class Directory(dict[str, "Directory | str"]):
    """Maps names to directories and to the texts of files."""

    def at(self, *names: str) -> Directory:
        """Return a directory below this one, and create it if it is missing."""
        here = self
        for name in names:
            found = here.setdefault(name, Directory())
            assert isinstance(found, Directory), f"{name} is a file"
            here = found
        return here

    def find(self, path: str) -> Directory | str | None:
        """Return the directory or file at an absolute path, or None."""
        here: Directory | str = self
        for name in PurePosixPath(path).parts[1:]:
            if not isinstance(here, Directory) or name not in here:
                return None
            here = here[name]
        return here

    def sorted_names(self) -> list[str]:
        """Return the names: numbers by value, then all others."""
        return sorted(
            self,
            key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name),
        )


def build_tree(
    records: Iterable[m.MetadataRecord | m.UnknownRecord], provenance: dict[str, Any]
) -> Directory:
    """Build the tree of an image's records. provenance: the image's offset, epoch and time."""
    root = Directory()
    image = root.at("image")
    names: dict[str, str] = {}
    for record in records:
        if isinstance(record, m.TopicRecord):
            names[record.topic_id] = record.name
        place = _PLACES.get(type(record))
        if place is None:
            _unknown(image, record)
        else:
            place(image, record, names)
    image["provenance"] = pretty(provenance)
    root.at("local")["version"] = __version__
    return root


def pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _data(record: Any) -> Any:
    return m.to_json(record)["data"]


def _topic(image: Directory, record: m.TopicRecord, _names: dict[str, str]) -> None:
    for way, name in (("byName", record.name), ("byId", record.topic_id)):
        topic = image.at("topics", way, name)
        topic["name"], topic["id"] = record.name, record.topic_id


def _partition(image: Directory, record: m.PartitionRecord, names: dict[str, str]) -> None:
    text = pretty(_data(record))
    for way, name in (("byName", names[record.topic_id]), ("byId", record.topic_id)):
        image.at("topics", way, name)[str(record.partition_id)] = text


def _broker(image: Directory, record: m.RegisterBrokerRecord, _names: dict[str, str]) -> None:
    image.at("cluster", "brokers")[str(record.broker_id)] = pretty(_data(record))


def _controller(
    image: Directory, record: m.RegisterControllerRecord, _names: dict[str, str]
) -> None:
    image.at("cluster", "controllers")[str(record.controller_id)] = pretty(_data(record))


def _config(image: Directory, record: m.ConfigRecord, _names: dict[str, str]) -> None:
    kind = RESOURCE_TYPES.get(record.resource_type, str(record.resource_type))
    values = image.at("configs", kind, record.resource_name or DEFAULT)
    value = "" if record.value is None else record.value
    values[record.name] = config_value(record.resource_type, record.name, value)


def _feature(image: Directory, record: m.FeatureLevelRecord, _names: dict[str, str]) -> None:
    image.at("features")[record.name] = str(record.feature_level)


def _quota(image: Directory, record: m.ClientQuotaRecord, _names: dict[str, str]) -> None:
    entity = ",".join(
        f"{part.entity_type}={DEFAULT if part.entity_name is None else part.entity_name}"
        for part in record.entity
    ).replace("/", "%2F")
    image.at("clientQuotas", entity)[record.key] = repr(record.value)


def _scram(image: Directory, record: m.UserScramCredentialRecord, _names: dict[str, str]) -> None:
    mechanism = MECHANISMS.get(record.mechanism, str(record.mechanism))
    shown = masked(m.to_json(record))["data"]
    image.at("scram", mechanism)[record.name.replace("/", "%2F")] = pretty(shown)


def _acl(image: Directory, record: m.AccessControlEntryRecord, _names: dict[str, str]) -> None:
    image.at("acls", "byId")[record.id] = pretty(_data(record))


def _producer_ids(image: Directory, record: m.ProducerIdsRecord, _names: dict[str, str]) -> None:
    image.at("producerIds")["nextProducerId"] = str(record.next_producer_id)


def _token(image: Directory, record: m.DelegationTokenRecord, _names: dict[str, str]) -> None:
    image.at("delegationToken", "tokens")[record.token_id] = pretty(_data(record))


def _migration(image: Directory, record: m.ZkMigrationStateRecord, _names: dict[str, str]) -> None:
    state = m.ZkMigrationState(record.zk_migration_state).name
    image.at("features")["zkMigrationState"] = state


def _unknown(image: Directory, record: m.MetadataRecord | m.UnknownRecord) -> None:
    shown = m.to_json(record)
    kept = image.at("unknown", str(shown["type"]))
    kept[str(len(kept))] = pretty(shown)


_PLACES: dict[type, Callable[[Directory, Any, dict[str, str]], None]] = {
    m.TopicRecord: _topic,
    m.PartitionRecord: _partition,
    m.RegisterBrokerRecord: _broker,
    m.RegisterControllerRecord: _controller,
    m.ConfigRecord: _config,
    m.FeatureLevelRecord: _feature,
    m.ClientQuotaRecord: _quota,
    m.UserScramCredentialRecord: _scram,
    m.AccessControlEntryRecord: _acl,
    m.ProducerIdsRecord: _producer_ids,
    m.DelegationTokenRecord: _token,
    m.ZkMigrationStateRecord: _migration,
}


def draw(directory: Directory, indent: int = 0) -> Iterator[str]:
    """Yield the lines of `tree`: names with their contents below, two spaces per level."""
    for name in directory.sorted_names():
        inner = directory[name]
        yield f"{'  ' * indent}{name}{':' if isinstance(inner, Directory) else ''}"
        if isinstance(inner, Directory):
            yield from draw(inner, indent + 1)
        else:
            for line in inner.splitlines() or [""]:
                yield f"{'  ' * (indent + 1)}{line}"
