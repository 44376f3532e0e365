"""Controller quotas: token buckets, their clients, and the time to wait."""

from __future__ import annotations

from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.bridge.requests import quotas, topics
from quorate.bridge.requests.exchange import answer_bare
from quorate.bridge.requests.forwarding import FORWARDED, answer_envelope
from quorate.bridge.requests.quotas import KEY, MutationQuotas, RequestQuota
from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.quotas import QuotasImage, entity_key
from quorate.metadata.requests import CreateTopics, DeleteTopics, NewTopic, TopicRef
from quorate.rpc.principals import Caller

from tests.unit.bridge.bridge_support import Migrating, call, envelope

ALICE = Caller("User:alice")


class Clock:
    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def create(version: int, *counts: int, client_id: str = "app", first: int = 0) -> s.Call:
    """A request for topics with so many partitions each."""
    module = s.request_module(s.CREATE_TOPICS, version)
    body = module.CreateTopicsRequest(
        topics=tuple(
            module.CreatableTopic(
                name=f"t{number}", num_partitions=count, replication_factor=1, assignments=(),
                configs=(),
            )
            for number, count in enumerate(counts, first)
        ),
        timeout=s.milliseconds(1_000),
    )  # fmt: skip
    return s.read_call(s.write_header(s.CREATE_TOPICS, version, 1, client_id) + s.write(body))


def made(clock: Clock, *limited: Any, window_count: int = 11) -> MutationQuotas:
    """limited: the parts of an entity and its rate."""
    entities = {entity_key(parts): {KEY: rate} for parts, rate in limited}
    return MutationQuotas(lambda: QuotasImage(dict(entities)), window_count, 1, clock)


def quota_of(found: MutationQuotas, caller: Caller = ALICE, **request: Any) -> RequestQuota:
    quota = found.of(create(**{"version": 7, **request}), caller)
    assert quota is not None
    return quota


USER = (("user", "alice"),)


def test_a_bucket_goes_below_zero_once_and_then_fills_up(clock: Clock) -> None:
    found = made(clock, (USER, 2.0))
    assert quota_of(found).take(30), "the bucket has 22 tokens"
    late = quota_of(found)
    assert not late.take(1)
    assert late.throttle_ms == 4_000
    clock.s += 1.0
    assert late.throttle_ms == 3_000
    assert not quota_of(found).take(1), "a request that fails takes no tokens"
    clock.s += 3.0
    full = quota_of(found)
    assert full.take(1)
    assert full.throttle_ms == 0
    clock.s += 1_000.0
    assert quota_of(found).take(23), "it never has more than 22"
    assert not quota_of(found).take(1)


def test_old_versions_wait_but_succeed(clock: Clock) -> None:
    found = made(clock, (USER, 2.0), window_count=1)
    for version, taken, wait_ms in ((5, 2, 0), (5, 3, 1_500), (4, 1, 2_000), (6, 0, 2_000)):
        quota = quota_of(found, version=version)
        assert quota.take(max(1, taken)) == (version < 6)
        assert quota.throttle_ms == wait_ms


def test_the_most_specific_quota_counts(clock: Clock) -> None:
    user, client = ("user", "alice"), ("client-id", "app")
    any_user, any_client = ("user", None), ("client-id", None)
    order = [
        (user, client), (user, any_client), (user,), (any_user, client), (any_user, any_client),
        (any_user,), (client,), (any_client,),
    ]  # fmt: skip
    for position in range(len(order)):
        limited = [(parts, 1.0 + rank) for rank, parts in enumerate(order) if rank >= position]
        assert quota_of(made(clock, *limited)).rate == 1.0 + position
    assert made(clock, ((("user", "bob"),), 1.0)).of(create(7), ALICE) is None
    assert made(clock).of(create(7), ALICE) is None


def test_clients_of_a_default_quota_have_buckets_of_their_own(clock: Clock) -> None:
    found = made(clock, ((("user", None),), 1.0))
    assert quota_of(found).take(100)
    assert not quota_of(found, client_id="other").take(1), "the quota names no client id"
    assert quota_of(found, Caller("User:bob")).take(100)
    assert not quota_of(found, Caller("User:bob")).take(1)


def test_client_ids_do_not_fill_the_memory(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "BUCKETS_MAX", 10)
    found = made(clock, ((("client-id", None),), 1.0))
    assert quota_of(found, client_id="first").take(100)
    for number in range(9):
        quota_of(found, client_id=str(number))
    assert not quota_of(found, client_id="first").take(1)
    for number in range(20):
        quota_of(found, client_id=str(number))
    assert len(found._buckets) == 10


def test_only_what_is_created_or_deleted_takes_tokens(clock: Clock) -> None:
    cluster = Migrating(3)
    found = made(clock, (USER, 1.0))

    def ask(request: Any) -> Any:
        quota = quota_of(found)
        return cluster.ask(request(quota)), 11.0 - quota.bucket.tokens

    def topic(name: str, partitions: int, **more: Any) -> Any:
        return lambda quota: CreateTopics(
            (NewTopic(name, partitions, 1, **more),), mutation_quota=quota
        )

    assert ask(topic("a", 3))[1] == 3
    assert ask(topic("a", 3))[1] == 3, "it exists"
    assert ask(topic("b", 3, configs=(("retention.ms", "x"),)))[1] == 3, "an invalid config"
    assert ask(topic("b", 99))[1] == 102
    answer, taken = ask(topic("c", 1))
    assert taken == 102
    assert answer.topics[0].error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    answer, _ = ask(lambda quota: DeleteTopics((TopicRef("a"),), mutation_quota=quota))
    assert answer.topics[0].error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clock.s += 200
    answer, taken = ask(lambda quota: DeleteTopics((TopicRef("a"),), mutation_quota=quota))
    assert answer.topics[0].error is ErrorCode.NONE
    assert taken == 3


async def test_responses_say_how_long_to_wait(clock: Clock) -> None:
    cluster = Migrating(3)
    found = made(clock, (USER, 1.0))
    exchange = FORWARDED[s.CREATE_TOPICS]
    response = await answer_bare(exchange, create(7, 6, 7, 1), cluster.answer, ALICE, found)
    errors = [int(each.error_code) for each in response.topics]
    assert errors == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert response.throttle_time == s.milliseconds(2_000)

    async def decode(frame: bytes) -> s.Call:
        return s.read_call(frame)

    request = envelope(s.CREATE_TOPICS, 5, create(5, 2, first=3).body)
    wrapped = await answer_envelope(request, cluster.answer, decode, found)
    _, inner = s.read_response(s.CREATE_TOPICS, 5, wrapped.response_data)
    assert int(inner.topics[0].error_code) == 0
    assert inner.throttle_time == s.milliseconds(4_000)
    assert topics.decode_create_topics(call(s.CREATE_TOPICS, 7, create(7, 1).body).body).topics
