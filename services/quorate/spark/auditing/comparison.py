"""Compares the batches of all replicas at the same offsets (log matching, state machine safety).

Spark finds the few offsets at which replicas hold different batches, or at which only some of them
have a batch that begins there. What most replicas hold is right.

Logs whose last epochs differ may differ at their ends: a replica may have the tail of an old leader
that it has not truncated yet, also at offsets that are committed elsewhere. Such a tail begins
where both logs share no later epoch, is older than the last epoch of the other log, and is in no
checkpoint of its replica.

Source: Raft, figure 3.2 and 5.3; KIP-595 for truncation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from quorate.spark.auditing.rules import AuditRule, Facts, Finding, end_of_agreement

PLACE = ("replica", "segment", "file", "position", "size", "base_offset", "last_offset", "epoch")
FINDINGS_MAX = 10_000
"""The maximum number of batches or faults that each comparison reports."""


def log_differences(
    sound: DataFrame, facts: dict[str, Facts], committed: int
) -> tuple[list[Finding], int | None]:
    """Find offsets at which replicas hold different batches, or lack a batch.

    sound: the whole batches of all logs. committed: the offset before which all is committed. Also
    returns the first offset at which they differ, None if they do not.
    """
    extents = [(one.read_from, one.end) for one in facts.values() if one.end > one.read_from]
    if len(extents) < 2:
        return [], None
    sides = sound.groupBy("base_offset").agg(
        F.collect_list(F.struct(*PLACE, "crc")).alias("sides"),
        F.countDistinct("epoch", "crc", "size").alias("versions"),
        F.countDistinct("replica").alias("holders"),
    )
    offset = F.col("base_offset")
    reached = (((offset >= start) & (offset < end)).cast("int") for start, end in extents)
    differing = sides.where((F.col("versions") > 1) | (F.col("holders") < sum(reached, F.lit(0))))
    rows = differing.orderBy("base_offset").limit(FINDINGS_MAX).collect()
    found = (each for row in rows for each in differences_at(row, facts, committed))
    return list(_merged(found)), rows[0].base_offset if rows else None


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
        return replace(first, end=end)
    more = "so does the next batch" if count == 2 else f"so do the next {count - 1} batches"
    text = f"{first.text}; {more}, up to offset {end - 1}"
    return replace(first, text=text, end=end)


def differences_at(
    row: Any, facts: dict[str, Facts], committed: int
) -> Iterator[tuple[Finding, int]]:
    """Find out which replicas are wrong at an offset.

    row: base_offset, and `sides` with PLACE and crc. Yields findings, each with the offset after
    the batch.
    """
    offset = row.base_offset
    versions: dict[tuple[int, int, int], list[Any]] = {}
    # Spark collects the sides in any order. Runs of differences need the same side each time.
    for side in sorted(row.sides, key=attrgetter("replica", "position")):
        versions.setdefault((side.epoch, side.crc, side.size), []).append(side)
    ranked = sorted(versions.values(), key=lambda sides: (-len(sides), sides[0].replica))
    right = ranked[0][0]
    holders = {side.replica for side in row.sides}
    absent = [
        name
        for name, one in facts.items()
        if name not in holders and one.read_from <= offset < one.end
    ]
    if len(absent) > len(ranked[0]):
        yield from _superfluous(offset, ranked, facts, absent[0], committed)
        return
    for sides in ranked[1:]:
        for side in sides:
            found = _different(offset, side, right, facts, committed)
            if found is not None:
                yield found, side.last_offset + 1
    for name in absent:
        if not _may_differ(offset, facts[name], facts[right.replica], committed):
            text = f"no batch begins at this offset, but one does on {right.replica}"
            finding = Finding(
                AuditRule.DIVERGENCE, offset, name, right.replica, text, **_other(right)
            )
            yield finding, right.last_offset + 1


def _different(
    offset: int, side: Any, right: Any, facts: dict[str, Facts], committed: int
) -> Finding | None:
    """Compare a batch with the one that most replicas hold."""
    same_epoch = side.epoch == right.epoch
    text = f"differs from the batch on {right.replica} at the same offset"
    if same_epoch:
        rule = AuditRule.LOG_MATCHING
        text += f" and epoch {side.epoch}"
    else:
        # An old leader has written records of its own, never those of the next leader.
        is_copy = (side.crc, side.size) == (right.crc, right.size)
        may_differ = _may_differ(offset, facts[side.replica], facts[right.replica], committed)
        if may_differ and not is_copy:
            return None
        rule = AuditRule.DIVERGENCE
        text += f", in epoch {side.epoch} instead of {right.epoch}"
        text += f", below {committed}, which is committed" if offset < committed else ""
    return Finding(
        rule,
        offset,
        side.replica,
        right.replica,
        text,
        side.file,
        side.position,
        side.size,
        **_other(right),
    )


def _superfluous(
    offset: int, ranked: list[list[Any]], facts: dict[str, Facts], other: str, committed: int
) -> Iterator[tuple[Finding, int]]:
    """Accuse the few replicas with a batch at an offset at which it begins on no other."""
    for side in (side for sides in ranked for side in sides):
        if not _may_differ(offset, facts[side.replica], facts[other], committed):
            text = f"a batch begins at this offset, but none does on {other}"
            finding = Finding(
                AuditRule.DIVERGENCE,
                offset,
                side.replica,
                other,
                text,
                side.file,
                side.position,
                side.size,
            )
            yield finding, side.last_offset + 1


def _other(side: Any) -> dict[str, Any]:
    return {"other_file": side.file, "other_position": side.position, "other_size": side.size}


def _may_differ(offset: int, one: Facts, right: Facts, committed: int) -> bool:
    """Whether a log may differ from what most replicas hold at an offset."""
    if offset >= committed:
        return True
    contained = max((snapshot.id.offset for snapshot in one.replica.snapshots), default=0)
    is_old = one.epoch < right.epoch
    return is_old and offset >= max(contained, end_of_agreement(one, right))
