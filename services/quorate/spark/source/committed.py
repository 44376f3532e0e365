"""Derives which records of logs in directories are committed, and where reads end.

Certain are, from the directories alone:

- what a checkpoint contains, because nodes write checkpoints of committed records only;
- what a majority of the voters holds (`audit_rules.majority_end`). A single directory is a majority
  only if its replica is the only voter.

One directory is read to its end, because the records behind these may be committed, too. Reads of
several directories of a cluster end at the derived offset. A log may differ below it, in the tail
of an old leader that it has not truncated yet: it is read to the end of the last epoch that it
shares with the majority, up to which both are equal (log matching).

Directories without meta.properties, and single files, belong to no cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorate.records.batch import read_header
from quorate.records.errors import RecordsError
from quorate.spark.auditing.inspecting import control_records
from quorate.spark.auditing.rules import (
    KRAFT_VOTERS,
    ControlBatch,
    Facts,
    end_of_agreement,
    last_voters,
    majority_end,
    shown_keys,
)
from quorate.spark.decoding.framing import Chunk, read_chunks
from quorate.spark.errors import UnknownCommitError
from quorate.spark.files import LogReplica, opened
from quorate.spark.options import OFFSET_MAX

FILES_CACHED_MAX = 1024
"""A stream scans a log at each trigger, but its complete segments only once."""


class LogLimit(NamedTuple):
    """Where to stop reading a log, and the offset before which its records are committed."""

    end: int
    committed_end: int


@dataclass(frozen=True, slots=True)
class _Scan:
    """What the batch headers and control batches of a file say.

    end: the offset after its last batch, None without one. epochs: each epoch with its first
    offset.
    """

    end: int | None
    epochs: tuple[tuple[int, int], ...]
    controls: tuple[ControlBatch, ...]


def log_limits(replicas: Sequence[LogReplica], high_watermark: int | None) -> list[LogLimit]:
    """Where to stop reading each log.

    high_watermark: if it is given, reads end there. Raises UnknownCommitError if the committed
    offset of several directories of a cluster cannot be derived.
    """
    if high_watermark is not None:
        return [LogLimit(high_watermark, high_watermark)] * len(replicas)
    clusters: dict[str | int, list[int]] = {}
    for index, one in enumerate(replicas):
        cluster = index if one.properties is None else one.properties.cluster_id
        clusters.setdefault(cluster, []).append(index)
    found: dict[int, LogLimit] = {}
    for members in clusters.values():
        found |= zip(members, _of_cluster([replicas[index] for index in members]), strict=True)
    return [found[index] for index in range(len(replicas))]


def _of_cluster(replicas: Sequence[LogReplica]) -> list[LogLimit]:
    if len(replicas) == 1:
        return [LogLimit(OFFSET_MAX, _certain_end(replicas[0]))]
    surveys = [_survey(replica) for replica in replicas]
    controls = [batch for _, batches in surveys for batch in batches]
    logs = [facts for facts, _ in surveys]
    held = majority_end(controls, logs)
    if held is None:
        raise _underivable(controls, logs)
    right = max((one for one in logs if one.epoch == held.epoch), key=lambda one: one.end)
    committed = max(held.offset, *(_snapshot_end(replica) for replica in replicas))
    limits = []
    for one in logs:
        equal = min(committed, end_of_agreement(one, right))
        end = max(equal, _snapshot_end(one.replica))
        limits.append(LogLimit(end, end))
    return limits


def _certain_end(replica: LogReplica) -> int:
    """The offset before which a single directory proves everything committed."""
    if replica.archive is not None:
        return replica.archive.end
    stored = _snapshot_end(replica)
    if replica.properties is None or not _may_be_alone(replica):
        return stored
    facts, controls = _survey(replica)
    held = majority_end(controls, [facts])
    return stored if held is None else max(stored, held.offset)


def _may_be_alone(replica: LogReplica) -> bool:
    """Whether the log seems to begin with a single voter.

    This only saves a scan of the log: its records are unknown if all other voters left later.
    """
    controls: list[ControlBatch] = []
    for segment in replica.segments[:1]:
        controls += _scanned(segment.path, is_head=True).controls
    for snapshot in replica.snapshots[-1:]:
        found = _scanned(snapshot.path, is_head=True).controls
        controls += [replace(batch, snapshot=snapshot.id.offset) for batch in found]
    voters = last_voters(controls, "")
    return voters is None or len(voters) == 1


def _snapshot_end(replica: LogReplica) -> int:
    return max((snapshot.id.offset for snapshot in replica.snapshots), default=0)


def _underivable(controls: Sequence[ControlBatch], logs: Sequence[Facts]) -> UnknownCommitError:
    known = {voters for one in logs if (voters := last_voters(controls, one.name))}
    names = " or ".join(sorted(shown_keys(voters) for voters in known)) or "of unknown voters"
    ends = ", ".join(f"{one.name} in epoch {one.epoch}" for one in logs)
    return UnknownCommitError(
        f"the committed offset is unknown: of the voters {names}, no majority is among the "
        f"directories with a log that ends in the same epoch ({ends}). Add the other voters' "
        "directories, set the high watermark (highWatermark), or read a single directory"
    )


def _survey(replica: LogReplica) -> tuple[Facts, list[ControlBatch]]:
    """Scan the batch headers of a log, and its checkpoints if the log does not name the voters."""
    start = replica.start_offset
    facts = Facts(replica, start, max(start, _snapshot_end(replica)), -1)
    controls: list[ControlBatch] = []
    for segment in replica.segments:
        scan = _scanned(segment.path)
        for epoch, first in scan.epochs:
            facts.epochs.setdefault(epoch, first)
        if scan.end is not None:
            facts.end, facts.epoch = scan.end, scan.epochs[-1][0]
        controls += scan.controls
    stored = reversed(replica.snapshots)
    while not _has_voters(controls) and (snapshot := next(stored, None)) is not None:
        found = _scanned(snapshot.path, is_head=True).controls
        controls += [replace(batch, snapshot=snapshot.id.offset) for batch in found]
    return facts, [replace(batch, replica=replica.name) for batch in controls]


def _has_voters(controls: Sequence[ControlBatch]) -> bool:
    return any(kind == KRAFT_VOTERS for batch in controls for kind, _ in batch.controls)


def _scanned(path: Path, *, is_head: bool = False) -> _Scan:
    with opened(path) as (descriptor, size):
        changed_at = os.fstat(descriptor).st_mtime_ns
    return _scan(str(path), size, changed_at, is_head)


@lru_cache(maxsize=FILES_CACHED_MAX)
def _scan(path: str, size: int, _changed_at: int, is_head: bool) -> _Scan:
    """Scan a file of that size and age. is_head: only up to the first batch of data."""
    end: int | None = None
    epochs: list[tuple[int, int]] = []
    controls: list[ControlBatch] = []
    with opened(path) as (descriptor, _):
        for chunk in read_chunks(descriptor, 0, size):
            if not len(chunk.starts):
                break
            end = int(chunk.last_offsets[-1]) + 1
            epochs += _new_epochs(chunk, epochs[-1][0] if epochs else None)
            controls += _control_batches(chunk, path)
            if is_head and not chunk.is_control.all():
                break
    return _Scan(end, tuple(epochs), tuple(controls))


def _new_epochs(chunk: Chunk, before: int | None) -> Iterator[tuple[int, int]]:
    """The epochs that begin in a chunk, with their first offsets. before: the epoch before it."""
    epochs = chunk.headers["epoch"].astype(np.int64)
    changes = np.flatnonzero(np.diff(epochs)) + 1
    starts = changes.tolist() if before == epochs[0] else [0, *changes.tolist()]
    for at in starts:
        yield int(epochs[at]), int(chunk.headers["base_offset"][at])


def _control_batches(chunk: Chunk, path: str) -> Iterator[ControlBatch]:
    """The control batches of a chunk, without those that cannot be read."""
    for at in np.flatnonzero(chunk.is_control).tolist():
        start, end = int(chunk.starts[at]), int(chunk.ends[at])
        batch = memoryview(chunk.buffer)[start:end]
        try:
            header = read_header(batch)
            records = control_records(batch, header)
        except RecordsError:
            continue
        finally:
            batch.release()
        controls = tuple((one["type"], json.loads(one["data"])) for one in records)
        yield ControlBatch(
            "",
            path,
            chunk.file_position + start,
            end - start,
            header.base_offset,
            header.epoch,
            None,
            controls,
        )
