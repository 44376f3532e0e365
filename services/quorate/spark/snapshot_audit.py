"""Audits checkpoints: a snapshot must equal the state from replaying the log up to its end.

Each checkpoint is compared with a replay of one replica's log that reaches the checkpoint's end,
from an older checkpoint or from the beginning. It is also compared with a checkpoint of the same
end offset on another replica.

SCRAM credentials are excluded: when a user's credential is deleted, Kafka 4.3's own snapshots lose
other users' credentials of the same mechanism that the log still holds (as Kafka's golden
directories show).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from quorate.metadata.image.metadata_image import AnyRecord
from quorate.records.control import TYPE_NAMES as CONTROL_NAMES
from quorate.records.control import control_json, control_type, decode_control
from quorate.records.errors import RecordsError
from quorate.records.metadata import decode
from quorate.spark import framing
from quorate.spark.audit_rules import AuditRule, Finding
from quorate.spark.columns import ChunkOrigin, records_between
from quorate.spark.envelope import Records
from quorate.spark.errors import DamagedError
from quorate.spark.files import LogReplica, SnapshotFile, end_of_file, opened
from quorate.spark.options import OFFSET_MAX
from quorate.spark.replay import SCRAM, Data, StateReplay

Things = dict[tuple[str, str], Data]
DIFFERENCES_MAX = 20
"""The maximum number of differing entities that one comparison reports."""


Part = tuple[Path, int, int]
"""A file, and the offsets [start, end) to replay from it."""


def _load(parts: Iterable[Part]) -> Things | None:
    """The state after replaying the files' records; None if a file is damaged."""
    replay = StateReplay()
    try:
        for part in parts:
            _replay_file(replay, *part)
    except DamagedError:
        return None
    return {(kind, key): fields for kind, key, fields, _ in replay.rows() if kind != SCRAM}


def _replay_file(replay: StateReplay, path: Path, start: int, end: int) -> None:
    with opened(path) as (descriptor, size):
        for chunk in framing.read_chunks(descriptor, 0, size):
            records = records_between(chunk, ChunkOrigin("", str(path)), start, end)
            replay.apply(_decoded(replay, records))


def _decoded(replay: StateReplay, records: Records) -> Iterator[tuple[AnyRecord, tuple[int], bool]]:
    """Yield the metadata records, and pass control records to the replay.

    Records of applications, and records that cannot be decoded, are skipped.
    """
    is_control = records.chunk.is_control[records.batch]
    for row, offset in enumerate(records.offset.tolist()):
        key, value = records.key(row), records.value(row)
        try:
            if is_control[row]:
                name = CONTROL_NAMES.get(control_type(key), "")
                replay.apply_control(name, control_json(decode_control(key, value)), (offset,))
            elif key is None:
                yield decode(value or b""), (offset,), True
        except RecordsError:
            continue


def snapshot_findings(replicas: Sequence[LogReplica], damaged: set[str]) -> Iterator[Finding]:
    """Find checkpoints that disagree. Skips files in `damaged`, which are already reported."""
    seen: dict[int, tuple[LogReplica, SnapshotFile, Things]] = {}
    for replica in replicas:
        for snapshot in replica.snapshots:
            end = snapshot.id.offset
            if end == 0 or str(snapshot.path) in damaged:
                continue
            stored = _load([(snapshot.path, 0, OFFSET_MAX)])
            if stored is None:
                continue
            other = seen.setdefault(end, (replica, snapshot, stored))
            if other[0] is not replica:
                source = ("checkpoint", other[0].name)
                yield from _compare(replica, snapshot, stored, other[2], source)
            for by in [replica, *(r for r in replicas if r is not replica)]:
                parts = _way(by, end, damaged)
                expected = None if parts is None else _load(parts)
                if expected is not None:
                    source = ("log", by.name)
                    yield from _compare(replica, snapshot, stored, expected, source)
                    break


def _way(replica: LogReplica, end: int, damaged: set[str]) -> list[Part] | None:
    """The files to replay for the state at `end`: an older checkpoint if needed, and segments.

    None if a required file is missing or in `damaged`.
    """
    if not replica.segments:
        return None
    start = replica.segments[0].base_offset
    bases = [
        s for s in replica.snapshots if start <= s.id.offset < end and str(s.path) not in damaged
    ]
    begin = 0
    parts: list[Part] = []
    if start > 0:
        if not bases:
            return None
        begin = bases[-1].id.offset
        parts.append((bases[-1].path, 0, OFFSET_MAX))
    covered = begin
    for segment, after in replica.segments_between(begin, end):
        if str(segment.path) in damaged:
            return None
        parts.append((segment.path, begin, end))
        covered = (end_of_file(segment.path) or 0) if after is None else after
    return parts if covered >= end else None


def _compare(
    replica: LogReplica,
    snapshot: SnapshotFile,
    stored: Things,
    expected: Things,
    source: tuple[str, str],
) -> list[Finding]:
    what, by = source
    differing = [
        key for key in sorted({*stored, *expected}) if stored.get(key) != expected.get(key)
    ]
    return [
        Finding(
            AuditRule.SNAPSHOT,
            snapshot.id.offset,
            replica.name,
            by if by != replica.name else "",
            f"{snapshot.path.name}: {kind} {key} is {_shown(stored.get((kind, key)))}, "
            f"but {_shown(expected.get((kind, key)))} by the {what} of {by}",
            str(snapshot.path),
            0,
            snapshot.path.stat().st_size,
        )
        for kind, key in differing[:DIFFERENCES_MAX]
    ]


def _shown(fields: Data | None) -> str:
    return "missing" if fields is None else json.dumps(fields, separators=(",", ":"))[:300]
