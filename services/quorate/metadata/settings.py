"""The settings of the metadata controller."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.common import config_types as types
from quorate.common.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of brokers' sessions, which brokers have too."""

    session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        types.milliseconds(1),
        "9000",
        "The active controller fences a broker that has not sent a heartbeat for this long.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(SessionSettings):
    """Settings of the active controller, mostly with Kafka's names.

    Times are in milliseconds; an interval of 0 disables its task.
    """

    idle_interval_ms: int = setting(
        "metadata.max.idle.interval.ms",
        types.milliseconds(0),
        "500",
        "How often the active controller writes a no-op record while nothing else is written; 0 "
        "to disable. A quorum without metadata gets none.",
    )
    num_partitions: int = setting(
        "num.partitions",
        types.integer(1),
        "1",
        "The number of partitions of a topic that is created without one.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        types.integer(1),
        "1",
        "The replication factor of a topic that is created without one.",
    )
    leader_imbalance_check_interval_ms: int = setting(
        "leader.imbalance.check.interval.seconds",
        types.seconds(1),
        "300",
        "How often the leadership of partitions is moved back to their preferred leaders.",
    )
    unclean_election_interval_ms: int = setting(
        "unclean.leader.election.interval.ms",
        types.milliseconds(1, types.LONG_MAX),
        str(5 * 60 * 1000),
        "How often partitions without a leader get one that is out of sync, if their topic has "
        "unclean.leader.election.enable.",
    )
    token_secret_key: str | None = setting(
        "delegation.token.secret.key",
        types.password(),
        None,
        "The key of delegation tokens: the same on all controllers and brokers. Without it there "
        "are no delegation tokens.",
    )
    token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        types.milliseconds(1, 100 * 365 * 24 * types.HOUR_MS),
        str(7 * 24 * types.HOUR_MS),
        "The lifetime of a delegation token, beyond which it cannot be renewed.",
    )
    token_expiry_ms: int = setting(
        "delegation.token.expiry.time.ms",
        types.milliseconds(1, 100 * 365 * 24 * types.HOUR_MS),
        str(24 * types.HOUR_MS),
        "How long a delegation token is valid before it must be renewed.",
    )
    token_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        types.milliseconds(1, types.LONG_MAX),
        str(types.HOUR_MS),
        "How often the active controller removes expired delegation tokens.",
    )
    records_per_batch_max: int = 10_000
    """The most records that one request or tick writes."""
    batch_bytes_max: int = 7 * 1024 * 1024
    """The most bytes of new partitions in one batch."""
