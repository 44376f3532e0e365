"""`meta.properties`: which cluster, node and directory this is (KIP-853, KIP-858).

Version 1 of the file, Kafka's for KRaft. Written once by `storage format`, and again only to add a
missing directory.id. A directory id names a disk's content: an empty disk never gets an old one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import javaproperties

from quorate.common.identifiers import UUID_BYTES, DirectoryId, uuid_from_bytes, uuid_to_bytes
from quorate.log.disk import Disk
from quorate.log.errors import MetaPropertiesError

META_PROPERTIES_FILE = "meta.properties"
VERSION = 1

_RESERVED_PREFIX = bytes(15)
"""Kafka reserves the ids 0, 1 and so on: UNKNOWN, ONE, and the migrating directories."""


def random_uuid() -> str:
    """A random id in Kafka's form: not a reserved one, and none that looks like a flag."""
    while True:
        raw = bytearray(secrets.token_bytes(UUID_BYTES))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = uuid_from_bytes(raw)
        if not text.startswith("-") and raw[:15] != _RESERVED_PREFIX:
            return text


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of meta.properties."""

    cluster_id: str
    node_id: int
    directory_id: DirectoryId | None
    """None only before Kafka 3.7."""
    version: int = VERSION

    @classmethod
    def read(cls, directory: Path) -> MetaProperties:
        """MetaPropertiesError when the directory is not formatted or the file is broken."""
        path = directory / META_PROPERTIES_FILE
        try:
            values = javaproperties.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise MetaPropertiesError(
                f"{directory} is not formatted: it has no {META_PROPERTIES_FILE}. "
                "Run `quorate storage format` for it first"
            ) from error
        except (OSError, ValueError) as error:
            raise MetaPropertiesError(f"{path} cannot be read: {error}") from error
        return cls._parse(path, values)

    @classmethod
    def _parse(cls, path: Path, values: dict[str, str]) -> MetaProperties:
        def need(name: str) -> str:
            value = values.get(name, "").strip()
            if not value:
                raise MetaPropertiesError(
                    f"{path} has no {name}: restore the file, or format an empty directory"
                )
            return value

        version = need("version")
        if version != str(VERSION):
            raise MetaPropertiesError(
                f"{path} has version {version}; only version {VERSION} (KRaft) is supported"
            )
        node_id = need("node.id")
        if not node_id.isdecimal() or int(node_id) > 0x7FFF_FFFF:
            raise MetaPropertiesError(f"{path} has an invalid node.id: {node_id!r}")
        directory_id = values.get("directory.id", "").strip() or None
        if directory_id is not None:
            try:
                uuid_to_bytes(directory_id)
            except ValueError as error:
                raise MetaPropertiesError(f"{path}: directory.id: {error}") from error
        return cls(need("cluster.id"), int(node_id), directory_id)

    def check(self, directory: Path, node_id: int, cluster_id: str | None, source: object) -> None:
        """That the directory they are from is this node's. cluster_id: None where the settings name
        none. source: where the settings are from. MetaPropertiesError.
        """
        path = directory / META_PROPERTIES_FILE
        if self.node_id != node_id:
            raise MetaPropertiesError(
                f"{path} belongs to node {self.node_id}, but node.id is {node_id} in {source}: "
                "correct the directory or node.id"
            )
        if cluster_id is not None and self.cluster_id != cluster_id:
            raise MetaPropertiesError(
                f"{path} belongs to cluster {self.cluster_id}, but cluster.id is {cluster_id} in "
                f"{source}: correct the directory or cluster.id"
            )

    def write(self, directory: Path, disk: Disk | None = None) -> None:
        """Durably, all or nothing."""
        values = {
            "node.id": str(self.node_id),
            "directory.id": self.directory_id,
            "version": str(self.version),
            "cluster.id": self.cluster_id,
        }
        content = javaproperties.dumps(
            {name: value for name, value in values.items() if value is not None},
            comments="",
            timestamp=datetime.now(UTC),
        )
        (disk or Disk()).replace_file(
            directory / META_PROPERTIES_FILE, content.encode("iso-8859-1")
        )


def ensure_directory_id(directory: Path) -> MetaProperties:
    """Read the properties; give the directory an id if it has none (one of Kafka before 3.7)."""
    properties = MetaProperties.read(directory)
    if properties.directory_id is None:
        properties = replace(properties, directory_id=random_uuid())
        properties.write(directory)
    return properties
