"""Distributes a ledger's records to workers in shards that are replayed independently.

A partition depends on its topic, by id; a topic's configs depend on its removal, by name. So:

1. A record that names a topic's id is in that topic's shard.
2. Everything else is in one shard. It has copies of the records of topics, but not of partitions.
3. The few records that concern every shard are sent to all workers: transactions, and ClearElr.

A worker may replay several shards together. It applies a record and its copy only once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from quorate.metadata.entities import Data, Replay
from quorate.records.metadata import RECORD_TYPES, MetadataRecord, from_json
from quorate.spark.decoding.columns import CLUSTER
from quorate.spark.errors import DamagedError

CONTROLS = ("KRAFT_VERSION", "KRAFT_VOTERS")
_TRANSACTIONS = (
    "BEGIN_TRANSACTION_RECORD",
    "END_TRANSACTION_RECORD",
    "ABORT_TRANSACTION_RECORD",
)
_EVERYWHERE = (*_TRANSACTIONS, "CLEAR_ELR_RECORD")
_FIELDS = {cls.TYPE: {spec.json_name for spec in cls.FIELDS} for cls in RECORD_TYPES.values()}
_OF_PARTITIONS = [name for name, fields in _FIELDS.items() if {"topicId", "partitionId"} <= fields]
_OF_TOPICS = [
    name for name, fields in _FIELDS.items() if "topicId" in fields and name not in _OF_PARTITIONS
]
_REPLAYED = [
    *CONTROLS,
    *(name for name in _FIELDS if name not in _EVERYWHERE and name != "NO_OP_RECORD"),
]
_REST = ""

ReplayRow = tuple[Any, ...]
"""Type, data, seq, is_copy, then the record's place, of which the first column is the offset."""


def keys(rows: DataFrame) -> list[str]:
    """The column `cluster`, if the rows are those of several clusters."""
    return [CLUSTER] if CLUSTER in rows.columns else []


def of_clusters(rows: DataFrame, found: Iterable[Any]) -> dict[str | None, list[Any]]:
    """Group what was collected from `rows` by cluster; None is the key without that column."""
    by = keys(rows)
    groups: dict[str | None, list[Any]] = {}
    for row in found:
        groups.setdefault(row[CLUSTER] if by else None, []).append(row)
    return groups


def by_cluster(
    found: Iterable[pa.RecordBatch], *, has_clusters: bool
) -> Iterator[tuple[str | None, Iterator[pa.RecordBatch]]]:
    """Group a worker's rows by their first column, which is dropped.

    They are one group without a name unless `has_clusters`.
    """
    if not has_clusters:
        yield None, iter(found)
        return
    parts = (part for batch in found for part in _split(batch))
    for cluster, group in groupby(parts, itemgetter(0)):
        yield cluster, (part for _, part in group)


def _split(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    rest = batch.select(batch.schema.names[1:])
    start = 0
    for cluster, group in groupby(batch.column(0).to_pylist()):
        count = sum(1 for _ in group)
        yield cluster, rest.slice(start, count)
        start += count


def sharded(rows: DataFrame, buckets: int, *place: str) -> DataFrame:
    """Return the rows to replay, partitioned by shard and sorted by `seq` within a partition.

    The columns are type, data, seq, is_copy, and those that make up the record's place. A column
    `cluster` comes first; the rows of a cluster follow each other.
    """
    by = keys(rows)
    wanted = rows.where(F.col("type").isin(*_REPLAYED) & F.col("data").isNotNull())
    topic_id, rest = F.get_json_object("data", "$.topicId"), F.lit(_REST)
    shards = (
        F.when(F.col("type").isin(*_OF_PARTITIONS), F.array(topic_id))
        .when(F.col("type").isin(*_OF_TOPICS), F.array(topic_id, rest))
        .otherwise(F.array(rest))
    )
    placed = wanted.select(*by, F.explode(shards).alias("shard"), "type", "data", "seq", *place)
    is_copy = F.col("type").isin(*_OF_TOPICS) & (F.col("shard") == _REST)
    found = placed.withColumn("is_copy", is_copy).repartition(buckets, *by, "shard")
    return found.sortWithinPartitions(*by, "seq", "is_copy").select(
        *by, "type", "data", "seq", "is_copy", *place
    )


def together(rows: DataFrame, types: Iterable[str], *place: str) -> DataFrame:
    """Return the rows of a few types that depend on no others, a shard each cluster.

    The columns are those of `sharded`.
    """
    by = keys(rows)
    wanted = rows.where(F.col("type").isin(*types, *_TRANSACTIONS) & F.col("data").isNotNull())
    columns = wanted.select(*by, "type", "data", "seq", F.lit(False).alias("is_copy"), *place)
    placed = columns.repartition(*by) if by else columns.repartition(1)
    return placed.sortWithinPartitions(*by, "seq")


def replayed_everywhere(*place: str) -> Column:
    """A row that every shard replays, with the columns of `sharded`; null for other rows."""
    is_marked = F.col("type").isin(*_EVERYWHERE) & F.col("data").isNotNull()
    return F.when(is_marked, F.struct("type", "data", "seq", F.lit(True).alias("is_copy"), *place))


class Shard:
    """Feeds a replay with the rows of a worker, and with those that every shard replays."""

    def __init__(self, replay: Replay, everywhere: Iterable[ReplayRow] = ()) -> None:
        self._replay = replay
        self._everywhere = deque(everywhere)
        self._last_seq: int | None = None

    def apply(self, batch: pa.RecordBatch) -> None:
        columns = [column.to_pylist() for column in batch.columns]
        self._replay.apply(self._records(zip(*columns, strict=True)))

    def finish(self) -> None:
        """Replay the rows of every shard that follow the worker's last row."""
        rows, self._everywhere = self._everywhere, deque()
        self._replay.apply(self._records(rows))

    def _records(
        self, rows: Iterable[ReplayRow]
    ) -> Iterator[tuple[MetadataRecord, ReplayRow, bool]]:
        for type_name, data, seq, is_copy, *place in rows:
            while self._everywhere and self._everywhere[0][2] < seq:
                name, text, _, _, *where = self._everywhere.popleft()
                yield _decoded(name, text, where[0]), tuple(where), True
            if type_name in CONTROLS:
                self._replay.apply_control(
                    type_name, _parsed(type_name, data, place[0]), tuple(place)
                )
            elif seq != self._last_seq:
                yield _decoded(type_name, data, place[0]), tuple(place), not is_copy
            self._last_seq = seq


def _decoded(type_name: str, data: str, offset: int) -> MetadataRecord:
    try:
        return from_json(type_name, _parsed(type_name, data, offset))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(type_name, offset, error) from None


def _parsed(type_name: str, data: str, offset: int) -> Data:
    try:
        found: Data = json.loads(data)
    except ValueError as error:
        raise _damaged(type_name, offset, error) from None
    return found


def _damaged(type_name: str, offset: int, error: Exception) -> DamagedError:
    return DamagedError(f"the data of the {type_name} at offset {offset}: {error}")
