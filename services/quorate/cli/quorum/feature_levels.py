"""The options `--feature name=level` and `--release-version`, and their parsers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer

from quorate.cli.output import UsageError
from quorate.common.features import LEVEL_MAX


def feature_option(explained: str) -> Any:
    """Return the option `--feature`, which may be repeated."""
    return typer.Option("--feature", "-f", metavar="NAME=LEVEL", help=explained)


def release_option(explained: str) -> Any:
    """Return the option `--release-version`."""
    return typer.Option("--release-version", "-r", metavar="VERSION", help=explained)


def parse_features(texts: Sequence[str]) -> dict[str, int]:
    """Parse `name=level` texts to levels by name. Raises UsageError."""
    levels: dict[str, int] = {}
    for text in texts:
        name, separator, level = (part.strip() for part in text.partition("="))
        if not separator:
            raise UsageError(f"--feature {text}: expected name=level")
        if not re.fullmatch(r"[0-9]{1,5}", level) or int(level) > LEVEL_MAX:
            raise UsageError(f"--feature {text}: {level!r} is not a level (0 to {LEVEL_MAX})")
        if name in levels:
            raise UsageError(f"--feature {name} is specified twice")
        levels[name] = int(level)
    return levels


def numbered(text: str) -> str:
    """Replace the release in `metadata.version=4.3-IV0` by the number of its level."""
    from quorate.common.features import METADATA_VERSION
    from quorate.metadata.metadata_version import level_of_release

    name, _, level = (part.strip() for part in text.partition("="))
    found = level_of_release(level) if name == METADATA_VERSION else None
    return text if found is None else f"{name}={found}"


def release_level(release: str) -> int:
    """Return the metadata.version of a release of Kafka (4.3, 4.3.0, 4.3-IV0).

    Raises UsageError for an unknown release.
    """
    from quorate.metadata.metadata_version import RELEASES, level_of_release

    level = level_of_release(".".join(release.split("-", maxsplit=1)[0].split(".")[:2]))
    if "-" in release:
        level = level_of_release(release)
    if level is None:
        known = ", ".join(RELEASES.values())
        raise UsageError(
            f"--release-version {release}: unknown metadata.version; the supported releases are "
            f"{known}"
        )
    return level


def parse_release(text: str) -> tuple[int, int] | None:
    """Parse major and minor version of a Kafka release (4.3, 4.3.0, 4.3-IV0); None if invalid."""
    found = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?(-IV[0-9]{1,4})?", text)
    return None if found is None else (int(found[1]), int(found[2]))
