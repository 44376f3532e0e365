"""Checkpoints against logs: a snapshot holds what replaying the log up to its end leaves.

Each checkpoint is compared with a replay by any replica whose log, from an older checkpoint or from
the beginning, reaches its end; and with checkpoints of the same end on other replicas.

SCRAM credentials are left out: Kafka 4.3's own snapshots lose credentials that the log still holds
when another user's of the same mechanism is deleted (its golden directories show it).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quorate.spark import framing
from quorate.spark.auditrules import Finding, Rule
from quorate.spark.columns import LEDGER, Origin, rows
from quorate.spark.errors import DamagedError
from quorate.spark.files import Replica, SnapshotFile, opened
from quorate.spark.options import OFFSET_MAX
from quorate.spark.replay import SCRAM, Context, Data, Replay

Things = dict[tuple[str, str], tuple[Data, int]]
DIFFERENCES_MAX = 20
"""Things named for one checkpoint."""


@dataclass(frozen=True, slots=True)
class _Record:
    type: str
    data: Data
    offset: int
    seq: int


def _records(path: Path, start: int, end: int, is_snapshot: bool) -> Iterator[_Record]:
    """The decoded records of a file with offsets in [start, end)."""
    with opened(path) as (descriptor, size):
        for chunk in framing.read_chunks(descriptor, 0, size):
            batch = rows(LEDGER, chunk, Origin("", str(path)), start, end)
            names = ("type", "data", "offset")
            for kind, data, offset in zip(*(batch[n].to_pylist() for n in names), strict=True):
                if data is not None:
                    seq = offset - (1 << 48) if is_snapshot else offset
                    yield _Record(kind, json.loads(data), offset, seq)


def _replayed(records: list[_Record]) -> Things:
    """What the records leave, without those of transactions that did not end."""
    kept: list[_Record] = []
    begun: int | None = None
    for record in records:
        if record.type == "BEGIN_TRANSACTION_RECORD":
            begun = len(kept)
        elif record.type == "END_TRANSACTION_RECORD":
            begun = None
        elif record.type == "ABORT_TRANSACTION_RECORD" and begun is not None:
            del kept[begun:]
            begun = None
        else:
            kept.append(record)
    if begun is not None:
        del kept[begun:]
    names: dict[str, str] = {}
    context = Context()
    for record in kept:
        if record.type == "TOPIC_RECORD":
            names[record.data["topicId"]] = record.data["name"]
        elif record.type == "REMOVE_TOPIC_RECORD":
            name = names.get(record.data["topicId"])
            if name is not None:
                context.removed_topics[name] = record.seq
        elif record.type == "CLEAR_ELR_RECORD":
            context.cleared_elr[record.data["topicName"]] = record.seq
    replay = Replay(context)
    for record in kept:
        replay.apply(record.type, record.data, record.offset, record.seq)
    return {(k, key): (f, offset) for k, key, f, offset in replay.rows() if k != SCRAM}


def snapshot_findings(replicas: Sequence[Replica], damaged: set[str]) -> list[Finding]:
    """Checkpoints that disagree. Files in `damaged` are left out: their damage is told already."""
    findings: list[Finding] = []
    seen: dict[int, tuple[Replica, SnapshotFile, Things]] = {}
    for replica in replicas:
        for snapshot in replica.snapshots:
            end = snapshot.id.offset
            if end == 0 or str(snapshot.path) in damaged:
                continue
            stored = _load([(snapshot.path, 0, OFFSET_MAX, True)])
            if stored is None:
                continue
            other = seen.setdefault(end, (replica, snapshot, stored))
            if other[0] is not replica:
                source = ("checkpoint", other[0].name)
                findings += _compare(replica, snapshot, stored, other[2], source)
            for by in [replica, *(r for r in replicas if r is not replica)]:
                parts = _way(by, end, damaged)
                expected = None if parts is None else _load(parts)
                if expected is not None:
                    source = ("log", by.name)
                    findings += _compare(replica, snapshot, stored, expected, source)
                    break
    return findings


def _load(parts: list[tuple[Path, int, int, bool]]) -> Things | None:
    try:
        return _replayed([record for part in parts for record in _records(*part)])
    except DamagedError:
        return None


def _way(replica: Replica, end: int, damaged: set[str]) -> list[tuple[Path, int, int, bool]] | None:
    """The files whose records lead to the state at `end`: an older checkpoint, and segments."""
    if not replica.segments:
        return None
    start = replica.segments[0].base_offset
    bases = [
        s for s in replica.snapshots if start <= s.id.offset < end and str(s.path) not in damaged
    ]
    begin = 0
    parts: list[tuple[Path, int, int, bool]] = []
    if start > 0:
        if not bases:
            return None
        begin = bases[-1].id.offset
        parts.append((bases[-1].path, 0, OFFSET_MAX, True))
    covered = begin
    for index, segment in enumerate(replica.segments):
        following = replica.segments[index + 1 :][:1]
        if (following and following[0].base_offset <= begin) or segment.base_offset >= end:
            continue
        if str(segment.path) in damaged:
            return None
        parts.append((segment.path, begin, end, False))
        covered = following[0].base_offset if following else _end(segment.path)
    return parts if covered >= end else None


def _end(path: Path) -> int:
    last = 0
    with opened(path) as (descriptor, size):
        for chunk in framing.read_chunks(descriptor, 0, size):
            if len(chunk.starts):
                last = int(chunk.last_offsets[-1]) + 1
    return last


def _compare(
    replica: Replica,
    snapshot: SnapshotFile,
    stored: Things,
    expected: Things,
    source: tuple[str, str],
) -> list[Finding]:
    what, by = source
    differing = [
        key
        for key in sorted({*stored, *expected})
        if (stored.get(key) or (None, 0))[0] != (expected.get(key) or (None, 0))[0]
    ]
    findings = []
    for kind, key in differing[:DIFFERENCES_MAX]:
        here, there = stored.get((kind, key)), expected.get((kind, key))
        text = (
            f"{snapshot.path.name}: {kind} {key} is {_shown(here)}; "
            f"by the {what} of {by} {_shown(there)}"
        )
        findings.append(
            Finding(
                Rule.SNAPSHOT,
                snapshot.id.offset,
                replica.name,
                by if by != replica.name else "",
                text,
                str(snapshot.path),
                0,
                snapshot.path.stat().st_size,
            )
        )
    return findings


def _shown(thing: tuple[Data, int] | None) -> str:
    return "missing" if thing is None else json.dumps(thing[0], separators=(",", ":"))[:300]
