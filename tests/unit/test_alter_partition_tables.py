"""Every row of AlterPartition's table of checks, in its order and in every version (KIP-841)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID
from quorate.metadata import requests as r

from tests.unit.metadata.metadata_support import Cluster, uuid_of

E = ErrorCode
VERSIONS = (0, 1, 2, 3)


def cluster() -> Cluster:
    """Three brokers and a partition on all of them, led by 1, whose epochs are not 0 any more."""
    made = Cluster(3)
    made.create("t", (1, 2, 3))
    made.expire(1)
    made.start_broker(1, "again")
    assert made.partition("t").leader == 2
    assert made.propose("t", (2, 3, 1)).error is E.NONE
    made.ask(r.ElectLeaders(0, (("t", 0),)))
    found = made.partition("t")
    assert (found.leader, found.leader_epoch, found.isr) == (1, 2, (2, 3, 1))
    return made


def at(version: int, later: ErrorCode, before: ErrorCode) -> ErrorCode:
    """What KIP-841 brought with version 2, and what stood for it before."""
    return later if version >= 2 else before


@dataclass(frozen=True)
class Row:
    """A proposal that is wrong in one way, and in others that are only looked at later."""

    name: str
    error: ErrorCode
    fields: dict[str, Any]
    since: int = 0


ROWS = [
    Row("an unknown partition", E.UNKNOWN_TOPIC_OR_PARTITION, {"partition": 7, "leader_epoch": 99}),
    Row("the leader epoch is ahead", E.NOT_CONTROLLER, {"leader_epoch": 3, "partition_epoch": 0}),
    Row("the partition epoch is ahead", E.NOT_CONTROLLER, {"partition_epoch": 99}),
    Row(
        "the partition epoch is ahead, the leader epoch behind",
        E.NOT_CONTROLLER,
        {"leader_epoch": 0, "partition_epoch": 99},
    ),
    Row(
        "the leader epoch is behind, and the sender does not lead",
        E.FENCED_LEADER_EPOCH,
        {"leader_epoch": 1, "sender": 2, "partition_epoch": 0},
    ),
    Row(
        "the sender does not lead, and the partition epoch is behind",
        E.INVALID_REQUEST,
        {"sender": 2, "partition_epoch": 0},
    ),
    Row(
        "the partition epoch is behind, and the ISR is malformed",
        E.INVALID_UPDATE_VERSION,
        {"partition_epoch": 0, "isr": (1, 1)},
    ),
    Row("an empty ISR", E.INVALID_REQUEST, {"isr": ()}),
    Row("a member twice", E.INVALID_REQUEST, {"isr": (1, 2, 2)}),
    Row("a member that is no replica", E.INVALID_REQUEST, {"isr": (1, 4)}),
    Row("a negative member", E.INVALID_REQUEST, {"isr": (1, -1)}),
    Row("no leader in the ISR", E.INVALID_REQUEST, {"isr": (2, 3)}),
    Row(
        "recovering with others in sync",
        E.INVALID_REQUEST,
        {"isr": (1, 2), "leader_recovery_state": 1},
        since=1,
    ),
    Row(
        "recovering where it had recovered",
        E.INVALID_REQUEST,
        {"isr": (1,), "leader_recovery_state": 1},
        since=1,
    ),
    Row(
        "no such recovery state",
        E.INVALID_REQUEST,
        {"isr": (1,), "leader_recovery_state": 9},
        since=1,
    ),
]


@pytest.mark.parametrize(
    ("row", "version"),
    [
        pytest.param(row, version, id=f"{row.name}-v{version}")
        for row in ROWS
        for version in VERSIONS
        if version >= row.since
    ],
)
def test_row(row: Row, version: int) -> None:
    made = cluster()
    before = made.offset
    fields = dict(row.fields)
    answer = made.propose("t", fields.pop("isr", (1, 2, 3)), version=version, **fields)
    assert answer.error is row.error
    assert made.offset == before, "what is refused changes nothing"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic(version: int) -> None:
    made = cluster()
    answer = made.propose(
        "t", (1, 2), version=version, topic_id=uuid_of("nobody"), topic_name="nobody"
    )
    assert answer.error is at(version, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION)


def test_names_count_before_version_2_and_ids_from_then_on() -> None:
    made = cluster()
    assert made.propose("t", (1, 2), version=1, topic_id=ZERO_UUID).error is E.NONE
    assert made.propose("t", (1, 2, 3), version=2, topic_name="").error is E.NONE


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", ["unregistered", "fenced", "shutting down"])
def test_an_ineligible_replica(state: str, version: int) -> None:
    made = cluster()
    match state:
        case "unregistered":
            made.ask(r.UnregisterBroker(3))
        case "fenced":
            made.expire(3)
        case "shutting down":
            made.create("led", (3, 1))
            made.heartbeat(3, want_shutdown=True)
            assert made.committed.cluster.brokers[3].in_controlled_shutdown
    assert 3 not in made.partition("t").isr
    before = made.offset
    answer = made.propose("t", (1, 2, 3), version=version)
    assert answer.error is at(version, E.INELIGIBLE_REPLICA, E.OPERATION_NOT_ATTEMPTED)
    assert made.offset == before
    assert made.propose("t", (1,), version=version).error is E.NONE, "without it all is well"


@pytest.mark.parametrize("version", VERSIONS)
def test_malformed_comes_before_ineligible(version: int) -> None:
    made = cluster()
    made.expire(3)
    assert made.propose("t", (2, 3), version=version).error is E.INVALID_REQUEST


def test_another_process_than_the_one_that_fetched_is_ineligible_from_version_3_on() -> None:
    made = cluster()
    made.propose("t", (1, 2))
    stale = {3: made.epochs[3]}
    made.expire(3)
    made.start_broker(3, "again")
    assert made.propose("t", (1, 2, 3), epochs=stale).error is E.INELIGIBLE_REPLICA
    assert made.propose("t", (1, 2, 3), epochs=stale, version=2).error is E.NONE


def test_an_unknown_epoch_of_a_member_is_not_compared() -> None:
    made = cluster()
    assert made.propose("t", (1, 2), epochs={2: -1}).error is E.NONE


def test_the_checks_of_kip_841_can_be_turned_off_by_tests() -> None:
    made = Cluster(3, enforce_eligibility=False)
    made.create("t", (1, 2, 3))
    made.expire(3)
    assert made.propose("t", (1, 2, 3)).error is E.NONE
    assert 3 in made.partition("t").isr, "the danger that the checks are there for"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("how", ["an old epoch", "not registered"])
def test_a_stale_sender_is_refused_whole(version: int, how: str) -> None:
    made = cluster()
    sender, epoch = (1, made.epochs[1] - 1) if how == "an old epoch" else (9, 5)
    answer = made.ask(r.AlterPartition(sender, epoch, (), version))
    assert answer.error is E.STALE_BROKER_EPOCH
    assert made.last == ()


def test_versions_that_do_not_exist() -> None:
    made = cluster()
    for version in (-1, 4):
        answer = made.ask(r.AlterPartition(1, made.epochs[1], (), version))
        assert answer.error is E.UNSUPPORTED_VERSION


def test_a_partition_twice_in_a_request_is_done_once() -> None:
    made = cluster()
    found = made.partition("t")
    proposal = r.PartitionProposal(
        0, found.leader_epoch, found.partition_epoch, (r.IsrMember(1), r.IsrMember(2))
    )
    topic = r.TopicProposals((proposal, proposal), found.topic_id)
    answer = made.ask(r.AlterPartition(1, made.epochs[1], (topic,)))
    assert [p.error for p in answer.topics[0].partitions] == [E.NONE, E.INVALID_REQUEST]


def test_a_partition_twice_is_done_once_even_if_the_first_proposal_elects_another_leader() -> None:
    made = Cluster(3)
    made.create("t", (1, 2))
    made.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, (3, 2)),)))
    found = made.partition("t")
    isr = tuple(r.IsrMember(broker, made.epochs[broker]) for broker in (1, 2, 3))
    proposal = r.PartitionProposal(0, found.leader_epoch, found.partition_epoch, isr)
    topic = r.TopicProposals((proposal, proposal), found.topic_id)
    answer = made.ask(r.AlterPartition(1, made.epochs[1], (topic,)))
    errors = [partition.error for partition in answer.topics[0].partitions]
    assert errors == [E.NEW_LEADER_ELECTED, E.INVALID_REQUEST]
    assert len(made.last) == 1
    assert made.partition("t").partition_epoch == found.partition_epoch + 1


def test_unknown_partitions_are_reported_as_unknown_however_often_they_are_named() -> None:
    made = cluster()
    proposals = tuple(r.PartitionProposal(n, 0, 0, (r.IsrMember(1),)) for n in (0, 0))
    topics = tuple(r.TopicProposals(proposals, topic_name=name) for name in ("nobody", "nothing"))
    answer = made.ask(r.AlterPartition(1, made.epochs[1], topics, 1))
    errors = {partition.error for topic in answer.topics for partition in topic.partitions}
    assert errors == {E.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", VERSIONS)
def test_accepted(version: int) -> None:
    made = cluster()
    before = made.partition("t")
    answer = made.propose("t", (1, 3), version=version)
    assert answer == r.AlteredPartition(
        0, E.NONE, 1, before.leader_epoch, (1, 3), before.partition_epoch + 1, 0
    )
    assert made.partition("t").isr == (1, 3)


def test_what_holds_already_is_answered_without_a_record() -> None:
    made = cluster()
    before = made.partition("t")
    answer = made.propose("t", before.isr)
    assert answer.error is E.NONE
    assert (answer.partition_epoch, made.last) == (before.partition_epoch, ())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_change_that_ends_the_senders_leadership(version: int) -> None:
    """NEW_LEADER_ELECTED is an error with which the change was made."""
    made = Cluster(3)
    made.create("t", (1, 2))
    made.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, (3, 2)),)))
    assert made.partition("t").adding_replicas == (3,)
    answer = made.propose("t", (1, 2, 3), version=version)
    assert answer.error is at(version, E.NEW_LEADER_ELECTED, E.FENCED_LEADER_EPOCH)
    found = made.partition("t")
    assert (found.replicas, found.isr, found.leader) == ((3, 2), (2, 3), 3)
    assert found.removing_replicas == found.adding_replicas == ()


def test_a_reassignment_that_completes_under_the_same_leader_is_no_error() -> None:
    made = Cluster(3)
    made.create("t", (1, 2))
    made.ask(r.AlterPartitionReassignments((r.Reassignment("t", 0, (1, 3)),)))
    answer = made.propose("t", (1, 2, 3))
    assert (answer.error, answer.isr, answer.leader_epoch) == (E.NONE, (1, 3), 1)
    assert made.partition("t").replicas == (1, 3)


def test_a_recovering_leader_says_when_it_has_recovered() -> None:
    made = Cluster(2)
    made.create("t", (1, 2), unclean_leader_election_enable="true")
    made.propose("t", (1,))
    made.expire(1)
    found = made.partition("t")
    assert (found.leader, found.isr, found.leader_recovery_state) == (2, (2,), 1)
    assert made.propose("t", (2,), leader_recovery_state=1).error is E.NONE
    answer = made.propose("t", (2,), leader_recovery_state=0)
    assert (answer.error, answer.leader_recovery_state) == (E.NONE, 0)
    assert made.partition("t").leader_recovery_state == 0
