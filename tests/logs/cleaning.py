"""Retention, as `runtime.snapshots` applies it, in one step."""

from __future__ import annotations

from quorate.log.metadata_log import MetadataLog


def clean(log: MetadataLog, now_ms: int) -> int:
    """Delete what retention no longer covers; return the new start offset."""
    start = log.advance_start(now_ms)
    log.delete_before(start)
    return start.offset
