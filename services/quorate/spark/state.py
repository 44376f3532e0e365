"""The state of the cluster as of an offset or a time, replayed from the ledger.

1. `as_of` selects the rows: the newest snapshot that ends by then, and the log that follows it.
   This takes one pass over the ledger.
2. It moves records that depend on each other to the same worker, in order (`shards`), and replays
   them there on an image (`replay`). This takes one shuffle, and no more memory than the state
   itself.
3. `table` returns the entities of one kind with their own columns.

The result has one row per entity: kind, key, fields (JSON), and the offset of its last change. A
ledger of several clusters has a column `cluster`, and so has the result; each cluster is replayed
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from quorate.metadata import entities
from quorate.metadata.entities import StateReplay, fields_text
from quorate.records.metadata import API_KEYS, RECORD_TYPES
from quorate.spark.decoding.columns import CLUSTER, CLUSTER_FIELD
from quorate.spark.decoding.fields import arrow_type
from quorate.spark.errors import CompactedError, OptionError
from quorate.spark.layers import batch_of, with_order
from quorate.spark.shards import (
    ReplayRow,
    Shard,
    by_cluster,
    keys,
    of_clusters,
    replayed_everywhere,
    sharded,
)

ROWS_PER_BUCKET = 500_000
ROWS_AT_ONCE = 10_000
BUCKETS_MIN = 2
STATE_SCHEMA = pa.schema(
    [("kind", pa.string()), ("key", pa.string()), ("fields", pa.string()), ("offset", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class StateExtent:
    """The part of a cluster's ledger that makes up its state. offset: the end, exclusive.

    snapshot: the end offset of the snapshot used, or None. everywhere: the rows that every shard
    replays (see `shards`).
    """

    offset: int
    snapshot: int | None
    everywhere: list[ReplayRow]

    @property
    def begins(self) -> int:
        """The first offset of the log that is replayed."""
        return self.snapshot or 0


@dataclass(frozen=True, slots=True)
class Selection:
    """The input of a state. rows: with `seq`. count: an upper bound on the number of rows.

    extents: by cluster; None is the key in a ledger without that column.
    """

    rows: DataFrame
    count: int
    extents: dict[str | None, StateExtent]


def select(
    ledger: DataFrame,
    *,
    offset: int | None = None,
    time: datetime | None = None,
    replica: str | None = None,
) -> Selection:
    """Select the rows that make up the state before `offset` (exclusive), at `time`, or now.

    Reads the ledger once. ledger: includes the rows of its snapshots if the log does not begin at
    0. replica: required if the ledger holds several. Raises CompactedError if the ledger does not
    reach back that far, and OptionError for contradictory arguments.
    """
    if offset is not None and time is not None:
        raise OptionError("specify an offset or a time, not both")
    if replica is not None:
        ledger = ledger.where(F.col("replica") == replica)
    ledger = with_order(ledger)
    found = _extents(ledger, time)
    groups = of_clusters(ledger, found) or {None: []}
    extents = {cluster: _extent(rows, offset, time) for cluster, rows in groups.items()}
    rows = _between(ledger, extents)
    return Selection(rows, sum(row.rows for row in found), extents)


def _extent(found: Sequence[Any], offset: int | None, time: datetime | None) -> StateExtent:
    """The extent of one cluster's state. found: its rows of `_extents`."""
    if len({row.replica for row in found}) > 1:
        raise OptionError("the ledger contains several replicas: specify one")
    log = next((row for row in found if row.snapshot is None), None)
    ends = [row.snapshot for row in found if row.snapshot is not None]
    target = _offset_at(found, time) if time is not None else offset
    if target is None:
        target = max([*ends, 0 if log is None else log.last + 1])
    base = max((end for end in ends if end <= target), default=None)
    begins = base or 0
    if target > begins and (log is None or log.start > begins):
        start = "nowhere" if log is None else f"at {log.start}"
        raise CompactedError(
            f"the state before offset {target} is not available: the log begins {start}, and no "
            "snapshot covers the gap"
        )
    everywhere = [
        tuple(mark)
        for row in found
        for mark in row.everywhere
        if (begins <= mark.offset < target if row.snapshot is None else row.snapshot == base)
    ]
    everywhere.sort(key=lambda mark: int(mark[2]))
    return StateExtent(target, base, everywhere)


def _between(ledger: DataFrame, extents: Mapping[str | None, StateExtent]) -> DataFrame:
    """The rows of the ledger that the extents contain."""
    if not keys(ledger):
        (one,) = extents.values()
        return ledger.where(_contains(F.lit(one.begins), F.lit(one.offset), F.lit(one.snapshot)))
    bounds = ledger.sparkSession.createDataFrame(
        [(cluster, one.begins, one.offset, one.snapshot) for cluster, one in extents.items()],
        f"{CLUSTER} string, begins long, target long, base long",
    )
    joined = ledger.join(F.broadcast(bounds), CLUSTER)
    chosen = joined.where(_contains(F.col("begins"), F.col("target"), F.col("base")))
    return chosen.drop("begins", "target", "base")


def _contains(begins: Column, target: Column, base: Column) -> Column:
    offset = F.col("offset")
    in_log = F.col("snapshot").isNull() & (offset >= begins) & (offset < target)
    return in_log | (F.col("snapshot") == base)


def _extents(ledger: DataFrame, time: datetime | None) -> list[Any]:
    """What `select` needs to know about the log and each snapshot.

    by_time: the end offset at `time`, from the timestamps in the log, or from the last timestamp
    that a snapshot contains.
    """
    moment = F.lit(time).cast("timestamp")
    contained = F.get_json_object("data", "$.lastContainedLogTimestamp").cast("long")
    is_header = (F.col("type") == "SNAPSHOT_HEADER") & F.col("snapshot").isNotNull()
    in_log = F.col("snapshot").isNull() & (F.col("timestamp") <= moment)
    by_time = F.when(in_log, F.col("offset") + 1).when(
        is_header & (F.timestamp_millis(contained) <= moment), F.col("snapshot")
    )
    return (
        ledger.groupBy(*keys(ledger), "replica", "snapshot")
        .agg(
            F.min("offset").alias("start"),
            F.max("offset").alias("last"),
            F.count("*").alias("rows"),
            F.collect_list(replayed_everywhere("offset")).alias("everywhere"),
            F.max(by_time).alias("by_time"),
        )
        .collect()
    )


def _offset_at(extents: Sequence[Any], time: datetime) -> int:
    """The end offset of the log at a time."""
    known = [int(row.by_time) for row in extents if row.by_time is not None]
    if not known:
        raise CompactedError(f"the log does not reach back to {time.isoformat()}")
    return max(known)


def as_of(
    ledger: DataFrame,
    *,
    offset: int | None = None,
    time: datetime | None = None,
    replica: str | None = None,
) -> DataFrame:
    """The state before an offset, at a time, or now: kind, key, fields, offset. See `select`.

    Of several clusters, a fifth column is `cluster`.
    """
    chosen = select(ledger, offset=offset, time=time, replica=replica)
    buckets = max(BUCKETS_MIN, -(-chosen.count // ROWS_PER_BUCKET))
    everywhere = {cluster: one.everywhere for cluster, one in chosen.extents.items()}
    has_clusters = bool(keys(ledger))
    schema = STATE_SCHEMA.append(CLUSTER_FIELD) if has_clusters else STATE_SCHEMA

    def play(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cluster, batches in by_cluster(found, has_clusters=has_clusters):
            replay = StateReplay()
            shard = Shard(replay, everywhere[cluster])
            for batch in batches:
                shard.apply(batch)
            shard.finish()
            left = replay.rows()
            last = (cluster,) if has_clusters else ()
            while some := list(islice(left, ROWS_AT_ONCE)):
                rows = [
                    (kind, key, fields_text(fields), at, *last) for kind, key, fields, at in some
                ]
                yield batch_of(rows, schema)

    ordered = sharded(chosen.rows, buckets, "offset")
    return ordered.mapInArrow(play, from_arrow_schema(schema))


def _own(type_name: str, **more: pa.DataType) -> StructType:
    specs = RECORD_TYPES[API_KEYS[type_name]].FIELDS
    fields = [*more.items(), *((spec.json_name, arrow_type(spec)) for spec in specs)]
    return from_arrow_schema(pa.schema(fields))


COLUMNS: dict[str, StructType] = {
    entities.TOPICS: _own("TOPIC_RECORD"),
    entities.PARTITIONS: _own("PARTITION_RECORD", topic=pa.string()),
    entities.BROKERS: _own("REGISTER_BROKER_RECORD"),
    entities.CONFIGS: _own("CONFIG_RECORD"),
    entities.FEATURES: from_arrow_schema(pa.schema([("name", pa.string()), ("level", pa.int32())])),
    entities.VOTERS: from_arrow_schema(
        pa.schema(
            [
                ("voterId", pa.int32()),
                ("directoryId", pa.string()),
                ("endpoints", pa.list_(pa.field("element", pa.string()))),
            ]
        )
    ),
    entities.CONTROLLERS: _own("REGISTER_CONTROLLER_RECORD"),
    entities.ACLS: _own("ACCESS_CONTROL_ENTRY_RECORD"),
}
"""The kinds that have tables of their own, and their columns."""


def table(found: DataFrame, kind: str) -> DataFrame:
    """The entities of one kind in a state, with typed columns. `offset`: that of the last change.

    Of several clusters, the last column is `cluster`. Raises OptionError if the kind has no table
    of its own.
    """
    columns = COLUMNS.get(kind)
    if columns is None:
        raise OptionError(f"unknown table {kind!r}: expected one of {', '.join(COLUMNS)}")
    mine = found.where(F.col("kind") == kind)
    rest = ["offset", *keys(found)]
    return mine.select(F.from_json("fields", columns).alias("_"), *rest).select("_.*", *rest)
