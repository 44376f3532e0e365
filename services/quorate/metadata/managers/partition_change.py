"""One partition change: the target ISR, replicas and leader, and the resulting record.

Steps of `Change.build`, as in Kafka's PartitionChangeBuilder:

1. If the target ISR completes a reassignment, the removed replicas leave the replicas and the ISR.
2. With eligible leader replicas (KIP-966), replicas that leave an ISR below min.insync.replicas
   become eligible, and the last leader is recorded until there is another, or until it leaves the
   replicas: it deletes its records, and has none when it is added again.
3. The leader is the current one if it can stay, else the first acceptable replica that is in sync
   (or eligible). A replica in a directory that its broker lost is not acceptable. A preferred
   election tries the preferred leader first. A replica that is not in sync can lead after an
   unclean election, or as the last known leader if ISR and ELR are empty: it becomes the whole
   ISR, and is recovering.
4. The leader epoch grows when the leader changes, when a replica leaves the assignment, and below
   metadata.version 3.6-IV0 when the ISR shrinks. While a migration from ZooKeeper is under way, it
   also grows whenever the ISR shrinks or the assignment changes: only a higher epoch informs a
   leader in ZooKeeper mode of changes that it did not propose (KIP-866).
5. Without eligible leader replicas an empty target ISR is ignored: the last member stays in the
   ISR, and the partition is leaderless (KIP-841).

Source: KIP-841, KIP-455, KIP-704 (leader recovery), KIP-858, KIP-866, KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from quorate.common.identifiers import DirectoryId
from quorate.metadata.image.partitions import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERING,
    Partition,
)
from quorate.metadata.managers.controller_context import MIGRATING_DIRECTORY, ControllerContext
from quorate.metadata.metadata_version import (
    DIRECTORIES,
    LEADER_RECOVERY,
    NO_EPOCH_BUMP_ON_SHRINK,
    partition_version,
)
from quorate.records.metadata import PartitionChangeRecord, ZkMigrationState

Brokers = tuple[int, ...]


class PartitionElection(Enum):
    """The rule by which a leader is chosen."""

    ONLINE = "online"
    """The current leader stays if it can."""
    PREFERRED = "preferred"
    """The first replica leads if it can, another only if the current leader cannot stay."""
    UNCLEAN = "unclean"
    """As ONLINE, but elects an out-of-sync replica rather than none."""


@dataclass(slots=True)
class Change:
    """The target state of a partition; `of` starts from its current state."""

    context: ControllerContext
    partition: Partition
    is_acceptable: Callable[[int], bool]
    """Whether a broker may lead."""
    election: PartitionElection = PartitionElection.ONLINE
    isr: Brokers = ()
    replicas: Brokers = ()
    removing: Brokers = ()
    adding: Brokers = ()
    elr: Brokers = ()
    last_known_elr: Brokers = ()
    recovery: int | None = None
    unclean_shutdown: Collection[int] = ()
    """Brokers that may have lost records, and lose their eligibility."""
    assigned: Mapping[int, DirectoryId] = field(default_factory=dict)
    """New directories of replicas, by broker id."""

    @classmethod
    def of(
        cls,
        context: ControllerContext,
        partition: Partition,
        is_acceptable: Callable[[int], bool] | None = None,
        election: PartitionElection = PartitionElection.ONLINE,
    ) -> Change:
        return cls(
            context,
            partition,
            is_acceptable or context.image.cluster.is_active,
            election,
            partition.isr,
            partition.replicas,
            partition.removing_replicas,
            partition.adding_replicas,
            partition.eligible_leader_replicas or (),
            partition.last_known_elr or (),
        )

    @classmethod
    def without(cls, context: ControllerContext, partition: Partition, broker_id: int) -> Change:
        """The change that removes an active broker from the ISR and from leadership."""
        is_active = context.image.cluster.is_active
        change = cls.of(
            context,
            partition,
            lambda other: other != broker_id and is_active(other),
            allowed_election(context, partition.topic_id),
        )
        change.isr = tuple(other for other in partition.isr if other != broker_id)
        return change

    def build(self) -> PartitionChangeRecord | None:
        """The record of the change, None if nothing changes."""
        old = self.partition
        self._complete_reassignment()
        self._forget_moved_leader()
        self._keep_eligible()
        leader, isr = self._elect()
        if not self.context.elr_enabled:
            self.elr = ()  # the feature was disabled, and this was their last use
        level = self.context.image.level
        names_leader = (
            leader != old.leader
            or not set(old.replicas) <= set(self.replicas)
            or (level < NO_EPOCH_BUMP_ON_SHRINK and not set(old.isr) <= set(isr or old.isr))
            or (is_migrating(self.context) and self._must_be_notified(isr))
        )
        if isr == () and not self.context.elr_enabled:
            isr = old.isr
        if self.context.elr_enabled:
            self._keep_last_leader(leader, names_leader=names_leader)
        recovery = NO_RECOVERY_CHANGE
        if self.recovery is not None and self.recovery != old.leader_recovery_state:
            recovery = self.recovery
        changed = (
            _if_changed(isr, old.isr),
            leader if names_leader else NO_LEADER_CHANGE,
            _if_changed(self.replicas, old.replicas),
            _if_changed(self.removing, old.removing_replicas),
            _if_changed(self.adding, old.adding_replicas),
            recovery,
            self._directories() if level >= DIRECTORIES else None,
            _if_changed(self.elr, old.eligible_leader_replicas or ()),
            _if_changed(self.last_known_elr, old.last_known_elr or ()),
        )
        if changed == _NOTHING:
            return None
        return PartitionChangeRecord(
            old.partition_id, old.topic_id, *changed, version=partition_version(level)
        )

    def _must_be_notified(self, isr: Brokers) -> bool:
        """Step 4: whether a leader in ZooKeeper mode needs a higher epoch to notice."""
        old = self.partition
        return not set(old.isr) <= set(isr or old.isr) or (
            (self.replicas, self.adding, self.removing)
            != (old.replicas, old.adding_replicas, old.removing_replicas)
        )

    def _complete_reassignment(self) -> None:
        """Step 1. Every added replica and at least one remaining replica must be in sync.

        If the replication factor falls, all remaining replicas must be in sync: the replicas that
        leave may be those that keep the partition at min.insync.replicas.
        """
        if not self.adding and not self.removing:
            return
        isr = tuple(replica for replica in self.isr if replica not in self.removing)
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        if not isr or not replicas or not set(self.adding) <= set(isr):
            return
        if len(self.removing) > len(self.adding) and not set(replicas) <= set(isr):
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, (), ()

    def _forget_moved_leader(self) -> None:
        """Step 2: a last known leader that leaves the replicas, or is added again."""
        moved = set(self.replicas) ^ set(self.partition.replicas)
        self.last_known_elr = tuple(each for each in self.last_known_elr if each not in moved)

    def _keep_eligible(self) -> None:
        """Step 2."""
        if not self.context.elr_enabled:
            return
        min_isr = self.context.min_insync_replicas(self.partition.topic_id)
        if len(self.isr) >= min(min_isr, len(self.replicas)):
            self.elr = ()
            return
        candidates = dict.fromkeys((*self.elr, *self.partition.isr))
        self.elr = tuple(
            broker
            for broker in candidates
            if broker not in self.isr
            and broker not in self.unclean_shutdown
            and broker in self.replicas
        )

    def _keep_last_leader(self, leader: int, *, names_leader: bool) -> None:
        """Step 2: if all eligible replicas are lost, the last leader is the best candidate."""
        if leader != NO_LEADER:
            self.last_known_elr = () if names_leader else self.last_known_elr
        elif self.partition.leader != NO_LEADER:
            is_replica = self.partition.leader in self.replicas
            self.last_known_elr = (self.partition.leader,) if is_replica else ()

    # --- step 3 -----------------------------------------------------------------------------------

    def _elect(self) -> tuple[int, Brokers]:
        """The leader (-1 for none) and the ISR that goes with it."""
        leader, is_unclean = self._chosen()
        if leader == NO_LEADER:
            return NO_LEADER, self.isr
        if is_unclean:
            if self.context.image.level >= LEADER_RECOVERY:
                self.recovery = RECOVERING
            self.elr = ()
            return leader, (leader,)
        if leader not in self.isr:
            # It is an eligible replica, so it has every committed record.
            self.elr = tuple(broker for broker in self.elr if broker != leader)
            return leader, (leader,)
        return leader, self.isr

    def _chosen(self) -> tuple[int, bool]:
        """(leader, whether it is unclean)."""
        present = self.partition.leader
        order: Sequence[int] = (present, *self.replicas)
        if self.election is PartitionElection.PREFERRED:
            order = (self.replicas[0], present, *self.replicas[1:])
        for broker in order:
            if broker != NO_LEADER and self._can_lead(broker):
                return broker, False
        if (
            self.context.elr_enabled
            and not self.isr
            and not self.elr
            and len(self.last_known_elr) == 1
            and self.last_known_elr[0] in self.replicas
            and self._is_acceptable(self.last_known_elr[0])
        ):
            return self.last_known_elr[0], True
        if self.election is PartitionElection.UNCLEAN:
            for broker in self.replicas:
                if self._is_acceptable(broker):
                    return broker, True
        return NO_LEADER, False

    def _can_lead(self, broker: int) -> bool:
        is_eligible = not self.isr and broker in self.elr
        return (broker in self.isr or is_eligible) and self._is_acceptable(broker)

    def _is_acceptable(self, broker: int) -> bool:
        """Whether the broker may lead, and has the directory of its replica."""
        if not self.is_acceptable(broker):
            return False
        for replica, directory in zip(
            self.partition.replicas, self.partition.directories, strict=False
        ):
            if replica == broker:
                return self.context.is_online(broker, directory)
        return True

    def _directories(self) -> tuple[str, ...] | None:
        """The directory of each replica, in the same order; None if they do not change."""
        old = self.partition
        if self.replicas == old.replicas and not self.assigned:
            return None
        before = old.directories or (MIGRATING_DIRECTORY,) * len(old.replicas)
        known = dict.fromkeys(old.replicas, MIGRATING_DIRECTORY)
        known |= dict(zip(old.replicas, before, strict=False))
        known |= self.assigned
        found = tuple(
            known.get(broker) or self.context.directory_of(broker) for broker in self.replicas
        )
        return None if found == before else found


def allowed_election(context: ControllerContext, topic_id: str) -> PartitionElection:
    """The election after a broker or a directory failed: unclean where the topic allows that."""
    return (
        PartitionElection.UNCLEAN if context.allows_unclean(topic_id) else PartitionElection.ONLINE
    )


_NOTHING = (None, NO_LEADER_CHANGE, None, None, None, NO_RECOVERY_CHANGE, None, None, None)
"""The fields of a PartitionChangeRecord, after its key, that changes nothing."""


def is_migrating(context: ControllerContext) -> bool:
    """Whether leaders may be in ZooKeeper mode."""
    return context.image.features.zk_migration == ZkMigrationState.MIGRATION


def _if_changed(new: Brokers, old: Brokers) -> Brokers | None:
    return None if new == old else new
