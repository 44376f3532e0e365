"""`quorate storage`: Kafka's `kafka-storage`: random-uuid, format, info."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.controller_settings import load
from quorate.cli.options import AsJson
from quorate.cli.output import CommandError, UsageError, print_json, print_result, print_warning
from quorate.cli.quorum.feature_levels import (
    feature_option,
    numbered,
    parse_features,
    parse_release,
    release_level,
    release_option,
)
from quorate.cli.settings_file import ConfigFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quorate.controller.config import ControllerConfig
    from quorate.controller.formatting import Formatted
    from quorate.raft.types import VoterSet
    from quorate.records.metadata import UserScramCredentialRecord
    from quorate.rpc.wire.values import FormatMode

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Standalone = Annotated[
    bool,
    typer.Option(
        "--standalone",
        "-s",
        help="Make this controller the only voter of a new quorum. Use it for only one controller "
        "of a cluster: two of them would form two quorums.",
    ),
]
InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        "--controller-quorum-voters",
        metavar="LIST",
        help="Make the listed controllers the voters of a new quorum: a comma-separated list of "
        "ID-DIRECTORYID@HOST:PORT (or ID@HOST:PORT:DIRECTORYID). Format each of them with the "
        "same list.",
    ),
]
NoInitialControllers = Annotated[
    bool,
    typer.Option(
        "--no-initial-controllers",
        "-N",
        help="Create no quorum: this controller finds an existing one, and is added to it later.",
    ),
]
IgnoreFormatted = Annotated[
    bool,
    typer.Option("--ignore-formatted", "-g", help="Skip formatted directories without an error."),
]
FeatureLevels = Annotated[
    list[str] | None,
    feature_option(
        "A feature and its level; may be repeated. kraft.version=1 (dynamic voters) or "
        "kraft.version=0 (controller.quorum.voters). With metadata.version or another feature, the "
        "quorum has metadata from its first start; other features get Kafka's default levels."
    ),
]
ReleaseVersion = Annotated[
    str | None,
    release_option(
        "Start with metadata at the levels of this Kafka release, such as 4.2-IV1. Without this "
        "and --feature, the quorum has no metadata until some is written."
    ),
]
AddScram = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="CREDENTIAL",
        help="A SCRAM credential of a new quorum; may be repeated, and implies metadata: "
        "'SCRAM-SHA-256=[name=alice,password=alice-secret]', with iterations and salt if needed.",
    ),
]


@app.callback()
def storage() -> None:
    """Format and inspect the directories of a controller.

    A new quorum starts with one controller:

    \b
    ID=$(quorate storage random-uuid)
    quorate storage format -t $ID -c 1.properties --standalone
    quorate controller 1.properties

    Format and start each other controller, and make it a voter:

    \b
    quorate storage format -t $ID -c 2.properties --no-initial-controllers
    quorate controller 2.properties
    quorate metadata-quorum add-controller -c 2.properties
    """


@app.command("random-uuid")
def random_uuid(as_json: AsJson = False) -> None:
    """Print a new random id, for a cluster or for a directory."""
    from quorate.log.meta_properties import random_uuid

    value = random_uuid()
    print_result(as_json, {"uuid": value}, value)


@app.command("format")
def format_storage(
    *,
    cluster_id: Annotated[
        str,
        typer.Option(
            "--cluster-id",
            "-t",
            metavar="ID",
            help="The cluster's id, the same on all of its nodes; see `random-uuid`.",
        ),
    ],
    config_file: ConfigFile = None,
    standalone: Standalone = False,
    initial_controllers: InitialControllers = None,
    no_initial_controllers: NoInitialControllers = False,
    ignore_formatted: IgnoreFormatted = False,
    feature: FeatureLevels = None,
    release_version: ReleaseVersion = None,
    add_scram: AddScram = None,
    as_json: AsJson = False,
) -> None:
    """Assign ids to a controller's directories, and voters to a new quorum.

    Directories that are already formatted stay unchanged. Without --standalone,
    --initial-controllers or --no-initial-controllers, the configuration must set
    controller.quorum.voters, and the quorum is static (kraft.version 0).
    """
    from quorate.controller.formatting import format_directory

    if release_version is not None and parse_release(release_version) is None:
        raise UsageError(f"--release-version {release_version}: expected a version such as 4.3-IV0")
    config = load(config_file, "--config")
    with _naming_directories(config):
        formatted = format_directory(
            config,
            cluster_id,
            _mode(standalone, initial_controllers, no_initial_controllers),
            _initial_controllers(config, initial_controllers),
            features=parse_features([numbered(text) for text in feature or []]),
            release=None if release_version is None else release_level(release_version),
            credentials=_credentials(add_scram or ()),
            ignore_formatted=ignore_formatted,
        )
    for warning in (*config.warnings, *formatted.warnings):
        print_warning(warning)
    if as_json:
        print_json(_formatted_json(formatted))
    else:
        _print_formatted(formatted)


@contextmanager
def _naming_directories(config: ControllerConfig) -> Iterator[None]:
    """Have an error of a write, such as that of a full disk, name the directories."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        directories = ", ".join(map(str, config.log_dirs or (config.metadata_log_dir,)))
        raise CommandError(f"cannot write to {directories}: {error.strerror}") from error


def _print_formatted(formatted: Formatted) -> None:
    new = [directory for directory in formatted.directories if not directory.was_formatted]
    if not new:
        print("All of the log directories are already formatted.")
    for directory in new:
        print(f"Formatting {directory.kind} {directory.path} with {_begins_with(formatted)}.")


def _begins_with(formatted: Formatted) -> str:
    from quorate.common.features import METADATA_VERSION
    from quorate.metadata.metadata_version import release_of

    level = formatted.features.get(METADATA_VERSION)
    text = f"kraft.version {formatted.kraft_version}"
    return text if level is None else f"metadata.version {release_of(level)}, {text}"


def _mode(standalone: bool, initial_controllers: str | None, no_initial: bool) -> FormatMode | None:
    from quorate.rpc.wire.values import FormatMode

    modes = [
        mode
        for mode, wanted in (
            (FormatMode.STANDALONE, standalone),
            (FormatMode.INITIAL_CONTROLLERS, initial_controllers is not None),
            (FormatMode.NO_INITIAL_CONTROLLERS, no_initial),
        )
        if wanted
    ]
    if len(modes) > 1:
        raise UsageError(f"--{modes[0].value} and --{modes[1].value} cannot be used together")
    return modes[0] if modes else None


def _initial_controllers(config: ControllerConfig, text: str | None) -> VoterSet | None:
    from quorate.controller.formatting import parse_initial_controllers

    if text is None:
        return None
    try:
        return parse_initial_controllers(text, config.controller_listener)
    except ValueError as error:
        raise CommandError(f"--initial-controllers: {error}") from None


def _credentials(texts: Sequence[str]) -> list[UserScramCredentialRecord]:
    from quorate.controller.scram_arguments import parse_scram

    try:
        return [parse_scram(text) for text in texts]
    except ValueError as error:
        raise UsageError(f"--add-scram: {error}") from None


def _formatted_json(formatted: Formatted) -> dict[str, object]:
    return {
        "clusterId": formatted.cluster_id,
        "kraftVersion": formatted.kraft_version,
        "features": dict(formatted.features),
        "directories": [
            {
                "path": str(directory.path),
                "kind": directory.kind,
                "directoryId": directory.directory_id,
                "wasFormatted": directory.was_formatted,
            }
            for directory in formatted.directories
        ],
        "voters": [
            {
                "id": voter.id,
                "directoryId": voter.key.directory_id,
                "endpoints": [str(endpoint) for endpoint in voter.endpoints],
            }
            for voter in formatted.voters
        ],
    }


@app.command("info")
def info(config_file: ConfigFile = None, as_json: AsJson = False) -> None:
    """Print the ids of the directories. The exit status is 1 if one is not formatted."""
    from quorate.controller.formatting import inspect_directories

    found = inspect_directories(load(config_file, "--config"))
    if as_json:
        print_json(
            {
                "directories": [str(directory) for directory in found.directories],
                "metadata": found.metadata,
                "problems": list(found.problems),
            }
        )
    else:
        _print_list("Found log director", found.directories, "y:", "ies:")
        if found.metadata is not None:
            inside = ", ".join(f"{name}={value}" for name, value in sorted(found.metadata.items()))
            print(f"Found metadata: {{{inside}}}\n")
        _print_list("Found problem", found.problems, ":", "s:")
    if found.problems:
        raise typer.Exit(1)


def _print_list(title: str, entries: tuple[object, ...], one: str, many: str) -> None:
    if entries:
        print(title + (one if len(entries) == 1 else many))
        for entry in entries:
            print(f"  {entry}")
        print()
