"""One value of one metric, on its way to an exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. name: that of a metric in `catalogue.METRICS`. attributes: by name."""

    name: str
    value: float
    attributes: Mapping[str, str] = field(default_factory=dict)
