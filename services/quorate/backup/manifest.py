"""The manifest of a backup: which objects belong to it, and what they contain.

JSON, with the SHA-256 of all other fields in `sha256`. Offsets count records, sizes are bytes,
times are milliseconds since 1970, end offsets are exclusive.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from quorate.backup.errors import BackupError
from quorate.log.snapshots import CHECKPOINT_SUFFIX, snapshot_name
from quorate.raft.types import OffsetAndEpoch
from quorate.version import __version__

FORMAT = "quorate-backup"
FORMAT_VERSION = 1

LOG_FOLDER = "log"
SNAPSHOT_FOLDER = "snapshots"
MANIFEST_FOLDER = "manifests"
FOLDERS = (LOG_FOLDER, SNAPSHOT_FOLDER, MANIFEST_FOLDER)

_OBJECT_NAME = re.compile(
    rf"{LOG_FOLDER}/\d{{20}}-\d{{20}}\.segment"
    rf"|{SNAPSHOT_FOLDER}/\d{{20}}-\d{{10}}{re.escape(CHECKPOINT_SUFFIX)}",
    re.ASCII,
)
_MANIFEST_NAME = re.compile(rf"{MANIFEST_FOLDER}/\d{{20}}\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """An object with the batches of the offsets [base, end)."""

    base: int
    end: int
    first_epoch: int
    last_epoch: int
    last_timestamp: int
    """The largest timestamp of its records."""
    size: int
    sha256: str
    merges: int = 0
    """How often segments were merged to it."""

    @property
    def name(self) -> str:
        return f"{LOG_FOLDER}/{self.base:020d}-{self.end:020d}.segment"


@dataclass(frozen=True, slots=True)
class ArchivedSnapshot:
    """An object that is a checkpoint."""

    offset: int
    epoch: int
    last_timestamp: int
    """The timestamp of the last record that it stands for."""
    size: int
    sha256: str

    @property
    def id(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.offset, self.epoch)

    @property
    def name(self) -> str:
        return f"{SNAPSHOT_FOLDER}/{snapshot_name(self.id)}{CHECKPOINT_SUFFIX}"


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """A part of the log without a gap."""

    snapshot: ArchivedSnapshot | None = None
    """None if the run begins at offset 0."""
    segments: tuple[ArchivedSegment, ...] = ()

    @property
    def start(self) -> int:
        """The least end offset to which it can be restored."""
        return 0 if self.snapshot is None else self.snapshot.offset

    @property
    def end(self) -> int:
        return self.segments[-1].end if self.segments else self.start

    @property
    def last_epoch(self) -> int:
        if self.segments:
            return self.segments[-1].last_epoch
        return 0 if self.snapshot is None else self.snapshot.epoch

    @property
    def last_timestamp(self) -> int:
        found = [segment.last_timestamp for segment in self.segments]
        return max(found, default=0 if self.snapshot is None else self.snapshot.last_timestamp)

    @property
    def objects(self) -> Iterator[ArchivedSegment | ArchivedSnapshot]:
        if self.snapshot is not None:
            yield self.snapshot
        yield from self.segments


@dataclass(frozen=True, slots=True)
class RetiredObject:
    """An object that manifests from `retired_ms` on do not list any more."""

    name: str
    retired_ms: int


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """A whole backup."""

    cluster_id: str
    generation: int = 0
    """Counts the manifests of an archive."""
    created_ms: int = 0
    """When the manifest was written, in milliseconds since 1970."""
    runs: tuple[ArchivedRun, ...] = ()
    retired: tuple[RetiredObject, ...] = ()
    """The objects that are to be deleted later."""
    software: str = field(default=__version__)

    @property
    def name(self) -> str:
        return f"{MANIFEST_FOLDER}/{self.generation:020d}.json"

    @property
    def last_run(self) -> ArchivedRun:
        return self.runs[-1]

    @property
    def last_epoch(self) -> int:
        return max(run.last_epoch for run in self.runs)

    @property
    def names(self) -> set[str]:
        """The names of all objects."""
        return {each.name for run in self.runs for each in run.objects}

    @property
    def size(self) -> int:
        return sum(each.size for run in self.runs for each in run.objects)

    def with_last(self, run: ArchivedRun) -> BackupManifest:
        """The same with another last run."""
        return replace(self, runs=(*self.runs[:-1], run))


def encode_manifest(manifest: BackupManifest) -> bytes:
    """The manifest's bytes."""
    fields = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "clusterId": manifest.cluster_id,
        "generation": manifest.generation,
        "createdMs": manifest.created_ms,
        "software": manifest.software,
        "runs": [_run_json(run) for run in manifest.runs],
        "retired": [
            {"object": each.name, "retiredMs": each.retired_ms} for each in manifest.retired
        ],
    }
    return json.dumps({**fields, "sha256": _digest(fields)}, indent=1).encode()


def _digest(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _run_json(run: ArchivedRun) -> dict[str, Any]:
    snapshot = run.snapshot
    return {
        "snapshot": None
        if snapshot is None
        else {
            "object": snapshot.name,
            "offset": snapshot.offset,
            "epoch": snapshot.epoch,
            "lastTimestamp": snapshot.last_timestamp,
            "size": snapshot.size,
            "sha256": snapshot.sha256,
        },
        "segments": [
            {
                "object": segment.name,
                "baseOffset": segment.base,
                "endOffset": segment.end,
                "firstEpoch": segment.first_epoch,
                "lastEpoch": segment.last_epoch,
                "lastTimestamp": segment.last_timestamp,
                "size": segment.size,
                "sha256": segment.sha256,
                "merges": segment.merges,
            }
            for segment in run.segments
        ],
    }


def decode_manifest(text: bytes, name: str) -> BackupManifest:
    """The manifest in an object. BackupError if it is not one, was changed, or contradicts itself.

    name: the object's.
    """
    try:
        fields = json.loads(text)
        digest = fields.pop("sha256")
        if fields["format"] != FORMAT:
            raise ValueError(f"its format is {fields['format']!r}")
        if fields["version"] != FORMAT_VERSION:
            raise BackupError(
                f"{name} has format version {fields['version']}: this release reads version "
                f"{FORMAT_VERSION}"
            )
        if digest != _digest(fields):
            raise ValueError("its SHA-256 is wrong")
        manifest = _manifest(fields)
        _check(manifest, name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackupError(f"{name} is not the manifest that a backup wrote: {error}") from None
    return manifest


def is_archived_name(name: str) -> bool:
    """Whether an archive can have an object or a manifest of that name."""
    return bool(_OBJECT_NAME.fullmatch(name) or _MANIFEST_NAME.fullmatch(name))


def check_manifest_name(name: str) -> None:
    """Raise BackupError unless an archive can have a manifest of that name."""
    if not _MANIFEST_NAME.fullmatch(name):
        raise BackupError(f"{name} is not a manifest: remove it from the archive")


def _manifest(fields: Any) -> BackupManifest:
    return BackupManifest(
        str(fields["clusterId"]),
        _number(fields, "generation"),
        _number(fields, "createdMs"),
        tuple(map(_run, fields["runs"])),
        tuple(map(_retired, fields["retired"])),
        str(fields["software"]),
    )


def _retired(fields: Any) -> RetiredObject:
    name = fields["object"]
    # Retired objects are deleted, so no other name may pass.
    if not _OBJECT_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an object")
    return RetiredObject(name, _number(fields, "retiredMs"))


def _run(fields: Any) -> ArchivedRun:
    snapshot = fields["snapshot"]
    return ArchivedRun(
        None if snapshot is None else _snapshot(snapshot), tuple(map(_segment, fields["segments"]))
    )


def _snapshot(fields: Any) -> ArchivedSnapshot:
    return ArchivedSnapshot(
        _number(fields, "offset"),
        _number(fields, "epoch"),
        _number(fields, "lastTimestamp"),
        _number(fields, "size"),
        str(fields["sha256"]),
    )


def _segment(fields: Any) -> ArchivedSegment:
    return ArchivedSegment(
        _number(fields, "baseOffset"),
        _number(fields, "endOffset"),
        _number(fields, "firstEpoch"),
        _number(fields, "lastEpoch"),
        _number(fields, "lastTimestamp"),
        _number(fields, "size"),
        str(fields["sha256"]),
        _number(fields, "merges"),
    )


def _number(fields: Any, name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value


def _check(manifest: BackupManifest, name: str) -> None:
    """Raise ValueError unless offsets and epochs follow each other."""
    if manifest.name != name:
        raise ValueError(f"it is generation {manifest.generation}")
    if not manifest.runs:
        raise ValueError("it lists nothing")
    end = epoch = 0
    for run in manifest.runs:
        if run.start < end or (run.snapshot is not None and run.snapshot.epoch < epoch):
            raise ValueError(f"a run from offset {run.start} follows offset {end}")
        end = run.start
        epoch = epoch if run.snapshot is None else run.snapshot.epoch
        for segment in run.segments:
            is_next = segment.base == end < segment.end
            if not (is_next and epoch <= segment.first_epoch <= segment.last_epoch):
                raise ValueError(f"{segment.name} follows offset {end} of epoch {epoch}")
            end, epoch = segment.end, segment.last_epoch
