"""Names and levels of features. Source: KIP-584."""

from __future__ import annotations

from quorate.common.value import ordered_value

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
LEVEL_MAX = 32_767


@ordered_value
class VersionRange:
    """The inclusive range of a feature's levels that a node supports."""

    min: int
    max: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min <= level <= self.max

    def __str__(self) -> str:
        return f"{self.min}-{self.max}"
