"""The configuration of SASL on the listener for Kafka's brokers. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quorate.common.scram import MECHANISM_NUMBERS

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *MECHANISM_NUMBERS, OAUTHBEARER)
"""The supported mechanisms."""


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """The settings of OAUTHBEARER, sasl.oauthbearer.…."""

    jwks_url: str
    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    audiences: tuple[str, ...] = ()
    """The token must name one of these; empty to accept all."""
    issuer: str | None = None
    """The issuer that the token must name, None to accept all."""
    clock_skew_s: int = 30
    subject_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """The SASL configuration of the listener for Kafka's protocol."""

    mechanisms: tuple[str, ...]
    """The enabled mechanisms."""
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The passwords of PLAIN by user."""
    receive_bytes_max: int = 512 * 1024
    """The largest frame before authentication, in bytes."""
    failure_delay_ms: int = 100
    """The delay of the response to a failed authentication."""
    reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """The longest session by mechanism, 0 for no limit."""
    oauth: OAuthConfig | None = None
    """The settings of OAUTHBEARER, if it is enabled."""
