"""A small world for `plan`: every state that it and a few faults can lead to, explored one by one.

A world is the StatefulSet's size, the nodes and their disks, the voters and the leader. Between any
two actions of the planner anything may happen: a process crashes or comes back, a disk is lost, an
observer catches up, another leader is elected, somebody scales. The planner sees the world afresh
each time, so an operator that restarts between two actions is always among what is explored.

Directory ids are reduced to what matters of them: a voter's disk is either the one it was added
with, or it is gone. Since a node is formatted only when its id is no voter's, that is all there is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from quorate.raft.types import ReplicaKey
from quorate_operator.naming import NodeIds
from quorate_operator.planning import plan as p
from quorate_operator.planning.values import ActionFailure, targets

CLUSTER = "cluster"
Planner = Callable[[p.Desired, p.Observed], p.Action | None]


class Disk(IntEnum):
    """EMPTY: not formatted. BEHIND: formatted, not caught up. SYNCED: all that is committed."""

    EMPTY = 0
    BEHIND = 1
    SYNCED = 2


class Pod(NamedTuple):
    up: bool
    disk: Disk
    outdated: bool = False
    leaving: bool = False
    """Whether its volume claim is being deleted: the disk goes with the pod."""


class World(NamedTuple):
    """pods: by ordinal, as many as the StatefulSet has; voters and the leader are ordinals too.
    faults, scalings, moves: how many may follow; a move is the deletion of a volume claim.
    first: the node id of pod 0.
    """

    desired: int
    pods: tuple[Pod, ...]
    voters: frozenset[int]
    leader: int | None
    faults: int
    scalings: int = 0
    first: int = 0
    moves: int = 0

    def key(self, ordinal: int) -> ReplicaKey:
        return ReplicaKey(self.first + ordinal, f"directory-{ordinal}")

    def ordinal(self, replica: ReplicaKey) -> int:
        ordinal = replica.id - self.first
        assert self.key(ordinal) == replica, "a replica of this world"
        return ordinal

    def has_disk(self, voter: int) -> bool:
        return voter < len(self.pods) and self.pods[voter].disk is not Disk.EMPTY

    def is_alive(self, voter: int) -> bool:
        return (
            voter < len(self.pods)
            and self.pods[voter].up
            and self.pods[voter].disk is not Disk.EMPTY
        )

    @property
    def can_commit(self) -> bool:
        """A majority of the voters runs on its own disks."""
        return _majority(self.voters, self.is_alive)

    @property
    def can_recover(self) -> bool:
        """A majority of the voters has its disk, running or not."""
        return _majority(self.voters, self.has_disk)

    @property
    def is_as_wanted(self) -> bool:
        return (
            self.voters == frozenset(range(self.desired))
            and len(self.pods) == self.desired
            and not any(pod.outdated or pod.leaving for pod in self.pods)
        )


def _majority(voters: frozenset[int], counts: Callable[[int], bool]) -> bool:
    return sum(counts(voter) for voter in voters) >= len(voters) // 2 + 1


def observe(world: World) -> p.Observed:
    """What an operator that can reach everything sees."""
    nodes = tuple(
        p.ObservedNode(
            ordinal,
            world.first + ordinal,
            uid=f"uid-{ordinal}",
            answers=pod.up,
            directory_id=world.key(ordinal).directory_id
            if pod.up and pod.disk is not Disk.EMPTY
            else None,
            cluster_id=CLUSTER if pod.up and pod.disk is not Disk.EMPTY else "",
            ready=pod.up and pod.disk is Disk.SYNCED,
            outdated=pod.outdated,
            loses_volume=pod.leaving,
        )
        for ordinal, pod in enumerate(world.pods)
    )
    voters = frozenset(world.key(voter) for voter in world.voters)
    view = None
    if world.leader is not None and world.can_commit:
        caught_up = frozenset(
            world.key(ordinal)
            for ordinal, pod in enumerate(world.pods)
            if pod.up and pod.disk is Disk.SYNCED
        )
        view = p.LeaderView(world.key(world.leader), 1, voters, voters, caught_up)
    return p.Observed(
        ids=NodeIds(world.first),
        size=len(world.pods),
        nodes=nodes,
        view=view,
        known_voters=voters,
        record=p.BootstrapRecord(CLUSTER),
        is_marked=True,
        known_cluster_id=CLUSTER,
    )


def guarded(desired: p.Desired, observed: p.Observed) -> p.Action | None:
    """The planner of the operator."""
    return p.plan(desired, observed).action


def unguarded(desired: p.Desired, observed: p.Observed) -> p.Action | None:
    """What an operator does that scales first and thinks later: removes the highest surplus voter,
    whoever is alive, and otherwise acts as ours does.
    """
    view = observed.view
    if view is not None:
        wanted = {observed.ids.of(ordinal) for ordinal in range(desired.replicas)}
        surplus = [voter for voter in view.voters if voter.id not in wanted]
        if surplus:
            return p.RemoveVoter(max(surplus))
    return guarded(desired, observed)


def without(kind: type) -> Planner:
    """The planner of the operator while no action of a kind succeeds: it takes the other steps."""

    def planner(desired: p.Desired, observed: p.Observed) -> p.Action | None:
        failures: tuple[ActionFailure, ...] = ()
        while isinstance(found := guarded(desired, replace(observed, failures=failures)), kind):
            assert found is not None
            failures += tuple(ActionFailure(target, "no") for target in targets(found))
        return found

    return planner


# --- what happens ---------------------------------------------------------------------------------


def act(world: World, action: p.Action) -> World:
    """The world after an action. Voters change only where a quorum can commit it."""
    match action:
        case p.RemoveVoter(voter):
            if world.leader is None or not world.can_commit:
                return world
            removed = world.ordinal(voter)
            left = world.voters - {removed}
            leader = None if world.leader == removed else world.leader
            return _settled(world._replace(voters=left, leader=leader))
        case p.AddVoter(voter):
            added = world.ordinal(voter)
            assert added not in world.voters, "a voter is added once"
            return _settled(world._replace(voters=world.voters | {added}))
        case p.TransferLeadership(target):
            leader = world.ordinal(target)
            assert world.is_alive(leader), "leadership goes to who is there"
            return world._replace(leader=leader)
        case p.FormatNode(ordinal, _, _, standalone):
            assert not standalone, "a quorum that was begun is not begun again"
            assert ordinal not in world.voters, "an empty disk never gets a voter's directory id"
            return _with(world, ordinal, disk=Disk.BEHIND)
        case p.Resize(replicas):
            pods = world.pods[:replicas]
            missing = replicas - len(pods)
            new = (Pod(True, Disk.EMPTY),) * missing
            return _settled(world._replace(pods=pods + new))
        case p.RestartPod(ordinal):
            down = world.pods[ordinal]._replace(up=False, outdated=False, leaving=False)
            if world.pods[ordinal].leaving:
                down = down._replace(disk=Disk.EMPTY)
            return _settled(_with_pod(world, ordinal, down))
        case _:
            raise AssertionError(f"not in this world: {action}")


def events(world: World) -> Iterator[World]:
    """All that can happen next without the operator."""
    for ordinal, pod in enumerate(world.pods):
        if not pod.up:
            yield _with(world, ordinal, up=True)
        if world.faults and pod.up:
            yield _settled(_with(world._replace(faults=world.faults - 1), ordinal, up=False))
        if world.faults and pod.disk is not Disk.EMPTY:
            lost = world._replace(faults=world.faults - 1)
            lost = _with_pod(lost, ordinal, pod._replace(leaving=False))
            yield _settled(_with(lost, ordinal, up=True, disk=Disk.EMPTY))
        if world.moves and not pod.leaving:
            asked = world._replace(moves=world.moves - 1)
            yield _with_pod(asked, ordinal, pod._replace(leaving=True))
        if pod.up and pod.disk is Disk.BEHIND and world.leader is not None and world.can_commit:
            yield _with(world, ordinal, disk=Disk.SYNCED)
    if world.leader is None and world.can_commit:
        for voter in sorted(world.voters):
            if world.is_alive(voter):
                yield _with(world, voter, disk=Disk.SYNCED)._replace(leader=voter)
    if world.scalings:
        for desired in range(1, 6):
            if desired != world.desired:
                yield world._replace(desired=desired, scalings=world.scalings - 1)


def _settled(world: World) -> World:
    """A leader that is gone, or that a majority does not follow, leads no more."""
    leader = world.leader
    if leader is not None and (not world.is_alive(leader) or not world.can_commit):
        world = world._replace(leader=None)
    return world


def _with(world: World, ordinal: int, *, up: bool | None = None, disk: Disk | None = None) -> World:
    pod = world.pods[ordinal]
    if disk is not None:
        pod = pod._replace(disk=disk)
    if up is not None:
        # Who comes back must fetch what it missed.
        fetched = Disk.BEHIND if up and not pod.up and pod.disk is Disk.SYNCED else pod.disk
        pod = pod._replace(up=up, disk=fetched)
    return _with_pod(world, ordinal, pod)


def _with_pod(world: World, ordinal: int, pod: Pod) -> World:
    return world._replace(pods=(*world.pods[:ordinal], pod, *world.pods[ordinal + 1 :]))


# --- exploring ------------------------------------------------------------------------------------


@dataclass
class Explored:
    """losses: actions after which a quorum that was there, or could come back, was gone for good or
    for now; each with the world before. stuck: worlds that do not become as wanted although nothing
    more goes wrong.
    """

    states: int = 0
    actions: int = 0
    losses: list[tuple[World, p.Action]] = field(default_factory=list)
    stuck: list[World] = field(default_factory=list)


def explore(
    initial: list[World], planner: Planner = guarded, *, check_progress: bool = False
) -> Explored:
    """Every world that can be reached from the initial ones."""
    found = Explored()
    seen = set(initial)
    queue = deque(initial)
    arrives: dict[World, bool] = {}
    while queue:
        world = queue.popleft()
        found.states += 1
        after = list(events(world))
        action = planner(p.Desired(world.desired), observe(world))
        if action is not None:
            found.actions += 1
            done = act(world, action)
            if _is_loss(world, done, action):
                found.losses.append((world, action))
            after.append(done)
        if check_progress and world.can_recover and not _arrives(world, planner, arrives):
            found.stuck.append(world)
        for each in after:
            if each not in seen:
                seen.add(each)
                queue.append(each)
    return found


def _is_loss(before: World, after: World, action: p.Action) -> bool:
    if before.can_recover and not after.can_recover:
        return True
    if isinstance(action, p.RemoveVoter):
        moved = before.ordinal(action.voter)
        is_move = moved < min(before.desired, len(before.pods)) and before.pods[moved].leaving
        if is_move and before.pods[moved].disk is not Disk.EMPTY and len(after.voters) < 2:
            return True  # one volume would hold the only copy
    # Restarting the only voter, or one of two, is a pause that nobody can avoid.
    if isinstance(action, p.RestartPod) and len(before.voters) <= 2:
        return False
    return before.can_commit and not after.can_commit


def _arrives(world: World, planner: Planner, known: dict[World, bool]) -> bool:
    """Whether the world becomes as wanted when nothing more goes wrong."""
    path: list[World] = []
    world = world._replace(faults=0, scalings=0, moves=0)
    while world not in known:
        known[world] = False  # a world that leads back to itself does not arrive
        path.append(world)
        calm = next(events(world), None)
        if calm is not None:
            world = calm
            continue
        action = planner(p.Desired(world.desired), observe(world))
        if action is None:
            known[world] = world.is_as_wanted
            break
        world = act(world, action)
    arrived = known[world]
    known.update(dict.fromkeys(path, arrived))
    return arrived


def healthy(
    size: int,
    desired: int,
    leader: int,
    *,
    faults: int,
    scalings: int = 0,
    first: int = 0,
    moves: int = 0,
) -> World:
    """A quorum of `size` voters, all well, that shall have `desired`."""
    pods = (Pod(True, Disk.SYNCED),) * size
    return World(desired, pods, frozenset(range(size)), leader, faults, scalings, first, moves)
