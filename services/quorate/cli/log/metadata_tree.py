"""The cluster's metadata as a tree of directories and files, as Kafka's metadata shell shows it.

The tree is built from the records of an image, so it shows the contents of a snapshot. Each type of
record has its place. Records of a type that this release does not know are below `unknown`.

    /image/topics/byName/orders/{id, name, 0, 1, …}     /image/topics/byId/…
    /image/cluster/brokers/101                           /image/cluster/controllers/1
    /image/configs/TOPIC/orders/retention.ms             (the cluster's default: `(default)`)
    /image/features/…  /image/clientQuotas/…  /image/scram/…  /image/acls/byId/…
    /image/producerIds/nextProducerId                    /image/delegationToken/tokens/…
    /image/kafkaNodes                                    (if Kafka's nodes use the quorum)
    /image/provenance                                    /local/version

Source: Kafka's org.apache.kafka.shell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from quorate.cli.secret_fields import config_value, masked
from quorate.common.scram import MECHANISM_NAMES
from quorate.records import metadata as m
from quorate.version import __version__

Node = "Directory | str"

RESOURCE_TYPES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
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
        for (*above, name), text in _files(image, record, names):
            image.at(*above)[name] = text
    image["provenance"] = pretty(provenance)
    root.at("local")["version"] = __version__
    return root


def pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _files(
    image: Directory, record: m.MetadataRecord | m.UnknownRecord, names: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and the text of each file of a record. names: the topics', by id."""
    match record:
        case m.TopicRecord():
            for way in (("byName", record.name), ("byId", record.topic_id)):
                yield ("topics", *way, "name"), record.name
                yield ("topics", *way, "id"), record.topic_id
        case m.PartitionRecord():
            text = _data(record)
            for way in (("byName", names[record.topic_id]), ("byId", record.topic_id)):
                yield ("topics", *way, str(record.partition_id)), text
        case m.RegisterBrokerRecord():
            yield ("cluster", "brokers", str(record.broker_id)), _data(record)
        case m.RegisterControllerRecord():
            yield ("cluster", "controllers", str(record.controller_id)), _data(record)
        case m.ConfigRecord(resource_type=resource_type, name=name):
            kind = RESOURCE_TYPES.get(resource_type, str(resource_type))
            value = config_value(resource_type, name, record.value or "")
            yield ("configs", kind, record.resource_name or DEFAULT, name), value
        case m.NoOpRecord():
            # An image has no other NoOpRecord.
            yield ("kafkaNodes",), "true"
        case m.FeatureLevelRecord():
            yield ("features", record.name), str(record.feature_level)
        case m.ClientQuotaRecord():
            entity = ",".join(
                f"{part.entity_type}={DEFAULT if part.entity_name is None else part.entity_name}"
                for part in record.entity
            )
            yield ("clientQuotas", _escaped(entity), record.key), repr(record.value)
        case m.UserScramCredentialRecord():
            mechanism = MECHANISM_NAMES.get(record.mechanism, str(record.mechanism))
            text = pretty(masked(m.to_json(record))["data"])
            yield ("scram", mechanism, _escaped(record.name)), text
        case m.AccessControlEntryRecord():
            yield ("acls", "byId", record.id), _data(record)
        case m.ProducerIdsRecord():
            yield ("producerIds", "nextProducerId"), str(record.next_producer_id)
        case m.DelegationTokenRecord():
            yield ("delegationToken", "tokens", record.token_id), _data(record)
        case m.ZkMigrationStateRecord():
            state = m.ZkMigrationState(record.zk_migration_state).name
            yield ("features", "zkMigrationState"), state
        case _:
            shown = m.to_json(record)
            place = ("unknown", str(shown["type"]))
            yield (*place, str(len(image.at(*place)))), pretty(shown)


def _data(record: Any) -> str:
    return pretty(m.to_json(record)["data"])


def _escaped(name: str) -> str:
    return name.replace("/", "%2F")


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
