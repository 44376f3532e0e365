"""Topics, placement, partitions, reassignments, elections: what is done and what is refused."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata import requests as r
from quorate.metadata.managers.controller_context import RefusedError
from quorate.metadata.managers.placement import Placement, UsableBroker
from quorate.metadata.settings import ControllerSettings
from quorate.records import metadata as rec

from tests.unit.metadata.metadata_support import Cluster, uuid_of

E = ErrorCode


def created(cluster: Cluster, *topics: r.NewTopic, **fields: Any) -> list[ErrorCode]:
    answer = cluster.ask(r.CreateTopics(topics, **fields))
    assert all(bool(t.message) == (t.error is not E.NONE) for t in answer.topics)
    return [topic.error for topic in answer.topics]


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__internal"])
def test_names_that_are_good(name: str) -> None:
    assert created(Cluster(1), r.NewTopic(name, 1, 1)) == [E.NONE]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a,b", "a:b", "\x00"]
)
def test_names_that_are_not(name: str) -> None:
    cluster = Cluster(1)
    assert created(cluster, r.NewTopic(name, 1, 1)) == [E.INVALID_TOPIC_EXCEPTION]
    assert cluster.last == ()


def test_names_that_exist_or_collide() -> None:
    cluster = Cluster(1)
    assert created(cluster, r.NewTopic("a.b", 1, 1)) == [E.NONE]
    assert created(cluster, r.NewTopic("a.b", 1, 1)) == [E.TOPIC_ALREADY_EXISTS]
    assert created(cluster, r.NewTopic("a_b", 1, 1)) == [E.INVALID_TOPIC_EXCEPTION]
    assert created(cluster, r.NewTopic("c.d", 1, 1), r.NewTopic("c_d", 1, 1)) == [
        E.NONE,
        E.INVALID_TOPIC_EXCEPTION,
    ]
    cluster.ask(r.DeleteTopics((r.TopicRef("a.b"),)))
    assert created(cluster, r.NewTopic("a_b", 1, 1)) == [E.NONE]
    cluster.activate()
    assert created(cluster, r.NewTopic("a.b", 1, 1)) == [E.INVALID_TOPIC_EXCEPTION]


def test_a_name_twice_in_a_request() -> None:
    topics = (r.NewTopic("a", 1, 1), r.NewTopic("b", 1, 1), r.NewTopic("a", 1, 1))
    assert created(Cluster(1), *topics) == [E.INVALID_REQUEST, E.NONE]


# --- creating -------------------------------------------------------------------------------------


def test_a_topic_is_made_of_its_records_in_kafkas_order() -> None:
    cluster = Cluster(3, elr=True)
    topic = r.NewTopic("t", 2, 3, configs=(("min.insync.replicas", "2"),))
    answer = cluster.ask(r.CreateTopics((topic,))).topics[0]
    assert (answer.partitions, answer.replication_factor) == (2, 3)
    assert [type(record) for record in cluster.last] == [
        rec.TopicRecord,
        rec.ConfigRecord,
        rec.ClearElrRecord,
        rec.PartitionRecord,
        rec.PartitionRecord,
    ]
    found = cluster.partition("t")
    assert found.topic_id == answer.topic_id
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (found.replicas[0], 0, 0)
    assert found.directories == tuple(uuid_of(("directory", b)) for b in found.replicas)


def test_defaults_are_the_clusters() -> None:
    own = ControllerSettings(num_partitions=3, default_replication_factor=2)
    cluster = Cluster(2, settings=own)
    assert created(cluster, r.NewTopic("t")) == [E.NONE]
    assert cluster.committed.topics.partition_count == 3
    assert len(cluster.partition("t").replicas) == 2


def test_only_active_replicas_begin_in_the_isr() -> None:
    cluster = Cluster(3)
    cluster.create("held", (2, 3))
    cluster.expire(1)
    cluster.heartbeat(2, want_shutdown=True)
    by_hand = r.NewTopic("by-hand", assignments=((2, 3, 1),))
    assert created(cluster, r.NewTopic("t", 3, 2), by_hand) == [E.NONE, E.NONE]
    found = cluster.partition("by-hand")
    assert (found.isr, found.leader) == ((3,), 3)
    for index in range(3):
        found = cluster.partition("t", index)
        assert (found.isr, found.leader, found.replicas) == ((3,), 3, (3, 1))


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (r.NewTopic("t", 0, 1), E.INVALID_PARTITIONS),
        (r.NewTopic("t", -2, 1), E.INVALID_PARTITIONS),
        (r.NewTopic("t", 1, 0), E.INVALID_REPLICATION_FACTOR),
        (r.NewTopic("t", 1, -2), E.INVALID_REPLICATION_FACTOR),
        (r.NewTopic("t", 1, 4), E.INVALID_REPLICATION_FACTOR),
        (r.NewTopic("t", 20_000, 1), E.POLICY_VIOLATION),
        (r.NewTopic("t", 1, -1, ((1,),)), E.INVALID_REQUEST),
        (r.NewTopic("t", -1, 1, ((1,),)), E.INVALID_REQUEST),
        (r.NewTopic("t", assignments=((),)), E.INVALID_REPLICA_ASSIGNMENT),
        (r.NewTopic("t", assignments=((1, 1),)), E.INVALID_REPLICA_ASSIGNMENT),
        (r.NewTopic("t", assignments=((-1,),)), E.INVALID_REPLICA_ASSIGNMENT),
        (r.NewTopic("t", assignments=((9,),)), E.INVALID_REPLICA_ASSIGNMENT),
        (r.NewTopic("t", assignments=((1, 2), (1,))), E.INVALID_REPLICA_ASSIGNMENT),
        (r.NewTopic("t", assignments=((1,), (3,))), E.INVALID_REPLICA_ASSIGNMENT),
        (r.NewTopic("t", 1, 1, configs=(("nothing", "1"),)), E.INVALID_CONFIG),
        (r.NewTopic("t", 1, 1, configs=(("retention.ms", None),)), E.INVALID_CONFIG),
        (r.NewTopic("t", 1, 1, configs=(("retention.ms", "x"),)), E.INVALID_CONFIG),
        (
            r.NewTopic("t", 1, 1, configs=(("retention.ms", "1"), ("retention.ms", "2"))),
            E.INVALID_REQUEST,
        ),
    ],
    ids=str,
)
def test_topics_that_are_refused(topic: r.NewTopic, error: ErrorCode) -> None:
    cluster = Cluster(3)
    cluster.expire(3)
    assert created(cluster, topic) == [error]
    assert cluster.last == ()


def test_without_active_brokers_nothing_can_be_created() -> None:
    cluster = Cluster(1)
    cluster.expire(1)
    assert created(cluster, r.NewTopic("t", 1, 1)) == [E.INVALID_REPLICATION_FACTOR]


def test_a_batch_has_a_limit_and_the_rest_of_a_request_stands_for_itself() -> None:
    cluster = Cluster(1)
    topics = [r.NewTopic(f"t{n}", 4_000, 1) for n in range(3)]
    assert created(cluster, *topics) == [E.NONE, E.NONE, E.POLICY_VIOLATION]
    assert len(cluster.committed.topics) == 2


@pytest.mark.parametrize("partitions", [9_999, 10_000])
def test_only_what_fits_a_batch_is_placed(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    """Each topic costs a client a few bytes, and the placement of its partitions milliseconds."""
    placed: list[int] = []

    place = Placement.place

    def counting(placement: Placement, count: int, *more: int) -> Any:
        placed.append(count)
        return place(placement, count, *more)

    cluster = Cluster(1)
    names = [f"t{n}" for n in range(500)]
    monkeypatch.setattr(Placement, "place", counting)
    topics = tuple(r.NewTopic(name, partitions, 1) for name in names)
    answer = cluster.ask(r.CreateTopics(topics, validate_only=True))
    fits = E.NONE if partitions < 10_000 else E.POLICY_VIOLATION
    assert [topic.error for topic in answer.topics] == [fits] + [E.POLICY_VIOLATION] * 499
    assert sum(placed) <= 10_000
    assert set(created(cluster, *(r.NewTopic(name, 1, 1) for name in names))) == {E.NONE}
    placed.clear()
    wanted = tuple(r.NewPartitions(name, partitions + 1) for name in names)
    asked = cluster.ask(r.CreatePartitions(wanted, validate_only=True))
    assert [part.error for part in asked.topics] == [E.NONE] + [E.POLICY_VIOLATION] * 499
    assert sum(placed) <= 10_000


def test_a_batch_has_a_limit_in_bytes_too() -> None:
    cluster = Cluster(3, settings=ControllerSettings(idle_interval_ms=0, batch_bytes_max=20_000))
    assert created(cluster, r.NewTopic("t", 100, 3), r.NewTopic("u", 100, 3)) == [
        E.NONE,
        E.POLICY_VIOLATION,
    ]


def test_elections_of_more_than_a_batch_holds_are_for_another_request() -> None:
    own = ControllerSettings(
        idle_interval_ms=0, leader_imbalance_check_interval_ms=0, records_per_batch_max=3
    )
    cluster = Cluster(2, settings=own)
    for name in "abcde":
        cluster.create(name, (1, 2))
    cluster.ask(r.UnregisterBroker(1))
    cluster.pass_time(1)
    cluster.start_broker(1, "again")
    for name in "abcde":
        cluster.propose(name, (2, 1))
    first = cluster.ask(r.ElectLeaders(0))
    assert [p.error for p in first.partitions] == [E.NONE] * 3 + [E.POLICY_VIOLATION] * 2
    second = cluster.ask(r.ElectLeaders(0))
    assert [p.error for p in second.partitions] == [E.NONE] * 2


def test_what_one_broker_does_costs_what_that_broker_has() -> None:
    """Processor time, with room for a slow machine: 36,000 partitions are none of its business."""
    cluster = Cluster(3)
    for n in range(4):
        cluster.ask(r.CreateTopics((r.NewTopic(f"t{n}", assignments=((1, 2),) * 9_000),)))
    assert cluster.committed.topics.partition_count == 36_000
    cluster.create("own", (3, 1))
    controller = cluster.controller
    beat = r.BrokerHeartbeat(3, cluster.epochs[3], cluster.offset)
    began = time.process_time()
    for _ in range(100):
        controller.handle(beat, cluster.now_ms, cluster.offset)
        controller.next_deadline_ms()
    fenced = controller.handle(replace(beat, want_fence=True), cluster.now_ms, cluster.offset)
    assert len(fenced.records) == 2
    assert time.process_time() - began < 0.2


def test_validate_only_changes_nothing() -> None:
    cluster = Cluster(1)
    assert created(cluster, r.NewTopic("t", 1, 1), validate_only=True) == [E.NONE]
    assert cluster.last == ()
    cluster.create("t", (1,))
    more = cluster.ask(r.CreatePartitions((r.NewPartitions("t", 2),), validate_only=True))
    assert more.topics[0].error is E.NONE
    assert cluster.committed.topics.partition_count == 1


def test_topic_ids_are_new_and_do_not_begin_with_a_dash() -> None:
    drawn = iter([bytes(16), b"\xfb" + bytes(15), b"\x01" * 16, b"\x01" * 16, b"\x02" * 16])
    cluster = Cluster(1)
    cluster.controller._active.context.random_uuid = lambda: next(drawn)
    first, second = cluster.create("a", (1,)), cluster.create("b", (1,))
    assert first == "AQEBAQEBAQEBAQEBAQEBAQ"
    assert second == "AgICAgICAgICAgICAgICAg"


# --- placement ------------------------------------------------------------------------------------


def candidates(racks: list[int], fenced: set[int] = frozenset()) -> list[UsableBroker]:  # type: ignore[assignment]
    return [UsableBroker(n, f"rack-{rack}", n not in fenced) for n, rack in enumerate(racks)]


@settings(max_examples=200)
@given(data=st.data(), racks=st.lists(st.integers(0, 3), min_size=1, max_size=9))
def test_what_holds_of_every_placement(data: st.DataObject, racks: list[int]) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    everyone = set(range(len(racks)))
    fenced = data.draw(st.sets(st.sampled_from(sorted(everyone)), max_size=len(racks) - 1))
    cursor = data.draw(st.integers(0, 100))
    placed = Placement(candidates(racks, fenced)).place(12, factor, cursor)
    assert len(placed) == 12
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] not in fenced, "the preferred leader is active"
        # As many racks as there can be.
        assert len({racks[b] for b in replicas}) == min(factor, len(set(racks)))
        for rack in {racks[b] for b in replicas}:
            chosen = [b for b in replicas if racks[b] == rack]
            left = [b for b in everyone - fenced if racks[b] == rack and b not in chosen]
            assert not (left and set(chosen) & fenced), "unfenced ones come first"


@pytest.mark.parametrize(("brokers", "racks"), [(3, 1), (6, 3), (5, 1), (6, 2), (9, 3)])
def test_leaders_and_replicas_spread_evenly(brokers: int, racks: int) -> None:
    placed = Placement(candidates([n % racks for n in range(brokers)])).place(brokers * 20, 3)
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {20}
    everyone = Counter(broker for replicas in placed for broker in replicas)
    assert max(everyone.values()) - min(everyone.values()) <= 0.35 * 60
    assert len(set(placed)) > brokers, "not always the same together"


def test_placements_that_cannot_be() -> None:
    for wanted in (0, 4):
        with pytest.raises(RefusedError) as caught:
            Placement(candidates([0, 0, 0])).place(1, wanted)
        assert caught.value.error is E.INVALID_REPLICATION_FACTOR


# --- deleting -------------------------------------------------------------------------------------


def test_deleting() -> None:
    cluster = Cluster(1)
    topic_id = cluster.create("t", (1,), retention_ms="5")
    other_id = cluster.create("u", (1,))
    answer = cluster.ask(
        r.DeleteTopics(
            (
                r.TopicRef("t"),
                r.TopicRef(topic_id=topic_id),
                r.TopicRef("nobody"),
                r.TopicRef(topic_id=uuid_of("nobody")),
                r.TopicRef("u", other_id),
                r.TopicRef(),
            )
        )
    )
    assert [(t.name, t.error) for t in answer.topics] == [
        ("t", E.INVALID_REQUEST),
        ("nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("", E.UNKNOWN_TOPIC_ID),
        ("u", E.INVALID_REQUEST),
        ("", E.INVALID_REQUEST),
    ]
    assert list(cluster.committed.topics.ids) == ["t", "u"], "t is named by name and id"
    twice = cluster.ask(r.DeleteTopics((r.TopicRef("u"), r.TopicRef("u"))))
    assert [(t.name, t.error) for t in twice.topics] == [("u", E.INVALID_REQUEST)]
    (deleted,) = cluster.ask(r.DeleteTopics((r.TopicRef("t"),))).topics
    assert (deleted.error, deleted.topic_id) == (E.NONE, topic_id)
    assert list(cluster.committed.topics.ids) == ["u"]
    assert cluster.committed.configs.resources == {}


# --- more partitions ------------------------------------------------------------------------------


def test_adding_partitions() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2))
    cluster.create("u", (1, 2))
    cases = [
        (r.NewPartitions("t", 3), E.NONE),
        (r.NewPartitions("u", 2, ((3, 1),)), E.NONE),
        (r.NewPartitions("t", 3), E.INVALID_PARTITIONS),
        (r.NewPartitions("t", 2), E.INVALID_PARTITIONS),
        (r.NewPartitions("nobody", 2), E.UNKNOWN_TOPIC_OR_PARTITION),
        (r.NewPartitions("t", 5, ((1, 2),)), E.INVALID_REPLICA_ASSIGNMENT),
        (r.NewPartitions("t", 4, ((1,),)), E.INVALID_REPLICA_ASSIGNMENT),
        (r.NewPartitions("t", 100_000), E.POLICY_VIOLATION),
    ]
    for wanted, error in cases:
        answer = cluster.ask(r.CreatePartitions((wanted,)))
        assert answer.topics[0].error is error, wanted
    assert [len(cluster.partition("t", i).replicas) for i in range(3)] == [2, 2, 2]
    assert cluster.partition("u", 1).replicas == (3, 1)
    twice = cluster.ask(r.CreatePartitions((r.NewPartitions("t", 4), r.NewPartitions("t", 5))))
    assert {outcome.error for outcome in twice.topics} == {E.INVALID_REQUEST}


# --- reassignments --------------------------------------------------------------------------------


def reassign(
    cluster: Cluster, replicas: tuple[int, ...] | None, topic: str = "t", **fields: Any
) -> ErrorCode:
    wanted = (r.Reassignment(topic, 0, replicas),)
    answer = cluster.ask(r.AlterPartitionReassignments(wanted, **fields))
    error: ErrorCode = answer.partitions[0].error
    return error


def test_a_reassignment_waits_for_those_that_are_added() -> None:
    cluster = Cluster(4)
    cluster.create("t", (1, 2))
    assert reassign(cluster, (3, 4)) is E.NONE
    found = cluster.partition("t")
    assert (found.replicas, found.adding_replicas, found.removing_replicas) == (
        (3, 4, 1, 2),
        (3, 4),
        (1, 2),
    )
    assert len(found.directories) == 4
    cluster.propose("t", (1, 2, 3))
    assert cluster.partition("t").adding_replicas == (3, 4)
    assert cluster.propose("t", (1, 2, 3, 4)).error is E.NEW_LEADER_ELECTED
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.leader) == ((3, 4), (3, 4), 3)
    assert found.directories == tuple(uuid_of(("directory", b)) for b in (3, 4))


def test_taking_a_reassignment_back() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2))
    assert reassign(cluster, None) is E.NO_REASSIGNMENT_IN_PROGRESS
    reassign(cluster, (3, 2))
    cluster.propose("t", (1, 2))
    assert reassign(cluster, None) is E.NONE
    found = cluster.partition("t")
    # The order is the target's, as in Kafka: what it was before is not recorded.
    assert (found.replicas, found.isr, found.adding_replicas) == ((2, 1), (1, 2), ())


def test_going_back_to_replicas_that_lack_records_needs_consent() -> None:
    cluster = Cluster(4)
    cluster.create("t", (1, 2))
    reassign(cluster, (3, 4))
    cluster.propose("t", (1, 2, 3))
    cluster.expire(2)
    cluster.expire(1)
    assert cluster.partition("t").isr == (3,)
    assert reassign(cluster, None) is E.INVALID_REPLICA_ASSIGNMENT
    change = r.ConfigChange(
        r.ConfigResource(2, "t"), (r.ConfigOp("unclean.leader.election.enable", "true"),)
    )
    cluster.ask(r.IncrementalAlterConfigs((change,)))
    assert reassign(cluster, None) is E.INVALID_REPLICA_ASSIGNMENT, "nobody is there"
    cluster.start_broker(2, "again")
    assert reassign(cluster, None) is E.NONE
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.leader) == ((1, 2), (2,), 2)
    assert found.leader_recovery_state == 1


def test_another_target_takes_the_place_of_the_first() -> None:
    cluster = Cluster(4)
    cluster.create("t", (1, 2))
    reassign(cluster, (1, 3))
    assert reassign(cluster, (1, 4)) is E.NONE
    found = cluster.partition("t")
    assert (found.adding_replicas, set(found.removing_replicas)) == ((4,), {2, 3})
    cluster.propose("t", (1, 2, 4))
    assert cluster.partition("t").replicas == (1, 4)


def test_a_target_that_only_removes_is_reached_at_once() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2, 3))
    assert reassign(cluster, (2, 3), allow_replication_factor_change=False) is (
        E.INVALID_REPLICATION_FACTOR
    )
    assert reassign(cluster, (2, 3)) is E.NONE
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.leader, found.leader_epoch) == ((2, 3), (2, 3), 2, 1)
    assert reassign(cluster, (2, 3)) is E.NONE
    assert cluster.last == ()


def test_a_target_with_fewer_replicas_waits_until_all_of_them_are_in_sync() -> None:
    cluster = Cluster(4)
    cluster.create("t", (1, 2, 3))
    cluster.propose("t", (1, 3))
    assert reassign(cluster, (1, 2)) is E.NONE
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.removing_replicas) == ((1, 2, 3), (1, 3), (3,))
    cluster.propose("t", (1, 3, 2))
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.removing_replicas) == ((1, 2), (1, 2), ())
    cluster.propose("t", (1,))
    assert reassign(cluster, (1, 3)) is E.NONE
    cluster.propose("t", (1, 3))
    assert cluster.partition("t").replicas == (1, 3), "as many as before"


def test_a_reassignment_of_a_leaderless_partition_ends_when_any_broker_joins() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1,), unclean_leader_election_enable="true")
    reassign(cluster, (2,))
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").isr == (2,)
    cluster.heartbeat(2, want_fence=True)
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.leader) == ((2, 1), (2,), -1)
    cluster.heartbeat(3, want_fence=True)
    cluster.heartbeat(3)
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.leader) == ((2,), (2,), -1)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == 2


@pytest.mark.parametrize("replicas", [(), (1, 1), (9,), (-1,)])
def test_targets_that_cannot_be(replicas: tuple[int, ...]) -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    assert reassign(cluster, replicas) is E.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, (1,), topic="nobody") is E.UNKNOWN_TOPIC_OR_PARTITION
    twice = (r.Reassignment("t", 0, (1,)), r.Reassignment("t", 0, (2,)))
    answer = cluster.ask(r.AlterPartitionReassignments(twice))
    assert [p.error for p in answer.partitions] == [E.NONE, E.INVALID_REQUEST]


# --- elections ------------------------------------------------------------------------------------


def elect(cluster: Cluster, kind: int, topic: str = "t", index: int = 0) -> ErrorCode:
    answer = cluster.ask(r.ElectLeaders(kind, ((topic, index),)))
    error: ErrorCode = answer.partitions[0].error
    return error


def test_the_preferred_leader_is_elected_when_it_can_lead() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    assert elect(cluster, 0) is E.ELECTION_NOT_NEEDED
    cluster.expire(1)
    assert elect(cluster, 0) is E.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.start_broker(1, "again")
    assert elect(cluster, 0) is E.PREFERRED_LEADER_NOT_AVAILABLE, "not in sync yet"
    cluster.propose("t", (2, 1))
    assert elect(cluster, 0) is E.NONE
    assert cluster.partition("t").leader == 1
    assert elect(cluster, 0, "nobody") is E.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(cluster, 0, "t", 5) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.ask(r.ElectLeaders(2)).error is E.INVALID_REQUEST


def test_an_unclean_election_is_for_leaderless_partitions() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    cluster.propose("t", (1,))
    assert elect(cluster, 1) is E.ELECTION_NOT_NEEDED
    cluster.expire(1)
    cluster.expire(2)
    assert elect(cluster, 1) is E.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.start_broker(2, "again")
    assert cluster.partition("t").leader == -1, "2 is not in sync"
    assert elect(cluster, 1) is E.NONE
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.leader_recovery_state) == (2, (2,), 1)


def test_elections_of_all_partitions_tell_of_those_that_needed_one() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    cluster.create("u", (2, 1))
    cluster.expire(1)
    cluster.start_broker(1, "again")
    cluster.propose("t", (2, 1))
    answer = cluster.ask(r.ElectLeaders(0))
    assert answer.partitions == (r.PartitionOutcome("t", 0),)
    assert cluster.ask(r.ElectLeaders(0)).partitions == ()


def test_leaders_are_balanced_as_time_goes_by() -> None:
    own = ControllerSettings(
        idle_interval_ms=0, leader_imbalance_check_interval_ms=1_000, session_timeout_ms=100_000
    )
    cluster = Cluster(2, settings=own)
    cluster.create("t", (1, 2))
    assert cluster.controller.next_deadline_ms() == 101_000
    cluster.ask(r.UnregisterBroker(1))
    cluster.start_broker(1, "again")
    cluster.propose("t", (2, 1))
    assert cluster.partition("t").leader == 2
    cluster.pass_time(1_000)
    assert cluster.partition("t").leader == 1


@pytest.mark.parametrize("is_allowed", ["true", "false"])
def test_unclean_elections_as_time_goes_by_where_they_are_allowed(is_allowed: str) -> None:
    own = ControllerSettings(idle_interval_ms=0, unclean_election_interval_ms=1_000)
    cluster = Cluster(2, settings=own)
    cluster.create("t", (1, 2))
    cluster.propose("t", (1,))
    cluster.expire(1)
    assert cluster.partition("t").leader == -1
    change = r.ConfigChange(
        r.ConfigResource(4, ""), (r.ConfigOp("unclean.leader.election.enable", is_allowed),)
    )
    cluster.ask(r.IncrementalAlterConfigs((change,)))
    cluster.pass_time(1_000)
    assert cluster.partition("t").leader == (2 if is_allowed == "true" else -1)


def test_leader_epochs_grow_with_a_smaller_isr_below_3_6() -> None:
    for level, epoch in ((11, 1), (12, 0)):
        cluster = Cluster(level=level)
        features = (r.BrokerFeature("metadata.version", VersionRange(1, 30)),)
        for broker in (1, 2):
            cluster.register(broker, features=features)
            cluster.heartbeat(broker)
        cluster.create("t", (1, 2))
        cluster.propose("t", (1,))
        assert cluster.partition("t").leader_epoch == epoch


# --- as Kafka does --------------------------------------------------------------------------------


def test_nobody_creates_a_topic_where_the_metadata_is() -> None:
    assert created(Cluster(1), r.NewTopic("__cluster_metadata", 1, 1)) == [E.INVALID_REQUEST]


def test_partitions_must_be_consecutive() -> None:
    cluster = Cluster(1)

    def create(*numbers: int) -> list[ErrorCode]:
        assignments = ((1,),) * len(numbers)
        topic = r.NewTopic("t", assignments=assignments, partition_numbers=numbers)
        return created(cluster, topic)

    assert create(1) == [E.INVALID_REPLICA_ASSIGNMENT]
    assert create(0, 0) == [E.INVALID_REPLICA_ASSIGNMENT]
    assert create(1, 0) == [E.NONE]
    assert cluster.partition("t", 1).leader == 1


def test_clearing_eligible_replicas_is_a_change_of_the_partition() -> None:
    """Brokers count it: a leader would propose ISRs for an epoch that does not exist otherwise."""
    cluster = Cluster(2, elr=True)
    alter = r.ConfigChange(r.ConfigResource(4, ""), (r.ConfigOp("min.insync.replicas", "2", 0),))
    cluster.ask(r.IncrementalAlterConfigs((alter,)))
    cluster.create("t", (1, 2))
    cluster.heartbeat(2, want_fence=True)
    before = cluster.partition("t")
    assert before.eligible_leader_replicas == (2,)
    cluster.ask(r.IncrementalAlterConfigs((alter,)))
    after = cluster.partition("t")
    assert after.eligible_leader_replicas is None
    assert after.partition_epoch == before.partition_epoch + 1
