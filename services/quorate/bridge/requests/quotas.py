"""Controller quotas: how many partitions a client may create and delete per second (KIP-599).

A client is a user, a client id, or both, according to the most specific quota that matches it. Each
has a token bucket that holds up to `window count * window size` seconds of its rate. A request
takes one token for every partition it creates or deletes. A bucket may go below zero once; it then
delays the client until it is back at zero:

- Requests of the versions in `STRICT_SINCE` fail, topic by topic, with THROTTLING_QUOTA_EXCEEDED.
- Requests of older versions succeed.

Both kinds of responses have the time to wait in throttle_time_ms. The buckets belong to this node:
a new active controller starts with full ones.

Source: KIP-599; KIP-257 (precedence of quotas); KIP-219 (how clients are throttled);
Kafka's ControllerMutationQuotaManager and TokenBucket.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from quorate.bridge.messages import schemas as s
from quorate.metadata.image.quotas import CLIENT_ID, USER, QuotasImage, entity_key
from quorate.rpc.principals import Caller

KEY: Final = "controller_mutation_rate"
STRICT_SINCE: Final[Mapping[int, int]] = {
    s.CREATE_TOPICS: 6,
    s.CREATE_PARTITIONS: 3,
    s.DELETE_TOPICS: 5,
}
"""The APIs that take tokens, and the first version of each that reports the error."""
BUCKETS_MAX: Final = 10_000
"""Clients choose their client ids, so the buckets that were used least recently are dropped."""
THROTTLE_MS_MAX: Final = 2**31 - 1

Client = tuple[str, str]
"""A user and a client id; empty for the part that the quota does not name."""


@dataclass(slots=True)
class TokenBucket:
    """The tokens that are left to one user or client."""

    tokens: float
    """The tokens that are left: negative after a request that took more than there were."""
    at_s: float
    """The time of the last refill."""

    def refill(self, rate: float, burst: float, now_s: float) -> None:
        """Add what the rate, in tokens per second, gives for the time since the last refill."""
        self.tokens = min(burst, self.tokens + rate * max(0.0, now_s - self.at_s))
        self.at_s = now_s

    def wait_ms(self, rate: float) -> int:
        """How long until no token is missing."""
        if self.tokens >= 0:
            return 0
        return min(THROTTLE_MS_MAX, round(-self.tokens / rate * 1000))


@dataclass(slots=True)
class RequestQuota:
    """The quota of one request; implements `metadata.requests.MutationQuota`."""

    bucket: TokenBucket
    rate: float
    burst: float
    is_strict: bool
    now_s: Callable[[], float]
    _wait_ms: int = 0
    _waits_from_s: float = 0.0

    def take(self, partitions: int) -> bool:
        """Take a token for each partition; False if the request must not change them."""
        now_s = self.now_s()
        self.bucket.refill(self.rate, self.burst, now_s)
        if not self.is_strict:
            self.bucket.tokens -= partitions
        if missing_ms := self.bucket.wait_ms(self.rate):
            self._wait_ms, self._waits_from_s = max(self._wait_ms, missing_ms), now_s
            return not self.is_strict
        if self.is_strict:
            self.bucket.tokens -= partitions
        return True

    @property
    def throttle_ms(self) -> int:
        """How long the client must wait from now on."""
        passed_ms = (self.now_s() - self._waits_from_s) * 1000
        return max(0, self._wait_ms - int(passed_ms)) if self._wait_ms else 0


class MutationQuotas:
    """The quotas of all clients. image: returns the current quotas. window_count, window_s:
    controller.quota.window.num and controller.quota.window.size.seconds. now_s: a monotonic clock.
    """

    def __init__(
        self,
        image: Callable[[], QuotasImage],
        window_count: int,
        window_s: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._image = image
        self._burst_s = window_count * window_s
        self._now_s = now_s
        self._buckets: OrderedDict[Client, TokenBucket] = OrderedDict()

    def of(self, call: s.Call, caller: Caller) -> RequestQuota | None:
        """The quota of a request; None if it takes no tokens, or the client has no quota."""
        since = STRICT_SINCE.get(call.api_key)
        entities = self._image().entities
        if since is None or not entities:
            return None
        user = (caller.principal or "").partition(":")[2]
        found = _matching(entities, user, call.client_id)
        if found is None:
            return None
        client, rate = found
        burst = rate * self._burst_s
        return RequestQuota(
            self._bucket(client, burst), rate, burst, call.version >= since, self._now_s
        )

    def _bucket(self, client: Client, burst: float) -> TokenBucket:
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = TokenBucket(burst, self._now_s())
        self._buckets.move_to_end(client)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        return bucket


def _matching(
    entities: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]],
    user: str,
    client_id: str,
) -> tuple[Client, float] | None:
    """The most specific quota: the client that shares its bucket, and the rate."""
    for parts in (
        ((USER, user), (CLIENT_ID, client_id)),
        ((USER, user), (CLIENT_ID, None)),
        ((USER, user),),
        ((USER, None), (CLIENT_ID, client_id)),
        ((USER, None), (CLIENT_ID, None)),
        ((USER, None),),
        ((CLIENT_ID, client_id),),
        ((CLIENT_ID, None),),
    ):
        rate = entities.get(entity_key(parts), {}).get(KEY)
        if rate is not None:
            kinds = dict(parts)
            return (user if USER in kinds else "", client_id if CLIENT_ID in kinds else ""), rate
    return None
