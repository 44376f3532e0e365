"""`quorate dump-log`: prints segments and checkpoints in the format of kafka-dump-log.

Unlike Kafka's tool, it hides salts, keys and secret settings unless --show-secrets is given. It
prints a file up to its end or its first fault. Preallocated space that was never written is not a
fault. The bytes of an incomplete batch at the end are counted, as in Kafka's tool. Any other fault
is reported in one line on stderr, and the exit status is 1. Files are only read, so they may belong
to a running node.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from quorate.cli.options import AsJson, ShowSecrets
from quorate.cli.output import CommandError, UsageError, printable
from quorate.common.batch_layout import COMPRESSION_NAMES, NO_PRODUCER_ID
from quorate.log.scan import end_of_data, find_batch, may_follow, scan
from quorate.log.segments import LOG_SUFFIX, parse_offset_name
from quorate.log.snapshots import CHECKPOINT_SUFFIX, parse_snapshot_name
from quorate.raft.batches import (
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    UnknownControl,
    VotersRecord,
)
from quorate.records.batch import BatchHeader, Record, iter_records
from quorate.records.control import ABORT, COMMIT, TYPE_NAMES, control_json, decode_control
from quorate.records.errors import RecordsError, TruncatedBatchError
from quorate.records.primitives import Reader

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
PROGRESS_AFTER_S = 1.0

_CONTROL_LABELS: dict[type[object], str] = {
    LeaderChange: "LeaderChange:",
    SnapshotHeader: "SnapshotHeader",
    SnapshotFooter: "SnapshotFooter",
    KRaftVersion: "KRaftVersion",
    VotersRecord: "KRaftVoters",
}


@dataclass(slots=True)
class DumpOptions:
    """What to print of each batch."""

    decode: bool
    deep: bool
    skip_record_metadata: bool
    show_secrets: bool


@dataclass(slots=True)
class Faults:
    """What is reported after all files: gaps by file, and one stderr line per damaged file."""

    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def dump_log(
    files: Annotated[
        str,
        typer.Option("--files", help="The files to print, comma-separated: *.log or *.checkpoint."),
    ],
    cluster_metadata_decoder: Annotated[
        bool,
        typer.Option(
            "--cluster-metadata-decoder", help="Decode the values as Kafka metadata records."
        ),
    ] = False,
    deep_iteration: Annotated[
        bool,
        typer.Option("--deep-iteration", help="Print each record, not only the batches."),
    ] = False,
    skip_record_metadata: Annotated[
        bool,
        typer.Option("--skip-record-metadata", help="Print only the contents of each record."),
    ] = False,
    show_secrets: ShowSecrets = False,
    as_json: AsJson = False,
) -> None:
    """Print the contents of log segments and checkpoints, as kafka-dump-log does.

    Example: quorate dump-log --cluster-metadata-decoder --files
    data/__cluster_metadata-0/00000000000000000000.log
    """
    options = DumpOptions(
        cluster_metadata_decoder,
        deep_iteration or cluster_metadata_decoder,
        skip_record_metadata,
        show_secrets,
    )
    paths = [_known(Path(name)) for name in files.split(",") if name]
    if not paths:
        raise UsageError("--files contains no file name")
    faults = Faults()
    printer = JsonPrinter(sys.stdout, options) if as_json else TextPrinter(sys.stdout, options)
    printer.begin()
    for path in paths:
        _dump_file(path, printer, options, faults)
    printer.end(faults)
    if faults.errors:
        sys.stdout.flush()
        raise CommandError("; ".join(faults.errors))


def _known(path: Path) -> Path:
    """Reject a path that is neither a segment nor a checkpoint, before anything is printed."""
    if not path.is_file():
        raise CommandError(f"{path}: no such file")
    if path.suffix == LOG_SUFFIX and parse_offset_name(path.stem) is not None:
        return path
    if path.name == BOOTSTRAP_CHECKPOINT:
        return path
    if path.suffix == CHECKPOINT_SUFFIX and parse_snapshot_name(path.stem) is not None:
        return path
    raise CommandError(
        f"{path}: neither a segment (20 digits and {LOG_SUFFIX}) nor a checkpoint "
        f"(offset-epoch{CHECKPOINT_SUFFIX})"
    )


def _dump_file(path: Path, printer: Printer, options: DumpOptions, faults: Faults) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    printer.file(path)
    try:
        fault = _dump_batches(path, descriptor, printer, options, faults)
    finally:
        os.close(descriptor)
        printer.end_file()
    if fault is not None:
        faults.errors.append(f"{path}: {fault}")


def _dump_batches(
    path: Path, descriptor: int, printer: Printer, options: DumpOptions, faults: Faults
) -> str | None:
    """Print one file's batches. Returns the file's fault, or None."""
    size = os.fstat(descriptor).st_size
    is_checkpoint = path.suffix == CHECKPOINT_SUFFIX
    last_offset = -1
    expected = end = 0
    try:
        with _progress(path.name, size) as advance:
            for position, header, batch, sound in scan(descriptor, size):
                printer.batch(position, header, sound)
                # Compaction leaves gaps between the records of applications.
                may_have_gaps = is_checkpoint and header.log_base_offset is not None
                if not sound:
                    follows = _what_follows(descriptor, position, size, header.base_offset)
                    return (
                        f"damaged at byte {position}, offset {header.base_offset}: "
                        f"the checksum is wrong{follows}"
                    )
                if options.deep:
                    try:
                        for record in iter_records(batch, header):
                            if record.offset != last_offset + 1 and not may_have_gaps:
                                pairs = faults.gaps.setdefault(str(path), [])
                                pairs.append((last_offset, record.offset))
                            last_offset = record.offset
                            printer.record(header, record)
                    except RecordsError as error:
                        return f"the batch at byte {position} cannot be read: {error}"
                printer.end_batch()
                if may_have_gaps:
                    last_offset = header.last_offset
                expected = header.end_offset
                end = position + header.size_bytes
                advance(end)
    except RecordsError as error:
        if end_of_data(descriptor, end, size) == end:
            return None
        follows = _what_follows(descriptor, end, size, expected)
        if not follows and isinstance(error, TruncatedBatchError):
            printer.trailing(path, size - end)
            return None
        return f"damaged at byte {end}, where offset {expected} is expected: {error}{follows}"
    return None


def _what_follows(descriptor: int, position: int, size: int, expected: int) -> str:
    follows = find_batch(descriptor, position, size, may_follow(expected, size - position))
    return "" if follows is None else f"; a whole batch follows at byte {follows}"


@contextmanager
def _progress(name: str, size: int) -> Iterator[Any]:
    """Yield a function that takes the position; show a bar on a terminal after PROGRESS_AFTER_S."""
    began = time.monotonic()
    bars: list[Any] = []

    def advance(position: int) -> None:
        if bars:
            bars[0].update(bars[1], completed=position)
        elif sys.stderr.isatty() and time.monotonic() - began > PROGRESS_AFTER_S:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

            bar = Progress(
                "{task.description}",
                BarColumn(),
                DownloadColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            bar.start()
            bars.extend((bar, bar.add_task(name, total=size, completed=position)))

    try:
        yield advance
    finally:
        if bars:
            bars[0].stop()


def _payload(record: Record, options: DumpOptions) -> tuple[str, Any]:
    """Decode a value to Kafka's text and to JSON. Errors become texts, as in Kafka's tool."""
    from quorate.cli.secret_fields import masked
    from quorate.records.metadata import UnsupportedVersionError, decode_json, json_text

    try:
        if record.value is None:
            raise ValueError("the record has no value")
        decoded = decode_json(record.value)
        if not options.show_secrets:
            decoded = masked(decoded)
        return json_text(decoded), decoded
    except (RecordsError, UnsupportedVersionError, ValueError) as error:
        text = f"Error at {record.offset}, skipping. {error}"
        return text, {"error": text}


def _control_text(record: Record, control: ControlRecord) -> str:
    label = _CONTROL_LABELS.get(type(control))
    if label is not None:
        return f"{label} {json.dumps(control_json(control), separators=(',', ':'))}"
    assert isinstance(control, UnknownControl)
    if control.type in (ABORT, COMMIT):
        reader = Reader(record.value or b"")
        reader.int16()
        name = TYPE_NAMES[control.type]
        return f"endTxnMarker: {name} coordinatorEpoch: {reader.int32()}"
    return f"controlType: UNKNOWN({control.type})"


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


class TextPrinter:
    """Prints the lines of kafka-dump-log."""

    def __init__(self, out: TextIO, options: DumpOptions) -> None:
        self._out = out
        self._options = options

    def _line(self, text: str) -> None:
        self._out.write(printable(text) + "\n")

    def begin(self) -> None:
        """Print nothing: the text has no header."""

    def file(self, path: Path) -> None:
        self._line(f"Dumping {path}")
        snapshot = parse_snapshot_name(path.stem)
        if path.suffix == LOG_SUFFIX:
            self._line(f"Log starting offset: {int(path.stem)}")
        elif snapshot is None:
            self._line("KRaft bootstrap snapshot")
        else:
            self._line(f"Snapshot end offset: {snapshot.offset}, epoch: {snapshot.epoch}")

    def batch(self, position: int, header: BatchHeader, sound: bool) -> None:
        horizon = header.delete_horizon_ms
        has_producer = header.producer_id != NO_PRODUCER_ID
        self._line(
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
            f"count: {header.count} baseSequence: {header.base_sequence} "
            f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
            f"producerEpoch: {header.producer_epoch if has_producer else -1} "
            f"partitionLeaderEpoch: {header.epoch} "
            f"isTransactional: {_java(header.is_transactional)} "
            f"isControl: {_java(header.is_control)} deleteHorizonMs: "
            f"{'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
            f"position: {position} {_timestamp_type(header)}: {header.max_timestamp} "
            f"size: {header.size_bytes} magic: {header.magic} "
            f"compresscodec: {COMPRESSION_NAMES.get(header.compression, header.compression)} "
            f"crc: {header.crc} isvalid: {_java(sound)}"
        )

    def record(self, header: BatchHeader, record: Record) -> None:
        parts: list[str] = []
        if not self._options.skip_record_metadata:
            names = ",".join(name for name, _ in record.headers)
            parts.append(
                f"offset: {record.offset} {_timestamp_type(header)}: {record.timestamp} "
                f"keySize: {record.key_size} valueSize: {record.value_size} "
                f"sequence: {record.sequence} headerKeys: [{names}]"
            )
            if header.is_control:
                parts.append(_control_text(record, decode_control(record.key, record.value)))
        if self._options.decode and not header.is_control:
            parts.append(f"payload: {_payload(record, self._options)[0]}")
        # Kafka prints an empty line when the options exclude every part of a record.
        self._line(" ".join(["|", *parts]) if parts else "")

    def end_batch(self) -> None:
        """Print nothing: a batch has no closing line."""

    def trailing(self, path: Path, size: int) -> None:
        self._line(f"Found {size} invalid bytes at the end of {path.name}")

    def end_file(self) -> None:
        """Print nothing: a file has no closing line."""

    def end(self, faults: Faults) -> None:
        for name, pairs in faults.gaps.items():
            self._line(f"Non-consecutive offsets in {name}")
            for before, after in pairs:
                self._line(f"  {before} is followed by {after}")


def _java(value: bool) -> str:
    return "true" if value else "false"


class JsonPrinter:
    """Prints one JSON array with an object per file, batch by batch to bound the memory used."""

    def __init__(self, out: TextIO, options: DumpOptions) -> None:
        self._out = out
        self._options = options
        self._files = 0
        self._batches = 0
        self._batch: dict[str, Any] | None = None
        self._trailing = 0

    def begin(self) -> None:
        self._out.write("[")

    def file(self, path: Path) -> None:
        head: dict[str, Any] = {"file": str(path)}
        snapshot = parse_snapshot_name(path.stem)
        if path.suffix == LOG_SUFFIX:
            head["startOffset"] = int(path.stem)
        elif snapshot is not None:
            head["snapshot"] = {"endOffset": snapshot.offset, "epoch": snapshot.epoch}
        self._out.write(",\n" if self._files else "\n")
        self._out.write(json.dumps(head)[:-1] + ', "batches": [')
        self._files += 1
        self._batches = self._trailing = 0

    def batch(self, position: int, header: BatchHeader, sound: bool) -> None:
        self._batch = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.count,
            "partitionLeaderEpoch": header.epoch,
            "isControl": header.is_control,
            "position": position,
            "timestamp": header.max_timestamp,
            "size": header.size_bytes,
            "crc": header.crc,
            "isValid": sound,
        }

    def record(self, header: BatchHeader, record: Record) -> None:
        assert self._batch is not None
        shown: dict[str, Any] = {"offset": record.offset}
        if not self._options.skip_record_metadata:
            shown |= {
                "timestamp": record.timestamp,
                "keySize": record.key_size,
                "valueSize": record.value_size,
                "headerKeys": [name for name, _ in record.headers],
            }
        if header.is_control:
            control = decode_control(record.key, record.value)
            label = _CONTROL_LABELS.get(type(control), "Unknown").rstrip(":")
            shown["control"] = {"type": label, "data": control_json(control)}
        elif self._options.decode:
            shown["payload"] = _payload(record, self._options)[1]
        self._batch.setdefault("records", []).append(shown)

    def end_batch(self) -> None:
        if self._batch is not None:
            self._out.write(",\n  " if self._batches else "\n  ")
            self._out.write(printable(json.dumps(self._batch, ensure_ascii=False)))
            self._batches += 1
            self._batch = None

    def trailing(self, path: Path, size: int) -> None:  # noqa: ARG002
        self._trailing = size

    def end_file(self) -> None:
        self.end_batch()
        self._out.write(f'\n ], "invalidBytesAtEnd": {self._trailing}}}')

    def end(self, faults: Faults) -> None:  # noqa: ARG002
        self._out.write("\n]\n")


Printer = TextPrinter | JsonPrinter
