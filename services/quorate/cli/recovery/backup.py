"""`quorate backup`: archives the log of a running quorum, and examines archives."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.cli.connection import READ_TIMEOUT_S, ConnectionOptions, asking, resolve
from quorate.cli.options import AsJson, DryRun
from quorate.cli.output import (
    CommandError,
    UsageError,
    bar,
    kafka_table,
    one_line,
    print_json,
    print_line,
    print_warning,
)

if TYPE_CHECKING:
    from quorate.backup.archiver import Archiver
    from quorate.backup.manifest import ArchivedRun, BackupManifest
    from quorate.backup.stores import ObjectStore
    from quorate.cli.recovery.backup_health import BackupHealth
    from quorate.rpc.client.batch_reader import BatchReader

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)

INTERVAL_S = 5.0
LINE_INTERVAL_S = 60.0
"""How often --follow reports its progress at most."""

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Where the backup is: a directory, or s3://BUCKET/PREFIX (with the extra `backup`).",
    ),
]


KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="The archive is encrypted with the keys in FILE: see `quorate backup new-key`.",
    ),
]
KeepDays = Annotated[
    int,
    typer.Option(
        "--keep-days",
        metavar="DAYS",
        min=1,
        help="Delete what no restore to a time of the last DAYS days needs.",
    ),
]
HttpAddress = Annotated[
    str,
    typer.Option(
        "--http-listener",
        metavar="HOST:PORT",
        help="With --follow: serve /healthz, /readyz and /status over plain HTTP.",
    ),
]
ReportFile = Annotated[
    Path,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write the end offset and the cluster id to a file, as JSON: a pod's termination "
        "message.",
    ),
]


@app.callback()
def backup() -> None:
    """Archive the committed log of a running quorum, and verify archives.

    `quorate restore` restores an archive into a new quorum. Archives contain the log as it is, with
    SCRAM keys and secret settings: whoever reads an archive that is not encrypted has them.
    """


@app.command("create")
@asking
def create(
    context: typer.Context,
    *,
    url: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="A directory, or s3://BUCKET/PREFIX (with the extra `backup`). A backup of the "
            "same cluster that is there is continued.",
        ),
    ],
    key_file: KeyFile = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Continue with records as they commit, until Ctrl-C."),
    ] = False,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", min=0.1, help="With --follow: how often to archive."
        ),
    ] = INTERVAL_S,
    keep_days: KeepDays | None = None,
    http_listener: HttpAddress | None = None,
    report: ReportFile | None = None,
    segment_bytes: Annotated[
        int | None,
        typer.Option(
            "--segment-bytes",
            metavar="BYTES",
            min=1,
            help="The size of an object.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the committed records of a quorum to an archive.

    The command continues where the last one ended, also if that was killed. It needs CLUSTER_ACTION
    on the cluster. Only one backup may write to an archive at a time.

    Example: quorate backup create --bootstrap-controller HOST:PORT --to /backups/metadata --follow
    """
    from quorate.backup.archive import Archive
    from quorate.backup.archiver import SEGMENT_BYTES, Archiver
    from quorate.backup.retention import DAY_MS
    from quorate.backup.urls import open_store
    from quorate.cli.recovery.backup_health import STALE_S, BackupHealth

    store = open_store(url, key_file)
    health = BackupHealth(max(STALE_S, 10 * interval_s))
    with (
        _served(health, http_listener, follow),
        _reader(context) as reader,
        store.writing(),
        bar("offsets", None) as update,
    ):
        archiver = Archiver(
            Archive(store),
            reader,
            segment_bytes=segment_bytes or SEGMENT_BYTES,
            progress=lambda done, total: update(completed=done, total=total),
            keep_ms=None if keep_days is None else keep_days * DAY_MS,
            warn=print_warning,
            archived=health.succeeded,
        )
        archiver.advance()
        if follow:
            health.succeeded(archiver.manifest)
            _follow(archiver, interval_s, health)
    manifest = archiver.manifest
    if manifest is None:
        raise CommandError("the quorum has no committed records yet")
    if report is not None:
        found = {"endOffset": manifest.last_run.end, "clusterId": manifest.cluster_id}
        report.write_text(json.dumps(found))
    _print_created(store, manifest, as_json)


@contextmanager
def _served(health: BackupHealth, listener: str | None, follow: bool) -> Iterator[None]:
    """Serve the state of the backup, if a listener is given."""
    from quorate.common.config_types import parse_address

    if listener is None:
        yield
        return
    if not follow:
        raise UsageError("--http-listener needs --follow")
    try:
        address = parse_address(listener, wildcard=True)
    except ValueError as error:
        raise UsageError(f"--http-listener: {error}") from None
    with health.served(address):
        yield


@contextmanager
def _reader(context: typer.Context) -> Iterator[BatchReader]:
    """A reader of the quorum that the options select. Its errors become CommandErrors."""
    from quorate.rpc.client.batch_reader import BatchReader, QuorumConnection
    from quorate.rpc.errors import ClientError

    options = ConnectionOptions.of(context)
    found = resolve(options)
    timeout_s = options.timeout or found.timeout_s or READ_TIMEOUT_S
    addresses = tuple(map(str, found.addresses))
    try:
        with BatchReader(QuorumConnection(addresses, found.tls, timeout_s)) as reader:
            yield reader
    except ClientError as error:
        raise CommandError(str(error)) from error


def _follow(archiver: Archiver, interval_s: float, health: BackupHealth) -> None:
    """Archive until SIGINT or SIGTERM. Failures of the quorum and of the store are retried."""
    from quorate.rpc.errors import ClientError

    last_line_s = 0.0
    is_failing = False
    with _until_signalled() as ended:
        while not ended.wait(interval_s):
            try:
                archiver.advance()
            except (ClientError, OSError) as error:
                reason = str(error)
                health.failed(one_line(reason))
                if not is_failing:
                    print_warning(f"{reason}; trying again")
                is_failing = True
                continue
            health.succeeded(archiver.manifest)
            if is_failing or time.monotonic() - last_line_s >= LINE_INTERVAL_S:
                last_line_s = time.monotonic()
                manifest = archiver.manifest
                end = 0 if manifest is None else manifest.last_run.end
                print(f"archived up to offset {end}", flush=True)
            is_failing = False


@contextmanager
def _until_signalled() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second one ends the process."""
    ended = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def end(*_: Any) -> None:
        ended.set()
        for number in numbers:
            signal.signal(number, before[number])

    for number in numbers:
        signal.signal(number, end)
    try:
        yield ended
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _print_created(store: ObjectStore, manifest: BackupManifest, as_json: bool) -> None:
    if as_json:
        print_json(_summary(store, manifest))
        return
    run = manifest.last_run
    print_line(
        f"{store.url} contains offsets {run.start} to {run.end} of cluster {manifest.cluster_id} "
        f"(generation {manifest.generation})"
    )


# --- verify and list ------------------------------------------------------------------------------


@app.command("verify")
def verify(*, url: Url, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Read a backup completely. The exit status is 1 if anything is missing or damaged.

    One line per problem names the object, the byte in it and the offset. The command checks the
    SHA-256 of each object, the checksum of each batch, that offsets and epochs follow each other,
    and that each checkpoint is the state after the log before it, if the archive has that log.
    """
    from quorate.backup.urls import open_store
    from quorate.backup.verify import verify_backup

    store = open_store(url, key_file)
    with bar("bytes", None) as update:
        report = verify_backup(store, lambda done, total: update(completed=done, total=total))
    manifest = report.manifest
    if as_json:
        problems = [
            {
                "object": each.object,
                "position": each.position,
                "offset": each.offset,
                "problem": each.text,
            }
            for each in report.problems
        ]
        summary = {} if manifest is None else _summary(store, manifest)
        uncompared = [
            {"object": each.object, "offset": each.offset, "reason": each.reason}
            for each in report.uncompared
        ]
        found = {"problems": problems, "uncompared": uncompared}
        print_json({**summary, "url": store.url, **found})
    else:
        for problem in report.problems:
            print_line(str(problem))
        for checkpoint in report.uncompared:
            print_line(str(checkpoint))
        if manifest is not None and not report.problems:
            print_line(
                f"{store.url} is sound: generation {manifest.generation}, {manifest.size} bytes in "
                f"{len(manifest.names)} objects"
            )
    if report.problems:
        raise typer.Exit(1)


# --- prune ----------------------------------------------------------------------------------------


@app.command("prune")
def prune(
    *,
    url: Url,
    keep_days: KeepDays,
    key_file: KeyFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete the runs of a backup that no restore to a time of the last days needs.

    The newest run always stays. Objects are deleted an hour after their run was dropped, by the
    next `prune` or by `create --keep-days`, because a restore may be reading them. A run from
    offset 0 or an old checkpoint can be dropped once `create --keep-days` has divided it.

    Example: quorate backup prune /backups/metadata --keep-days 30
    """
    from quorate.backup.archive import Archive, needed_runs, require_manifest
    from quorate.backup.retention import DAY_MS
    from quorate.backup.urls import open_store

    store = open_store(url, key_file)
    manifest = require_manifest(store)
    since_ms = time.time_ns() // 1_000_000 - keep_days * DAY_MS
    if dry_run:
        dropped = manifest.runs[: len(manifest.runs) - len(needed_runs(manifest.runs, since_ms))]
    else:
        with store.writing():
            dropped = Archive(store).prune(since_ms)
        manifest = require_manifest(store)
    if as_json:
        print_json({"done": not dry_run, "dropped": list(map(_run_summary, dropped))})
        return
    verb = "would drop" if dry_run else "dropped"
    for run in dropped:
        size = sum(each.size for each in run.objects)
        print_line(f"{verb} offsets {run.start} to {run.end}, {size} bytes")
    if not dropped:
        print_line("every run is needed")


@app.command("list")
def list_backup(*, url: Url, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Show what a backup contains, by its manifest: `verify` reads the objects, too.

    Each run is a part of the log without a gap. It can be restored to any offset from its start to
    its end. A new run begins where the quorum had compacted records before they were archived.
    """
    from quorate.backup.archive import require_manifest
    from quorate.backup.urls import open_store

    store = open_store(url, key_file)
    manifest = require_manifest(store)
    if as_json:
        print_json(_summary(store, manifest))
        return
    print_line(
        f"Cluster {manifest.cluster_id}, generation {manifest.generation} of "
        f"{_time(manifest.created_ms)}, written by quorate {manifest.software}"
    )
    header = ("StartOffset", "EndOffset", "LastEpoch", "LastTime", "Objects", "Bytes")
    print(kafka_table(header, [_row(run) for run in manifest.runs]))


def _row(run: ArchivedRun) -> tuple[str, ...]:
    objects = list(run.objects)
    numbers = (run.start, run.end, run.last_epoch)
    sizes = (len(objects), sum(each.size for each in objects))
    return (*map(str, numbers), _time(run.last_timestamp), *map(str, sizes))


def _summary(store: ObjectStore, manifest: BackupManifest) -> dict[str, object]:
    from quorate.backup.encryption import EncryptedStore

    return {
        "url": store.url,
        "clusterId": manifest.cluster_id,
        "generation": manifest.generation,
        "created": _time(manifest.created_ms),
        "encrypted": isinstance(store, EncryptedStore),
        "bytes": manifest.size,
        "runs": list(map(_run_summary, manifest.runs)),
    }


def _run_summary(run: ArchivedRun) -> dict[str, object]:
    return {
        "startOffset": run.start,
        "endOffset": run.end,
        "lastEpoch": run.last_epoch,
        "lastTimestamp": run.last_timestamp,
        "snapshot": None if run.snapshot is None else run.snapshot.name,
        "segments": [segment.name for segment in run.segments],
    }


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


# --- keys -----------------------------------------------------------------------------------------


@app.command("new-key")
def new_key(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key file.")],
    add: Annotated[
        bool,
        typer.Option(
            "--add",
            help="Add a key to an existing file: new objects use it, old ones stay readable.",
        ),
    ] = False,
) -> None:
    """Write a key file for `--key-file`, which encrypts archives.

    The file is a keyset in Tink's JSON. Only its owner can read it. Without it, an archive cannot
    be restored, so keep copies of it, apart from the archive.

    Example: quorate backup new-key backup.keys
    """
    from quorate.backup.encryption import add_key, write_new_key

    if add:
        add_key(file)
        print_line(f"Added a key to {file}")
        return
    write_new_key(file)
    print_line(f"Wrote a key to {file}: keep copies of it, apart from the archive")
