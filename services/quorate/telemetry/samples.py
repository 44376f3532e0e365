"""One value of one metric, on its way to an exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """name: of `catalogue.METRICS`. attributes: by their names there."""

    name: str
    value: float
    attributes: Mapping[str, str] = field(default_factory=dict)
