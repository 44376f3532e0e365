"""ZooKeeper's tree as a table, and its differences from the metadata log (KIP-866).

`znodes` reads a dump (one JSON object per znode, as `zookeeper-shell` scripts and the migration's
tests write it). `expected` is the state that copying the tree would produce. `compare` compares it
with the log's state: the result is empty after a complete initial copy, and during dual writes.

Fields that only one side has are excluded: a partition's directories and eligible leader replicas,
and the ids that the log assigns to ACLs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from quorate.common.identifiers import uuid_from_bytes
from quorate.metadata.entities import (
    ACLS,
    CONFIGS,
    PARTITIONS,
    PRODUCER_IDS,
    QUOTAS,
    SCRAM,
    TOKENS,
    TOPICS,
    Data,
    StateReplay,
    fields_text,
)
from quorate.migration.errors import ZNodeError
from quorate.migration.reading import read_all
from quorate.migration.znodes import Tree, ZNode
from quorate.spark.errors import NotALogError, PipelineError
from quorate.spark.layers import batch_of
from quorate.spark.state import STATE_SCHEMA

ZNODES_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("data", pa.binary()),
        ("version", pa.int32()),
        ("cversion", pa.int32()),
        ("aversion", pa.int32()),
        ("czxid", pa.int64()),
        ("mzxid", pa.int64()),
        ("pzxid", pa.int64()),
        ("ctime", pa.int64()),
        ("mtime", pa.int64()),
        ("ephemeral_owner", pa.int64()),
        ("acl", pa.list_(pa.field("element", pa.string()))),
    ]
)
"""Times in milliseconds since 1970. ephemeral_owner: the session of an ephemeral znode, or 0."""

_COMPARED: dict[str, tuple[str, ...] | None] = {
    TOPICS: None,
    PARTITIONS: (
        "replicas",
        "isr",
        "leader",
        "leaderEpoch",
        "partitionEpoch",
        "addingReplicas",
        "removingReplicas",
        "leaderRecoveryState",
    ),
    CONFIGS: None,
    QUOTAS: None,
    SCRAM: None,
    ACLS: (
        "resourceType",
        "resourceName",
        "patternType",
        "principal",
        "host",
        "operation",
        "permissionType",
    ),
    TOKENS: None,
    PRODUCER_IDS: None,
}
"""The kinds that both sides hold, and the fields that both have (None: all)."""


def znodes(spark: SparkSession, dump: Path) -> DataFrame:
    """Read the tree from a dump, in ZNODES_SCHEMA. Raises NotALogError if the file is no dump."""
    try:
        lines = dump.read_text(encoding="utf-8").splitlines()
        rows = [_row(json.loads(line)) for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotALogError(f"{dump} is not a dump of znodes: {error}") from None
    return _table(spark, rows)


def _row(found: dict[str, Any]) -> tuple[Any, ...]:
    data = found.get("data")
    raw = None if data is None else str(data).encode()
    if found.get("data_base64") is not None:
        raw = base64.b64decode(found["data_base64"])
    named = (found[name] for name in ZNODES_SCHEMA.names[2:])
    return (str(found["path"]), raw, *named)


def _table(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, from_arrow_schema(ZNODES_SCHEMA))


def expected(tree: DataFrame) -> DataFrame:
    """The state that copying the tree would produce, in STATE_SCHEMA.

    Raises PipelineError if the tree cannot be copied.
    """
    rows = tree.select("path", "data", "version", "ephemeral_owner").collect()
    nodes = Tree(
        ZNode(
            row.path,
            None if row.data is None else bytes(row.data),
            row.version,
            row.ephemeral_owner,
        )
        for row in rows
    )
    replay = StateReplay()
    new_ids = (uuid_from_bytes(number.to_bytes(16, "big")) for number in count(1))
    try:
        records = [each for batch in read_all(nodes, lambda: next(new_ids)) for each in batch]
    except ZNodeError as error:
        raise PipelineError(f"the tree cannot be copied: {error}") from None
    replay.apply((record, (at,), True) for at, record in enumerate(records))
    found = [(k, key, fields_text(fields), at) for k, key, fields, at in replay.rows()]
    return tree.sparkSession.createDataFrame(found, from_arrow_schema(STATE_SCHEMA))


def compare(tree: DataFrame, state: DataFrame) -> DataFrame:
    """The differences: kind, key, difference, zookeeper and log (both: fields as JSON)."""
    left = _comparable(expected(tree)).withColumnRenamed("fields", "zookeeper")
    right = _comparable(state).withColumnRenamed("fields", "log")
    both = left.join(right, ["kind", "key"], "full")
    difference = (
        F.when(F.col("log").isNull(), "missing in the log")
        .when(F.col("zookeeper").isNull(), "missing in ZooKeeper")
        .when(F.col("zookeeper") != F.col("log"), "different")
    )
    found = both.withColumn("difference", difference).where("difference is not null")
    return found.select("kind", "key", "difference", "zookeeper", "log").orderBy("kind", "key")


def _comparable(found: DataFrame) -> DataFrame:
    """The fields that both sides have, in a fixed order. ACLs are keyed by their content."""

    def reduce(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(n, pa.string()) for n in ("kind", "key", "fields")])
        for batch in batches:
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            yield batch_of([_reduced(*row) for row in rows], schema)

    kinds = found.where(F.col("kind").isin(*_COMPARED)).select("kind", "key", "fields")
    return kinds.mapInArrow(reduce, "kind string, key string, fields string")


def _reduced(kind: str, key: str, text: str) -> tuple[str, str, str]:
    fields: Data = json.loads(text)
    names = _COMPARED[kind]
    kept = fields if names is None else {name: fields.get(name) for name in names}
    shown = json.dumps(kept, sort_keys=True)
    return kind, shown if kind == ACLS else key, shown
