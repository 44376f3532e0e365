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
        """As Kafka's messages show it."""
        if self.min == self.max:
            return str(self.min)
        return f"{self.min}+" if self.max == LEVEL_MAX else f"{self.min}-{self.max}"
