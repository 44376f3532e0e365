"""Audits checkpoints: a snapshot must equal the state from replaying the log up to its end.

Each checkpoint is compared with a replay of one replica's log that reaches the checkpoint's end,
from an older checkpoint or from the beginning. If none does, the records of applications are
compared with what there is of the log, and the rest with the checkpoints of the same end offset on
other replicas, of which most are right. A checkpoint that agrees with one of the logs is right.

All checkpoints of an end offset are judged by one of Spark's tasks (`findings_at`), which replays
one log for all of them unless one disagrees. It keeps a digest in place of each entity and record,
and replays again to name those that differ.

`metadata.entity_comparison` and `applications.record_comparison` compare the contents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from quorate.applications.record_comparison import record_differences
from quorate.log.snapshots import CHECKPOINT_SUFFIX
from quorate.metadata.entities import StateReplay
from quorate.metadata.entity_comparison import (
    Entities,
    Things,
    differences_text,
    differing_names,
    named,
    things_of,
)
from quorate.metadata.image.metadata_image import AnyRecord
from quorate.records.control import TYPE_NAMES as CONTROL_NAMES
from quorate.records.control import control_json, control_type, decode_control
from quorate.records.errors import RecordsError
from quorate.records.metadata import decode
from quorate.spark.auditing.application_audit import ApplicationRecords
from quorate.spark.auditing.rules import AuditRule, Finding
from quorate.spark.decoding import framing
from quorate.spark.decoding.columns import ChunkOrigin, records_between
from quorate.spark.decoding.envelope import Records
from quorate.spark.errors import DamagedError
from quorate.spark.files import LogReplica, SnapshotFile, end_of_file, opened, size_of
from quorate.spark.options import OFFSET_MAX

Part = tuple[Path, int, int]
"""A file, and the offsets [start, end) to replay from it."""


@dataclass(frozen=True, slots=True)
class _Contents:
    """The entities of the metadata, and the records of applications, in some files."""

    parts: tuple[Part, ...]
    things: Things
    applications: ApplicationRecords

    def named(self, wanted: Set[bytes]) -> Entities:
        """The entities of which the digests of the names are wanted."""
        replay = StateReplay()
        _replay(replay, ApplicationRecords(), self.parts)
        return named(replay, wanted)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A checkpoint of one replica."""

    replica: LogReplica
    snapshot: SnapshotFile
    contents: _Contents

    @property
    def path(self) -> Path:
        return self.snapshot.path

    def finding(self, text: str, by: LogReplica, offset: int, position: int | None) -> Finding:
        path = self.path
        return Finding(
            AuditRule.SNAPSHOT,
            offset,
            self.replica.name,
            by.name if by is not self.replica else "",
            f"{path.name}: {text}",
            str(path),
            position or 0,
            size_of(path) - (position or 0),
        )


@dataclass(frozen=True, slots=True)
class _Log:
    """The contents of a replica's log. is_whole: whether it was replayed from a known state.

    If not, it has only the records of applications since the log start.
    """

    by: LogReplica
    contents: _Contents
    is_whole: bool


Comparison = Callable[[_Copy, _Contents, LogReplica, str], list[Finding]]
"""Compares a checkpoint with contents from a replica's log or checkpoint."""


def _load(parts: Sequence[Part], start: int, *, is_whole: bool = True) -> _Contents | None:
    """Replay the files' records; None if a file is damaged.

    start: the offset from which on the parts contain the whole log. is_whole: if not, only the
    records of applications are loaded.
    """
    replay = StateReplay() if is_whole else None
    applications = ApplicationRecords(start)
    try:
        _replay(replay, applications, parts)
    except DamagedError:
        return None
    things = frozenset[bytes]() if replay is None else things_of(replay)
    return _Contents(tuple(parts), things, applications)


def _replay(
    replay: StateReplay | None, applications: ApplicationRecords, parts: Iterable[Part]
) -> None:
    for path, start, end in parts:
        _replay_file(replay, applications, path, start, end)


def _replay_file(
    replay: StateReplay | None, applications: ApplicationRecords, path: Path, start: int, end: int
) -> None:
    in_snapshot = path.suffix == CHECKPOINT_SUFFIX
    with opened(path) as (descriptor, size):
        for chunk in framing.read_chunks(descriptor, 0, size):
            records = records_between(chunk, ChunkOrigin("", str(path)), start, end)
            found = _decoded(replay, applications, records, in_snapshot=in_snapshot)
            if replay is None:
                deque(found, maxlen=0)
            else:
                replay.apply(found)


def _decoded(
    replay: StateReplay | None,
    applications: ApplicationRecords,
    records: Records,
    *,
    in_snapshot: bool,
) -> Iterator[tuple[AnyRecord, tuple[int], bool]]:
    """Yield the metadata records, and pass on control records and those of applications.

    Records that cannot be decoded are skipped.
    """
    is_control = records.chunk.is_control[records.batch]
    for row, offset in enumerate(records.offset.tolist()):
        key, value = records.key(row), records.value(row)
        try:
            if is_control[row]:
                if replay is None:
                    continue
                name = CONTROL_NAMES.get(control_type(key), "")
                replay.apply_control(name, control_json(decode_control(key, value)), (offset,))
            elif key is not None:
                applications.add(records, row, in_snapshot=in_snapshot)
            else:
                record = decode(value or b"")
                applications.note(record)
                yield record, (offset,), True
        except RecordsError:
            continue


def snapshot_ends(replicas: Sequence[LogReplica]) -> list[int]:
    """The end offsets of all checkpoints, except for that of an empty log."""
    return sorted({s.id.offset for replica in replicas for s in replica.snapshots} - {0})


def findings_at(end: int, replicas: Sequence[LogReplica], damaged: set[str]) -> Iterator[Finding]:
    """Find checkpoints of an end offset that disagree.

    Skips files in `damaged`, which are already reported.
    """
    logs: dict[str, _Log | None] = {}
    for copy in _copies(replicas, end, damaged):
        for compare in (_compare, _compare_applications):
            others = (other for other in _copies(replicas, end, damaged) if other.path != copy.path)
            yield from _judge(copy, compare, _logs(copy, replicas, logs, damaged), others)


def _judge(
    copy: _Copy, compare: Comparison, logs: Iterable[_Log], others: Iterable[_Copy]
) -> list[Finding]:
    """Compare a checkpoint with logs until one agrees. Without a whole log, also with `others`.

    If none agrees, its own log says what is wrong.
    """
    by_own: list[Finding] = []
    by_other: list[Finding] = []
    has_whole = False
    for log in logs:
        if compare is _compare and not log.is_whole:
            continue
        has_whole |= log.is_whole
        found = compare(copy, log.contents, log.by, "log")
        if not found and log.is_whole:
            return []
        if log.by is copy.replica:
            by_own = found
        else:
            by_other = by_other or found
    first = by_own or by_other
    return first if first or has_whole else _by_majority(copy, compare, others)


def _copies(replicas: Sequence[LogReplica], end: int, damaged: set[str]) -> Iterator[_Copy]:
    for replica in replicas:
        for snapshot in replica.snapshots:
            if snapshot.id.offset == end and str(snapshot.path) not in damaged:
                contents = _load([(snapshot.path, 0, OFFSET_MAX)], end)
                if contents is not None:
                    yield _Copy(replica, snapshot, contents)


def _logs(
    copy: _Copy,
    replicas: Sequence[LogReplica],
    loaded: dict[str, _Log | None],
    damaged: set[str],
) -> Iterator[_Log]:
    """Yield the logs that reach the checkpoint's end.

    loaded: by the name of the replica. These come first, then that of the checkpoint's own replica.
    """
    order = [copy.replica, *(r for r in replicas if r is not copy.replica)]
    for by in sorted(order, key=lambda by: by.name not in loaded):
        if by.name not in loaded:
            loaded[by.name] = _load_log(by, copy.snapshot.id.offset, damaged)
        found = loaded[by.name]
        if found is not None:
            yield found


def _by_majority(copy: _Copy, compare: Comparison, others: Iterable[_Copy]) -> list[Finding]:
    """Compare a checkpoint with others of its end offset; it is right if half of them agree."""
    found = [compare(copy, other.contents, other.replica, "checkpoint") for other in others]
    disagreeing = [each for each in found if each]
    return disagreeing[0] if 2 * len(disagreeing) > len(found) else []


def _load_log(replica: LogReplica, end: int, damaged: set[str]) -> _Log | None:
    """Replay a log up to `end`, from an older checkpoint if needed.

    None if it does not reach the end, or a required file is in `damaged`.
    """
    if not replica.segments or replica.start_offset >= end:
        return None
    start = replica.start_offset
    bases = [
        s for s in replica.snapshots if start <= s.id.offset < end and str(s.path) not in damaged
    ]
    parts: list[Part] = []
    begin = start
    if start > 0 and bases:
        begin = bases[-1].id.offset
        parts.append((bases[-1].path, 0, OFFSET_MAX))
    covered = begin
    for segment, after in replica.segments_between(begin, end):
        if str(segment.path) in damaged:
            return None
        parts.append((segment.path, begin, end))
        covered = (end_of_file(segment.path) or 0) if after is None else after
    if covered < end:
        return None
    is_whole = start == 0 or bool(bases)
    contents = _load(parts, begin, is_whole=is_whole)
    return None if contents is None else _Log(replica, contents, is_whole)


def _compare(copy: _Copy, expected: _Contents, by: LogReplica, source: str) -> list[Finding]:
    differing = differing_names(copy.contents.things, expected.things)
    if not differing:
        return []
    found = differences_text(copy.contents.named(differing), expected.named(differing))
    text = f"{found} by the {source} of {by.name}"
    return [copy.finding(text, by, copy.snapshot.id.offset, None)]


def _compare_applications(
    copy: _Copy, expected: _Contents, by: LogReplica, source: str
) -> list[Finding]:
    found = record_differences(
        copy.contents.applications, expected.applications, is_own=by is copy.replica
    )
    return [
        copy.finding(f"{one.text}, by the {source} of {by.name}", by, one.offset, one.position)
        for one in found
    ]
