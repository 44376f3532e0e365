"""The configuration of SASL on the listener for Kafka's brokers. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PLAIN: Final = "PLAIN"
SCRAM: Final[dict[str, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The SCRAM mechanisms, with their numbers in the metadata log."""
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
"""The supported mechanisms."""


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """The settings of OAUTHBEARER, sasl.oauthbearer.….

    audiences: the token must name one of them; empty to accept all. issuer: None to accept all.
    """

    jwks_url: str
    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    subject_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """mechanisms: the enabled ones. users: the passwords of PLAIN by user. receive_bytes_max: of a
    frame before authentication. failure_delay_ms: the delay of the response to a failed
    authentication. reauth_ms: the longest session by mechanism, 0 for no limit. oauth: set if
    OAUTHBEARER is enabled.
    """

    mechanisms: tuple[str, ...]
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    receive_bytes_max: int = 512 * 1024
    failure_delay_ms: int = 100
    reauth_ms: Mapping[str, int] = field(default_factory=dict)
    oauth: OAuthConfig | None = None
