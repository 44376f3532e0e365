"""AssignReplicasToDirs (KIP-858): what brokers say of where their replicas lie."""

from __future__ import annotations

import pytest
from quorate.common.error_codes import ErrorCode as E
from quorate.metadata import requests as r
from quorate.metadata.managers.controller_context import LOST_DIRECTORY, MIGRATING_DIRECTORY
from quorate.records.metadata import (
    PartitionRecord,
    TopicRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)

from tests.unit.metadata.metadata_support import Cluster, uuid_of

OTHER, THIRD = uuid_of("another directory"), uuid_of("a third directory")


def assign(cluster: Cluster, *assignments: tuple[str, str, int], broker: int = 1) -> list[E]:
    """The errors; assignments: (directory, topic id, partition)."""
    wanted = tuple(r.ReplicaAssignment(*each) for each in assignments)
    answer = cluster.ask(r.AssignReplicasToDirs(broker, cluster.epochs[broker], wanted))
    assert answer.error is E.NONE, answer
    assert [(a.directory_id, a.topic_id, a.partition) for a in answer.replicas] == list(assignments)
    return [each.error for each in answer.replicas]


def directory(broker: int) -> str:
    return uuid_of(("directory", broker))


def copied(cluster: Cluster) -> str:
    """A topic of which nobody knows where its replicas lie, as a migration leaves it."""
    topic_id = uuid_of("copied")
    records = (
        TopicRecord("copied", topic_id, version=0),
        PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=(1, 2), isr=(1, 2), leader=1,
            leader_epoch=5, partition_epoch=7, version=1,
        ),
    )  # fmt: skip
    assert cluster.controller.replay(records, cluster.now_ms, cluster.offset) is None
    cluster.committed.apply_batch(records, cluster.offset, cluster.epoch, cluster.now_ms)
    cluster.offset += len(records)
    return topic_id


def test_each_broker_says_where_its_replica_lies() -> None:
    cluster = Cluster(2)
    topic_id = copied(cluster)
    assert assign(cluster, (directory(1), topic_id, 0)) == [E.NONE]
    partition = cluster.committed.topics.partition(topic_id, 0)
    assert partition is not None
    assert partition.directories == (directory(1), MIGRATING_DIRECTORY)
    assert assign(cluster, (directory(2), topic_id, 0), broker=2) == [E.NONE]
    partition = cluster.committed.topics.partition(topic_id, 0)
    assert partition is not None
    assert partition.directories == (directory(1), directory(2))
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2), 5)
    assert assign(cluster, (directory(2), topic_id, 0), broker=2) == [E.NONE]
    assert cluster.last == (), "nothing is written twice"


def test_a_new_order_of_replicas_without_directories_writes_none() -> None:
    cluster = Cluster(2)
    copied(cluster)
    cluster.ask(r.AlterPartitionReassignments((r.Reassignment("copied", 0, (2, 1)),)))
    (record,) = cluster.last
    assert (record.replicas, record.directories) == ((2, 1), None)
    assert cluster.partition("copied").directories == ()


def test_a_replica_in_a_lost_or_unknown_directory_is_not_in_sync() -> None:
    for lost in (OTHER, LOST_DIRECTORY):
        cluster = Cluster(2)
        topic_id = copied(cluster)
        assert assign(cluster, (lost, topic_id, 0)) == [E.NONE]
        partition = cluster.committed.topics.partition(topic_id, 0)
        assert partition is not None
        assert partition.directories == (lost, MIGRATING_DIRECTORY)
        assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 6)


def test_what_cannot_be_is_refused_one_by_one() -> None:
    cluster = Cluster(3)
    topic_id = copied(cluster)
    here = directory(3)
    errors = assign(
        cluster, (here, uuid_of("no"), 0), (here, topic_id, 1), (here, topic_id, 0), broker=3
    )
    assert errors == [E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER]
    twice = assign(cluster, (directory(1), topic_id, 0), (OTHER, topic_id, 0))
    assert twice == [E.NONE, E.INVALID_REQUEST]
    wanted = (r.ReplicaAssignment(directory(1), topic_id, 0),)
    stale = cluster.ask(r.AssignReplicasToDirs(1, cluster.epochs[1] + 1, wanted))
    assert (stale.error, stale.replicas) == (E.STALE_BROKER_EPOCH, ())


def test_an_old_metadata_version_has_no_directories() -> None:
    cluster = Cluster(1, level=16)
    answer = cluster.ask(r.AssignReplicasToDirs(1, cluster.epochs[1], ()))
    assert answer.error is E.UNSUPPORTED_VERSION


def test_while_brokers_migrate_the_leader_is_told_by_a_new_epoch() -> None:
    cluster = Cluster(2)
    topic_id = copied(cluster)
    record = ZkMigrationStateRecord(ZkMigrationState.MIGRATION, version=0)
    assert cluster.controller.replay((record,), cluster.now_ms, cluster.offset) is None
    cluster.committed.apply(record, cluster.offset)
    cluster.offset += 1
    assert assign(cluster, (directory(2), topic_id, 0), broker=2) == [E.NONE]
    partition = cluster.committed.topics.partition(topic_id, 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 6, 8)


def test_a_new_replica_has_kafkas_id_for_an_unknown_directory() -> None:
    """KIP-858: 0 is MIGRATING and 1 UNASSIGNED; Kafka's brokers act on these numbers."""
    cluster = Cluster()
    for broker, directories in ((1, (directory(1),)), (2, (directory(2), OTHER))):
        assert cluster.register(broker, log_dirs=directories).error is E.NONE
        assert not cluster.heartbeat(broker).is_fenced
    topic_id = cluster.create("t", (1, 2))
    partition = cluster.committed.topics.partition(topic_id, 0)
    assert partition is not None
    assert partition.directories == (directory(1), "AAAAAAAAAAAAAAAAAAAAAQ")


def test_a_replica_in_a_lost_directory_is_not_elected() -> None:
    cluster = Cluster(1)
    lost, left = directory(2), OTHER
    cluster.register(2, log_dirs=(lost, left))
    cluster.heartbeat(2)
    topic_id = cluster.create("t", (2, 1))
    assert assign(cluster, (lost, topic_id, 0), broker=2) == [E.NONE]
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(2, offline_log_dirs=(lost,))
    assert cluster.partition("t").leader == -1
    assert cluster.partition("t").isr == (2,), "its last member stays in"
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == -1, "broker 2 is active, but has lost the replica"


def test_all_directories_may_fail() -> None:
    """Kafka's controllers write the registration then, too, although nothing is left in it."""
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    topic_id = cluster.committed.topics.ids["t"]
    assert assign(cluster, (directory(1), topic_id, 0)) == [E.NONE]
    cluster.heartbeat(1, offline_log_dirs=(directory(1),))
    assert [type(record).__name__ for record in cluster.last] == [
        "PartitionChangeRecord",
        "BrokerRegistrationChangeRecord",
    ]
    assert cluster.partition("t").leader == 2


@pytest.mark.parametrize(
    ("broker", "assigned", "directories"),
    [
        (2, OTHER, (directory(3), OTHER)),
        (1, THIRD, (directory(3), directory(2))),
        (1, LOST_DIRECTORY, (directory(3), directory(2))),
    ],
    ids=["of a replica that stays", "of one that leaves", "of one that leaves, and is lost"],
)
def test_a_directory_may_come_when_a_reassignment_can_end(
    broker: int, assigned: str, directories: tuple[str, ...]
) -> None:
    cluster = Cluster(3)
    cluster.register(1, log_dirs=(directory(1), THIRD))
    cluster.register(2, log_dirs=(directory(2), OTHER))
    topic_id = cluster.create("t", (1, 2), unclean_leader_election_enable="true")
    assert assign(cluster, (directory(2), topic_id, 0), broker=2) == [E.NONE]
    cluster.propose("t", (1,))
    cluster.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, (3, 2)),)))
    cluster.expire(1)
    found = cluster.partition("t")
    assert (found.isr, found.adding_replicas) == ((3,), (3,)), "elected, but it did not end yet"
    assert assign(cluster, (assigned, topic_id, 0), broker=broker) == [E.NONE]
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.adding_replicas) == ((3, 2), (3,), ())
    assert found.directories == directories


@pytest.mark.parametrize("by_assignment", [False, True], ids=["failed", "assigned"])
@pytest.mark.parametrize(
    ("is_allowed", "leader", "isr"), [("true", 2, (2,)), ("false", -1, (1,))], ids=str
)
def test_without_the_last_directory_a_leader_out_of_sync_is_elected_where_that_is_allowed(
    is_allowed: str, leader: int, isr: tuple[int, ...], by_assignment: bool
) -> None:
    cluster = Cluster(2)
    topic_id = cluster.create("t", (1, 2), unclean_leader_election_enable=is_allowed)
    cluster.propose("t", (1,))
    if by_assignment:
        assign(cluster, (LOST_DIRECTORY, topic_id, 0))
    else:
        cluster.heartbeat(1, offline_log_dirs=(directory(1),))
    found = cluster.partition("t")
    assert (found.leader, found.isr) == (leader, isr)
    assert found.leader_recovery_state == (leader == 2)


def test_a_failed_directory_lets_others_lead_its_leaderless_partitions() -> None:
    cluster = Cluster(2)
    topic_id = cluster.create("t", (1, 2))
    assert assign(cluster, (directory(1), topic_id, 0)) == [E.NONE]
    cluster.propose("t", (1,))
    cluster.register(1, log_dirs=(directory(1), OTHER))
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").leader == -1
    allowed = (r.ConfigOp("unclean.leader.election.enable", "true"),)
    change = r.ConfigChange(r.ConfigResource(2, "t"), allowed)
    cluster.ask(r.IncrementalAlterConfigs((change,)))
    assert cluster.partition("t").leader == -1
    cluster.heartbeat(1, want_fence=True, offline_log_dirs=(directory(1),))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


@pytest.mark.parametrize(("is_allowed", "leader"), [("true", 2), ("false", -1)])
def test_a_leader_that_has_lost_its_directory_proposes_itself(is_allowed: str, leader: int) -> None:
    cluster = Cluster(2)
    topic_id = cluster.create("t", (1, 2), unclean_leader_election_enable=is_allowed)
    assert assign(cluster, (directory(1), topic_id, 0)) == [E.NONE]
    cluster.register(1, log_dirs=(OTHER,))
    assert cluster.partition("t").leader == 1, "it is the same process"
    assert cluster.propose("t", (1,)).error is E.NEW_LEADER_ELECTED
    assert cluster.partition("t").leader == leader


def test_a_cancelled_reassignment_elects_uncleanly_where_that_is_allowed() -> None:
    cluster = Cluster(3)
    topic_id = cluster.create("t", (1, 2), unclean_leader_election_enable="true")
    assert assign(cluster, (directory(1), topic_id, 0)) == [E.NONE]
    cluster.propose("t", (1,))
    cluster.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, (3, 1, 2)),)))
    cluster.register(1, log_dirs=(OTHER,))
    cluster.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, None),)))
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.leader) == ((1, 2), (2,), 2)


def test_a_failed_directory_lets_a_reassignment_end() -> None:
    cluster = Cluster(3)
    cluster.register(2, log_dirs=(directory(2), OTHER))
    topic_id = cluster.create("t", (1, 2), unclean_leader_election_enable="true")
    assert assign(cluster, (directory(2), topic_id, 0), broker=2) == [E.NONE]
    cluster.propose("t", (1,))
    cluster.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, (3, 2)),)))
    cluster.expire(1)
    found = cluster.partition("t")
    assert (found.isr, found.adding_replicas) == ((3,), (3,)), "elected, but it did not end yet"
    cluster.heartbeat(2, offline_log_dirs=(directory(2),))
    found = cluster.partition("t")
    assert (found.replicas, found.isr, found.adding_replicas) == ((3, 2), (3,), ())


def test_a_failed_directory_moves_partitions_that_others_lead_without_a_directory() -> None:
    cluster = Cluster(3)
    cluster.register(2, log_dirs=(directory(2), OTHER))
    topic_id = cluster.create("t", (1, 2, 3))
    assert assign(cluster, (directory(1), topic_id, 0)) == [E.NONE]
    assert assign(cluster, (directory(2), topic_id, 0), broker=2) == [E.NONE]
    cluster.propose("t", (1, 3))
    cluster.register(1, log_dirs=(THIRD,))
    assert cluster.partition("t").leader == 1, "it is the same process"
    cluster.heartbeat(2, offline_log_dirs=(directory(2),))
    found = cluster.partition("t")
    assert (found.leader, found.isr) == (3, (1, 3))
