"""Formats the directories of a replica, once, before its controller starts.

Steps of `format_directory` (KIP-853, "kafka-storage format"; the checks are those of Kafka's
Formatter and MetaPropertiesEnsemble):

1. The options must be consistent: a dynamic quorum (--standalone, --initial-controllers,
   --no-initial-controllers) has kraft.version 1, a static one (controller.quorum.voters) 0.
2. A formatted directory must belong to this cluster and this node. It is never changed, and it is
   an error unless formatted directories are to be ignored. A directory that holds a log but no
   meta.properties is rejected: an old log under a new directory id would be a different replica
   with the state of this one.
3. The bootstrap checkpoints (voters, features) are written first, `meta.properties` last. A
   directory counts as formatted only once everything else is durable, so that interrupted
   formatting can be repeated.

Every directory gets a new random id. The id of the metadata log's directory can also be given, with
--initial-controllers or `directory_id`.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorate.common.config_types import parse_address, split_list
from quorate.common.endpoints import Endpoint
from quorate.common.features import KRAFT_VERSION, METADATA_VERSION
from quorate.common.identifiers import ZERO_UUID, DirectoryId, uuid_from_bytes
from quorate.controller.bootstrap import (
    BootstrapError,
    bootstrap_levels,
    write_bootstrap,
)
from quorate.controller.config import ControllerConfig
from quorate.log.disk import make_directories
from quorate.log.errors import MetaPropertiesError
from quorate.log.lock import DirectoryLock
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties, random_uuid
from quorate.log.metadata_log import partition_directory, write_bootstrap_checkpoint
from quorate.metadata.metadata_version import LATEST_LEVEL, RELEASES, SCRAM
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records.metadata import UserScramCredentialRecord
from quorate.rpc.wire.values import FormatMode

KRAFT_VERSION_DYNAMIC = 1
ONE_UUID: DirectoryId = "AAAAAAAAAAAAAAAAAAAAAQ"
RESERVED_UUIDS = (ZERO_UUID, ONE_UUID)
"""Kafka's Uuid.RESERVED: the unknown id, and the id of the metadata topic."""


class FormatError(Exception):
    """Formatting is not possible. The text is one line for the user.

    Example:
        try:
            quorate.format_storage(settings, "yFPgY5iXQYqr5sMxfdxu0Q", standalone=True)
        except quorate.FormatError as error:
            print(error)
    """


@dataclass(frozen=True, slots=True)
class FormattedDirectory:
    """One directory after formatting. `kind` is Kafka's name for its role."""

    path: Path
    kind: str
    directory_id: DirectoryId | None
    was_formatted: bool = False


@dataclass(frozen=True, slots=True)
class Formatted:
    """The result of `format_directory`."""

    cluster_id: str
    kraft_version: int
    voters: VoterSet
    directories: tuple[FormattedDirectory, ...]
    warnings: tuple[str, ...] = ()
    """The warnings for the user, one line each."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The initial feature levels; empty for none."""

    @property
    def directory_id(self) -> DirectoryId | None:
        """The id of the metadata log's directory; with node.id it identifies this replica.

        None only for a directory that Kafka formatted before 3.7.
        """
        return self.directories[0].directory_id


# --- identifiers ----------------------------------------------------------------------------------


def parse_uuid(text: str) -> DirectoryId:
    """The canonical form of a UUID in Kafka's text form. Raises ValueError.

    22 characters encode four bits more than a UUID has. Hand-written ids often set these bits, as
    the examples of the KIP do. They are ignored, as in Kafka.
    """
    try:
        data = base64.b64decode(text.removesuffix("==") + "==", altchars=b"-_", validate=True)
        return uuid_from_bytes(data)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a UUID: expected 22 characters, as printed by `quorate storage "
            "random-uuid`"
        ) from None


def parse_initial_controllers(text: str, listener_name: str) -> VoterSet:
    """The voters in a list of ID-DIRECTORYID@HOST:PORT (KIP-853) or ID@HOST:PORT:DIRECTORYID
    (Kafka 4); they listen on `listener_name`. Raises ValueError.
    """
    voters = []
    for entry in split_list(text):
        name, separator, place = entry.partition("@")
        number, dash, directory = name.partition("-")
        if not separator or not re.fullmatch(r"[0-9]{1,10}", number) or int(number) > 2**31 - 1:
            raise ValueError(f"{entry!r} is not ID-DIRECTORYID@HOST:PORT")
        if not dash and re.search(r":[0-9]+:[A-Za-z0-9_-]*$", place):
            place, _, directory = place.rpartition(":")
        if not directory:
            raise ValueError(
                f"{entry!r} has no directory id: generate one with `quorate storage "
                f"random-uuid`, and write {number}-DIRECTORYID@{place}"
            )
        host, port = parse_address(place)
        directory_id = parse_uuid(directory)
        if directory_id in RESERVED_UUIDS:
            raise ValueError(f"the directory id {directory_id} is reserved")
        voters.append(
            Voter(ReplicaKey(int(number), directory_id), (Endpoint(listener_name, host, port),))
        )
    if not voters:
        raise ValueError("it names no controller")
    if len({voter.key.directory_id for voter in voters}) < len(voters):
        raise ValueError("a directory id appears twice")
    return VoterSet.of(voters)


# --- formatting -----------------------------------------------------------------------------------


def format_directory(
    config: ControllerConfig,
    cluster_id: str,
    mode: FormatMode | None,
    initial_controllers: VoterSet | None = None,
    *,
    directory_id: DirectoryId | None = None,
    features: Mapping[str, int] | None = None,
    release: int | None = None,
    credentials: Sequence[UserScramCredentialRecord] = (),
    ignore_formatted: bool = False,
) -> Formatted:
    """Format the directories of `config` for the cluster `cluster_id`.

    mode: how the voters of a new quorum are chosen; None for those of controller.quorum.voters.
    initial_controllers: with FormatMode.INITIAL_CONTROLLERS only. directory_id: of the metadata
    log's directory; None for a random one, or for the one that initial_controllers gives this node.
    features: the requested levels; the mode determines kraft.version, and a requested level must
    not contradict it. release: the metadata.version of --release-version. credentials: those of
    --add-scram, with which the quorum has metadata from its first start. ignore_formatted: skip
    formatted directories instead of raising FormatError. Raises FormatError, OSError, and the log's
    errors.
    """
    check_cluster_id(cluster_id)
    if config.cluster_id is not None and config.cluster_id != cluster_id:
        raise FormatError(
            f"the cluster id {cluster_id} is not the cluster.id {config.cluster_id} of "
            f"{config.source}"
        )
    wanted = dict(features or {})
    level = _kraft_version(config, mode, wanted.pop(KRAFT_VERSION, None))
    if credentials and release is None and not wanted:
        release = LATEST_LEVEL
    try:
        levels = bootstrap_levels(wanted, release)
    except BootstrapError as error:
        raise FormatError(str(error)) from error
    if credentials and levels[METADATA_VERSION] < SCRAM:
        raise FormatError(
            f"SCRAM is only supported in metadata.version {RELEASES[SCRAM]} or later."
        )
    voters = VoterSet()
    if mode is FormatMode.INITIAL_CONTROLLERS:
        voters = initial_controllers or VoterSet()
        directory_id = _own_directory(config, voters, directory_id)
    directory_id = directory_id or random_uuid()
    if mode is FormatMode.STANDALONE:
        voters = VoterSet.of([Voter(ReplicaKey(config.node_id, directory_id), config.endpoints)])
    found = {directory: _look_at(directory, config, cluster_id) for directory in config.log_dirs}
    formatted = next((directory for directory, known in found.items() if known), None)
    if formatted is not None and not ignore_formatted:
        raise FormatError(
            f"Log directory {formatted} is already formatted. Use --ignore-formatted to ignore "
            "this directory and format the others."
        )
    done = []
    for directory, known in reversed(found.items()):
        is_metadata = directory == config.metadata_log_dir
        kind = _kind(mode) if is_metadata else "data directory"
        if known is None:
            own_id = directory_id if is_metadata else random_uuid()
            properties = MetaProperties(cluster_id, config.node_id, own_id)
            _write(
                directory,
                properties,
                voters if is_metadata else VoterSet(),
                levels if is_metadata else {},
                credentials,
            )
            done.append(FormattedDirectory(directory, kind, own_id))
        else:
            done.append(FormattedDirectory(directory, kind, known.directory_id, True))
    warnings = _warnings(config, voters)
    return Formatted(cluster_id, level, voters, tuple(reversed(done)), warnings, levels)


def _look_at(directory: Path, config: ControllerConfig, cluster_id: str) -> MetaProperties | None:
    """The meta.properties of `directory`; None if it is not formatted.

    Raises FormatError if the directory belongs to another cluster or node, or cannot be formatted.
    """
    if directory.exists() and not directory.is_dir():
        raise FormatError(f"{directory} is not a directory")
    if not (directory / META_PROPERTIES_FILE).exists():
        log = partition_directory(directory)
        if any(log.glob("*.log")) or (log / "quorum-state").exists():
            raise FormatError(
                f"{log} holds a log, but {directory} has no {META_PROPERTIES_FILE}: restore that "
                "file if the log is this replica's, or move the log away"
            )
        return None
    known = MetaProperties.read(directory)
    path = directory / META_PROPERTIES_FILE
    if known.cluster_id != cluster_id:
        raise FormatError(
            f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {known.cluster_id}"
        )
    if known.node_id != config.node_id:
        raise FormatError(
            f"Invalid node.id in: {path}. Expected {config.node_id}, but read {known.node_id}"
        )
    return known


def _write(
    directory: Path,
    properties: MetaProperties,
    voters: VoterSet,
    levels: Mapping[str, int],
    credentials: Sequence[UserScramCredentialRecord],
) -> None:
    """Step 3: write the checkpoints, then `meta.properties`, which marks them as complete."""
    make_directories(directory)
    with DirectoryLock(directory):
        now_ms = int(time.time() * 1000)
        if levels:
            write_bootstrap(directory, levels, now_ms, credentials)
        if len(voters):
            write_bootstrap_checkpoint(directory, voters, KRAFT_VERSION_DYNAMIC, now_ms)
        properties.write(directory)


# --- inspection -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inspection:
    """The report of `storage info`."""

    directories: tuple[Path, ...]
    metadata: dict[str, str] | None
    """The properties of the first formatted directory."""
    problems: tuple[str, ...]


def inspect_directories(config: ControllerConfig) -> Inspection:
    """Inspect every directory of `config` without changing it."""
    found: list[Path] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    for directory in sorted(config.log_dirs):
        if not directory.exists():
            problems.append(f"{directory} does not exist")
        elif not directory.is_dir():
            problems.append(f"{directory} is not a directory")
        else:
            found.append(directory)
            if not (directory / META_PROPERTIES_FILE).exists():
                problems.append(f"{directory} is not formatted.")
                continue
            try:
                known = MetaProperties.read(directory)
            except MetaPropertiesError as error:
                problems.append(f"Error loading {directory / META_PROPERTIES_FILE}: {error}")
                continue
            problems += _contradictions(config, directory, known, first or known)
            first = first or known
    metadata = None
    if first is not None:
        metadata = {
            "cluster.id": first.cluster_id,
            "node.id": str(first.node_id),
            "version": str(first.version),
        }
        if first.directory_id is not None:
            metadata["directory.id"] = first.directory_id
    return Inspection(tuple(found), metadata, tuple(problems))


def _contradictions(
    config: ControllerConfig, directory: Path, known: MetaProperties, first: MetaProperties
) -> list[str]:
    if known.cluster_id != first.cluster_id:
        return ["Mismatched cluster IDs between storage directories."]
    if known.node_id != first.node_id:
        return ["Mismatched node IDs between storage directories."]
    problems = []
    if known.node_id != config.node_id:
        problems.append(
            f"{directory} belongs to node {known.node_id}, and node.id is {config.node_id}."
        )
    if config.cluster_id not in (None, known.cluster_id):
        problems.append(
            f"{directory} belongs to cluster {known.cluster_id}, and cluster.id is "
            f"{config.cluster_id}."
        )
    return problems


# --- consistency of the options -------------------------------------------------------------------


def check_cluster_id(cluster_id: str) -> None:
    """Raise FormatError unless this can be the id of a cluster."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", cluster_id):
        raise FormatError(
            f"invalid cluster id {cluster_id!r}: expected 1 to 64 of A-Z a-z 0-9 . _ - (`quorate "
            "storage random-uuid` generates one)"
        )


def _kraft_version(config: ControllerConfig, mode: FormatMode | None, wanted: int | None) -> int:
    """The kraft.version that the mode implies. Raises FormatError for contradictory options."""
    if wanted not in (None, 0, 1):
        raise FormatError(f"{KRAFT_VERSION} {wanted} is not supported: the levels are 0 and 1")
    if mode is None:
        if not len(config.static_voters):
            raise FormatError(
                "Because controller.quorum.voters is not set on this controller, you must specify "
                "one of the following: --standalone, --initial-controllers, or "
                "--no-initial-controllers."
            )
        if wanted == 1:
            raise FormatError(
                f"Cannot set {KRAFT_VERSION} to 1 unless controller.quorum.voters is empty and one "
                "of the flags --standalone, --initial-controllers, or --no-initial-controllers is "
                "used."
            )
        return 0
    if len(config.static_voters):
        raise FormatError(
            f"controller.quorum.voters is set in {config.source}, and --{mode.value} creates a "
            "dynamic quorum, whose voters are in the log: set "
            "controller.quorum.bootstrap.servers instead"
        )
    if wanted == 0:
        raise FormatError(
            f"Cannot set {KRAFT_VERSION} to 0 with --{mode.value}: a quorum without dynamic "
            "voters requires controller.quorum.voters. Try removing the --feature flag for "
            f"{KRAFT_VERSION}."
        )
    return KRAFT_VERSION_DYNAMIC


def _own_directory(
    config: ControllerConfig, voters: VoterSet, wanted: DirectoryId | None
) -> DirectoryId:
    """The directory id that the list of initial controllers gives to this node."""
    own = voters.get(config.node_id)
    if own is None:
        raise FormatError(
            f"node.id {config.node_id} of {config.source} is not among the initial controllers "
            f"{voters}; a controller that joins later is formatted with --no-initial-controllers"
        )
    unknown = next((voter.id for voter in voters if voter.key.directory_id is None), None)
    if unknown is not None or own.key.directory_id is None:
        raise FormatError(f"the initial controller {unknown} has no directory id")
    if wanted not in (None, own.key.directory_id):
        raise FormatError(
            f"the directory id {wanted} is not the one that the initial controllers give to node "
            f"{config.node_id}: {own.key.directory_id}"
        )
    return own.key.directory_id


def _kind(mode: FormatMode | None) -> str:
    """What Kafka's Formatter calls the metadata log's directory."""
    if mode in (FormatMode.STANDALONE, FormatMode.INITIAL_CONTROLLERS):
        return "dynamic metadata voter directory"
    return "metadata directory"


def _warnings(config: ControllerConfig, voters: VoterSet) -> tuple[str, ...]:
    own = voters.get(config.node_id)
    if own is None or own.endpoints[0] == config.endpoints[0]:
        return ()
    difference = (
        f"the initial controllers list controller {own.id} at {own.endpoints[0]}, but "
        f"{config.source} advertises {config.endpoints[0]}: other nodes connect to the former "
        "until this controller leads or its entry is updated"
    )
    return (difference,)


__all__ = [
    "FormatError",
    "FormatMode",
    "Formatted",
    "FormattedDirectory",
    "Inspection",
    "format_directory",
    "inspect_directories",
    "parse_initial_controllers",
    "parse_uuid",
    "random_uuid",
]
