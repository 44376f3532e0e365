"""One value of one metric, on its way to an exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric."""

    name: str
    """The name of a metric in `catalogue.METRICS`."""
    value: float
    attributes: Mapping[str, str] = field(default_factory=dict)
    """The attributes by name."""
