"""The initial feature levels of a quorum: chosen at formatting, read at startup.

A quorum that is formatted without feature levels has no metadata until a client writes some. With
`--release-version`, or `--feature` for a feature other than kraft.version, the levels go into
`bootstrap.checkpoint`. The first active controller appends them to the log, as in Kafka.
metadata.version is the given one, or the latest. The other features take the given levels, or those
of that release.

Source: KIP-778, KIP-1022; Kafka's Formatter, including the text of most errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate.common.features import KRAFT_VERSION, METADATA_VERSION
from quorate.controller.config import ControllerConfig
from quorate.log.bootstrap_metadata import (
    BOOTSTRAP_METADATA_FILE,
    read_bootstrap_metadata,
    write_bootstrap_metadata,
)
from quorate.log.errors import LogError
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage, ReplayError
from quorate.metadata.managers.feature_manager import DEPENDENCIES, bootstrap_records
from quorate.metadata.metadata_version import LATEST_LEVEL, MINIMUM_LEVEL, SUPPORTED, levels_of
from quorate.records.metadata import UserScramCredentialRecord
from quorate.runtime.metadata_batches import build_metadata_batch, metadata_records


class BootstrapError(Exception):
    """The initial feature levels are invalid. The text is one line for the user."""


def bootstrap_levels(features: Mapping[str, int], release: int | None) -> dict[str, int]:
    """All initial feature levels; empty if the quorum starts without metadata.

    features: as given, without kraft.version. release: the metadata.version of --release-version.
    Raises BootstrapError.
    """
    if release is None and not features:
        return {}
    if release is not None and METADATA_VERSION in features:
        raise BootstrapError(
            f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity."
        )
    level = features.get(METADATA_VERSION, LATEST_LEVEL) if release is None else release
    for name, wanted in features.items():
        if name not in SUPPORTED:
            known = ", ".join(sorted({*SUPPORTED, KRAFT_VERSION}))
            raise BootstrapError(f"Unsupported feature: {name}. Supported features are: {known}")
        if name != METADATA_VERSION and wanted not in SUPPORTED[name]:
            raise BootstrapError(f"No feature:{name} with feature level {wanted}")
    if level not in SUPPORTED[METADATA_VERSION]:
        raise BootstrapError(
            f"No MetadataVersion with feature level {level}. Valid feature levels are from "
            f"{MINIMUM_LEVEL} to {LATEST_LEVEL}."
        )
    levels = levels_of(level) | dict(features)
    for (name, least), (needed, needed_level) in DEPENDENCIES.items():
        if levels.get(name, 0) >= least and levels[needed] < needed_level:
            raise BootstrapError(
                f"{name} could not be set to {levels[name]} because it depends on {needed} level "
                f"{needed_level}"
            )
    return {name: found for name, found in levels.items() if found}


def write_bootstrap(
    directory: Path,
    levels: Mapping[str, int],
    now_ms: int,
    credentials: Sequence[UserScramCredentialRecord] = (),
) -> None:
    """Write the levels to `bootstrap.checkpoint` in `directory`. Durable on return.

    credentials: written as well, those of --add-scram.
    """
    batch = build_metadata_batch([*bootstrap_records(levels), *credentials], now_ms)
    write_bootstrap_metadata(directory, [batch])


def read_bootstrap(config: ControllerConfig) -> tuple[AnyRecord, ...]:
    """The records of `bootstrap.checkpoint`; empty if there are none. Raises BootstrapError."""
    directory = config.metadata_log_dir
    path = directory / BOOTSTRAP_METADATA_FILE
    records: list[AnyRecord] = []
    image = MetadataImage()
    try:
        for header, batch in read_bootstrap_metadata(directory):
            first, found = metadata_records(batch, header)
            records += found
            image.apply_batch(found, first, header.epoch, header.max_timestamp)
    except (LogError, ReplayError, OSError) as error:
        raise BootstrapError(
            f"{path} cannot be used ({error}): format the directory again"
        ) from error
    return tuple(records) if image.features.metadata_version else ()
