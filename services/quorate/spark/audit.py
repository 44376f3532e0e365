"""The safety audit: checks whether the directories of all replicas are consistent.

1. Tasks read every byte of every file (`inspecting`), one file per task.
2. Spark compares batches with their neighbours in a log, and with the batches at the same offsets
   of other replicas. Few of them differ, even in a large log.
3. The rules (`audit_rules`, `audit_files`) judge these differences, control records and small
   files.
4. Tasks compare checkpoints with logs (`snapshot_audit`), one task for each end offset.

The driver only collects what is wrong, control records, and the epochs of each log.

Certainly committed is everything before the end of a checkpoint, everything before a high watermark
that the caller knows, and what all logs of a majority of the voters hold if these logs end in the
same epoch. Beyond that, replicas may differ: an old leader may have a tail of its own. Below it,
they must agree, except for such a tail that its replica has not truncated yet (`audit_comparison`).
Where they do not, what most replicas hold is right.

Each row of the result is one cause (`audit_causes`). It names the rule, the offset, both replicas,
the bytes of both sides, and their positions. A healthy cluster, running or stopped, has no rows. A
log that lost its tail looks like one that lags, so the audit searches the replica's disk for other
evidence of the lost tail.

Source: Raft's safety properties (Ongaro, figure 3.2), KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from crc32c import crc32c
from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from quorate.common.batch_layout import CRC_START
from quorate.log.bootstrap_metadata import BOOTSTRAP_METADATA_FILE
from quorate.spark.auditing.causes import by_cause
from quorate.spark.auditing.comparison import FINDINGS_MAX, PLACE, log_differences
from quorate.spark.auditing.file_audit import file_findings, read_small_files, tail_findings
from quorate.spark.auditing.index_audit import INDEX_SUFFIX
from quorate.spark.auditing.inspecting import FILES_SCHEMA, INSPECTED_SCHEMA, inspect_files, sample
from quorate.spark.auditing.memory import (
    Skipped,
    Span,
    joins,
    marks_of,
    read_memory,
    remember,
    skipped,
    write_memory,
)
from quorate.spark.auditing.rules import (
    AuditRule,
    ControlBatch,
    Facts,
    Finding,
    SmallFiles,
    committed_offset,
    control_findings,
)
from quorate.spark.auditing.snapshot_audit import findings_at, snapshot_ends
from quorate.spark.errors import OptionError
from quorate.spark.files import LogReplica
from quorate.spark.layers import batch_of

SAMPLE_BYTES = 256
"""The maximum number of bytes that a violation quotes from each side."""
LEAP_MS = 24 * 3600 * 1000
"""By how much a timestamp must differ from those of both neighbours to be wrong."""

TASKS_MAX = 1_000
"""The maximum number of tasks that read files."""

FINDING_SCHEMA = pa.schema(
    [(each.name, pa.int64() if each.type == "int" else pa.string()) for each in fields(Finding)]
)
"""The fields of `Finding`."""
VIOLATIONS_SCHEMA = pa.schema(
    [
        ("rule", pa.string()),
        ("offset", pa.int64()),
        ("replica", pa.string()),
        ("other", pa.string()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("other_bytes", pa.binary()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("other_file", pa.string()),
        ("other_position", pa.int64()),
    ]
)


def inspect(
    spark: SparkSession, replicas: Sequence[LogReplica], without: Set[str] = frozenset()
) -> DataFrame:
    """Return every batch and every fault of all files, in INSPECTED_SCHEMA.

    without: the paths of files that are not read.
    """
    rows: list[tuple[str, str, int, int | None]] = []
    for replica in replicas:
        rows += [(replica.name, str(s.path), s.base_offset, None) for s in replica.segments]
        rows += [(replica.name, str(s.path), 0, s.id.offset) for s in replica.snapshots]
        bootstrap = replica.directory / BOOTSTRAP_METADATA_FILE
        if replica.properties is not None and bootstrap.exists():
            rows.append((replica.name, str(bootstrap), 0, 0))
    rows = [row for row in rows if row[1] not in without]
    files = spark.createDataFrame(rows, from_arrow_schema(FILES_SCHEMA))
    spread = files.repartition(max(1, min(len(rows), TASKS_MAX)))
    return spread.mapInArrow(inspect_files, from_arrow_schema(INSPECTED_SCHEMA))


def audit(
    spark: SparkSession,
    replicas: Sequence[LogReplica],
    *,
    high_watermark: int | None = None,
    memory: Path | None = None,
) -> DataFrame:
    """Return all violations, in VIOLATIONS_SCHEMA. Raises OptionError if `replicas` is empty.

    high_watermark: an offset before which the caller knows everything to be committed. memory: a
    file that remembers what was found right, to read only what is new (`audit_memory`).
    """
    if not replicas:
        raise OptionError("there are no replicas to audit")
    names = [replica.name for replica in replicas]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        text = "two directories have this id and directory id"
        identity = [Finding(AuditRule.IDENTITY, 0, min(twice), text=text)]
        replicas = [
            replace(r, name=f"{r.name} in {r.directory}") if r.name in twice else r
            for r in replicas
        ]
        found = _audited(spark, replicas, Skipped(), high_watermark)
        return _result(spark, [*identity, *found.findings])
    marks = marks_of(replicas)
    known = None if memory is None else read_memory(memory)
    skip = None if known is None else skipped(known, replicas, marks)
    found = _audited(spark, replicas, skip or Skipped(), high_watermark)
    if skip and skip.files and (found.findings or not joins(found.spans, found.controls)):
        found = _audited(spark, replicas, Skipped(), high_watermark)
    if memory is not None and not found.findings:
        done = remember(replicas, marks, found.spans, found.controls, found.differs_at)
        write_memory(memory, done)
    return _result(spark, found.findings)


@dataclass(frozen=True, slots=True)
class _Audited:
    """The findings, and what is remembered without any. differs_at: see `remember`."""

    findings: list[Finding]
    spans: list[Span]
    controls: list[ControlBatch]
    differs_at: int | None


def _audited(
    spark: SparkSession,
    replicas: Sequence[LogReplica],
    skip: Skipped,
    high_watermark: int | None,
) -> _Audited:
    small_files = {replica.name: read_small_files(replica) for replica in replicas}
    found = inspect(spark, replicas, skip.files).persist()
    try:
        return _check(replicas, found, small_files, skip, high_watermark)
    finally:
        found.unpersist()


def _check(
    replicas: Sequence[LogReplica],
    found: DataFrame,
    small_files: dict[str, SmallFiles],
    skip: Skipped,
    high_watermark: int | None,
) -> _Audited:
    sound = found.where(F.col("snapshot").isNull() & F.col("fault").isNull())
    findings = list(_faults(found))
    spans = [*skip.spans, *_spans(sound)]
    facts = _facts(replicas, spans, small_files, skip.ends)
    findings += _sequence(sound)
    controls = [*skip.controls]
    controls += [
        ControlBatch.of(row)
        for row in found.where(F.col("controls").isNotNull())
        .select(*PLACE, "snapshot", "controls")
        .collect()
    ]
    findings += control_findings(controls, facts)
    committed = committed_offset(controls, facts, high_watermark)
    differences, differs_at = log_differences(sound, facts, committed)
    findings += differences
    findings += file_findings(controls, facts)
    findings += tail_findings(controls, facts, committed)
    damaged = {finding.file for finding in findings if finding.file}
    findings += _snapshots(found.sparkSession, replicas, damaged, skip.judged)
    return _Audited(findings, spans, controls, differs_at)


def _snapshots(
    spark: SparkSession, replicas: Sequence[LogReplica], damaged: set[str], judged: Set[int]
) -> list[Finding]:
    ends = [end for end in snapshot_ends(replicas) if end not in judged]

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for end in batch.column(0).to_pylist():
                found = [astuple(finding) for finding in findings_at(end, replicas, damaged)]
                yield batch_of(found, FINDING_SCHEMA)

    if not ends:
        return []
    tasks = spark.createDataFrame([(end,) for end in ends], "end long").repartition(len(ends))
    rows = tasks.mapInArrow(judge, from_arrow_schema(FINDING_SCHEMA)).collect()
    return [Finding(AuditRule(row[0]), *row[1:]) for row in rows]


def _faults(found: DataFrame) -> Iterator[Finding]:
    """Find bytes that are no batch, wrong checksums, and records that cannot be read."""
    wrong = found.where(
        F.col("fault").isNotNull()
        | F.col("producer_fault").isNotNull()
        | ~F.coalesce("crc_valid", F.lit(True))
    )
    last = (
        found.where(F.col("snapshot").isNull()).groupBy("replica").agg(F.max("segment").alias("m"))
    )
    newest = {row.replica: row.m for row in last.collect()}
    for row in (
        wrong.select(*PLACE, "snapshot", "fault", "producer_fault", "crc", "crc_valid")
        .limit(FINDINGS_MAX)
        .collect()
    ):
        torn = row.fault is not None and row.fault.startswith("incomplete")
        if torn and row.snapshot is None and row.segment == newest[row.replica]:
            continue  # a write in progress when the process ended: recovery truncates it
        if row.file.endswith(INDEX_SUFFIX):
            rule, text = AuditRule.INDEX, row.fault
        elif row.crc_valid is False:
            rule, text = AuditRule.CHECKSUM, _checksums(row)
        elif row.fault is not None:
            rule, text = AuditRule.BYTES, row.fault
        else:
            rule, text = AuditRule.PRODUCER, row.producer_fault
        yield Finding(
            rule,
            row.base_offset,
            row.replica,
            text=text,
            file=row.file,
            position=row.position,
            size=row.size,
            end=(row.last_offset or 0) + 1,
        )


def _checksums(row: Any) -> str:
    """The checksum that a batch has and the one that it should have."""
    data = sample(row.file, row.position, row.size)
    return f"the checksum is {row.crc:#010x}, that of the bytes {crc32c(data[CRC_START:]):#010x}"


def _spans(sound: DataFrame) -> list[Span]:
    """Collect the offsets of each epoch in each segment."""
    spans = sound.groupBy("replica", "file", "epoch").agg(
        F.min("base_offset").alias("first"), F.max("last_offset").alias("last")
    )
    return [Span(*row) for row in spans.collect()]


def _facts(
    replicas: Sequence[LogReplica],
    spans: Sequence[Span],
    small_files: dict[str, SmallFiles],
    skipped_ends: Mapping[str, int],
) -> dict[str, Facts]:
    """Derive the start and end of each log, its last epoch, and the start of each epoch."""
    facts: dict[str, Facts] = {}
    for replica in replicas:
        mine = [span for span in spans if span.replica == replica.name]
        last = max(mine, key=lambda span: span.last, default=None)
        ends = [snapshot.id.offset for snapshot in replica.snapshots]
        epochs: dict[int, int] = {}
        for span in mine:
            epochs[span.epoch] = min(span.first, epochs.get(span.epoch, span.first))
        facts[replica.name] = Facts(
            replica,
            min((span.first for span in mine), default=replica.start_offset),
            max(ends, default=0) if last is None else last.last + 1,
            -1 if last is None else last.epoch,
            epochs,
            small_files[replica.name],
            skipped_ends.get(replica.name, 0),
        )
    return facts


def _sequence(sound: DataFrame) -> list[Finding]:
    """Check that each batch follows its predecessor in offset and epoch, and lacks no record.

    The leader's LeaderChange must begin each epoch. A segment must begin with the offset in its
    name.
    """
    order = Window.partitionBy("replica").orderBy("segment", "position")
    follows = sound.select(
        *PLACE,
        "records",
        "controls",
        F.unix_millis("max_timestamp").alias("millis"),
        _leap(order).alias("leap"),
        *(F.lag(name).over(order).alias(f"_{name}") for name in PLACE if name != "replica"),
    )
    expected = F.col("_last_offset") + 1
    odd = follows.where(
        (F.col("base_offset") != expected)
        | (F.col("records") != F.col("last_offset") - F.col("base_offset") + 1)
        | (F.col("epoch") != F.col("_epoch"))
        | F.col("leap").isNotNull()
        | ((F.col("segment") != F.col("_segment")) & (F.col("base_offset") != F.col("segment")))
        | (F.col("_epoch").isNull() & (F.col("base_offset") != F.col("segment")))
    )
    return [finding for row in odd.limit(FINDINGS_MAX).collect() for finding in _odd(row)]


def _leap(order: WindowSpec) -> Column:
    """The timestamp of the previous batch if this one is more than LEAP_MS from both neighbours.

    Null otherwise. The clock of a leader may be wrong, but it does not leap away and back.
    """
    millis = F.unix_millis("max_timestamp")
    before, after = F.lag(millis).over(order), F.lead(millis).over(order)
    back, forth = millis - before, after - millis
    is_away = (
        (F.abs(back) > LEAP_MS) & (F.abs(forth) > LEAP_MS) & (F.signum(back) != F.signum(forth))
    )
    epochs = F.lag("epoch").over(order), F.lead("epoch").over(order)
    same = (F.col("epoch") == epochs[0]) & (F.col("epoch") == epochs[1])
    return F.when(is_away & same, before)


def _odd(row: Any) -> Iterator[Finding]:
    """Describe what is wrong with a batch that does not directly follow its predecessor."""
    place: dict[str, Any] = {"file": row.file, "position": row.position, "size": row.size}
    whole = {**place, "end": row.last_offset + 1}
    before: dict[str, Any] = {
        "other_file": row._file or "",
        "other_position": row._position or 0,
        "other_size": row._size or 0,
    }
    offset, replica = row.base_offset, row.replica
    if row.records != row.last_offset - offset + 1:
        holes = f"the batch of offsets {offset} to {row.last_offset} has {row.records} records"
        yield Finding(AuditRule.GAP, offset, replica, text=holes, **whole)
    misnamed = f"the segment named {row.segment} begins with offset {offset}"
    if row._last_offset is None:
        if offset != row.segment:
            yield Finding(AuditRule.ORDER, offset, replica, text=misnamed, **whole)
        return
    expected = row._last_offset + 1
    if offset > expected:
        missing = f"offsets {expected} to {offset - 1} are missing"
        yield Finding(AuditRule.GAP, expected, replica, text=missing, end=offset, **place, **before)
    elif offset < expected:
        text = f"offset {offset} follows offset {expected - 1}"
        rule = AuditRule.DUPLICATE if offset >= row._base_offset else AuditRule.ORDER
        yield Finding(rule, offset, replica, text=text, **whole, **before)
    elif row.segment not in (row._segment, offset):
        yield Finding(AuditRule.ORDER, offset, replica, text=misnamed, **whole)
    if row.epoch < row._epoch:
        text = f"epoch {row.epoch} follows epoch {row._epoch}"
        yield Finding(AuditRule.EPOCH, offset, replica, text=text, **place, **before)
    elif row.epoch > row._epoch:
        first = row.controls[0]["type"] if row.controls else None
        if first != "LEADER_CHANGE":
            text = f"epoch {row.epoch} begins without its leader's LeaderChange"
            yield Finding(AuditRule.EPOCH, offset, replica, text=text, **place, **before)
    if row.leap is not None:
        text = f"its timestamp is {_time(row.millis)}, that of the batch before {_time(row.leap)}"
        yield Finding(AuditRule.TIMESTAMP, offset, replica, text=text, **whole, **before)


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


def _result(spark: SparkSession, findings: Sequence[Finding]) -> DataFrame:
    rows = [
        (
            f.rule.text,
            f.offset,
            f.replica,
            f.other or None,
            f.text,
            sample(f.file, f.position, min(f.size, SAMPLE_BYTES)) or None,
            sample(f.other_file, f.other_position, min(f.other_size, SAMPLE_BYTES)) or None,
            f.file or None,
            f.position if f.file else None,
            f.other_file or None,
            f.other_position if f.other_file else None,
        )
        for f in by_cause(findings)
    ]
    return spark.createDataFrame(rows, from_arrow_schema(VIOLATIONS_SCHEMA))
