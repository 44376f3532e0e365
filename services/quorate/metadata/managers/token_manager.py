"""Delegation tokens: creation, renewal, expiration, and the removal of expired ones.

Rules:
1. The secret of a token is the HMAC of its id under `delegation.token.secret.key`, and not stored.
   Without the key every request fails with DELEGATION_TOKEN_AUTH_DISABLED.
2. Requests name a token by its secret. Its owner and its renewers may renew and expire it.
3. A token expires at its expiry time, which renewals move up to its maximum time. The active
   controller removes expired tokens every `token_check_interval_ms`.
4. Owners and renewers are users: a login with a token yields a `User:` principal, so a token of
   another type would be one of a different principal.

Source: KIP-48, KIP-900; Kafka's DelegationTokenControlManager.
"""

from __future__ import annotations

from dataclasses import replace

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import uuid_from_bytes
from quorate.metadata.image.tokens import is_expired
from quorate.metadata.limits import fits
from quorate.metadata.managers.controller_context import ControllerContext, RefusedError
from quorate.metadata.metadata_version import DELEGATION_TOKENS, RELEASES
from quorate.metadata.requests import (
    CreateDelegationToken,
    CreateDelegationTokenResponse,
    DelegationTokenExpiry,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from quorate.records.metadata import (
    DelegationTokenRecord,
    MetadataRecord,
    RemoveDelegationTokenRecord,
)

RENEWERS_MAX = 1_000
USER = "User:"


def create_token(
    context: ControllerContext, request: CreateDelegationToken
) -> tuple[list[MetadataRecord], CreateDelegationTokenResponse]:
    owner = request.owner or request.requester
    try:
        _check_enabled(context)
        for each in (owner, *request.renewers):
            if not each.startswith(USER) or each == USER:
                raise RefusedError(ErrorCode.INVALID_PRINCIPAL_TYPE, "")
        if len(request.renewers) > RENEWERS_MAX or not fits(
            owner, request.requester, *request.renewers
        ):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "")
    except RefusedError as refused:
        return [], CreateDelegationTokenResponse(
            owner, request.requester, error=refused.error, message=refused.message
        )
    settings, now_ms = context.settings, context.wall_ms()
    lifetime_ms = settings.token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    record = DelegationTokenRecord(
        owner=owner,
        requester=request.requester,
        renewers=request.renewers,
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiration_timestamp=now_ms + min(lifetime_ms, settings.token_expiry_ms),
        token_id=_new_id(context),
        version=0,
    )
    response = CreateDelegationTokenResponse(
        owner,
        request.requester,
        record.issue_timestamp,
        record.expiration_timestamp,
        record.max_timestamp,
        record.token_id,
        context.token_secrets.secret(record.token_id),
    )
    return [record], response


def _new_id(context: ControllerContext) -> str:
    while True:
        text = uuid_from_bytes(context.random_uuid())
        # Kafka's command-line tools would take a leading dash for an option.
        if not text.startswith("-") and text not in context.image.tokens.tokens:
            return text


def renew_token(
    context: ControllerContext, request: RenewDelegationToken
) -> tuple[list[MetadataRecord], DelegationTokenExpiry]:
    try:
        _check_enabled(context)
        token, now_ms = _find(context, request.hmac), context.wall_ms()
        _check_unexpired(token, now_ms)
        _check_owner(token, request.requester)
    except RefusedError as refused:
        return [], DelegationTokenExpiry(error=refused.error, message=refused.message)
    period_ms = context.settings.token_expiry_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    return _expiring(token, now_ms + period_ms)


def expire_token(
    context: ControllerContext, request: ExpireDelegationToken
) -> tuple[list[MetadataRecord], DelegationTokenExpiry]:
    try:
        _check_enabled(context)
        token, now_ms = _find(context, request.hmac), context.wall_ms()
        _check_owner(token, request.requester)
        if request.expiry_period_ms < 0:
            removal = RemoveDelegationTokenRecord(token.token_id, version=0)
            return [removal], DelegationTokenExpiry(now_ms)
        _check_unexpired(token, now_ms)
    except RefusedError as refused:
        return [], DelegationTokenExpiry(error=refused.error, message=refused.message)
    return _expiring(token, now_ms + request.expiry_period_ms)


def remove_expired(context: ControllerContext) -> list[MetadataRecord]:
    """The records that remove expired tokens, as many as fit one batch."""
    now_ms = context.wall_ms()
    expired = [
        token_id
        for token_id, each in context.image.tokens.tokens.items()
        if is_expired(each, now_ms)
    ]
    return [
        RemoveDelegationTokenRecord(token_id, version=0)
        for token_id in expired[: context.settings.records_per_batch_max]
    ]


def _expiring(
    token: DelegationTokenRecord, timestamp_ms: int
) -> tuple[list[MetadataRecord], DelegationTokenExpiry]:
    timestamp_ms = min(token.max_timestamp, timestamp_ms)
    record = replace(token, expiration_timestamp=timestamp_ms, version=0)
    return [record], DelegationTokenExpiry(timestamp_ms)


def _check_enabled(context: ControllerContext) -> None:
    if not context.token_secrets.is_enabled:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "")
    if context.image.level < DELEGATION_TOKENS:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Delegation tokens need metadata.version {RELEASES[DELEGATION_TOKENS]} or later.",
        )


def _find(context: ControllerContext, secret: bytes) -> DelegationTokenRecord:
    token = context.token_secrets.find(secret, context.image.tokens.tokens)
    if token is None:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "")
    return token


def _check_unexpired(token: DelegationTokenRecord, now_ms: int) -> None:
    if is_expired(token, now_ms):
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "")


def _check_owner(token: DelegationTokenRecord, principal: str) -> None:
    if principal not in (token.owner, *token.renewers):
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "")
