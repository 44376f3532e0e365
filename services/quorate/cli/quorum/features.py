"""`quorate features`: Kafka's `kafka-features`: describe, upgrade, downgrade.

Source: KIP-584, KIP-853 "kafka-features". The quorum's own feature is kraft.version. The others
belong to the cluster's metadata and have no level until metadata is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.connection import (
    CHANGE_TIMEOUT_S,
    READ_TIMEOUT_S,
    asking,
    connected,
    run,
)
from quorate.cli.options import AsJson, DryRun
from quorate.cli.output import (
    CommandError,
    UsageError,
    one_line,
    print_json,
    print_line,
    print_result,
)
from quorate.cli.quorum.feature_levels import (
    feature_option,
    numbered,
    parse_features,
    parse_release,
    release_level,
    release_option,
)

if TYPE_CHECKING:
    from quorate.rpc.client.quorum_client import QuorumClient
    from quorate.rpc.wire.values import DescribeFeaturesResponse, Feature, UpgradeType

app = typer.Typer(rich_markup_mode=None, add_completion=False)

KRAFT_VERSION_1_SINCE = (3, 9)
"""The release of Kafka that introduced kraft.version 1."""

FeatureLevels = Annotated[
    list[str] | None, feature_option("A feature and its new level; may be repeated.")
]
ReleaseVersion = Annotated[
    str | None,
    release_option(
        "Use the levels of this Kafka release, such as 4.3-IV0, for kraft.version, and for the "
        "metadata's features if there is metadata."
    ),
]


@app.callback()
@connected
def features(context: typer.Context) -> None:
    """Describe and change the finalized feature levels of a quorum."""


@app.command("describe")
@asking
def describe(
    context: typer.Context,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the supported levels and the finalized level of each feature."""
    answer = _describe(context)
    print_result(
        as_json,
        [
            {
                "feature": feature.name,
                "supportedMinVersion": feature.supported.min,
                "supportedMaxVersion": feature.supported.max,
                "finalizedVersionLevel": feature.finalized_level or 0,
                "epoch": None if answer.epoch < 0 else answer.epoch,
            }
            for feature in answer.features
        ],
        *(
            feature_line(
                feature.name,
                _level_text(feature.name, feature.supported.min),
                _level_text(feature.name, feature.supported.max),
                _level_text(feature.name, feature.finalized_level or 0),
                "-" if answer.epoch < 0 else str(answer.epoch),
            )
            for feature in answer.features
        ),
    )


def _level_text(feature: str, level: int) -> str:
    """Return a level as text: the release for metadata.version, the number for other features."""
    from quorate.common.features import METADATA_VERSION
    from quorate.metadata.metadata_version import release_of

    return release_of(level) if feature == METADATA_VERSION and level else str(level)


def feature_line(name: str, lowest: str, highest: str, level: str, epoch: str) -> str:
    """Format one line of `describe` with Kafka's spacing."""
    return (
        f"Feature: {name:<42}SupportedMinVersion: {lowest:<17}SupportedMaxVersion: {highest:<17}"
        f"FinalizedVersionLevel: {level:<17}Epoch: {epoch}"
    )


@app.command("upgrade")
@asking
def upgrade(
    context: typer.Context,
    *,
    feature: FeatureLevels = None,
    release_version: ReleaseVersion = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Raise the given levels; without any, raise every feature to its highest supported level.

    application.version=1 is for applications: conditional appends, null values and the recipes. It
    excludes Kafka's nodes, so it must be named. A quorum without metadata also gets the latest
    metadata.version.

    kraft.version=1 turns a static quorum into one whose voters can be added and removed. Every
    voter must support it, and it cannot be undone.
    """
    from quorate.rpc.wire.values import UpgradeType

    levels = _levels(context, feature, release_version) or _highest(context)
    _update(
        context,
        "upgrade",
        levels,
        UpgradeType.UPGRADE,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command("downgrade")
@asking
def downgrade(
    context: typer.Context,
    *,
    feature: FeatureLevels = None,
    release_version: ReleaseVersion = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Downgrade even if metadata is lost.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Lower levels. kraft.version cannot be lowered, because the voters are in the log."""
    from quorate.rpc.wire.values import UpgradeType

    levels = _levels(context, feature, release_version)
    if not levels:
        raise UsageError("You must specify at least one feature to downgrade")
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    _update(context, "downgrade", levels, kind, dry_run=dry_run, as_json=as_json)


def _levels(
    context: typer.Context,
    feature: list[str] | None,
    release_version: str | None,
) -> dict[str, int]:
    if feature and release_version is not None:
        raise UsageError("--feature and --release-version cannot be used together")
    from quorate.metadata.metadata_version import levels_of

    if release_version is None:
        return parse_features([numbered(text) for text in feature or []])
    release = parse_release(release_version)
    if release is None:
        raise UsageError(f"--release-version {release_version}: expected a version such as 4.3-IV0")
    level = release_level(release_version)
    levels = {"kraft.version": int(release >= KRAFT_VERSION_1_SINCE)}
    if _has_metadata(_describe(context).features):
        levels |= levels_of(level)
    return levels


def _has_metadata(features: tuple[Feature, ...]) -> bool:
    return any(f.name == "metadata.version" and f.finalized_level for f in features)


def _describe(context: typer.Context) -> DescribeFeaturesResponse:
    return run(context, lambda client: client.describe_features(), READ_TIMEOUT_S)


def _highest(context: typer.Context) -> dict[str, int]:
    from quorate.metadata.metadata_version import APPLICATION_VERSION

    known = _describe(context).features
    return {
        feature.name: feature.supported.max
        for feature in known
        if feature.name == "kraft.version"
        or (_has_metadata(known) and feature.name != APPLICATION_VERSION)
    }


def _in_order(levels: dict[str, int], kind: UpgradeType) -> list[tuple[str, int]]:
    """Sort the levels: raise metadata.version first and lower it last, as others depend on it."""
    from quorate.common.features import METADATA_VERSION
    from quorate.rpc.wire.values import UpgradeType

    comes_first = kind is UpgradeType.UPGRADE
    return sorted(levels.items(), key=lambda i: ((i[0] == METADATA_VERSION) != comes_first, i[0]))


def _update(
    context: typer.Context,
    verb: str,
    levels: dict[str, int],
    kind: UpgradeType,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from quorate.metadata.metadata_version import APPLICATION_VERSION
    from quorate.rpc.client.quorum_client import AdminError
    from quorate.rpc.wire.values import UpgradeType

    async def ask(client: QuorumClient) -> dict[str, str | None]:
        """Return each feature's failure, None for success."""
        failures: dict[str, str | None] = {}
        for name, level in _in_order(levels, kind):
            try:
                if name == APPLICATION_VERSION and kind is UpgradeType.UPGRADE:
                    await client.finalize_application_version(level, validate_only=dry_run)
                else:
                    await client.update_features(
                        name, level, upgrade_type=kind, validate_only=dry_run
                    )
                failures[name] = None
            except AdminError as error:
                failures[name] = one_line(error)
        return failures

    failures = run(context, ask, CHANGE_TIMEOUT_S, changes=True)
    if as_json:
        print_json(
            [
                {"feature": name, "level": levels[name], "dryRun": dry_run, "error": failure}
                for name, failure in failures.items()
            ]
        )
    else:
        for name, failure in failures.items():
            if failure is None:
                did = "can be" if dry_run else "was"
                print_line(f"{name} {did} {verb}d to {levels[name]}.")
            else:
                could = "Can not" if dry_run else "Could not"
                print_line(f"{could} {verb} {name} to {levels[name]}. {failure}")
    failed = sum(failure is not None for failure in failures.values())
    if failed:
        raise CommandError(f"{failed} out of {len(failures)} operation(s) failed.")
