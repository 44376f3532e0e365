"""Activation of the controller, and brokers: sessions, fencing, shutdown, failover."""

from __future__ import annotations

from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata import requests as r
from quorate.metadata.controller import MetadataController
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.settings import ControllerSettings
from quorate.raft.errors import MisuseError
from quorate.records import metadata as rec
from quorate.records.metadata.nodes import UNFENCE

from tests.unit.metadata.metadata_support import FEATURES, QUIET, Cluster, uuid_of

E = ErrorCode


def kinds(cluster: Cluster) -> list[str]:
    return [type(record).__name__.removesuffix("Record") for record in cluster.last]


# --- activation -----------------------------------------------------------------------------------


def test_a_plain_quorum_stays_plain() -> None:
    """Nothing is written until a request writes something; then the features come first."""
    cluster = Cluster(settings=ControllerSettings())
    assert cluster.offset == 0
    assert cluster.controller.next_deadline_ms() is None
    cluster.pass_time(3_600_000)
    refused = cluster.ask(r.CreateTopics((r.NewTopic("t", 1, 1),)))
    assert refused.topics[0].error is E.INVALID_REPLICATION_FACTOR
    assert cluster.offset == 0
    answer = cluster.register(1)
    assert kinds(cluster) == ["FeatureLevel", "RegisterBroker"]
    assert answer.broker_epoch == 1, "the offset of its record"
    assert cluster.committed.features.metadata_version == 30


def test_bootstrap_levels_are_the_callers() -> None:
    cluster = Cluster(elr=True)
    cluster.register(1)
    levels = {"metadata.version": 30, "eligible.leader.replicas.version": 1}
    assert cluster.committed.features.levels == levels


def test_only_an_active_controller_handles() -> None:
    controller = MetadataController(lambda: bytes(16), QUIET)
    assert controller.next_deadline_ms() is None
    for use in (
        lambda: controller.handle(r.CreateTopics(()), 0, 0),
        lambda: controller.tick(0, 0),
        lambda: controller.image,
    ):
        with pytest.raises(MisuseError):
            use()
    controller.activate(MetadataImage(), 1, 0, 0)
    assert controller.is_active
    assert controller.epoch == 1
    controller.deactivate()
    assert not controller.is_active


def test_no_ops_once_metadata_is_in_use() -> None:
    cluster = Cluster(settings=ControllerSettings(idle_interval_ms=500))
    cluster.register(1)
    before = cluster.offset
    cluster.pass_time(499)
    assert cluster.offset == before
    cluster.pass_time(1)
    assert kinds(cluster) == ["NoOp"]
    cluster.pass_time(5_000)
    assert cluster.offset == before + 11


def test_a_new_controller_gives_brokers_a_whole_session_and_goes_on() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2, 3))
    cluster.pass_time(8_999)
    cluster.activate()
    assert cluster.last == ()
    cluster.pass_time(8_999)
    assert not any(broker.fenced for broker in cluster.committed.cluster.brokers.values())
    cluster.pass_time(1)
    assert all(broker.fenced for broker in cluster.committed.cluster.brokers.values())


def test_an_open_transaction_is_aborted() -> None:
    cluster = Cluster(1)
    assert (
        cluster.controller.replay(
            (rec.BeginTransactionRecord("copy"),), cluster.now_ms, cluster.offset
        )
        is None
    )
    cluster.committed.apply(rec.BeginTransactionRecord("copy"), cluster.offset)
    cluster.offset += 1
    cluster.activate()
    assert kinds(cluster) == ["AbortTransaction"]
    assert not cluster.committed.in_transaction


# --- records that others made ---------------------------------------------------------------------


def replay(cluster: Cluster, *records: Any) -> str | None:
    reason = cluster.controller.replay(records, cluster.now_ms, cluster.offset)
    if reason is None:
        cluster.committed.apply_batch(records, cluster.offset, cluster.epoch, cluster.now_ms)
        cluster.offset += len(records)
    return reason


def test_records_that_cannot_be_replayed_change_nothing() -> None:
    cluster = Cluster(1)
    topic = rec.TopicRecord("t", uuid_of("t"))
    reason = replay(cluster, topic, rec.RemoveTopicRecord(uuid_of("other")))
    assert reason is not None
    assert f"offset {cluster.offset + 1}" in reason
    assert cluster.controller.image == cluster.committed
    assert replay(cluster, topic) is None
    assert replay(cluster, rec.PartitionRecord(0, uuid_of("t"), (1,), (1,), leader=1)) is None
    assert cluster.controller.image == cluster.committed
    cluster.expire(1)
    assert cluster.partition("t").leader == -1, "the index knows what was replayed"


def test_a_transaction_of_several_batches() -> None:
    cluster = Cluster(1)
    assert replay(cluster, rec.EndTransactionRecord()) is not None
    assert replay(cluster, rec.BeginTransactionRecord(), rec.TopicRecord("t", uuid_of("t"))) is None
    assert replay(cluster, rec.BeginTransactionRecord()) is not None
    assert "t" in cluster.controller.image.topics.ids
    assert "t" not in cluster.committed.topics.ids
    assert replay(cluster, rec.TopicRecord("u", uuid_of("u")), rec.EndTransactionRecord()) is None
    assert cluster.controller.image == cluster.committed
    assert len(cluster.committed.topics) == 2


def test_an_aborted_transaction_is_undone() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    topic_id = cluster.committed.topics.ids["t"]
    assert replay(cluster, rec.BeginTransactionRecord(), rec.RemoveTopicRecord(topic_id)) is None
    assert replay(cluster, rec.AbortTransactionRecord("no")) is None
    assert cluster.controller.image == cluster.committed
    cluster.expire(1)
    assert cluster.partition("t").isr == (2,)


# --- registration ---------------------------------------------------------------------------------


def test_a_registered_broker_is_fenced_until_it_has_caught_up() -> None:
    cluster = Cluster()
    epoch = cluster.register(1).broker_epoch
    behind = cluster.heartbeat(1, metadata_offset=epoch - 1)
    assert (behind.caught_up, behind.is_fenced) == (False, True)
    waiting = cluster.heartbeat(1, metadata_offset=epoch, want_fence=True)
    assert (waiting.caught_up, waiting.is_fenced) == (True, True)
    assert cluster.last == ()
    ready = cluster.heartbeat(1, metadata_offset=epoch)
    assert (ready.caught_up, ready.is_fenced) == (True, False)
    assert cluster.committed.cluster.is_active(1)


def test_another_process_waits_until_the_session_ends() -> None:
    cluster = Cluster(1)
    assert cluster.register(1, "other").error is E.DUPLICATE_BROKER_REGISTRATION
    cluster.pass_time(9_000)
    old = cluster.committed.cluster.brokers[1].broker_epoch
    answer = cluster.register(1, "other")
    assert answer.error is E.NONE
    assert answer.broker_epoch > old
    stale = cluster.ask(r.BrokerHeartbeat(1, old, cluster.offset))
    assert stale.error is E.STALE_BROKER_EPOCH


def test_the_same_process_may_register_again() -> None:
    cluster = Cluster(1)
    epoch = cluster.epochs[1]
    again = cluster.register(1, rack="elsewhere")
    assert again.broker_epoch == epoch
    broker = cluster.committed.cluster.brokers[1]
    assert (broker.fenced, broker.rack) == (False, "elsewhere")


def test_a_broker_that_stopped_in_order_is_replaced_at_once() -> None:
    cluster = Cluster(2)
    assert cluster.heartbeat(1, want_shutdown=True).should_shut_down
    assert cluster.register(1, "next").error is E.NONE


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "another"}, E.INCONSISTENT_CLUSTER_ID),
        ({"broker_id": -1}, E.INVALID_REGISTRATION),
        ({"incarnation_id": "A" * 22}, E.INVALID_REGISTRATION),
        ({"incarnation_id": "x" * 22}, E.INVALID_REGISTRATION),
        ({"endpoints": ()}, E.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("P", "h", 70_000),)}, E.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("P", "h", 1), Endpoint("P", "h", 2))}, E.INVALID_REGISTRATION),
        ({"endpoints": (Endpoint("P", "h" * 40_000, 1),)}, E.INVALID_REGISTRATION),
        ({"security_protocols": (0, 1)}, E.INVALID_REGISTRATION),
        ({"security_protocols": (4,)}, E.INVALID_REGISTRATION),
        ({"log_dirs": ("A" * 21 + "Q",)}, E.INVALID_REGISTRATION),
        ({"log_dirs": (uuid_of(1), uuid_of(1))}, E.INVALID_REGISTRATION),
        ({"log_dirs": ("short",)}, E.INVALID_REGISTRATION),
        ({"log_dirs": (uuid_of(("directory", 1)),)}, E.INVALID_REGISTRATION),
        ({"features": (*FEATURES, FEATURES[0])}, E.INVALID_REGISTRATION),
        (
            {"features": (r.BrokerFeature("metadata.version", VersionRange(7, 40_000)),)},
            E.INVALID_REGISTRATION,
        ),
        (
            {"features": (r.BrokerFeature("metadata.version", VersionRange(7, 29)),)},
            E.UNSUPPORTED_VERSION,
        ),
        ({"features": ()}, E.INVALID_REGISTRATION),
        ({"log_dirs": ()}, E.INVALID_REGISTRATION),
    ],
    ids=str,
)
def test_registrations_that_are_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    cluster = Cluster(1, cluster_id="this")
    values: dict[str, Any] = {
        "broker_id": 2,
        "incarnation_id": uuid_of("two"),
        "endpoints": (Endpoint("PLAINTEXT", "h", 9092),),
        "log_dirs": (uuid_of("disk"),),
        "features": FEATURES,
    }
    answer = cluster.ask(r.RegisterBroker(**(values | fields)))
    assert answer.error is error
    assert answer.message
    assert cluster.last == ()


# --- fencing --------------------------------------------------------------------------------------


def test_a_broker_that_falls_silent_leaves_every_isr() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2, 3), (2, 3, 1))
    cluster.create("alone", (1,))
    cluster.expire(1)
    assert cluster.committed.cluster.brokers[1].fenced
    assert [cluster.partition("t", i).isr for i in (0, 1)] == [(2, 3), (2, 3)]
    assert [cluster.partition("t", i).leader for i in (0, 1)] == [2, 2]
    assert cluster.partition("t", 1).leader_epoch == 0, "it went on leading"
    alone = cluster.partition("alone")
    assert (alone.isr, alone.leader, alone.leader_epoch) == ((1,), -1, 1)


def test_the_last_member_stays_in_and_leads_again_when_it_is_back() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    cluster.expire(1)
    cluster.expire(2)
    found = cluster.partition("t")
    assert (found.isr, found.leader) == ((2,), -1)
    cluster.start_broker(1, "again")
    assert cluster.partition("t").leader == -1, "1 may lack what 2 acknowledged"
    cluster.start_broker(2, "again")
    found = cluster.partition("t")
    assert (found.isr, found.leader) == ((2,), 2)


def test_unfencing_elects_for_leaderless_partitions_only() -> None:
    cluster = Cluster(2)
    cluster.create("led", (1, 2))
    cluster.expire(1)
    cluster.start_broker(1, "again")
    assert kinds(cluster) == ["BrokerRegistrationChange"]
    assert cluster.partition("led").leader == 2


def test_what_does_not_fit_a_batch_is_done_in_further_ones() -> None:
    settings = ControllerSettings(
        idle_interval_ms=0, leader_imbalance_check_interval_ms=0, records_per_batch_max=10
    )
    cluster = Cluster(3, settings=settings)
    for name in "abcd":
        cluster.create(name, *[(1, 2, 3)] * 9)
    cluster.pass_time(8_999)
    for broker in (2, 3):
        cluster.heartbeat(broker)
    cluster.now_ms += 1
    assert cluster.tick()
    assert cluster.committed.cluster.brokers[1].fenced
    assert len(cluster.last) == 11
    cluster.register(1, "again")
    assert cluster.heartbeat(1).is_fenced, "it is still being taken out of ISRs"
    cluster.activate()
    cluster.pass_time(1)
    assert all(p.isr == (2, 3) for p in cluster.committed.topics.all_partitions())
    assert not cluster.heartbeat(1).is_fenced


# --- controlled shutdown --------------------------------------------------------------------------


def test_controlled_shutdown() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2, 3), (2, 1, 3))
    began = cluster.heartbeat(1, want_shutdown=True)
    assert (began.in_controlled_shutdown, began.is_fenced, began.should_shut_down) == (
        True,
        False,
        False,
    )
    last_offset = cluster.offset - 1
    assert [cluster.partition("t", i).isr for i in (0, 1)] == [(2, 3), (2, 3)]
    assert not cluster.committed.cluster.is_active(1)
    cluster.heartbeat(2, metadata_offset=last_offset)
    cluster.heartbeat(3, metadata_offset=last_offset - 1)
    assert not cluster.heartbeat(1, want_shutdown=True).should_shut_down, "3 does not know yet"
    cluster.heartbeat(3, metadata_offset=last_offset)
    done = cluster.heartbeat(1, want_shutdown=True)
    assert (done.should_shut_down, done.is_fenced) == (True, True)
    broker = cluster.committed.cluster.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown) == (True, True)
    cluster.start_broker(1, "next")
    assert cluster.committed.cluster.is_active(1)


def test_a_new_controller_goes_on_with_a_controlled_shutdown() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2, 3))
    cluster.heartbeat(1, want_shutdown=True)
    cluster.activate()
    assert not cluster.heartbeat(1, want_shutdown=True).should_shut_down
    for broker in (2, 3):
        cluster.heartbeat(broker)
    assert cluster.heartbeat(1, want_shutdown=True).should_shut_down


def test_no_replica_is_placed_on_a_broker_in_controlled_shutdown() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2, 3))
    cluster.heartbeat(1, want_shutdown=True)

    def create(name: str, factor: int) -> E:
        return cluster.ask(r.CreateTopics((r.NewTopic(name, 6, factor),))).topics[0].error

    assert create("during-3", 3) is E.INVALID_REPLICATION_FACTOR
    assert create("during-2", 2) is E.NONE
    assert {each for i in range(6) for each in cluster.partition("during-2", i).replicas} == {2, 3}
    for broker in (2, 3):
        cluster.heartbeat(broker)
    assert cluster.heartbeat(1, want_shutdown=True).should_shut_down
    assert create("fenced", 3) is E.NONE


def test_the_last_of_an_isr_may_stop_too() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1,))
    cluster.heartbeat(1, want_shutdown=True)
    found = cluster.partition("t")
    assert (found.isr, found.leader) == ((1,), -1)
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shutdown=True).should_shut_down


def test_without_controlled_shutdown_in_the_log_isrs_are_left_all_the_same() -> None:
    """metadata.version 3.3-IV0 and before could not write it."""
    cluster = Cluster(level=4)
    features = (r.BrokerFeature("metadata.version", VersionRange(1, 30)),)
    for broker in (1, 2):
        cluster.register(broker, features=features)
        cluster.heartbeat(broker)
    assert kinds(cluster) == ["UnfenceBroker"]
    cluster.create("t", (1, 2))
    answer = cluster.heartbeat(1, want_shutdown=True)
    assert not answer.in_controlled_shutdown
    assert cluster.partition("t").isr == (2,)
    assert cluster.heartbeat(1, want_shutdown=True).should_shut_down
    assert kinds(cluster) == ["FenceBroker"]


# --- unregistering, directories, producer ids -----------------------------------------------------


def test_unregistering() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    assert cluster.ask(r.UnregisterBroker(1)).error is E.NONE
    assert cluster.partition("t").isr == (2,)
    assert 1 not in cluster.committed.cluster.brokers
    assert cluster.ask(r.UnregisterBroker(1)).error is E.BROKER_ID_NOT_REGISTERED
    gone = cluster.ask(r.BrokerHeartbeat(1, cluster.epochs[1], 0))
    assert gone.error is E.STALE_BROKER_EPOCH


def test_a_failed_directory_takes_its_replicas_out() -> None:
    first, second = uuid_of("d1"), uuid_of("d2")
    cluster = Cluster(1)
    cluster.register(2, log_dirs=(first, second))
    cluster.heartbeat(2)
    cluster.create("t", (1, 2), (1, 2))
    topic_id = cluster.committed.topics.ids["t"]
    own = uuid_of(("directory", 1))
    for index, directory in enumerate((first, second)):
        record = rec.PartitionChangeRecord(index, topic_id, directories=(own, directory))
        assert replay(cluster, record) is None
    cluster.heartbeat(2, offline_log_dirs=(first,))
    assert [cluster.partition("t", i).isr for i in (0, 1)] == [(1,), (1, 2)]
    assert cluster.committed.cluster.brokers[2].log_dirs == (second,)
    cluster.heartbeat(2, offline_log_dirs=(first,))
    assert cluster.last == ()


def cordoned(cluster: Cluster, broker: int) -> tuple[str, ...] | None:
    return cluster.committed.cluster.brokers[broker].cordoned_log_dirs


def test_cordoned_directories_are_what_the_broker_last_said() -> None:
    first, second = uuid_of("d1"), uuid_of("d2")
    cluster = Cluster()
    cluster.register(1, log_dirs=(first, second))
    (record,) = [each for each in cluster.last if isinstance(each, rec.RegisterBrokerRecord)]
    assert (record.version, record.cordoned_log_dirs) == (4, None), "the broker does not know yet"
    cluster.heartbeat(1, want_fence=True)
    assert cluster.last == ()

    # As in Kafka, the change of state precedes it, in a record of its own.
    epoch = cluster.epochs[1]
    assert not cluster.heartbeat(1, cordoned_log_dirs=()).is_fenced
    assert cluster.last == (
        rec.BrokerRegistrationChangeRecord(1, epoch, fenced=UNFENCE, version=0),
        rec.BrokerRegistrationChangeRecord(1, epoch, cordoned_log_dirs=(), version=3),
    )
    assert cordoned(cluster, 1) == ()
    for told in ((), None):
        cluster.heartbeat(1, cordoned_log_dirs=told)
        assert cluster.last == ()
    cluster.heartbeat(1, cordoned_log_dirs=(second, first))
    assert len(cluster.last) == 1
    assert cordoned(cluster, 1) == (second, first)
    for told in ((first, second), (first, second, first), None):
        cluster.heartbeat(1, cordoned_log_dirs=told)
        assert cluster.last == (), "a list in another order is no change"
    cluster.activate()
    assert cordoned(cluster, 1) == (second, first)
    cluster.heartbeat(1, cordoned_log_dirs=(), offline_log_dirs=(first,))
    assert [each.version for each in cluster.last] == [2, 3], "both in one batch"
    assert cordoned(cluster, 1) == ()

    # The same process amends its registration, and says it again.
    cluster.heartbeat(1, cordoned_log_dirs=(second,))
    cluster.register(1, log_dirs=(second,))
    assert cordoned(cluster, 1) is None
    cluster.heartbeat(1, cordoned_log_dirs=(second,))
    assert cordoned(cluster, 1) == (second,)
    stale = cluster.ask(r.BrokerHeartbeat(1, epoch - 1, 0, cordoned_log_dirs=()))
    assert stale.error is E.STALE_BROKER_EPOCH
    assert cordoned(cluster, 1) == (second,)


def test_cordoned_directories_need_a_metadata_version() -> None:
    cluster = Cluster(1, level=29)
    cluster.heartbeat(1, cordoned_log_dirs=(uuid_of(("directory", 1)),))
    assert cluster.last == ()
    assert cordoned(cluster, 1) is None


def test_new_replicas_avoid_brokers_whose_directories_are_all_cordoned() -> None:
    cluster = Cluster(3)
    own = uuid_of(("directory", 2))
    cluster.heartbeat(2, cordoned_log_dirs=(own, uuid_of("of another")))
    for number in range(4):
        made = cluster.ask(r.CreateTopics((r.NewTopic(f"t{number}", 3, 2),)))
        assert made.topics[0].error is E.NONE
        assert all(set(cluster.partition(f"t{number}", i).replicas) == {1, 3} for i in range(3))
    refused = cluster.ask(r.CreateTopics((r.NewTopic("wide", 1, 3),))).topics[0]
    assert refused.error is E.INVALID_REPLICATION_FACTOR
    assert "only 2 broker(s) are registered or some brokers have all their log" in refused.message
    # Whoever names the brokers may choose it, as in Kafka.
    cluster.create("manual", (2,))
    moved = cluster.ask(r.AlterPartitionReassignments((r.Reassignment("t0", 0, (1, 2)),)))
    assert moved.partitions[0].error is E.NONE
    for broker in (1, 3):
        cluster.heartbeat(broker, cordoned_log_dirs=(uuid_of(("directory", broker)),))
    refused = cluster.ask(r.CreateTopics((r.NewTopic("none", 1, 1),))).topics[0]
    assert refused.error is E.INVALID_REPLICATION_FACTOR
    cluster.heartbeat(2, cordoned_log_dirs=())
    assert cluster.ask(r.CreateTopics((r.NewTopic("one", 1, 1),))).topics[0].error is E.NONE
    assert cluster.partition("one").replicas == (2,)


def test_producer_ids_are_given_in_blocks_and_never_twice() -> None:
    cluster = Cluster(2)
    blocks = [
        cluster.ask(r.AllocateProducerIds(broker, cluster.epochs[broker])) for broker in (1, 2, 1)
    ]
    assert [(block.start, block.count) for block in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    cluster.activate()
    assert cluster.ask(r.AllocateProducerIds(2, cluster.epochs[2])).start == 3000
    assert cluster.ask(r.AllocateProducerIds(2, 0)).error is E.STALE_BROKER_EPOCH
    assert cluster.ask(r.AllocateProducerIds(7, 0)).error is E.STALE_BROKER_EPOCH


# --- eligible leader replicas ---------------------------------------------------------------------


def elr_cluster() -> Cluster:
    cluster = Cluster(3, elr=True)
    cluster.create("t", (1, 2, 3), min_insync_replicas="2")
    cluster.expire(1)
    cluster.expire(2)
    return cluster


def test_who_leaves_a_small_isr_is_eligible() -> None:
    cluster = elr_cluster()
    found = cluster.partition("t")
    assert (found.isr, found.leader, found.eligible_leader_replicas) == ((3,), 3, (2,))
    cluster.expire(3)
    found = cluster.partition("t")
    assert (found.isr, found.leader) == ((), -1)
    assert found.eligible_leader_replicas == (2, 3)
    assert found.last_known_elr == (3,)


def test_an_eligible_replica_that_stopped_cleanly_may_lead() -> None:
    cluster = elr_cluster()
    cluster.expire(3)
    cluster.register(2, "again", previous_epoch=cluster.epochs[2])
    cluster.heartbeat(2)
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.eligible_leader_replicas) == (2, (2,), (3,))
    assert found.last_known_elr is None


def test_one_that_did_not_is_not_eligible_any_more() -> None:
    cluster = elr_cluster()
    cluster.expire(3)
    cluster.register(2, "again")
    assert cluster.partition("t").eligible_leader_replicas == (3,)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == -1
    cluster.register(3, "again")
    assert cluster.partition("t").eligible_leader_replicas is None
    cluster.heartbeat(3)
    found = cluster.partition("t")
    assert (found.leader, found.isr) == (3, (3,)), "the last leader is the best guess"
    assert found.leader_recovery_state == 1


def test_a_large_isr_needs_no_eligible_replicas() -> None:
    cluster = elr_cluster()
    cluster.start_broker(2, "again")
    cluster.propose("t", (3, 2))
    assert cluster.partition("t").eligible_leader_replicas is None


def test_the_last_leader_is_known_until_the_next_one() -> None:
    cluster = Cluster(2, elr=True)
    cluster.create("t", (1, 2))
    # Broker 2 is active, but lost the directory of its replica.
    cluster.register(2, log_dirs=(uuid_of("another directory"),))
    cluster.expire(1)
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.last_known_elr) == (-1, (2,), (1,))
    cluster.start_broker(4)
    assert cluster.partition("t").last_known_elr == (1,)
    cluster.register(2)
    cluster.start_broker(5)
    found = cluster.partition("t")
    assert (found.leader, found.last_known_elr) == (2, None)


def test_a_last_leader_that_leaves_the_replicas_is_forgotten() -> None:
    """It deletes its records: added again, it would lead without any."""
    cluster = Cluster(2, elr=True)
    cluster.create("t", (1, 2))
    cluster.register(2, log_dirs=(uuid_of("another directory"),))
    cluster.expire(1)
    assert cluster.partition("t").last_known_elr == (1,)
    cluster.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, (2,)),)))
    found = cluster.partition("t")
    assert (found.replicas, found.leader, found.last_known_elr) == ((2,), -1, None)
    cluster.start_broker(1, "again")
    cluster.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, (2, 1)),)))
    found = cluster.partition("t")
    assert (found.adding_replicas, found.leader, found.last_known_elr) == ((1,), -1, None)


# --- as Kafka does --------------------------------------------------------------------------------


def test_a_broker_that_was_unregistered_may_have_lost_records() -> None:
    cluster = Cluster(2, elr=True)
    cluster.ask(
        r.IncrementalAlterConfigs(
            (r.ConfigChange(r.ConfigResource(4, ""), (r.ConfigOp("min.insync.replicas", "2", 0),)),)
        )
    )
    cluster.create("t", (1, 2))
    cluster.ask(r.UnregisterBroker(2))
    assert cluster.partition("t").eligible_leader_replicas == (2,)
    cluster.register(2, "next")
    assert cluster.partition("t").eligible_leader_replicas is None


def test_the_registration_counts_for_a_broker_that_registers_again() -> None:
    """Its epoch stays that of the first one, but it must replay the last one."""
    cluster = Cluster(1)
    before = cluster.offset
    cluster.register(1)
    assert not cluster.heartbeat(1, metadata_offset=before - 1).caught_up
    assert cluster.heartbeat(1, metadata_offset=before).caught_up


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    assert cluster.heartbeat(2, want_shutdown=True).should_shut_down
    assert cluster.partition("t").isr == (1,)
    assert kinds(cluster) == ["PartitionChange", "BrokerRegistrationChange"]


def test_a_feature_that_is_not_finalized_must_allow_its_absence() -> None:
    cluster = Cluster(1)
    features = (*FEATURES, r.BrokerFeature("foo.version", VersionRange(1, 3)))
    assert cluster.register(2, features=features).error is E.UNSUPPORTED_VERSION
    assert cluster.register(2, features=features[1:]).error is E.UNSUPPORTED_VERSION
    features = (*FEATURES, r.BrokerFeature("foo.version", VersionRange(0, 3)))
    assert cluster.register(2, features=features).error is E.NONE
