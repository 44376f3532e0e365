"""Random lives of a cluster: what KIP-841 promises holds after every step.

The working image equals the replayed one after each batch (`Cluster` sees to that).
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.image.cluster import is_active
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partition_index import PartitionIndex
from quorate.metadata.image.partitions import NO_LEADER
from quorate.metadata.settings import ControllerSettings

from tests.unit.metadata.metadata_support import Cluster

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")
SMALL_BATCHES = ControllerSettings(
    idle_interval_ms=5_000,
    leader_imbalance_check_interval_ms=60_000,
    unclean_election_interval_ms=60_000,
    records_per_batch_max=12,
)

brokers = st.sampled_from(BROKERS)
topics = st.sampled_from(TOPICS)
replica_sets = st.lists(brokers, min_size=1, max_size=4, unique=True).map(tuple)


class Life(RuleBasedStateMachine):
    """Without eligible leader replicas: the last member of an ISR stays in it."""

    elr = False
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(0, settings=SMALL_BATCHES, elr=self.elr, **self.options)
        self.before = self.cluster.committed.copy()
        self.incarnations = 0
        self.took_back: set[int] = set()
        """The brokers that were fenced during a shutdown, and then no longer wanted it."""

    # --- brokers ----------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for broker in BROKERS:
            self.cluster.start_broker(broker, rack=f"rack-{broker % 2}")

    @rule(broker=brokers, was_clean=st.booleans())
    def register_anew(self, broker: int, was_clean: bool) -> None:
        self.incarnations += 1
        previous = self.cluster.epochs.get(broker, -1) if was_clean else -1
        answer = self.cluster.register(broker, self.incarnations, previous_epoch=previous)
        if answer.error is ErrorCode.NONE:
            self.took_back.discard(broker)

    @rule(broker=brokers, caught_up=st.booleans(), fence=st.booleans(), shut_down=st.booleans())
    def heartbeat(self, broker: int, caught_up: bool, fence: bool, shut_down: bool) -> None:
        if broker in self.cluster.epochs:
            offset = self.cluster.offset if caught_up else 0
            self._note_wish(broker, shut_down=shut_down)
            self.cluster.heartbeat(
                broker, metadata_offset=offset, want_fence=fence, want_shutdown=shut_down
            )

    @rule(broker=brokers)
    def plain_heartbeat(self, broker: int) -> None:
        if broker in self.cluster.epochs:
            self._note_wish(broker, shut_down=False)
            self.cluster.heartbeat(broker)

    def _note_wish(self, broker: int, *, shut_down: bool) -> None:
        found = self.cluster.committed.cluster.brokers.get(broker)
        if found is not None and found.fenced and found.in_controlled_shutdown and not shut_down:
            self.took_back.add(broker)

    def _may_lead(self, broker_id: int) -> bool:
        """Active, or unfenced after it took its shutdown back: then it has the only ISR again."""
        found = self.cluster.committed.cluster.brokers.get(broker_id)
        if found is None or found.fenced:
            return False
        return is_active(found) or broker_id in self.took_back

    @rule(broker=brokers)
    def unregister(self, broker: int) -> None:
        self.cluster.ask(r.UnregisterBroker(broker))

    @rule(ms=st.sampled_from((1, 100, 4_500, 9_000, 70_000)))
    def pass_time(self, ms: int) -> None:
        self.cluster.pass_time(ms)

    @rule()
    def tick(self) -> None:
        self.cluster.tick()

    @rule()
    def fail_over(self) -> None:
        self.cluster.activate()

    # --- topics -----------------------------------------------------------------------------------

    @rule(
        topic=topics,
        assignments=st.lists(replica_sets, min_size=1, max_size=5),
        unclean=st.booleans(),
        min_isr=st.sampled_from("123"),
    )
    def create(
        self, topic: str, assignments: list[tuple[int, ...]], unclean: bool, min_isr: str
    ) -> None:
        size = len(assignments[0])
        self.cluster.ask(
            r.CreateTopics(
                (
                    r.NewTopic(
                        topic,
                        assignments=tuple(a for a in assignments if len(a) == size),
                        configs=(
                            ("unclean.leader.election.enable", str(unclean).lower()),
                            ("min.insync.replicas", min_isr),
                        ),
                    ),
                )
            )
        )

    @rule(topic=topics, partitions=st.integers(1, 6), factor=st.integers(1, 4))
    def create_placed(self, topic: str, partitions: int, factor: int) -> None:
        self.cluster.ask(r.CreateTopics((r.NewTopic(topic, partitions, factor),)))

    @rule(topic=topics)
    def delete(self, topic: str) -> None:
        self.cluster.ask(r.DeleteTopics((r.TopicRef(topic),)))

    @rule(topic=topics, replicas=st.none() | replica_sets)
    def reassign(self, topic: str, replicas: tuple[int, ...] | None) -> None:
        self.cluster.ask(r.AlterPartitionReassignments((r.Reassignment(topic, 0, replicas),)))

    @rule(topic=topics, unclean=st.booleans())
    def elect(self, topic: str, unclean: bool) -> None:
        self.cluster.ask(r.ElectLeaders(int(unclean), ((topic, 0),)))

    @rule(unclean=st.booleans())
    def elect_all(self, unclean: bool) -> None:
        self.cluster.ask(r.ElectLeaders(int(unclean)))

    @rule(topic=topics, isr=replica_sets, version=st.integers(0, 3), true_epochs=st.booleans())
    def propose(self, topic: str, isr: tuple[int, ...], version: int, true_epochs: bool) -> None:
        """Whoever leads proposes any ISR that it likes."""
        topic_id = self.cluster.committed.topics.ids.get(topic)
        if topic_id is None:
            return
        found = self.cluster.partition(topic)
        leader = self.cluster.committed.cluster.brokers.get(found.leader)
        if leader is None:
            return
        members = tuple(
            r.IsrMember(b, self.cluster.epochs.get(b, -1) if true_epochs else -1)
            for b in dict.fromkeys((found.leader, *isr))
        )
        proposal = r.PartitionProposal(
            0,
            found.leader_epoch,
            found.partition_epoch,
            members,
            found.leader_recovery_state if len(members) == 1 else 0,
        )
        answer = self.cluster.ask(
            r.AlterPartition(
                found.leader,
                leader.broker_epoch,
                (r.TopicProposals((proposal,), topic_id, topic),),
                version,
            )
        )
        assert answer.error is ErrorCode.NONE

    # --- what holds -------------------------------------------------------------------------------

    @invariant()
    def isr_and_leader(self) -> None:
        image = self.cluster.committed
        for found in image.topics.all_partitions():
            assert set(found.isr) <= set(found.replicas), found
            assert len(set(found.isr)) == len(found.isr), found
            assert found.leader == NO_LEADER or found.leader in found.isr, found
            assert self.elr or found.isr, found
            elr = found.eligible_leader_replicas or ()
            assert not set(elr) & set(found.isr), found
            assert set(elr) <= set(found.replicas), found

    @invariant()
    def whoever_enters_an_isr_or_leads_is_active(self) -> None:
        after, before = self.cluster.committed, self.before
        for found in after.topics.all_partitions():
            old = before.topics.partition(found.topic_id, found.partition_id)
            entered = set(found.isr) - set(old.isr if old is not None else ())
            if self.elr and len(found.isr) == 1 and found.leader in entered:
                entered.discard(found.leader)  # elected: checked as a leader
            for broker in entered:
                assert is_active(after.cluster.brokers.get(broker)), (old, found)
            became = found.leader != NO_LEADER and (old is None or found.leader != old.leader)
            if became:
                assert self._may_lead(found.leader), (old, found)

    @invariant()
    def epochs_only_grow(self) -> None:
        for old in self.before.topics.all_partitions():
            new = self.cluster.committed.topics.partition(old.topic_id, old.partition_id)
            if new is None or new == old:
                continue
            assert new.leader_epoch >= old.leader_epoch
            assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
            # Forgetting eligible replicas alone is no change of the partition.
            assert new.partition_epoch > old.partition_epoch or self.elr
        for broker, registered in self.before.cluster.brokers.items():
            now = self.cluster.committed.cluster.brokers.get(broker)
            assert now is None or now.broker_epoch >= registered.broker_epoch
        self.before = self.cluster.committed.copy()

    @invariant()
    def who_is_not_active_is_in_no_isr_that_others_are_in(self) -> None:
        """Once everything that was begun is done."""
        context = self.cluster.controller._active.context
        if context.election_tasks:
            return
        image = self.cluster.committed
        for found in image.topics.all_partitions():
            if len(found.isr) > 1:
                assert all(is_active(image.cluster.brokers.get(b)) for b in found.isr), found
            if found.leader != NO_LEADER:
                assert self._may_lead(found.leader), found

    @invariant()
    def the_index_and_the_records_agree_with_the_image(self) -> None:
        context = self.cluster.controller._active.context
        rebuilt = PartitionIndex(context.image.topics.by_topic())
        for name in (
            "in_isr",
            "in_elr",
            "led",
            "leaderless",
            "waiting_for",
            "reassigning",
            "off_preferred",
        ):
            assert getattr(context.index, name) == getattr(rebuilt, name), name
        copied = MetadataImage()
        copied.apply_batch(self.cluster.committed.records(), 0, 1, 1)
        assert copied == self.cluster.committed


class LifeWithElr(Life):
    """With eligible leader replicas (KIP-966): an ISR may be empty, and its members are known."""

    elr = True


class LifeWithoutChecks(Life):
    """With KIP-841's checks of a proposed ISR turned off."""

    options: ClassVar[dict[str, Any]] = {"enforce_eligibility": False}


SETTINGS = settings(
    max_examples=int(os.environ.get("METADATA_EXAMPLES", "40")),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
TestLife = Life.TestCase
TestLife.settings = SETTINGS
TestLife.pytestmark = [pytest.mark.timeout(600)]
TestLifeWithElr = LifeWithElr.TestCase
TestLifeWithElr.settings = SETTINGS
TestLifeWithElr.pytestmark = [pytest.mark.timeout(600)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_model_notices_when_the_checks_are_off() -> None:
    only_looking = settings(SETTINGS, max_examples=1_000, phases=[Phase.generate], database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(LifeWithoutChecks, settings=only_looking)


def test_a_broker_that_takes_its_shutdown_back_leads_what_only_it_can_lead() -> None:
    cluster = Cluster(2)
    cluster.create("alone", (1,))
    cluster.create("shared", (1, 2))
    assert cluster.heartbeat(1, metadata_offset=0, want_shutdown=True).in_controlled_shutdown
    assert (cluster.partition("alone").leader, cluster.partition("shared").leader) == (NO_LEADER, 2)
    cluster.expire(1)
    assert not cluster.heartbeat(1).is_fenced
    assert cluster.committed.cluster.brokers[1].in_controlled_shutdown
    assert (cluster.partition("alone").leader, cluster.partition("shared").leader) == (1, 2)
    assert not cluster.heartbeat(1).should_shut_down, "it leads a partition"
