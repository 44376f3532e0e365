"""Random states of a partition, each with one step of a controller that changes it.

The states are those that a controller can be in: lists of eligible replicas, for example, are there
only at a level that has them, and with an ISR below min.insync.replicas.
"""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from quorate.metadata.image.partitions import NO_LEADER, Partition, is_reassigning
from quorate.metadata.managers.controller_context import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from quorate.metadata.managers.partition_change import PartitionElection
from quorate.metadata.metadata_version import (
    DIRECTORIES,
    ELR,
    LATEST_LEVEL,
    MINIMUM_LEVEL,
    partition_version,
)
from quorate.records.metadata.partitions import RECOVERED, RECOVERING

Brokers = tuple[int, ...]

BROKERS: Final = range(10, 17)
TOPIC_ID: Final = "q4-87cwrTP20I1r4Xtfj7g"


def uuid_of(number: int) -> str:
    return urlsafe_b64encode(bytes(8) + number.to_bytes(8, "big")).decode().rstrip("=")


DIRECTORIES_OF: Final[Mapping[int, tuple[str, ...]]] = {
    broker: tuple(uuid_of(1000 * number + broker) for number in range(1, 2 + broker % 2))
    for broker in BROKERS
}
"""What the brokers registered: one directory or two."""
NEW_DIRECTORIES: Final[Mapping[int, str]] = {
    broker: found[0] if len(found) == 1 else UNASSIGNED_DIRECTORY
    for broker, found in DIRECTORIES_OF.items()
}
"""The directories of replicas that are new on a broker."""


@dataclass(frozen=True, slots=True)
class State:
    """A partition, its surroundings, and the step that changes it. None: the step leaves it.

    level: of metadata.version. elr: whether eligible leader replicas are enabled. active: the
    brokers that may lead. replicas: with `removing` and `adding`, a whole assignment. reassigned:
    the target of a new reassignment. cancelled: the reassignment is cancelled. unclean_shutdown,
    assigned: as in `Change`. recovery: the proposed leader recovery state.
    """

    step: str
    level: int
    min_isr: int
    elr: bool
    partition: Partition
    active: Brokers
    election: PartitionElection = PartitionElection.ONLINE
    isr: Brokers | None = None
    replicas: Brokers | None = None
    removing: Brokers | None = None
    adding: Brokers | None = None
    reassigned: Brokers | None = None
    cancelled: bool = False
    unclean_shutdown: Brokers = ()
    assigned: Mapping[int, str] = field(default_factory=dict)
    recovery: int | None = None


class StateGenerator:
    """States from one seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def states(self, count: int) -> Iterator[State]:
        for _ in range(count):
            idle = self._idle()
            yield self._chance.choice(self._steps(idle))(idle)

    # --- the partition ----------------------------------------------------------------------------

    def _idle(self) -> State:
        chance = self._chance
        # Half of the levels have eligible leader replicas.
        level = chance.randint(chance.choice((MINIMUM_LEVEL, ELR)), LATEST_LEVEL)
        elr = level >= ELR and self._happens(0.7)
        min_isr = chance.randint(1, 3)
        partition = self._partition(level, min_isr, elr=elr)
        return State("idle", level, min_isr, elr, partition, self._some(BROKERS))

    def _partition(self, level: int, min_isr: int, *, elr: bool) -> Partition:
        chance = self._chance
        replicas = tuple(chance.sample(BROKERS, chance.randint(1, 5)))
        adding, removing = self._reassignment(replicas)
        isr = list(self._some(replicas))
        if not isr and not (elr and self._happens(0.5)):
            isr = [chance.choice(replicas)]
        chance.shuffle(isr)
        leader = chance.choice(isr) if isr and self._happens(0.6) else NO_LEADER
        eligible: Brokers = ()
        last_known: Brokers = ()
        # The lists remain for a while after the feature was disabled.
        if elr or (level >= ELR and self._happens(0.2)):
            if len(isr) < min(min_isr, len(replicas)):
                eligible = self._some([each for each in replicas if each not in isr])
            last_known = self._last_known(replicas, leader)
        return Partition(
            0,
            TOPIC_ID,
            replicas,
            tuple(isr),
            removing,
            adding,
            leader,
            chance.choice((RECOVERED, RECOVERING)),
            leader_epoch=5,
            partition_epoch=7,
            directories=self._directories(level, replicas),
            eligible_leader_replicas=eligible or None,
            last_known_elr=last_known or None,
            version=partition_version(level),
        )

    def _reassignment(self, replicas: Brokers) -> tuple[Brokers, Brokers]:
        """The replicas that a reassignment adds and removes; the removed ones are the last."""
        if self._happens(0.6):
            return (), ()
        kept = self._chance.randint(1, len(replicas))
        removing = tuple(sorted(replicas[kept:]))
        adding = self._some(replicas[:kept])
        # Some replica must have been there before.
        return tuple(sorted(adding if removing else adding[: kept - 1])), removing

    def _last_known(self, replicas: Brokers, leader: int) -> Brokers:
        """The last known leader. One remains beside a leader that was elected without the feature,
        and Kafka's controllers write -1 as that of a partition that was leaderless before.
        """
        if self._happens(0.5 if leader == NO_LEADER else 0.95):
            return ()
        return (self._chance.choice((*replicas, *replicas, *BROKERS, NO_LEADER)),)

    def _directories(self, level: int, replicas: Brokers) -> tuple[str, ...]:
        """The directories of the replicas, empty if a level without them wrote the partition."""
        if level < DIRECTORIES or self._happens(0.1):
            return ()
        others = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
        return tuple(
            self._chance.choice(others if self._happens(0.2) else DIRECTORIES_OF[each])
            for each in replicas
        )

    # --- the steps --------------------------------------------------------------------------------

    def _steps(self, idle: State) -> Sequence[Callable[[State], State]]:
        """Those that can happen to the partition."""
        partition = idle.partition
        steps = [self._fence, self._shut_down, self._visit, self._elect_preferred]
        if idle.level >= DIRECTORIES:
            steps.append(self._assign)
        if partition.leader != NO_LEADER:
            steps.append(self._alter_isr)
        steps.append(self._cancel if is_reassigning(partition) else self._reassign)
        return steps

    def _fence(self, state: State) -> State:
        """A broker is fenced, shuts down or is unregistered."""
        return self._without(state, self._chance.choice(state.partition.replicas), "fence")

    def _shut_down(self, state: State) -> State:
        """A broker starts again after it may have lost records."""
        broker = self._chance.choice(state.partition.replicas)
        found = self._without(state, broker, "unclean shutdown")
        return replace(found, unclean_shutdown=(broker,))

    def _without(self, state: State, broker: int, step: str) -> State:
        return replace(
            state,
            step=step,
            active=tuple(each for each in state.active if each != broker),
            isr=tuple(each for each in state.partition.isr if each != broker),
            election=self._allowed_election(),
        )

    def _visit(self, state: State) -> State:
        """A broker became active, or unclean elections are due."""
        return replace(state, step="visit", election=self._allowed_election())

    def _elect_preferred(self, state: State) -> State:
        return replace(state, step="elect preferred", election=PartitionElection.PREFERRED)

    def _assign(self, state: State) -> State:
        """A broker reports the directory of a replica."""
        broker = self._chance.choice(state.partition.replicas)
        directory = self._chance.choice((uuid_of(9000 + broker), DIRECTORIES_OF[broker][0]))
        return replace(state, step="assign", assigned={broker: directory})

    def _alter_isr(self, state: State) -> State:
        """The leader proposes an ISR; its members are active."""
        partition = state.partition
        isr = list({partition.leader, *self._some(partition.replicas)})
        self._chance.shuffle(isr)
        return replace(
            state,
            step="alter ISR",
            isr=tuple(isr),
            active=tuple(sorted({*state.active, *isr})),
            recovery=self._chance.choice((None, RECOVERED, partition.leader_recovery_state)),
        )

    def _reassign(self, state: State) -> State:
        chance = self._chance
        target = tuple(chance.sample(BROKERS, chance.randint(1, 4)))
        return replace(state, step="reassign", reassigned=target)

    def _cancel(self, state: State) -> State:
        """The topic allows unclean elections."""
        return replace(state, step="cancel", cancelled=True, election=PartitionElection.UNCLEAN)

    # --- chance -----------------------------------------------------------------------------------

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _some(self, brokers: Sequence[int]) -> Brokers:
        """A random part of them, mostly more than half, in order."""
        return tuple(each for each in brokers if self._happens(0.6))

    def _allowed_election(self) -> PartitionElection:
        return self._chance.choice((PartitionElection.ONLINE, PartitionElection.UNCLEAN))
