"""Which rows the filters of a query leave, as far as offsets and snapshots tell.

Spark passes the parts of a condition that are joined by AND. Filters on other columns, or of other
kinds, narrow nothing. Rows of snapshots have offsets of their own, so offsets narrow only the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quorate.spark.options import OFFSET_MAX

_FIRST = ("offset", "base_offset")
_LAST = ("offset", "last_offset")


@dataclass(slots=True)
class WantedRows:
    """The offsets of the log [start, end), and whether rows of snapshots are wanted."""

    start: int = 0
    end: int = OFFSET_MAX
    snapshots: bool = True

    def narrow(self, condition: Any) -> None:
        """Leave out what does not fulfil a `pyspark.sql.datasource.Filter`."""
        kind = type(condition).__name__
        attribute: tuple[str, ...] = getattr(condition, "attribute", ())
        if len(attribute) != 1:
            return
        column = attribute[0]
        if column == "snapshot" and kind == "IsNull":
            self.snapshots = False
        value = getattr(condition, "value", None)
        if not isinstance(value, int) or column not in (*_FIRST, *_LAST):
            return
        # A batch with a later base offset has a later last offset, too.
        if kind in ("GreaterThanOrEqual", "EqualTo"):
            self.start = max(self.start, value)
        elif kind == "GreaterThan":
            self.start = max(self.start, value + 1 if column in _LAST else value)
        if kind in ("LessThanOrEqual", "EqualTo"):
            self.end = min(self.end, value + 1)
        elif kind == "LessThan":
            self.end = min(self.end, value if column in _FIRST else value + 1)
