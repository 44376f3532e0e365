"""`quorate restore`: restores a backup into the directory of a new quorum's only voter."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.controller_settings import load
from quorate.cli.option_groups import with_groups
from quorate.cli.options import AsJson, DryRun
from quorate.cli.output import CommandError, UsageError, bar, print_json, print_line, print_warning
from quorate.cli.recovery.backup import KeyFile, Url
from quorate.cli.settings_file import ConfigFile

if TYPE_CHECKING:
    from quorate.backup.batches import RestorePoint
    from quorate.backup.manifest import BackupManifest
    from quorate.backup.restore import RestoredQuorum, RestoreTarget
    from quorate.backup.stores import ObjectStore
    from quorate.common.endpoints import Endpoint
    from quorate.rpc.tls import TlsConfig

KEPT_ID_WARNING = (
    "the cluster id is the old one: if controllers of the old quorum start again, there are two "
    "quorums, and clients and brokers may use either"
)


@dataclass(frozen=True, slots=True)
class NewVoterOptions:
    """The new voter. What is missing comes from the configuration."""

    directory: Annotated[
        Path | None,
        typer.Option("--directory", metavar="DIR", help="The new metadata.log.dir; default: -c's."),
    ] = None
    node_id: Annotated[
        int | None,
        typer.Option("--node-id", metavar="ID", min=0, help="The new voter's id; default: -c's."),
    ] = None
    endpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="LISTENER://HOST:PORT",
            help="Where the new voter listens; may be repeated; default: -c's.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class NewClusterOptions:
    """The id of the new quorum's cluster."""

    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id", "-t", metavar="ID", help="The new cluster's id, random by default."
        ),
    ] = None
    keep_cluster_id: Annotated[
        bool,
        typer.Option(
            "--keep-cluster-id",
            help="Use the old cluster's id. Fails if a voter of the old quorum answers.",
        ),
    ] = False
    erased: Annotated[
        list[str] | None,
        typer.Option(
            "--erased",
            metavar="ID-DIRECTORY_ID",
            help="With --keep-cluster-id: confirm that the directory of this old voter is erased. "
            "Required for each voter of the backup; the error message lists those still missing.",
        ),
    ] = None


@with_groups
def restore(
    *,
    url: Url,
    key_file: KeyFile = None,
    config_file: ConfigFile = None,
    voter: NewVoterOptions,
    to_offset: Annotated[
        int | None,
        typer.Option(
            "--to-offset", metavar="OFFSET", min=0, help="Only the records before this offset."
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="Only the records before the first one that is later, such as "
            "2026-11-21T03:35:22.250Z. UTC without a time zone.",
        ),
    ] = None,
    cluster: NewClusterOptions,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty directory: the only voter of a new quorum.

    Everything that the restore needs is verified first. The new quorum has a new cluster id and a
    higher epoch, and all records before the end at their offsets, in the same batches. Start
    `quorate controller` on the directory, then add further controllers with `metadata-quorum
    add-controller`.

    Registrations of brokers and controllers are records, and stay. Brokers are fenced once their
    sessions expire. A broker can register again with its id if its own directories have the new
    cluster id; unregister the others with `quorate cluster unregister`.

    Example: quorate restore /backups/metadata -c 1.properties --to-time 2026-11-21T03:35:22Z
    """
    from quorate.backup.archive import require_manifest
    from quorate.backup.old_members import archived_voters, check_gone
    from quorate.backup.restore import check_directory, restore_backup
    from quorate.backup.urls import open_store

    if to_offset is not None and to_time is not None:
        raise UsageError("--to-offset and --to-time cannot be used together")
    time_ms = None if to_time is None else _milliseconds(to_time)
    if cluster.keep_cluster_id and cluster.cluster_id is not None:
        raise UsageError("--keep-cluster-id and --cluster-id cannot be used together")
    if cluster.erased and not cluster.keep_cluster_id:
        raise UsageError("--erased needs --keep-cluster-id")
    wanted, tls = _wanted(config_file, voter)
    check_directory(wanted.directory)
    store = open_store(url, key_file)
    manifest = require_manifest(store)
    point = _verified(store, manifest, _point(store, manifest, to_offset, time_ms))
    target = _identified(wanted, cluster, manifest.cluster_id)
    if cluster.keep_cluster_id:
        voters = archived_voters(store, manifest.last_run)
        check_gone(voters, cluster.erased or (), manifest.cluster_id, tls)
    if dry_run:
        _print_planned(manifest, point, target, as_json)
        return
    with bar("offsets", point.end) as update:
        done = restore_backup(store, manifest, point, target, lambda n, _: update(completed=n))
    _print_restored(done, manifest, as_json)
    if done.target.cluster_id == manifest.cluster_id:
        print_warning(KEPT_ID_WARNING)


def _wanted(
    config_file: Path | None, voter: NewVoterOptions
) -> tuple[RestoreTarget, TlsConfig | None]:
    """The target, and how to ask other controllers, from the options and the configuration.

    The target's cluster id is empty if not set.
    """
    from quorate.backup.restore import RestoreTarget

    directory, node_id = voter.directory, voter.node_id
    endpoints = tuple(map(_endpoint, voter.endpoints or ()))
    if directory is not None and node_id is not None and endpoints and config_file is None:
        return RestoreTarget(directory, node_id, endpoints, ""), None
    if config_file is None and "QUORATE_NODE_ID" not in os.environ:
        raise UsageError("expected --config FILE, or --directory, --node-id and --endpoint")
    config = load(config_file, "--config")
    for warning in config.warnings:
        print_warning(warning)
    target = RestoreTarget(
        directory or config.metadata_log_dir,
        config.node_id if node_id is None else node_id,
        endpoints or config.endpoints,
        config.cluster_id or "",
    )
    files = config.tls if config.listeners[0].tls else None
    return target, None if files is None else files.mutual


def _endpoint(text: str) -> Endpoint:
    from quorate.common.config_types import parse_address
    from quorate.common.endpoints import Endpoint

    name, separator, address = text.partition("://")
    try:
        if not separator or not name:
            raise ValueError("it has no listener name")
        place = parse_address(address)
    except ValueError as error:
        raise UsageError(f"--endpoint {text!r}: expected LISTENER://HOST:PORT: {error}") from None
    return Endpoint(name, place.host, place.port)


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--to-time {text!r}: expected a time such as 2026-11-21T03:35:22Z"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _verified(store: ObjectStore, manifest: BackupManifest, point: RestorePoint) -> RestorePoint:
    """The point from which the restore can begin, after all that it needs was read. BackupError."""
    from quorate.backup.verify import verified_point

    with bar("verifying bytes", None) as update:
        found, unused = verified_point(
            store,
            manifest.runs,
            point,
            lambda done, total: update(completed=done, total=total),
        )
    for problem in unused:
        print_warning(f"{problem}; the restore uses the log before this checkpoint")
    return found


def _point(
    store: ObjectStore, manifest: BackupManifest, to_offset: int | None, time_ms: int | None
) -> RestorePoint:
    from quorate.backup.batches import RestorePoint, point_at_offset, point_at_time

    if to_offset is not None:
        return point_at_offset(store, manifest.runs, to_offset)
    if time_ms is not None:
        return point_at_time(store, manifest.runs, time_ms)
    return RestorePoint(manifest.last_run, manifest.last_run.end)


def _identified(wanted: RestoreTarget, cluster: NewClusterOptions, old: str) -> RestoreTarget:
    """The target with its cluster id: the given one, that of the configuration, or a new one."""
    from quorate.controller.formatting import check_cluster_id
    from quorate.log.meta_properties import random_uuid

    given = old if cluster.keep_cluster_id else cluster.cluster_id
    configured = wanted.cluster_id
    chosen = given or configured or random_uuid()
    check_cluster_id(chosen)
    if configured and chosen != configured:
        raise CommandError(
            f"the cluster id {chosen} is not the cluster.id {configured} of --config"
        )
    if chosen == old and not cluster.keep_cluster_id:
        raise CommandError(
            f"{old} is the id of the old cluster: its members could form a second quorum with it. "
            "Use a new id, or --keep-cluster-id once all of them are gone"
        )
    return replace(wanted, cluster_id=chosen)


def _print_planned(
    manifest: BackupManifest, point: RestorePoint, target: RestoreTarget, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "done": False,
                "directory": str(target.directory),
                "nodeId": target.node_id,
                "oldClusterId": manifest.cluster_id,
                "startOffset": point.run.start,
                "endOffset": point.end,
            }
        )
        return
    print_line(
        f"DRY RUN: would restore cluster {manifest.cluster_id} before offset {point.end} to "
        f"{target.directory}"
    )


def _print_restored(done: RestoredQuorum, manifest: BackupManifest, as_json: bool) -> None:
    target = done.target
    if as_json:
        print_json(
            {
                "done": True,
                "directory": str(target.directory),
                "nodeId": target.node_id,
                "directoryId": done.directory_id,
                "clusterId": target.cluster_id,
                "oldClusterId": manifest.cluster_id,
                "startOffset": done.start,
                "endOffset": done.end,
                "logEndOffset": done.log_end,
                "epoch": done.epoch,
                "oldVoters": [str(voter.key) for voter in done.old_voters],
            }
        )
        return
    print_line(
        f"Restored offsets {done.start} to {done.end} of cluster {manifest.cluster_id} to "
        f"{target.directory}"
    )
    print_line(
        f"Cluster {target.cluster_id}, the only voter is {target.node_id}-{done.directory_id}, "
        f"epoch {done.epoch}; the voters were {done.old_voters}"
    )
