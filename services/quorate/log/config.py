"""The settings of the metadata log."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.common import config_types as types
from quorate.common.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of the metadata log, in bytes and milliseconds.

    Source: Kafka's MetadataLogConfig.
    """

    segment_bytes_max: int = setting(
        "metadata.log.segment.bytes",
        types.size(8 * types.MIB, types.INT_MAX),
        str(1024 * types.MIB),
        "The size at which the log rolls to a new segment.",
    )
    retention_bytes: int = setting(
        "metadata.max.retention.bytes",
        types.size(-1),
        str(100 * types.MIB),
        "The total size of log segments and snapshots above which the oldest are deleted; -1 "
        "for no limit. The newest snapshot and the log after it are always kept.",
    )
    retention_ms: int = setting(
        "metadata.max.retention.ms",
        types.milliseconds(-1, types.LONG_MAX),
        str(7 * types.DAY_MS),
        "The age above which segments and snapshots are deleted; -1 for no limit.",
    )
    tail_cache_bytes: int = 16 << 20
    """How many bytes of the end of the log are also kept in memory."""
    preallocate_bytes: int = 16 << 20
    """How far ahead of its end a segment's file is allocated; 0 for not at all."""
