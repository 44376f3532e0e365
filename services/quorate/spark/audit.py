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
they must agree. Where they do not, what most replicas hold is right.

Each row of the result names the rule, the offset, both replicas, the bytes of both sides, and their
positions. A healthy cluster, running or stopped, has no rows. A log that lost its tail looks like
one that lags, so the audit searches the replica's disk for other evidence of the lost tail.

Source: Raft's safety properties (Ongaro, figure 3.2), KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from quorate.log.bootstrap_metadata import BOOTSTRAP_METADATA_FILE
from quorate.spark.audit_files import file_findings, read_small_files, tail_findings
from quorate.spark.audit_rules import (
    AuditRule,
    ControlBatch,
    Facts,
    Finding,
    SmallFiles,
    committed_offset,
    control_findings,
)
from quorate.spark.errors import OptionError
from quorate.spark.files import LogReplica
from quorate.spark.inspecting import FILES_SCHEMA, INSPECTED_SCHEMA, inspect_files, sample
from quorate.spark.snapshot_audit import findings_at, snapshot_ends

SAMPLE_BYTES = 256
"""The maximum number of bytes that a violation quotes from each side."""
FINDINGS_MAX = 10_000
"""The maximum number of batches or faults that each comparison reports."""

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

_PLACE = ("replica", "segment", "file", "position", "size", "base_offset", "last_offset", "epoch")


def inspect(spark: SparkSession, replicas: Sequence[LogReplica]) -> DataFrame:
    """Return every batch and every fault of all files, in INSPECTED_SCHEMA."""
    rows: list[tuple[str, str, int, int | None]] = []
    for replica in replicas:
        rows += [(replica.name, str(s.path), s.base_offset, None) for s in replica.segments]
        rows += [(replica.name, str(s.path), 0, s.id.offset) for s in replica.snapshots]
        bootstrap = replica.directory / BOOTSTRAP_METADATA_FILE
        if replica.properties is not None and bootstrap.exists():
            rows.append((replica.name, str(bootstrap), 0, 0))
    files = spark.createDataFrame(rows, from_arrow_schema(FILES_SCHEMA))
    spread = files.repartition(max(1, min(len(rows), 2 * spark.sparkContext.defaultParallelism)))
    return spread.mapInArrow(inspect_files, from_arrow_schema(INSPECTED_SCHEMA))


def audit(
    spark: SparkSession, replicas: Sequence[LogReplica], *, high_watermark: int | None = None
) -> DataFrame:
    """Return all violations, in VIOLATIONS_SCHEMA. Raises OptionError if `replicas` is empty.

    high_watermark: an offset before which the caller knows everything to be committed.
    """
    if not replicas:
        raise OptionError("there are no replicas to audit")
    names = [replica.name for replica in replicas]
    twice = {name for name in names if names.count(name) > 1}
    findings: list[Finding] = []
    if twice:
        text = "two directories have this id and directory id"
        findings.append(Finding(AuditRule.IDENTITY, 0, min(twice), text=text))
        replicas = [
            replace(r, name=f"{r.name} in {r.directory}") if r.name in twice else r
            for r in replicas
        ]
    small_files = {replica.name: read_small_files(replica) for replica in replicas}
    found = inspect(spark, replicas).persist()
    try:
        findings += _check(replicas, found, small_files, high_watermark)
    finally:
        found.unpersist()
    return _result(spark, findings)


def _check(
    replicas: Sequence[LogReplica],
    found: DataFrame,
    small_files: dict[str, SmallFiles],
    high_watermark: int | None,
) -> list[Finding]:
    sound = found.where(F.col("snapshot").isNull() & F.col("fault").isNull())
    findings = list(_faults(found))
    facts = _facts(replicas, sound, small_files)
    findings += _sequence(sound)
    controls = [
        ControlBatch.of(row)
        for row in found.where(F.col("controls").isNotNull())
        .select(*_PLACE, "snapshot", "controls")
        .collect()
    ]
    findings += control_findings(controls, facts)
    committed = committed_offset(controls, facts, high_watermark)
    findings += _differences(sound, facts, committed)
    findings += file_findings(controls, facts)
    findings += tail_findings(controls, facts, committed)
    damaged = {finding.file for finding in findings if finding.file}
    return [*findings, *_snapshots(found.sparkSession, replicas, damaged)]


def _snapshots(
    spark: SparkSession, replicas: Sequence[LogReplica], damaged: set[str]
) -> list[Finding]:
    ends = snapshot_ends(replicas)

    def judge(end: int) -> list[Finding]:
        return list(findings_at(end, replicas, damaged))

    if not ends:
        return []
    return spark.sparkContext.parallelize(ends, len(ends)).flatMap(judge).collect()


def _faults(found: DataFrame) -> Iterator[Finding]:
    """Find bytes that are no batch, wrong checksums, and records that cannot be read."""
    wrong = found.where(F.col("fault").isNotNull() | ~F.coalesce("crc_valid", F.lit(True)))
    last = (
        found.where(F.col("snapshot").isNull()).groupBy("replica").agg(F.max("segment").alias("m"))
    )
    newest = {row.replica: row.m for row in last.collect()}
    for row in (
        wrong.select(*_PLACE, "snapshot", "fault", "crc_valid").limit(FINDINGS_MAX).collect()
    ):
        torn = row.fault is not None and row.fault.startswith("incomplete")
        if torn and row.snapshot is None and row.segment == newest[row.replica]:
            continue  # a write in progress when the process ended: recovery truncates it
        if row.crc_valid is False:
            rule, text = AuditRule.CHECKSUM, "the checksum is wrong"
        else:
            rule, text = AuditRule.BYTES, row.fault
        yield Finding(
            rule,
            row.base_offset,
            row.replica,
            text=text,
            file=row.file,
            position=row.position,
            size=row.size,
        )


def _facts(
    replicas: Sequence[LogReplica], sound: DataFrame, small_files: dict[str, SmallFiles]
) -> dict[str, Facts]:
    """Collect the start and end of each log, its last epoch, and the start of each epoch."""
    extents = {
        row.replica: row
        for row in sound.groupBy("replica")
        .agg(
            F.min("base_offset").alias("start"),
            (F.max("last_offset") + 1).alias("end"),
            F.max_by("epoch", "last_offset").alias("epoch"),
        )
        .collect()
    }
    epochs: dict[str, dict[int, int]] = {}
    for row in sound.groupBy("replica", "epoch").agg(F.min("base_offset").alias("start")).collect():
        epochs.setdefault(row.replica, {})[row.epoch] = row.start
    facts: dict[str, Facts] = {}
    for replica in replicas:
        extent = extents.get(replica.name)
        ends = [snapshot.id.offset for snapshot in replica.snapshots]
        facts[replica.name] = Facts(
            replica,
            replica.start_offset if extent is None else extent.start,
            max(ends, default=0) if extent is None else extent.end,
            -1 if extent is None else extent.epoch,
            epochs.get(replica.name, {}),
            small_files[replica.name],
        )
    return facts


def _sequence(sound: DataFrame) -> list[Finding]:
    """Check that each batch follows its predecessor in offset and epoch, and lacks no record.

    The leader's LeaderChange must begin each epoch. A segment must begin with the offset in its
    name.
    """
    order = Window.partitionBy("replica").orderBy("segment", "position")
    follows = sound.select(
        *_PLACE,
        "records",
        "controls",
        *(F.lag(name).over(order).alias(f"_{name}") for name in _PLACE if name != "replica"),
    )
    expected = F.col("_last_offset") + 1
    odd = follows.where(
        (F.col("base_offset") != expected)
        | (F.col("records") != F.col("last_offset") - F.col("base_offset") + 1)
        | (F.col("epoch") != F.col("_epoch"))
        | ((F.col("segment") != F.col("_segment")) & (F.col("base_offset") != F.col("segment")))
        | (F.col("_epoch").isNull() & (F.col("base_offset") != F.col("segment")))
    )
    return [finding for row in odd.limit(FINDINGS_MAX).collect() for finding in _odd(row)]


def _odd(row: Any) -> Iterator[Finding]:
    """Describe what is wrong with a batch that does not directly follow its predecessor."""
    place: dict[str, Any] = {"file": row.file, "position": row.position, "size": row.size}
    before: dict[str, Any] = {
        "other_file": row._file or "",
        "other_position": row._position or 0,
        "other_size": row._size or 0,
    }
    offset, replica = row.base_offset, row.replica
    if row.records != row.last_offset - offset + 1:
        holes = f"the batch of offsets {offset} to {row.last_offset} has {row.records} records"
        yield Finding(AuditRule.GAP, offset, replica, text=holes, **place)
    misnamed = f"the segment named {row.segment} begins with offset {offset}"
    if row._last_offset is None:
        if offset != row.segment:
            yield Finding(AuditRule.ORDER, offset, replica, text=misnamed, **place)
        return
    expected = row._last_offset + 1
    if offset > expected:
        missing = f"offsets {expected} to {offset - 1} are missing"
        yield Finding(AuditRule.GAP, expected, replica, text=missing, **place, **before)
    elif offset < expected:
        text = f"offset {offset} follows offset {expected - 1}"
        rule = AuditRule.DUPLICATE if offset >= row._base_offset else AuditRule.ORDER
        yield Finding(rule, offset, replica, text=text, **place, **before)
    elif row.segment not in (row._segment, offset):
        yield Finding(AuditRule.ORDER, offset, replica, text=misnamed, **place)
    if row.epoch < row._epoch:
        text = f"epoch {row.epoch} follows epoch {row._epoch}"
        yield Finding(AuditRule.EPOCH, offset, replica, text=text, **place, **before)
    elif row.epoch > row._epoch:
        first = row.controls[0]["type"] if row.controls else None
        if first != "LEADER_CHANGE":
            text = f"epoch {row.epoch} begins without its leader's LeaderChange"
            yield Finding(AuditRule.EPOCH, offset, replica, text=text, **place, **before)


def _differences(sound: DataFrame, facts: dict[str, Facts], committed: int) -> list[Finding]:
    """Find offsets at which replicas hold different batches (log matching) or lack a batch."""
    extents = [(one.start, one.end) for one in facts.values() if one.end > one.start]
    if len(extents) < 2:
        return []
    sides = sound.groupBy("base_offset").agg(
        F.collect_list(F.struct(*_PLACE, "crc")).alias("sides"),
        F.countDistinct("epoch", "crc", "size").alias("versions"),
        F.countDistinct("replica").alias("holders"),
    )
    offset = F.col("base_offset")
    reached = (((offset >= start) & (offset < end)).cast("int") for start, end in extents)
    differing = sides.where((F.col("versions") > 1) | (F.col("holders") < sum(reached, F.lit(0))))
    rows = differing.orderBy("base_offset").limit(FINDINGS_MAX).collect()
    return list(_merged(found for row in rows for found in _difference(row, facts, committed)))


def _merged(found: Iterable[tuple[Finding, int]]) -> Iterator[Finding]:
    """Merge the findings about successive batches that two replicas hold differently.

    found: findings by rising offset, with the offset after each batch.
    """
    runs: dict[tuple[AuditRule, str, str], tuple[Finding, int, int]] = {}
    for finding, after in found:
        key = (finding.rule, finding.replica, finding.other)
        first, end, count = runs.get(key, (finding, finding.offset, 0))
        if end != finding.offset:
            yield _run(first, end, count)
            first, count = finding, 0
        runs[key] = (first, after, count + 1)
    for run in runs.values():
        yield _run(*run)


def _run(first: Finding, end: int, count: int) -> Finding:
    if count == 1:
        return first
    return replace(
        first, text=f"{first.text}; so do the next {count - 1} batches, up to offset {end - 1}"
    )


def _difference(row: Any, facts: dict[str, Facts], committed: int) -> Iterator[tuple[Finding, int]]:
    offset = row.base_offset
    versions: dict[tuple[int, int, int], list[Any]] = {}
    # Spark collects the sides in any order. Runs of differences need the same side each time.
    for side in sorted(row.sides, key=lambda side: (side.replica, side.position)):
        versions.setdefault((side.epoch, side.crc, side.size), []).append(side)
    ranked = sorted(versions.values(), key=lambda sides: (-len(sides), sides[0].replica))
    right = ranked[0][0]
    place = {
        "other_file": right.file,
        "other_position": right.position,
        "other_size": right.size,
    }
    for sides in ranked[1:]:
        for side in sides:
            same_epoch = side.epoch == right.epoch
            if not same_epoch and offset >= committed:
                continue  # the tail of an old leader
            rule = AuditRule.LOG_MATCHING if same_epoch else AuditRule.DIVERGENCE
            text = f"differs from the batch on {right.replica} at the same offset" + (
                f" and epoch {side.epoch}"
                if same_epoch
                else f", in epoch {side.epoch} instead of {right.epoch}, below {committed}, which "
                "is committed"
            )
            finding = Finding(
                rule,
                offset,
                side.replica,
                right.replica,
                text,
                side.file,
                side.position,
                side.size,
                **place,
            )
            yield finding, side.last_offset + 1
    holders = {side.replica for side in row.sides}
    for name, one in facts.items():
        if name not in holders and one.start <= offset < one.end and offset < committed:
            text = f"no batch begins at this offset, but one does on {right.replica}"
            finding = Finding(AuditRule.DIVERGENCE, offset, name, right.replica, text, **place)
            yield finding, right.last_offset + 1


def _result(spark: SparkSession, findings: Sequence[Finding]) -> DataFrame:
    unique = {(f.rule, f.offset, f.replica, f.other, f.text): f for f in findings}
    rows = [
        (
            f.rule.value,
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
        for f in sorted(unique.values(), key=lambda f: (f.offset, f.rule.value, f.replica))
    ]
    return spark.createDataFrame(rows, from_arrow_schema(VIOLATIONS_SCHEMA))
