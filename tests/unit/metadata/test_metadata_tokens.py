"""Delegation tokens: who may do what with one, and when it is gone."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode as E
from quorate.metadata import requests as r
from quorate.metadata.settings import ControllerSettings
from quorate.records import metadata as rec

from tests.unit.metadata.metadata_support import QUIET, Cluster

KEY = "the cluster's key"
DAY_MS = 24 * 3_600_000
START_MS = 1_700_000_000_000
TOKENS = replace(QUIET, token_secret_key=KEY)


class Clock:
    now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


class Tokens(Cluster):
    """A cluster, and a wall clock that is apart from the controller's."""

    def __init__(self, settings: ControllerSettings = TOKENS, level: int | None = None) -> None:
        self.wall = Clock()
        super().__init__(settings=settings, level=level, wall_ms=self.wall)

    def create(self, requester: str = "User:alice", **fields: Any) -> Any:
        return self.ask(r.CreateDelegationToken(requester=requester, **fields))

    def renew(self, secret: bytes, requester: str = "User:alice", period_ms: int = -1) -> Any:
        return self.ask(r.RenewDelegationToken(secret, period_ms, requester))

    def expire(self, secret: bytes, requester: str = "User:alice", period_ms: int = -1) -> Any:
        return self.ask(r.ExpireDelegationToken(secret, period_ms, requester))

    @property
    def tokens(self) -> dict[str, rec.DelegationTokenRecord]:
        return self.committed.tokens.tokens


def test_a_token_has_kafkas_record_times_and_hmac() -> None:
    cluster = Tokens()
    made = cluster.create(owner="User:bob", renewers=("User:carol",), max_lifetime_ms=2 * DAY_MS)
    assert made.error is E.NONE
    assert cluster.last[-1] == rec.DelegationTokenRecord(
        owner="User:bob",
        requester="User:alice",
        renewers=("User:carol",),
        issue_timestamp=START_MS,
        max_timestamp=START_MS + 2 * DAY_MS,
        expiration_timestamp=START_MS + DAY_MS,
        token_id=made.token_id,
        version=0,
    )
    assert made.hmac == hmac.new(KEY.encode(), made.token_id.encode(), hashlib.sha512).digest()
    assert (made.owner, made.requester) == ("User:bob", "User:alice")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (
        START_MS,
        START_MS + DAY_MS,
        START_MS + 2 * DAY_MS,
    )
    assert made.hmac.hex() not in repr(made)
    assert repr(made.hmac)[2:-1] not in repr(made)
    assert KEY not in repr(TOKENS)


@pytest.mark.parametrize(
    ("wanted_ms", "max_ms", "expiry_ms"),
    [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (5, 5, 5),
        (2**63 - 1, 7 * DAY_MS, DAY_MS),
        (-(2**63), 7 * DAY_MS, DAY_MS),
    ],
)
def test_lifetimes_are_limited(wanted_ms: int, max_ms: int, expiry_ms: int) -> None:
    made = Tokens().create(max_lifetime_ms=wanted_ms)
    assert (made.max_timestamp_ms, made.expiry_timestamp_ms) == (
        START_MS + max_ms,
        START_MS + expiry_ms,
    )


def test_renewals_move_the_expiry_up_to_the_maximum() -> None:
    cluster = Tokens()
    secret = cluster.create(renewers=("User:carol",), max_lifetime_ms=2 * DAY_MS).hmac
    cluster.wall.now_ms += DAY_MS
    assert cluster.renew(secret, "User:carol", 10).expiry_timestamp_ms == START_MS + DAY_MS + 10
    assert cluster.renew(secret, period_ms=2**63 - 1).expiry_timestamp_ms == START_MS + 2 * DAY_MS
    (token,) = cluster.tokens.values()
    assert token.expiration_timestamp == START_MS + 2 * DAY_MS
    cluster.wall.now_ms += DAY_MS + 1
    assert cluster.renew(secret).error is E.DELEGATION_TOKEN_EXPIRED


def test_a_token_is_expired_now_or_later() -> None:
    cluster = Tokens()
    secret = cluster.create().hmac
    assert cluster.expire(secret, period_ms=10).expiry_timestamp_ms == START_MS + 10
    assert cluster.expire(secret, period_ms=2**63 - 1).expiry_timestamp_ms == START_MS + 7 * DAY_MS
    gone = cluster.expire(secret)
    assert (gone.error, gone.expiry_timestamp_ms) == (E.NONE, START_MS)
    assert isinstance(cluster.last[-1], rec.RemoveDelegationTokenRecord)
    assert not cluster.tokens
    assert cluster.expire(secret).error is E.DELEGATION_TOKEN_NOT_FOUND


def test_an_expired_token_can_still_be_removed_by_its_owner() -> None:
    cluster = Tokens()
    secret = cluster.create().hmac
    cluster.wall.now_ms += DAY_MS + 1
    assert cluster.expire(secret, period_ms=5).error is E.DELEGATION_TOKEN_EXPIRED
    assert cluster.expire(secret).error is E.NONE


@pytest.mark.parametrize("requester", ["User:mallory", "User:", "", "alice", "User:alice "])
def test_only_owners_and_renewers_may_use_a_token(requester: str) -> None:
    cluster = Tokens()
    secret = cluster.create(renewers=("User:carol",)).hmac
    before = dict(cluster.tokens)
    mismatch = E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert cluster.renew(secret, requester).error is mismatch
    assert cluster.expire(secret, requester).error is mismatch
    assert cluster.last == ()
    assert cluster.tokens == before


def test_the_requester_of_anothers_token_does_not_own_it() -> None:
    cluster = Tokens()
    secret = cluster.create("User:alice", owner="User:bob").hmac
    assert cluster.renew(secret, "User:alice").error is E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert cluster.renew(secret, "User:bob").error is E.NONE


@pytest.mark.parametrize("secret", [b"", b"\0" * 64, b"x" * 100_000])
def test_unknown_secrets_find_no_token(secret: bytes) -> None:
    cluster = Tokens()
    cluster.create()
    assert cluster.renew(secret).error is E.DELEGATION_TOKEN_NOT_FOUND
    assert cluster.expire(secret).error is E.DELEGATION_TOKEN_NOT_FOUND


def test_the_secret_of_a_removed_token_finds_none_even_if_another_was_made() -> None:
    cluster = Tokens()
    secret = cluster.create().hmac
    cluster.expire(secret)
    cluster.create()
    assert cluster.renew(secret).error is E.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize(
    "fields", [{"owner": "Group:x"}, {"renewers": ("User:a", "Group:x")}, {"owner": "User:"}]
)
def test_tokens_are_of_users(fields: dict[str, Any]) -> None:
    cluster = Tokens()
    assert cluster.create(**fields).error is E.INVALID_PRINCIPAL_TYPE
    assert not cluster.tokens


def test_what_no_record_can_hold_is_refused() -> None:
    cluster = Tokens()
    assert cluster.create(renewers=("User:a",) * 1_001).error is E.INVALID_REQUEST
    assert cluster.create(owner="User:" + "x" * 70_000).error is E.INVALID_REQUEST


def test_without_a_key_there_are_no_tokens() -> None:
    cluster = Tokens(QUIET)
    disabled = E.DELEGATION_TOKEN_AUTH_DISABLED
    assert cluster.create().error is disabled
    assert cluster.renew(b"").error is disabled
    assert cluster.expire(b"").error is disabled


def test_an_older_metadata_version_has_no_tokens() -> None:
    cluster = Tokens(level=13)
    cluster.ask(r.CreateAcls((r.Acl(4, "kafka-cluster", 3, "User:x", "*", 2, 3),)))
    assert cluster.create().error is E.UNSUPPORTED_VERSION
    assert Tokens(level=14).create().error is E.NONE


def test_the_active_controller_removes_expired_tokens() -> None:
    cluster = Tokens(replace(TOKENS, token_check_interval_ms=60_000, records_per_batch_max=2))
    for lifetime_ms in (1, 1, 1, DAY_MS):
        cluster.create(max_lifetime_ms=lifetime_ms)
    cluster.pass_time(59_000)
    cluster.wall.now_ms += 59_000
    assert len(cluster.tokens) == 4
    cluster.pass_time(1_000)
    assert [token.max_timestamp for token in cluster.tokens.values()] == [START_MS + DAY_MS]
    cluster.activate()
    cluster.wall.now_ms += DAY_MS
    cluster.pass_time(60_000)
    assert not cluster.tokens
    assert cluster.controller.next_deadline_ms() is None
