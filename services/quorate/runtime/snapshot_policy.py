"""The settings of snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.common import config_types as types
from quorate.common.setting import setting


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """When to write a snapshot, in bytes and milliseconds."""

    interval_bytes: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        types.size(1),
        str(20 * types.MIB),
        "How many bytes of log after a snapshot trigger the next one.",
    )
    interval_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        types.milliseconds(0, types.LONG_MAX),
        str(types.HOUR_MS),
        "The longest time between snapshots while records are written; 0 to write none by time.",
    )
    check_period_ms: int = 1_000
    """How often to check."""
