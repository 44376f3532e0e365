"""One partition's replica, input by input: roles, ISR, high watermark, truncation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quorate.broker.partition import PartitionConfig, PartitionReplica
from quorate.broker.values import (
    AppendReplicaBatches,
    BrokerRegistrationState,
    FetchAnswer,
    PartitionState,
    ProposalAnswer,
    ProposeIsr,
    ReplicaHighWatermarkAdvanced,
    ReplicaPosition,
    ReplicaRoleChanged,
    TruncateReplicaLog,
)
from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests import IsrMember
from quorate.raft import LogState
from quorate.raft.batches import Batch
from quorate.raft.errors import ViolationError
from quorate.raft.types import OffsetAndEpoch

CONFIG = PartitionConfig(min_insync_replicas=2, lag_time_max_ms=1_000)
ACTIVE = {i: BrokerRegistrationState(100 + i, is_active=True) for i in (1, 2, 3)}
LED_BY_1 = PartitionState(1, 5, 9, (1, 2, 3), (1, 2, 3))


def leader(
    isr: tuple[int, ...] = (1, 2, 3), config: PartitionConfig = CONFIG, log: LogState | None = None
) -> PartitionReplica:
    replica = PartitionReplica(1, log or LogState(), config)
    replica.apply(replace(LED_BY_1, isr=isr), ACTIVE, 0)
    replica.take_outputs()
    return replica


def follower(log: LogState | None = None) -> PartitionReplica:
    replica = PartitionReplica(2, log or LogState(), CONFIG)
    replica.apply(LED_BY_1, ACTIVE, 0)
    replica.take_outputs()
    return replica


def fetch(replica: PartitionReplica, who: int, offset: int, now_ms: int = 0) -> FetchAnswer:
    epoch = replica.log.epoch_before(offset) if offset else 0
    return replica.fetch(who, 100 + who, ReplicaPosition(5, offset, epoch), now_ms)


def batch(count: int) -> Batch:
    return Batch(0, count - 1, 0)


def log(*epochs: tuple[int, int], end: int) -> LogState:
    return LogState(end_offset=end, epochs=epochs)


# --- leading --------------------------------------------------------------------------------------


def test_a_leader_places_batches_and_commits_what_all_in_sync_replicas_have() -> None:
    replica = leader()
    assert replica.append(batch(3), acks_all=True) == 0
    assert replica.append(batch(2), acks_all=True) == 3
    assert [o for o in replica.take_outputs() if isinstance(o, AppendReplicaBatches)] == [
        AppendReplicaBatches((Batch(0, 2, 5),)),
        AppendReplicaBatches((Batch(3, 4, 5),)),
    ]
    fetch(replica, 2, 5)
    assert replica.high_watermark == 0
    fetch(replica, 3, 3)
    assert replica.take_outputs() == [ReplicaHighWatermarkAdvanced(3)]
    fetch(replica, 3, 5)
    assert replica.high_watermark == 5


def test_acks_all_needs_the_smallest_isr_and_the_high_watermark_waits_for_it() -> None:
    replica = leader(isr=(1,))
    assert replica.append(batch(1), acks_all=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert replica.append(batch(1), acks_all=False) == 0
    assert replica.high_watermark == 0
    replica.configure(replace(CONFIG, min_insync_replicas=1))
    assert replica.high_watermark == 1


def test_with_flush_before_ack_a_leader_counts_itself_when_it_has_flushed() -> None:
    replica = leader(config=replace(CONFIG, flush_before_ack=True))
    replica.append(batch(1), acks_all=True)
    fetch(replica, 2, 1)
    fetch(replica, 3, 1)
    assert replica.high_watermark == 0
    replica.flushed(1)
    assert replica.high_watermark == 1


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_fetch_of_another_epoch_is_refused_and_counts_for_nothing(
    epoch: int, error: ErrorCode
) -> None:
    replica = leader(isr=(1, 2))
    replica.append(batch(1), acks_all=True)
    answer = replica.fetch(2, 102, ReplicaPosition(epoch, 1, 5), 0)
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (error, 1, 5)
    assert replica.high_watermark == 0


def test_a_fetch_by_a_process_that_another_has_replaced_is_refused() -> None:
    replica = leader(isr=(1, 2))
    replica.append(batch(1), acks_all=True)
    replica.brokers_changed(ACTIVE | {2: BrokerRegistrationState(200, is_active=False)})
    assert fetch(replica, 2, 1).error is ErrorCode.STALE_BROKER_EPOCH
    assert replica.high_watermark == 0


def test_readers_get_what_is_committed_and_followers_all() -> None:
    replica = leader(isr=(1, 2))
    replica.append(batch(4), acks_all=True)
    assert replica.read(0).read_from is None
    assert fetch(replica, 2, 0).read_end == 4
    fetch(replica, 2, 4)
    assert (replica.read(0).read_from, replica.read(0).read_end) == (0, 4)
    assert replica.read(5).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert replica.read(0, leader_epoch=4).error is ErrorCode.FENCED_LEADER_EPOCH


# --- the ISR --------------------------------------------------------------------------------------


def test_a_follower_joins_when_it_has_reached_the_high_watermark_and_the_epochs_start() -> None:
    replica = leader(isr=(1, 2), log=log((4, 0), end=10))
    fetch(replica, 3, 9)
    assert replica.take_outputs() == []
    fetch(replica, 3, 10)
    members = (IsrMember(1, 101), IsrMember(2, 102), IsrMember(3, 103))
    assert replica.take_outputs() == [ProposeIsr(5, 9, members)]
    fetch(replica, 3, 10)
    assert replica.take_outputs() == [], "one proposal at a time"


@pytest.mark.parametrize(
    "state",
    [
        BrokerRegistrationState(103, is_active=False),
        BrokerRegistrationState(99, is_active=True),
    ],
    ids=["fenced or shutting down", "another process"],
)
def test_only_an_active_broker_is_proposed_and_only_as_the_process_that_fetched(
    state: BrokerRegistrationState,
) -> None:
    replica = leader(isr=(1, 2))
    replica.brokers_changed(ACTIVE | {3: state})
    fetch(replica, 3, 0)
    assert replica.take_outputs() == []


def test_the_proposed_isr_counts_for_the_high_watermark_at_once_and_alone_never() -> None:
    replica = leader(isr=(1, 2))
    fetch(replica, 2, 0)
    fetch(replica, 3, 0)
    replica.append(batch(2), acks_all=True)
    fetch(replica, 2, 2)
    assert replica.high_watermark == 0, "3 is in the maximal ISR and does not have it"
    fetch(replica, 3, 2)
    assert replica.high_watermark == 2


def test_an_ineligible_replica_takes_the_leader_back_to_the_committed_isr() -> None:
    replica = leader(isr=(1, 2))
    fetch(replica, 3, 0)
    (proposal,) = [o for o in replica.take_outputs() if isinstance(o, ProposeIsr)]
    replica.append(batch(1), acks_all=True)
    fetch(replica, 2, 1)
    answer = ProposalAnswer(ErrorCode.INELIGIBLE_REPLICA)
    assert replica.isr_answered(proposal, answer, 10) is False
    assert replica.high_watermark == 1, "3 holds up nobody any more"
    fetch(replica, 3, 1, now_ms=20)
    assert [o for o in replica.take_outputs() if isinstance(o, ProposeIsr)] == []
    fetch(replica, 3, 1, now_ms=10 + CONFIG.proposal_backoff_ms)
    assert [o for o in replica.take_outputs() if isinstance(o, ProposeIsr)] != []


def test_a_confirmed_proposal_is_committed_and_an_older_image_does_not_undo_it() -> None:
    replica = leader(isr=(1, 2))
    fetch(replica, 3, 0)
    (proposal,) = replica.take_outputs()
    assert isinstance(proposal, ProposeIsr)
    confirmed = ProposalAnswer(ErrorCode.NONE, 1, 5, (1, 2, 3), 10)
    assert replica.isr_answered(proposal, confirmed, 0) is False
    replica.apply(replace(LED_BY_1, isr=(1, 2)), ACTIVE, 0)
    assert replica.partition_epoch == 10
    replica.append(batch(1), acks_all=True)
    fetch(replica, 2, 1)
    assert replica.high_watermark == 0


def test_an_epoch_that_was_behind_leaves_the_proposal_until_the_log_tells() -> None:
    replica = leader(isr=(1, 2))
    fetch(replica, 3, 0)
    (proposal,) = replica.take_outputs()
    assert isinstance(proposal, ProposeIsr)
    answer = ProposalAnswer(ErrorCode.INVALID_UPDATE_VERSION)
    assert replica.isr_answered(proposal, answer, 0) is False
    replica.append(batch(1), acks_all=True)
    fetch(replica, 2, 1)
    assert replica.high_watermark == 0, "it may have been applied"
    replica.apply(replace(LED_BY_1, isr=(1, 2), partition_epoch=10), ACTIVE, 0)
    assert replica.high_watermark == 1


def test_no_answer_is_asked_again() -> None:
    replica = leader(isr=(1, 2))
    fetch(replica, 3, 0)
    (proposal,) = replica.take_outputs()
    assert isinstance(proposal, ProposeIsr)
    assert replica.isr_answered(proposal, ProposalAnswer(ErrorCode.NETWORK_EXCEPTION), 0)
    assert replica.is_asked(proposal)


def test_who_is_not_caught_up_for_too_long_is_proposed_out() -> None:
    replica = leader()
    fetch(replica, 2, 0, now_ms=100)
    fetch(replica, 3, 0, now_ms=100)
    replica.append(batch(1), acks_all=True)
    fetch(replica, 2, 1, now_ms=900)
    replica.tick(1_100)
    assert [o for o in replica.take_outputs() if isinstance(o, ProposeIsr)] == []
    replica.tick(1_101)
    (proposal,) = [o for o in replica.take_outputs() if isinstance(o, ProposeIsr)]
    assert [member.id for member in proposal.isr] == [1, 2]
    fetch(replica, 2, 1, now_ms=1_101)
    assert replica.high_watermark == 0, "a smaller ISR counts when it is committed"
    confirmed = ProposalAnswer(ErrorCode.NONE, 1, 5, (1, 2), 10)
    replica.isr_answered(proposal, confirmed, 1_101)
    assert replica.high_watermark == 1


def test_who_has_everything_never_lags_however_long_nothing_is_written() -> None:
    replica = leader()
    for who in (2, 3):
        fetch(replica, who, 0)
    replica.tick(1_000_000)
    assert replica.take_outputs() == []


def test_a_follower_that_keeps_pace_with_a_growing_log_is_caught_up() -> None:
    replica = leader(isr=(1, 2))
    for now_ms in range(0, 5_000, 500):
        replica.append(batch(1), acks_all=True)
        fetch(replica, 2, replica.log.end_offset - 1, now_ms)
    replica.tick(5_000)
    assert [o for o in replica.take_outputs() if isinstance(o, ProposeIsr)] == []


# --- roles ----------------------------------------------------------------------------------------


def test_the_metadata_log_alone_decides_who_leads_and_old_news_is_ignored() -> None:
    replica = leader()
    replica.apply(replace(LED_BY_1, leader=2, leader_epoch=6, partition_epoch=10), ACTIVE, 0)
    assert replica.take_outputs() == [ReplicaRoleChanged("follower", 2, 6)]
    replica.apply(LED_BY_1, ACTIVE, 0)
    assert replica.leader_id == 2
    assert replica.append(batch(1), acks_all=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replica.apply(replace(LED_BY_1, leader=-1, leader_epoch=7, partition_epoch=11), ACTIVE, 0)
    assert replica.take_outputs() == [ReplicaRoleChanged("idle", -1, 7)]
    assert replica.position() is None


def test_a_new_leader_begins_with_the_high_watermark_it_knew() -> None:
    replica = follower(log((4, 0), end=8))
    answer = FetchAnswer(ErrorCode.NONE, 1, 5, high_watermark=6)
    position = replica.position()
    assert position is not None
    replica.fetched(position, answer, [])
    replica.apply(PartitionState(2, 6, 10, (1, 2, 3), (2, 3)), ACTIVE, 0)
    assert (replica.is_leader, replica.high_watermark) == (True, 6)


# --- following ------------------------------------------------------------------------------------


def test_a_follower_appends_what_follows_its_end_and_refuses_anything_else() -> None:
    replica = follower(log((4, 0), end=8))
    position = replica.position()
    assert position == ReplicaPosition(5, 8, 4)
    answer = FetchAnswer(ErrorCode.NONE, 1, 5, high_watermark=8)
    assert replica.fetched(position, answer, [Batch(8, 9, 5)]) is ErrorCode.NONE
    assert replica.take_outputs() == [
        AppendReplicaBatches((Batch(8, 9, 5),)),
        ReplicaHighWatermarkAdvanced(8),
    ]
    assert replica.fetched(position, answer, [Batch(8, 9, 5)]) is ErrorCode.NONE
    assert replica.take_outputs() == [], "the answer to a fetch that was given up is dropped"
    again = replica.position()
    assert again is not None
    for wrong in (Batch(11, 11, 5), Batch(10, 10, 6), Batch(10, 10, 3)):
        with pytest.raises(ViolationError):
            replica.fetched(again, answer, [wrong])


@pytest.mark.parametrize(
    ("mine", "theirs", "agreed"),
    [
        (log((3, 0), (4, 6), end=9), log((3, 0), (5, 7), end=12), 6),
        (log((3, 0), end=9), log((3, 0), (5, 7), end=12), 7),
        (log((3, 0), end=5), log((3, 0), (5, 7), end=12), 5),
        (log((1, 0), (4, 2), end=9), log((1, 0), (2, 4), (5, 6), end=8), 2),
        (log((4, 0), end=3), log((5, 0), end=3), 0),
        (log((0, 0), end=4), LogState(), 0),
    ],
)
def test_a_follower_truncates_to_what_both_logs_have(
    mine: LogState, theirs: LogState, agreed: int
) -> None:
    ahead, behind = leader(log=theirs), follower(mine)
    dropped = mine.end_offset
    for _ in range(5):
        position = behind.position()
        assert position is not None
        answer = ahead.fetch(2, 102, position, 0)
        assert answer.error is ErrorCode.NONE
        if answer.diverging is None:
            break
        assert behind.fetched(position, answer, []) is ErrorCode.NONE
    assert behind.log.end_offset == agreed
    truncated = [o for o in behind.take_outputs() if isinstance(o, TruncateReplicaLog)]
    assert bool(truncated) is (agreed < dropped)


def test_truncation_lowers_what_is_flushed_and_the_high_watermark() -> None:
    replica = follower(log((4, 0), end=8))
    position = replica.position()
    assert position is not None
    diverging = FetchAnswer(ErrorCode.NONE, 1, 5, diverging=OffsetAndEpoch(3, 4))
    replica.fetched(position, diverging, [])
    assert (replica.log.end_offset, replica.flushed_end, replica.high_watermark) == (3, 3, 0)


def test_with_flush_before_ack_a_follower_fetches_on_when_it_has_flushed() -> None:
    replica = PartitionReplica(2, LogState(), replace(CONFIG, flush_before_ack=True))
    replica.apply(LED_BY_1, ACTIVE, 0)
    position = replica.position()
    assert position is not None
    replica.fetched(position, FetchAnswer(ErrorCode.NONE, 1, 5), [Batch(0, 0, 5)])
    assert replica.position() is None
    replica.flushed(1)
    assert replica.position() == ReplicaPosition(5, 1, 5)
