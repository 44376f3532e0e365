"""The history as intervals: leader terms, voter sets, ISRs, and broker states.

Every change of a subject (the quorum's leader, its voter set, a partition's ISR, a broker) begins
an interval, which ends at the subject's next change. A subject's last interval has no end, unless
it is a partition whose topic was deleted; a new topic of the same name begins anew. Records of a
transaction that was aborted, or has not ended, change nothing (KIP-868).

If the log does not begin at 0, the values in a snapshot begin the first intervals, at the
snapshot's last offset. That is the newest snapshot that ends at or before the start of the log or,
if there is none, the oldest one.

Broker states come from the image, on which the records about brokers are replayed (`replay`) after
those of the snapshot. The other values come directly from the records.

`history` takes a ledger of one replica and returns rows of kind, subject, value, previous, change,
start_offset, end_offset, epoch, started, ended. It also takes one of several clusters, a replica
each: both then have the column `cluster`.

Source: LeaderChange (KIP-595), KRaftVoters (KIP-853), partitions and registrations (KIP-631, 841).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from quorate.metadata.entities import Place, Replay
from quorate.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from quorate.spark.decoding.columns import CLUSTER, CLUSTER_FIELD
from quorate.spark.errors import OptionError
from quorate.spark.layers import batch_of, with_order
from quorate.spark.options import OFFSET_MAX
from quorate.spark.shards import Shard, by_cluster, keys, of_clusters, together

LEADER, VOTERS, ISR, BROKER = "leader", "voters", "isr", "broker"
QUORUM = "quorum"
CREATED = "created"
ELECTED = "elected"
REGISTERED = "registered"
"""The change of a broker that registers again, as after a restart, and keeps its state."""
_VOTERS_JSON = "struct<voters:array<struct<voterId:int,voterDirectoryId:string>>>"
_ISR_JSON = "struct<topicId:string,partitionId:int,isr:array<int>>"
_FENCING = FenceBrokerRecord | UnfenceBrokerRecord
_ABOUT_BROKERS = (
    RegisterBrokerRecord | UnregisterBrokerRecord | BrokerRegistrationChangeRecord | _FENCING
)
_TRANSACTIONS = (
    BeginTransactionRecord.TYPE,
    EndTransactionRecord.TYPE,
    AbortTransactionRecord.TYPE,
)
_SEPARATOR = ", "
_PLACE = ("offset", "epoch", "timestamp")
_STANDING_SCHEMA = pa.schema(
    [
        ("broker", pa.string()),
        ("standing", pa.string()),
        ("registration", pa.int64()),
        ("offset", pa.int64()),
        ("epoch", pa.int32()),
        ("timestamp", pa.int64()),
    ]
)
"""registration: the broker epoch, null if it is unregistered. Timestamps in microseconds."""


def history(ledger: DataFrame) -> DataFrame:
    """Return all intervals, sorted by start offset. Raises OptionError for several replicas."""
    mark = F.when(F.col("type").isin(*_TRANSACTIONS), F.struct("offset", "type"))
    extents = ledger.groupBy(*keys(ledger), "replica", "snapshot").agg(
        F.min("offset").alias("start"),
        F.collect_list(mark).alias("marks"),
        F.bool_or(F.col("type") == RemoveTopicRecord.TYPE).alias("has_removals"),
    )
    found = extents.collect()
    groups = of_clusters(ledger, found)
    bases = {cluster: _base(rows) for cluster, rows in groups.items()}
    rows = with_order(_seeded(ledger, bases).where(F.col("data").isNotNull()))
    left_out = [
        (cluster, first, last)
        for cluster, some in groups.items()
        for first, last in undone(
            [tuple(mark) for row in some if row.snapshot is None for mark in row.marks]
        )
    ]
    events = _leaders(rows).unionByName(_voter_sets(rows)).unionByName(_brokers(rows))
    done = _without(rows, left_out)
    changes = _isr_changes(done)
    events = events.unionByName(_isrs(changes))
    if any(row.has_removals for row in found):
        events = events.unionByName(_removals(done, changes))
    return _intervals(events).orderBy(*keys(ledger), "start_offset", "kind", "subject")


def _base(found: Sequence[Any]) -> int | None:
    """The end offset of the snapshot that begins the history of a cluster, None without one."""
    if len({row.replica for row in found}) > 1:
        raise OptionError("the ledger contains several replicas: specify one")
    start = min((row.start for row in found if row.snapshot is None), default=None)
    seeds = [row.snapshot for row in found if row.snapshot is not None]
    base = max((end for end in seeds if start is None or end <= start), default=None)
    if base is None and start:
        base = min(seeds, default=None)
    return base


def _seeded(ledger: DataFrame, bases: Mapping[str | None, int | None]) -> DataFrame:
    """The log, after the rows of the snapshots that begin it, at their last offset."""
    if keys(ledger):
        table = ledger.sparkSession.createDataFrame(
            list(bases.items()), f"{CLUSTER} string, base long"
        )
        ledger = ledger.join(F.broadcast(table), CLUSTER)
    else:
        base = next(iter(bases.values()), None)
        ledger = ledger.withColumn("base", F.lit(base).cast("long"))
    in_log = F.col("snapshot").isNull()
    rows = ledger.where(in_log | (F.col("snapshot") == F.col("base")))
    offset = F.when(in_log, F.col("offset")).otherwise(F.col("base") - 1)
    return rows.withColumn("offset", offset).drop("base")


def undone(marks: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
    """The first and last offsets of the transactions that were aborted, or have not ended.

    marks: offset and type of each record that begins or ends a transaction.
    """
    found: list[tuple[int, int]] = []
    begin: int | None = None
    for offset, type_name in sorted(marks):
        if type_name == BeginTransactionRecord.TYPE:
            begin = offset if begin is None else begin
        elif begin is not None:
            if type_name == AbortTransactionRecord.TYPE:
                found.append((begin, offset))
            begin = None
    return found if begin is None else [*found, (begin, OFFSET_MAX)]


def _without(rows: DataFrame, ranges: Sequence[tuple[str | None, int, int]]) -> DataFrame:
    """The rows without those of the log whose offsets are in one of the ranges.

    ranges: the cluster, the first and the last offset.
    """
    if not ranges:
        return rows
    left_out = rows.sparkSession.createDataFrame(ranges, "_cluster string, first long, last long")
    is_left_out = F.col("snapshot").isNull() & F.col("offset").between(
        F.col("first"), F.col("last")
    )
    if keys(rows):
        is_left_out &= F.col(CLUSTER) == F.col("_cluster")
    return rows.join(F.broadcast(left_out), is_left_out, "left_anti")


def _events(
    rows: DataFrame,
    kind: str,
    subject: Column,
    value: Column,
    *,
    items: Column | None = None,
    registration: Column | None = None,
) -> DataFrame:
    """Build the events of one kind. value: null if the subject no longer exists.

    items: the value as a list, from which changes are derived. registration: of a broker, which
    tells equal values apart.
    """
    return rows.select(
        *keys(rows),
        F.lit(kind).alias("kind"),
        subject.alias("subject"),
        value.alias("value"),
        (F.array() if items is None else items).cast("array<string>").alias("items"),
        (F.lit(None) if registration is None else registration).cast("long").alias("registration"),
        "offset",
        "epoch",
        "timestamp",
    )


def _leaders(rows: DataFrame) -> DataFrame:
    mine = rows.where((F.col("type") == "LEADER_CHANGE") & F.col("snapshot").isNull())
    leader = F.get_json_object("data", "$.leaderId")
    # A new epoch is an election even if the same replica wins it.
    text = F.concat(leader, F.lit(" in epoch "), F.col("epoch").cast("string"))
    return _events(mine, LEADER, F.lit(QUORUM), text)


def _voter_sets(rows: DataFrame) -> DataFrame:
    mine = rows.where(F.col("type") == "KRAFT_VOTERS")
    parsed = F.from_json("data", _VOTERS_JSON).getField("voters")
    keys = F.transform(
        parsed,
        lambda v: F.concat_ws(
            "-", v.getField("voterId").cast("string"), v.getField("voterDirectoryId")
        ),
    )
    return _events(mine, VOTERS, F.lit(QUORUM), _joined(keys), items=F.array_sort(keys))


def _joined(items: Column) -> Column:
    return F.array_join(F.array_sort(items), _SEPARATOR)


def _isr_changes(rows: DataFrame) -> DataFrame:
    """The records with an ISR, parsed as `p`. subject: the partition's topic and number."""
    mine = rows.where(F.col("type").isin("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"))
    parsed = mine.withColumn("p", F.from_json("data", _ISR_JSON)).where("p.isr is not null")
    named = rows.where(F.col("type") == "TOPIC_RECORD").select(
        *keys(rows),
        F.get_json_object("data", "$.topicId").alias("_id"),
        F.get_json_object("data", "$.name").alias("_topic"),
    )
    # A snapshot and the log may both name a topic.
    on = [*keys(rows), "_id"]
    joined = parsed.withColumn("_id", F.col("p.topicId")).join(named.distinct(), on, "left")
    topic = F.coalesce("_topic", "p.topicId")
    subject = F.concat_ws("-", topic, F.col("p.partitionId").cast("string"))
    return joined.withColumn("subject", subject)


def _isrs(changes: DataFrame) -> DataFrame:
    items = F.transform("p.isr", lambda broker: broker.cast("string"))
    return _events(changes, ISR, F.col("subject"), _joined(items), items=F.array_sort(items))


def _removals(rows: DataFrame, changes: DataFrame) -> DataFrame:
    """The ends of the partitions whose topic is removed."""
    partitions = changes.select(*keys(rows), F.col("p.topicId").alias("_id"), "subject").distinct()
    removals = rows.where(F.col("type") == RemoveTopicRecord.TYPE)
    removals = removals.withColumn("_id", F.get_json_object("data", "$.topicId"))
    gone = removals.join(partitions, [*keys(rows), "_id"])
    return _events(gone, ISR, F.col("subject"), F.lit(None).cast("string"))


class _Standing(Replay):
    """Collects the state of a broker in the image after each record about it."""

    def __init__(self) -> None:
        super().__init__()
        self._events: list[tuple[Any, ...]] = []

    def taken(self) -> list[tuple[Any, ...]]:
        """Return the events since the last call, as rows of _STANDING_SCHEMA."""
        events, self._events = self._events, []
        return events

    def _changed(self, record: MetadataRecord, place: Place) -> None:
        if not isinstance(record, _ABOUT_BROKERS):
            return
        broker_id = record.id if isinstance(record, _FENCING) else record.broker_id
        is_new = isinstance(record, RegisterBrokerRecord)
        broker = self.image.cluster.brokers.get(broker_id)
        registration = None if broker is None else broker.broker_epoch
        standing = self._standing(broker_id, is_new=is_new)
        self._events.append((str(broker_id), standing, registration, *place))

    def _standing(self, broker_id: int, *, is_new: bool) -> str:
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            return "unregistered"
        # A controlled shutdown ends in fencing. A registration that has both flags, as in a
        # snapshot, counts as shutting down.
        if broker.fenced and not (is_new and broker.in_controlled_shutdown):
            return "fenced"
        return "shutting down" if broker.in_controlled_shutdown else "active"


def _brokers(rows: DataFrame) -> DataFrame:
    types = [cls.TYPE for cls in get_args(_ABOUT_BROKERS)]
    mine = rows.withColumn("timestamp", F.unix_micros("timestamp"))

    has_clusters = bool(keys(rows))
    schema = _STANDING_SCHEMA.append(CLUSTER_FIELD) if has_clusters else _STANDING_SCHEMA

    def play(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for cluster, batches in by_cluster(found, has_clusters=has_clusters):
            replay = _Standing()
            shard = Shard(replay)
            last = (cluster,) if has_clusters else ()
            for batch in batches:
                shard.apply(batch)
                yield batch_of([(*event, *last) for event in replay.taken()], schema)

    ordered = together(mine, types, *_PLACE)
    events = ordered.mapInArrow(play, from_arrow_schema(schema))
    return _events(
        events.withColumn("timestamp", F.timestamp_micros("timestamp")),
        BROKER,
        F.col("broker"),
        F.col("standing"),
        registration=F.col("registration"),
    )


def _intervals(events: DataFrame) -> DataFrame:
    """Turn events into intervals: from each change of a value to the next."""
    subject = [*keys(events), "kind", "subject"]
    order = Window.partitionBy(*subject).orderBy("offset")
    last = events.withColumn("last", F.lag(F.struct("value", "items", "registration")).over(order))
    same = [F.col(f"last.{name}").eqNullSafe(F.col(name)) for name in ("value", "registration")]
    changed = last.where(~(same[0] & same[1]))
    changed = changed.withColumn("previous", F.col("last.value"))
    changed = changed.withColumn("before", F.col("last.items"))
    earlier = (
        Window.partitionBy(*subject).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    )
    # Only voter sets look back beyond the previous value, to detect an id with a replaced disk.
    everyone = F.when(F.col("kind") == VOTERS, F.flatten(F.collect_list("items").over(earlier)))
    changes = changed.withColumn("ever", everyone).withColumn("change", _change())
    intervals = changes.select(
        "kind",
        "subject",
        "value",
        "previous",
        "change",
        F.col("offset").alias("start_offset"),
        F.lead("offset").over(order).alias("end_offset"),
        "epoch",
        F.col("timestamp").alias("started"),
        F.lead("timestamp").over(order).alias("ended"),
        *keys(events),
    )
    return intervals.where(F.col("value").isNotNull())


def _change() -> Column:
    added = F.array_except("items", "before")
    removed = F.array_except("before", "items")

    def id_of(key: Column) -> Column:
        return F.substring_index(key, "-", 1)

    known = F.transform(F.coalesce("ever", F.array().cast("array<string>")), id_of)
    replaced = F.exists(added, lambda key: F.array_contains(known, id_of(key))) & ~F.forall(
        added,
        lambda key: F.array_contains(F.coalesce("ever", F.array().cast("array<string>")), key),
    )
    voters = (
        F.when(replaced, F.concat(F.lit("replaced disk: added "), F.array_join(added, _SEPARATOR)))
        .when(F.size(added) > 0, F.concat(F.lit("added "), F.array_join(added, _SEPARATOR)))
        .otherwise(F.concat(F.lit("removed "), F.array_join(removed, _SEPARATOR)))
    )
    isr = (
        F.when((F.size(added) > 0) & (F.size(removed) > 0), "replaced")
        .when(F.size(added) > 0, "expanded")
        .otherwise("shrunk")
    )
    return (
        F.when(F.col("kind") == LEADER, ELECTED)
        .when(F.col("previous").isNull(), CREATED)
        .when(F.col("kind") == VOTERS, voters)
        .when(F.col("kind") == ISR, isr)
        .when(F.col("previous") == F.col("value"), REGISTERED)
        .otherwise(F.col("value"))
    )
