"""Directories of many clusters: logs of their own, each with its own cluster id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from quorate.common.identifiers import uuid_from_bytes
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties

from tests.spark.make_log import make_log


def cluster_id(number: int) -> str:
    return uuid_from_bytes(b"cluster!" + number.to_bytes(8, "big"))


def join_cluster(directory: Path, number: int) -> Path:
    """Give a node's directory the id of a cluster."""
    properties = replace(MetaProperties.read(directory), cluster_id=cluster_id(number))
    (directory / META_PROPERTIES_FILE).unlink()
    properties.write(directory)
    return directory


def make_cluster(root: Path, number: int, records: int) -> Path:
    """Write the log of one cluster with one node; its directory."""
    directory = root / f"cluster-{number:05d}"
    make_log(directory, records, seed=number)
    return join_cluster(directory, number)
