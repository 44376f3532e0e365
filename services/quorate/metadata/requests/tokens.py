"""Requests about delegation tokens (see `requests`).

Principals are texts such as `User:alice`. requester: the authenticated principal that sent the
request. Periods and timestamps are milliseconds; timestamps count from 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.metadata.requests.common import Request, RequestOutcome, Response

NO_TIMESTAMP = 0


@dataclass(frozen=True, slots=True)
class CreateDelegationToken(Request):
    """Create a delegation token."""

    owner: str = ""
    """The owner of the token, empty for the requester."""
    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int = -1
    """The longest lifetime; not positive for the configured maximum."""
    requester: str = ""


@dataclass(frozen=True, slots=True)
class CreateDelegationTokenResponse(Response, RequestOutcome):
    """The token and its secret."""

    owner: str = ""
    requester: str = ""
    issue_timestamp_ms: int = NO_TIMESTAMP
    expiry_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_ms: int = NO_TIMESTAMP
    token_id: str = ""
    hmac: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RenewDelegationToken(Request):
    """Extend a delegation token's validity."""

    hmac: bytes = field(repr=False)
    renew_period_ms: int = -1
    """How long the token stays valid, counted from now; not positive for the configured period."""
    requester: str = ""


@dataclass(frozen=True, slots=True)
class ExpireDelegationToken(Request):
    """Change when a delegation token expires."""

    hmac: bytes = field(repr=False)
    expiry_period_ms: int = -1
    """When the token expires, counted from now; negative removes it at once."""
    requester: str = ""


@dataclass(frozen=True, slots=True)
class DelegationTokenExpiry(Response, RequestOutcome):
    """The response to renewals and expirations: the new time at which the token expires."""

    expiry_timestamp_ms: int = NO_TIMESTAMP


TokenRequest = CreateDelegationToken | RenewDelegationToken | ExpireDelegationToken
