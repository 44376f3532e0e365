"""Remembers what an audit found right, so that the next one reads only what is new.

An audit without findings remembers the segments of all logs up to an offset that each log has
passed by a segment, and all checkpoints, with what the rules need to know about them. The next one
does not read them again if they have not changed, by size and times. It audits everything

- if the replicas are others, or a remembered file has changed, or segments are missing;
- if it finds anything.

So its findings are those of an audit without memory, unless a disk changes bytes without changing
the file's times.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from quorate.spark.auditing.index_audit import INDEX_SUFFIX
from quorate.spark.auditing.rules import LEADER_CHANGE, ControlBatch
from quorate.spark.files import LogReplica

VERSION = 1
Mark = tuple[int, ...]
"""The size and the times of a file, then those of its index."""
Marks = dict[str, Mark]


class Span(NamedTuple):
    """The batches of an epoch in a segment. first, last: offsets."""

    replica: str
    file: str
    epoch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RememberedFile:
    """A segment (end: the offset after it) or a checkpoint (end: its end offset)."""

    replica: str
    path: str
    end: int
    mark: Mark
    spans: tuple[Span, ...]
    controls: tuple[ControlBatch, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """The files in which an audit found no violation. replicas: names and directories."""

    replicas: frozenset[tuple[str, str]]
    segments: tuple[RememberedFile, ...] = ()
    checkpoints: tuple[RememberedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """The parts that need not be read again. ends: where they end in each log, by replica name.

    judged: the end offsets whose checkpoints are all skipped.
    """

    files: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()
    controls: tuple[ControlBatch, ...] = ()
    ends: dict[str, int] = field(default_factory=dict)
    judged: frozenset[int] = frozenset()


def marks_of(replicas: Sequence[LogReplica]) -> Marks:
    """The marks of all segments and checkpoints, taken before they are read."""
    paths = [path for replica in replicas for path in replica.files]
    return {str(path): (*_mark(path), *_mark(path.with_suffix(INDEX_SUFFIX))) for path in paths}


def _mark(path: Path) -> Mark:
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def skipped(memory: Memory, replicas: Sequence[LogReplica], marks: Marks) -> Skipped | None:
    """Return the parts that may be skipped; None if everything must be audited."""
    if memory.replicas != _identities(replicas):
        return None
    known = {one.path: one for one in (*memory.segments, *memory.checkpoints)}
    if any(marks[path] != one.mark for path, one in known.items() if path in marks):
        return None
    found: list[RememberedFile] = []
    ends: dict[str, int] = {}
    for replica in replicas:
        for segment, following in pairwise(replica.segments):
            one = known.get(str(segment.path))
            if one is None:
                break
            if following.base_offset != one.end:
                return None
            found.append(one)
            ends[replica.name] = one.end
    stored = [known[str(s.path)] for r in replicas for s in r.snapshots if str(s.path) in known]
    there = Counter(snapshot.id.offset for r in replicas for snapshot in r.snapshots)
    held = Counter(one.end for one in stored)
    files = [*found, *stored]
    return Skipped(
        frozenset(one.path for one in files),
        tuple(span for one in files for span in one.spans),
        tuple(batch for one in files for batch in one.controls),
        ends,
        frozenset(end for end, count in held.items() if count == there[end]),
    )


def _identities(replicas: Iterable[LogReplica]) -> frozenset[tuple[str, str]]:
    return frozenset((replica.name, str(replica.directory)) for replica in replicas)


def remember(
    replicas: Sequence[LogReplica],
    marks: Marks,
    spans: Sequence[Span],
    controls: Sequence[ControlBatch],
    differs_at: int | None,
) -> Memory:
    """The memory after an audit without findings.

    differs_at: the first offset at which logs differ, though none is wrong.
    """
    passed = min(r.segments[-1].base_offset if r.segments else r.start_offset for r in replicas)
    end = passed if differs_at is None else min(passed, differs_at)

    def remembered(replica: LogReplica, path: Path, end: int) -> RememberedFile:
        file = str(path)
        return RememberedFile(
            replica.name,
            file,
            end,
            marks[file],
            tuple(span for span in spans if span.file == file),
            tuple(batch for batch in controls if batch.file == file),
        )

    segments = [
        remembered(replica, segment.path, following.base_offset)
        for replica in replicas
        for segment, following in pairwise(replica.segments)
        if following.base_offset <= end
    ]
    checkpoints = [
        remembered(replica, snapshot.path, snapshot.id.offset)
        for replica in replicas
        for snapshot in replica.snapshots
    ]
    return Memory(_identities(replicas), tuple(segments), tuple(checkpoints))


def joins(spans: Iterable[Span], controls: Iterable[ControlBatch]) -> bool:
    """Whether epochs continue from each segment to the next, or begin with a LeaderChange."""
    begun = {
        (batch.replica, batch.base_offset)
        for batch in controls
        if batch.snapshot is None and [kind for kind, _ in batch.controls[:1]] == [LEADER_CHANGE]
    }
    for before, after in pairwise(sorted(spans, key=lambda span: (span.replica, span.first))):
        if before.replica != after.replica or before.file == after.file:
            continue
        is_begun = (after.replica, after.first) in begun
        if after.epoch < before.epoch or (after.epoch > before.epoch and not is_begun):
            return False
    return True


# --- the file -------------------------------------------------------------------------------------


def read_memory(path: Path) -> Memory | None:
    """Read a memory, None if there is none that this version understands."""
    try:
        found = json.loads(path.read_bytes())
        if found["version"] != VERSION:
            return None
        replicas = frozenset((str(name), str(directory)) for name, directory in found["replicas"])
        parts = (tuple(_files(found[name])) for name in ("segments", "checkpoints"))
        return Memory(replicas, *parts)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None


def _files(found: Iterable[dict[str, Any]]) -> Iterator[RememberedFile]:
    for one in found:
        spans = tuple(Span(*span) for span in one.pop("spans"))
        controls = tuple(
            ControlBatch(
                **{**batch, "controls": tuple((kind, data) for kind, data in batch["controls"])}
            )
            for batch in one.pop("controls")
        )
        yield RememberedFile(**{**one, "mark": tuple(one["mark"])}, spans=spans, controls=controls)


def write_memory(path: Path, memory: Memory) -> None:
    """Replace the memory in a file, as a whole."""
    found = {
        "version": VERSION,
        "replicas": sorted(memory.replicas),
        "segments": [asdict(one) for one in memory.segments],
        "checkpoints": [asdict(one) for one in memory.checkpoints],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}-{os.getpid()}")
    hidden.write_text(json.dumps(found, separators=(",", ":")))
    hidden.replace(path)
