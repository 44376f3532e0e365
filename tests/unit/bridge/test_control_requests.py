"""What brokers in ZooKeeper mode are told: everything when they come, then what changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.serial import entity_reader
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages import zookeeper_messages as zk
from quorate.bridge.propagation.control_requests import (
    FULL,
    INCREMENTAL,
    Message,
    Sender,
    changed,
    everything,
    reached_at,
)
from quorate.metadata import requests as r
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records.metadata import RegisterBrokerRecord, RegisteredEndpoint

from tests.unit.bridge.bridge_support import Migrating

SENDER = Sender(3001, 9)


def read(message: Message) -> Any:
    kind = s.request_type(message.api_key, zk.VERSIONS[message.api_key])
    body, size = entity_reader(kind)(message.body, 0)
    assert size == len(message.body)
    return body


def told(messages: list[Message]) -> list[tuple[str, int]]:
    """(name, kind) of each."""
    found = []
    for message in messages:
        body = read(message)
        found.append((type(body).__name__.removesuffix("Request"), getattr(body, "type_", 0)))
    return found


class Watched:
    """A cluster, and the messages that each step causes."""

    def __init__(self, brokers: int) -> None:
        self.cluster = Migrating(brokers)
        self.old = self.image.copy()

    @property
    def image(self) -> MetadataImage:
        return self.cluster.committed

    def after(self, request: Any = None) -> dict[int, list[Message]]:
        if request is not None:
            self.cluster.ask(request)
        changes = self.changes()
        made = changed(self.old, self.image, changes, SENDER)
        self.old = self.image.copy()
        return made

    def changes(self) -> MetadataDelta:
        """What is different, as the loader would tell it."""
        found = MetadataDelta()
        old, new = self.old.topics, self.image.topics
        for topic_id, name in old.names.items():
            if topic_id not in new.names:
                found.topics_deleted[topic_id] = name
        found.topics_created = set(new.names) - set(old.names)
        for partition in new.all_partitions():
            if old.partition(partition.topic_id, partition.partition_id) != partition:
                found.partitions.add((partition.topic_id, partition.partition_id))
        for broker_id in self.image.cluster.brokers.keys() | self.old.cluster.brokers.keys():
            if self.image.cluster.brokers.get(broker_id) != self.old.cluster.brokers.get(broker_id):
                found.brokers.add(broker_id)
        return found


@pytest.fixture
def watched() -> Watched:
    return Watched(3)


def create(name: str, *assignments: tuple[int, ...]) -> r.CreateTopics:
    return r.CreateTopics((r.NewTopic(name, assignments=assignments),))


def test_everything_is_metadata_first_then_the_brokers_own_partitions(watched: Watched) -> None:
    watched.after(create("a", (1, 2), (2, 3)))
    made = everything(watched.image, SENDER, (1, 3))
    assert set(made) == {1, 3}
    assert told(made[1]) == [("UpdateMetadata", FULL), ("LeaderAndIsr", FULL)]
    metadata, leaders = map(read, made[1])
    assert (metadata.controller_id, metadata.controller_epoch) == (3001, 9)
    assert metadata.is_k_raft_controller
    assert leaders.is_k_raft_controller
    assert metadata.broker_epoch == watched.cluster.epochs[1]
    assert [b.id_ for b in metadata.live_brokers] == [1, 2, 3]
    to_another = read(made[3][0])
    assert to_another.broker_epoch == watched.cluster.epochs[3]
    assert replace(to_another, broker_epoch=metadata.broker_epoch) == metadata
    (topic,) = metadata.topic_states
    assert sorted(p.partition_index for p in topic.partition_states) == [0, 1]
    assert s.uuid_text(topic.topic_id) == watched.image.topics.ids["a"]
    (topic,) = leaders.topic_states
    (partition,) = topic.partition_states
    assert (partition.partition_index, partition.leader, partition.isr) == (0, 1, (1, 2))
    assert not partition.is_new
    assert [leader.broker_id for leader in leaders.live_leaders] == [1]


def test_a_new_topic_reaches_replicas_as_leaders_and_all_as_metadata(watched: Watched) -> None:
    made = watched.after(create("a", (1, 2)))
    assert told(made[1]) == [("LeaderAndIsr", INCREMENTAL), ("UpdateMetadata", INCREMENTAL)]
    assert told(made[3]) == [("UpdateMetadata", INCREMENTAL)]
    (partition,) = read(made[2][0]).topic_states[0].partition_states
    assert partition.is_new


def test_a_deleted_topic_is_stopped_and_forgotten(watched: Watched) -> None:
    watched.after(create("a", (1, 2)))
    made = watched.after(r.DeleteTopics((r.TopicRef("a"),)))
    assert told(made[1]) == [("UpdateMetadata", INCREMENTAL), ("StopReplica", 0)]
    assert told(made[3]) == [("UpdateMetadata", INCREMENTAL)]
    (gone,) = read(made[3][0]).topic_states[0].partition_states
    assert gone.leader == -2
    (stopped,) = read(made[1][1]).topic_states[0].partition_states
    assert stopped.delete_partition
    assert stopped.leader_epoch == -2


def test_a_reassignment_tells_who_comes_and_stops_who_goes(watched: Watched) -> None:
    watched.after(create("a", (1, 2)))
    wanted = r.AlterPartitionReassignments((r.Reassignment("a", 0, (1, 3)),))
    made = watched.after(wanted)
    assert told(made[1])[0] == ("LeaderAndIsr", INCREMENTAL), "the leader must follow more"
    (partition,) = read(made[1][0]).topic_states[0].partition_states
    assert (partition.leader, partition.leader_epoch) == (1, 1)
    (partition,) = read(made[3][0]).topic_states[0].partition_states
    assert partition.is_new is False
    assert partition.adding_replicas == (3,)
    image = watched.image
    topic_id = image.topics.ids["a"]
    now = image.topics.partition(topic_id, 0)
    assert now is not None
    proposal = r.PartitionProposal(
        0, now.leader_epoch, now.partition_epoch, tuple(map(r.IsrMember, (1, 2, 3)))
    )
    answer = r.AlterPartition(
        1, watched.cluster.epochs[1], (r.TopicProposals((proposal,), topic_id),)
    )
    made = watched.after(answer)
    assert told(made[2])[-1] == ("StopReplica", 0)
    (stopped,) = read(made[2][-1]).topic_states[0].partition_states
    now = watched.image.topics.partition(topic_id, 0)
    assert now is not None
    assert (stopped.delete_partition, stopped.leader_epoch) == (True, now.leader_epoch)


def test_a_larger_isr_alone_is_metadata(watched: Watched) -> None:
    watched.after(create("a", (1, 2)))
    watched.cluster.expire(2)
    made = watched.after()
    assert told(made[1])[0] == ("LeaderAndIsr", INCREMENTAL), "a smaller one has a new epoch"
    assert 2 not in made, "a fenced broker is told nothing"
    topic_id = watched.image.topics.ids["a"]
    now = watched.image.topics.partition(topic_id, 0)
    assert now is not None
    assert now.leader_epoch == 1
    watched.cluster.start_zk_broker(2, "again")
    made = watched.after()
    assert told(made[2]) == [("UpdateMetadata", FULL), ("LeaderAndIsr", FULL)], "it is back"
    assert told(made[1]) == [("UpdateMetadata", INCREMENTAL)], "others hear that it lives"
    proposal = r.PartitionProposal(
        0, now.leader_epoch, now.partition_epoch, tuple(map(r.IsrMember, (1, 2)))
    )
    made = watched.after(
        r.AlterPartition(1, watched.cluster.epochs[1], (r.TopicProposals((proposal,), topic_id),))
    )
    assert told(made[1]) == [("UpdateMetadata", INCREMENTAL)]
    (state,) = read(made[1][0]).topic_states[0].partition_states
    assert set(state.isr) == {1, 2}


def test_who_leads_again_is_known_to_live_before_it_is_followed(watched: Watched) -> None:
    watched.after(create("a", (1, 2)))
    watched.after(create("b", (3, 2)))
    # A broker that is back before its session was over still leads: nobody else was in sync.
    watched.cluster.expire(2)
    watched.after()
    watched.cluster.expire(1)
    made = watched.after()
    watched.cluster.start_zk_broker(2)
    watched.after()
    watched.cluster.start_zk_broker(1, "again")
    made = watched.after()
    assert told(made[1]) == [("UpdateMetadata", FULL), ("LeaderAndIsr", FULL)]
    assert told(made[2]) == [("UpdateMetadata", INCREMENTAL), ("LeaderAndIsr", INCREMENTAL)]
    metadata, leaders = map(read, made[2])
    assert 1 in [b.id_ for b in metadata.live_brokers]
    (topic,) = leaders.topic_states
    assert (topic.topic_name, topic.partition_states[0].leader) == ("a", 1)
    assert told(made[3]) == [("UpdateMetadata", INCREMENTAL)], "it follows nothing of that"


def test_nothing_is_told_to_brokers_in_kraft_mode(watched: Watched) -> None:
    assert watched.cluster.register(1, "kraft").error.name == "DUPLICATE_BROKER_REGISTRATION"
    watched.cluster.expire(1)
    watched.cluster.start_broker(1, "kraft")
    made = watched.after(create("a", (1, 2)))
    assert 1 not in made
    assert [b.id_ for b in read(made[3][0]).live_brokers] == [1, 2, 3]


def test_what_changes_nothing_for_brokers_is_not_told(watched: Watched) -> None:
    resource = r.ConfigResource(4, "1")
    op = r.ConfigOp("num.io.threads", "3")
    assert watched.after(r.IncrementalAlterConfigs((r.ConfigChange(resource, (op,)),))) == {}


def test_the_listener_that_is_dialled_is_named_or_the_first_in_clear() -> None:
    broker = RegisterBrokerRecord(
        broker_id=1,
        end_points=(
            RegisteredEndpoint("SSL", "a", 1, 1),
            RegisteredEndpoint("PLAINTEXT", "b", 2, 0),
            RegisteredEndpoint("INTERNAL", "c", 3, 0),
        ),
    )

    def host(listener: str | None) -> str | None:
        found = reached_at(broker, listener)
        return None if found is None else found.host

    assert (host(None), host("INTERNAL"), host("SSL"), host("NO")) == ("b", "c", "a", None)
