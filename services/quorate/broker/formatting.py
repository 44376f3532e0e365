"""Formats a broker's directories: meta.properties and a metadata log directory in each.

A broker is never a voter, so there is no bootstrap checkpoint: it fetches the metadata log. A
directory that is already formatted for this cluster and node stays unchanged.

Source: KIP-858 (directory ids), KIP-853.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quorate.log.disk import DIRECTORY_MODE
from quorate.log.errors import MetaPropertiesError
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties, random_uuid
from quorate.log.metadata_log import create_partition_directory


def format_broker(
    node_id: int, cluster_id: str, metadata_log_dir: Path, log_dirs: Iterable[Path]
) -> tuple[MetaProperties, ...]:
    """Format unformatted directories; return the properties of all, the metadata log's first.

    MetaPropertiesError if a directory belongs to another cluster or node.
    """
    directories = dict.fromkeys((metadata_log_dir, *log_dirs))
    return tuple(_format_one(directory, node_id, cluster_id) for directory in directories)


def _format_one(directory: Path, node_id: int, cluster_id: str) -> MetaProperties:
    if (directory / META_PROPERTIES_FILE).exists():
        found = MetaProperties.read(directory)
        if (found.cluster_id, found.node_id) != (cluster_id, node_id):
            raise MetaPropertiesError(
                f"{directory} belongs to node {found.node_id} of cluster {found.cluster_id}, not "
                f"to node {node_id} of {cluster_id}: use an empty directory"
            )
        return found
    directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    create_partition_directory(directory)
    properties = MetaProperties(cluster_id, node_id, random_uuid())
    properties.write(directory)
    return properties
