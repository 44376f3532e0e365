"""The index of partitions: built at once or change by change, it is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.metadata.image.partition_index import PartitionIndex, PartitionSet
from quorate.metadata.image.partitions import NO_LEADER, Partition, PartitionKey

TOPICS = ["A" * 21 + last for last in "Qgw"]
NUMBERS = st.sampled_from([0, 1, 5, 63, 64, 65, 127, 128, 5_000, 2**31 - 1, -1])
KEYS = st.tuples(st.sampled_from(TOPICS), NUMBERS)
BROKERS = st.lists(st.integers(1, 4), unique=True, max_size=3).map(tuple)
CHANGED = st.sampled_from([(), (), (1,)])
REPLICAS = st.sampled_from([(1, 2, 3), (1, 4)])


@st.composite
def partitions(draw: st.DrawFn) -> dict[PartitionKey, Partition]:
    found = {}
    for topic_id, number in draw(st.lists(KEYS, unique=True, max_size=12)):
        isr = draw(BROKERS)
        found[topic_id, number] = Partition(
            number, topic_id, draw(REPLICAS), isr, leader=isr[0] if isr else NO_LEADER,
            eligible_leader_replicas=draw(BROKERS) or None,
            adding_replicas=draw(CHANGED), removing_replicas=draw(CHANGED),
        )  # fmt: skip
    return found


def built(found: dict[PartitionKey, Partition]) -> PartitionIndex:
    topics: dict[str, dict[int, Partition]] = {}
    for (topic_id, number), partition in found.items():
        topics.setdefault(topic_id, {})[number] = partition
    return PartitionIndex(topics.items())


def plainly(found: dict[PartitionKey, Partition]) -> dict[str, object]:
    """What the index holds, by a look at every partition."""
    brokers = range(1, 5)
    in_isr = {b: {key for key, p in found.items() if b in p.isr} for b in brokers}
    in_elr = {
        b: {key for key, p in found.items() if b in (p.eligible_leader_replicas or ())}
        for b in brokers
    }
    waiting_for = {
        b: {key for key, p in found.items() if p.leader == NO_LEADER and b in p.replicas}
        for b in brokers
    }
    led = {b: sum(p.leader == b for p in found.values()) for b in brokers}
    return {
        "in_isr": {b: keys for b, keys in in_isr.items() if keys},
        "in_elr": {b: keys for b, keys in in_elr.items() if keys},
        "led": {b: count for b, count in led.items() if count},
        "leaderless": {key for key, p in found.items() if p.leader == NO_LEADER},
        "waiting_for": {b: keys for b, keys in waiting_for.items() if keys},
        "reassigning": {
            key for key, p in found.items() if p.adding_replicas or p.removing_replicas
        },
        "off_preferred": {key for key, p in found.items() if p.leader != 1},
    }


def held(index: PartitionIndex) -> dict[str, object]:
    return {
        "in_isr": {broker: set(keys) for broker, keys in index.in_isr.items()},
        "in_elr": {broker: set(keys) for broker, keys in index.in_elr.items()},
        "led": dict(index.led),
        "leaderless": set(index.leaderless),
        "waiting_for": {broker: set(keys) for broker, keys in index.waiting_for.items()},
        "reassigning": set(index.reassigning),
        "off_preferred": set(index.off_preferred),
    }


@given(partitions(), partitions())
def test_it_holds_what_a_look_at_every_partition_finds(
    before: dict[PartitionKey, Partition], after: dict[PartitionKey, Partition]
) -> None:
    index = built(before)
    assert held(index) == plainly(before)
    for key in before.keys() | after.keys():
        index.replace(before.get(key), after.get(key))
    assert held(index) == plainly(after)
    assert [index.leads_any(broker) for broker in (1, 2, 3, 4)] == [
        any(p.leader == broker for p in after.values()) for broker in (1, 2, 3, 4)
    ]


@given(st.lists(KEYS))
def test_a_set_of_partitions_is_a_set(keys: list[PartitionKey]) -> None:
    found = PartitionSet()
    for key in keys:
        found.add(key)
    assert len(found) == len(set(keys))
    assert sorted(found) == sorted(set(keys))
    for key in keys:
        assert key in found
    for key in keys:
        found.discard(key)
        assert key not in found
    assert not found
    assert found == PartitionSet()


def test_what_the_index_lost_is_noticed() -> None:
    partition = Partition(0, TOPICS[0], (1,), (1,), leader=1)
    index = PartitionIndex([(TOPICS[0], {0: partition})])
    index.replace(partition, None)
    with pytest.raises(KeyError):
        index.replace(partition, None)
    index.replace(None, partition)
    with pytest.raises(AssertionError, match="not in the index"):
        index.replace(replace(partition, partition_id=1), None)


def test_partitions_are_listed_by_the_page_and_by_number() -> None:
    found = PartitionSet()
    for number in (70, 3, 1, 65, 2):
        found.add((TOPICS[0], number))
    assert [number for _, number in found] == [65, 70, 1, 2, 3]
