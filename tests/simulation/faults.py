"""What is done to a cluster: every kind of action of a plan, and the end of all of them.

Faults never exceed what the protocol tolerates: a disk is lost, and a voter removed, only while
every voter set that is in force anywhere, and every one that pending requests may make of it, keeps
a majority of voters whose disks are whole (`Injector.tolerates`). Volatile data may be lost
everywhere at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from quorate.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateKRaftVersionRequest,
)
from quorate.raft.types import ReplicaKey, Voter, VoterSet, same_replica

from tests.simulation.clock import TRUE_RATE
from tests.simulation.errors import InvariantError
from tests.simulation.plan import Action
from tests.simulation.scheduler import MS, SECOND
from tests.simulation.storage import Disk

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.node import SimNode

Numbers = tuple[float, ...]
CRASH_MODES = ("all", "prefix", "torn")


class Injector:
    """Does the actions. counts: how many of each kind had an effect."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.network = cluster.network
        self.random = random
        self.counts: Counter[str] = Counter()
        self.lost_disks = 0
        self.healed = False
        self._disks = 0
        self._at_election: list[Numbers] = []

    def do(self, action: Action) -> None:
        act: Callable[[Numbers], bool] = getattr(self, f"_{action.kind}")
        if self.cluster.trace is not None:
            self.cluster.trace(None, f"--- {action.kind}")
        if act(action.numbers):
            self.counts[action.kind] += 1

    # --- whom -------------------------------------------------------------------------------------

    def _node(self, number: float) -> SimNode:
        """A node: one time in three the leader, if there is one."""
        nodes = self.cluster.nodes
        if number < 1 / 3:
            leader = self.cluster.leader()
            if leader is not None:
                return leader
            return nodes[int(number * 3 * len(nodes))]
        return nodes[int((number - 1 / 3) * 1.5 * len(nodes))]

    def _voter(self, number: float) -> ReplicaKey | None:
        voters = self._believed_voters()
        return voters.voters[int(number * len(voters))].key if len(voters) else None

    def _believed_voters(self) -> VoterSet:
        leader = self.cluster.leader()
        return leader.voters if leader is not None else self.cluster.oracle.voters

    @staticmethod
    def _span(number: float, low_us: int, high_us: int) -> int:
        """A duration, the short ones more often."""
        return low_us + int(number * number * (high_us - low_us))

    # --- what is tolerated ------------------------------------------------------------------------

    def tolerates(
        self, *, lost: ReplicaKey | None = None, removed: ReplicaKey | None = None
    ) -> bool:
        """Whether every voter set keeps a majority of whole disks after this."""
        gone = [node.id for node in self.cluster.nodes if node.disk.is_damaged]
        if lost is not None:
            gone.append(lost.id)
        pending = list(self.cluster.pending_changes.values())
        leaving = [r.voter for r in pending if isinstance(r, RemoveVoterRequest)]
        if removed is not None:
            leaving.append(removed)
        joining = [Voter(r.voter, r.endpoints) for r in pending if isinstance(r, AddVoterRequest)]
        for voters in self._sets_in_force():
            now = list(voters)
            if lost is not None and any(voter.key.directory_id is None for voter in now):
                return False  # at kraft.version 0 nobody can tell the new disk from the old one
            stays = [voter for voter in now if voter.key not in leaving]
            joins = [voter for voter in joining if voter.id not in [v.id for v in now]]
            for result in (now, stays, now + joins, stays + joins):
                held = sum(1 for voter in result if self._is_there(voter, gone))
                if held < len(result) // 2 + 1:
                    return False
        return True

    def _is_there(self, voter: Voter, gone: list[int]) -> bool:
        """Whether that replica has its disk, and listens where others look for it."""
        if voter.id in gone or not same_replica(voter.key, self.cluster.nodes[voter.id - 1].key):
            return False
        port = self.cluster.nodes[voter.id - 1].port
        return not voter.endpoints or voter.endpoints[0] == self.cluster.endpoint(voter.id, port)

    def _sets_in_force(self) -> list[VoterSet]:
        """Every voter set that a node may act on, now or after a crash."""
        sets: list[VoterSet] = [self.cluster.oracle.voters]
        for node in self.cluster.nodes:
            committed = self.cluster.oracle.committed_end
            sets += [voters for offset, voters in node.voter_sets if offset >= committed]
            if node.voter_sets:
                sets.append(node.voter_sets[-1][1])
            elif node.id in [voter.id for voter in self.cluster.static_voters]:
                sets.append(self.cluster.static_voters)
        return [voters for i, voters in enumerate(sets) if len(voters) and voters not in sets[:i]]

    # --- processes --------------------------------------------------------------------------------

    def start(self, node: SimNode) -> None:
        if node.raft is None and not node.disk.is_damaged:
            node.start()

    def process_ends(self, node: SimNode, mode: str, reason: str, down_us: int = 0) -> None:
        """A process ends and is started again."""
        if self.cluster.trace is not None:
            self.cluster.trace(node, f"the process ends: {reason}")
        node.stop(mode)
        self._start_later(node, down_us or 20 * MS + int(self.random.random() * 3 * SECOND))

    def _start_later(self, node: SimNode, delay_us: int) -> None:
        self.scheduler.after(delay_us, self._start_if, node, node.life)

    def _start_if(self, node: SimNode, life: int) -> None:
        if node.life == life:
            self.start(node)

    def _crash(self, n: Numbers) -> bool:
        node = self._node(n[0])
        if node.raft is None:
            return False
        node.stop(CRASH_MODES[int(n[1] * 3)], silent=n[2] < 0.3)
        self._start_later(node, self._span(n[3], 10 * MS, 8 * SECOND))
        return True

    def _crash_all(self, n: Numbers) -> bool:
        """Power is lost everywhere."""
        for node in self.cluster.nodes:
            if node.raft is not None:
                node.stop(CRASH_MODES[int(n[1] * 3)], silent=n[2] < 0.5)
                wait = self._span(self.random.random(), 10 * MS, 3 * SECOND)
                self._start_later(node, wait)
        return True

    def _crash_between_outputs(self, n: Numbers) -> bool:
        node = self._node(n[0])
        if node.raft is None:
            return False
        node.fuse = int(n[1] * 12)
        return True

    def _crash_in_election(self, n: Numbers) -> bool:
        """The process ends soon after it has written quorum-state the next time."""
        node = self._node(n[0])
        if node.raft is None:
            return False
        node.fuse_at_election = int(n[1] * 4)
        return True

    def _pause(self, n: Numbers) -> bool:
        node = self._node(n[0])
        if node.raft is None or node.paused_until > self.scheduler.now:
            return False
        node.paused_until = self.scheduler.now + self._span(n[1], 5 * MS, 6 * SECOND)
        return True

    def _clock_jump(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.clock.change(self.scheduler.now, jump_us=self._span(n[1], 10 * MS, 10 * SECOND))
        self._kick(node)
        return True

    def _clock_back(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.clock.change(self.scheduler.now, jump_us=-self._span(n[1], 10 * MS, 3 * SECOND))
        return True

    def _clock_rate(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.clock.change(self.scheduler.now, rate=int(TRUE_RATE * (0.6 + n[1])))
        self._kick(node)
        return True

    def _kick(self, node: SimNode) -> None:
        """A clock moved: its timers are due at another time."""
        if node.raft is not None:
            node.rearm()

    def _shut_down(self, n: Numbers) -> bool:
        node = self._node(n[0])
        if node.raft is None:
            return False
        node.shut_down()
        self.scheduler.after(20 * MS, self._end_shut_down, node, node.life, n[1], 0)
        return True

    def _end_shut_down(self, node: SimNode, life: int, number: float, polls: int) -> None:
        """Stop when nobody waits for the node any more, or after a while."""
        if node.raft is None or node.life != life:
            return
        if not node.raft.is_quiet and polls < 100 and not self.healed:
            self.scheduler.after(20 * MS, self._end_shut_down, node, life, number, polls + 1)
            return
        node.stop("prefix")
        self._start_later(node, self._span(number, 10 * MS, 5 * SECOND))

    # --- network ----------------------------------------------------------------------------------

    def _for_a_while(self, links: list[tuple[int, int]], number: float) -> bool:
        if not links:
            return False
        cut = self.network.cut(links)
        self.scheduler.after(self._a_while(number), self.network.heal, cut)
        return True

    def _a_while(self, number: float) -> int:
        return self._span(number, 50 * MS, 10 * SECOND)

    def _partition(self, n: Numbers) -> bool:
        """Two groups that do not hear each other."""
        indices = [node.index for node in self.cluster.nodes]
        self.random.shuffle(indices)
        size = 1 + int(n[0] * (len(indices) - 1))
        left, right = indices[:size], indices[size:]
        links = [(a, b) for a in left for b in right]
        return self._for_a_while(links + [(b, a) for a, b in links], n[1])

    def _one_way(self, n: Numbers) -> bool:
        """One node hears nothing, or is not heard."""
        node = self._node(n[0]).index
        others = [other.index for other in self.cluster.nodes if other.index != node]
        links = [(node, other) if n[2] < 0.5 else (other, node) for other in others]
        return self._for_a_while(links, n[1])

    def _partial(self, n: Numbers) -> bool:
        """Single links are cut; others stay."""
        pairs = [
            (a.index, b.index) for a in self.cluster.nodes for b in self.cluster.nodes if a is not b
        ]
        links = [pair for pair in pairs if self.random.random() < 0.1 + 0.4 * n[0]]
        if n[2] < 0.5:
            links += [(b, a) for a, b in links]
        return self._for_a_while(links, n[1])

    def _isolate_leader(self, n: Numbers) -> bool:
        leader = self.cluster.leader()
        if leader is None:
            return False
        links = [(leader.index, o.index) for o in self.cluster.nodes if o is not leader]
        before = leader.life, leader.led_epoch, leader.now_ms()
        self.scheduler.after(self._a_while(n[1]), self._must_have_resigned, leader, *before)
        return self._for_a_while(links + [(b, a) for a, b in links], n[1])

    def _must_have_resigned(self, node: SimNode, life: int, epoch: int, since_ms: int) -> None:
        """CheckQuorum: who hears no majority for that long leads no more."""
        config, now_ms = node.config, node.now_ms()
        if config is None or node.raft is None or node.life != life or self.healed:
            return
        still_leads = node.is_leading and node.led_epoch == epoch and node.paused_until == 0
        if still_leads and len(node.voters) > 1 and not node.clock.was_changed:
            waited_ms = now_ms - since_ms
            if waited_ms > 2 * config.check_quorum_timeout_ms + 1_000:
                text = f"{node.key} leads epoch {epoch} after {waited_ms} ms alone"
                raise InvariantError("CheckQuorum", text)

    def _cut_off_minority(self, n: Numbers) -> bool:
        """Followers, fewer than half of all nodes, hear nobody and are not heard."""
        leader = self.cluster.leader()
        others = [node.index for node in self.cluster.nodes if node is not leader]
        size = (len(self.cluster.nodes) - 1) // 2
        if leader is None or size == 0:
            return False
        self.random.shuffle(others)
        cut = others[: 1 + int(n[0] * size)]
        rest = [node.index for node in self.cluster.nodes if node.index not in cut]
        links = [(a, b) for a in cut for b in rest]
        return self._for_a_while(links + [(b, a) for a, b in links], n[1])

    def _unheard_leader(self, n: Numbers) -> bool:
        """Followers, fewer than half, and the leader do not hear each other; all others do."""
        leader = self.cluster.leader()
        size = (len(self.cluster.nodes) - 1) // 2
        if leader is None or size == 0:
            return False
        others = [node.index for node in self.cluster.nodes if node is not leader]
        self.random.shuffle(others)
        links = [(leader.index, other) for other in others[: 1 + int(n[0] * size)]]
        return self._for_a_while(links + [(b, a) for a, b in links], n[1])

    def _lossy(self, n: Numbers) -> bool:
        return self._rate("loss", 0.02 + 0.4 * n[0] * n[0], n[1])

    def _duplicating(self, n: Numbers) -> bool:
        return self._rate("duplicates", 0.05 + 0.5 * n[0], n[1])

    def _straggling(self, n: Numbers) -> bool:
        return self._rate("stragglers", 0.02 + 0.3 * n[0], n[1])

    def _rate(self, name: str, rate: float, number: float) -> bool:
        setattr(self.network, name, rate)
        base = getattr(self.cluster.scenario, name)
        self.scheduler.after(self._span(number, SECOND, 6 * SECOND), self._unrate, name, base)
        return True

    def _unrate(self, name: str, rate: float) -> None:
        if not self.healed:
            setattr(self.network, name, rate)

    def _broken_stream(self, n: Numbers) -> bool:
        """The connections between a node and its leader are reset; both live."""
        node = self._node(n[0])
        leader = self.cluster.leader()
        if leader is None or node is leader or node.raft is None:
            return False
        for request_id, (source, life, theirs, _) in leader.waiting.items():
            if source is node and request_id in leader.waiting:
                self.scheduler.after(200, node.receive_reset, life, theirs)
        self.network.hint(node, leader.id)
        return True

    def _false_hint(self, n: Numbers) -> bool:
        """Everyone, or one, hears that the leader is gone, and it is not."""
        leader = self.cluster.leader()
        if leader is None:
            return False
        for node in self.cluster.nodes:
            if node is not leader and (n[0] < 0.4 or node is self._node(n[1])):
                self.network.hint(node, leader.id)
        return True

    # --- disks ------------------------------------------------------------------------------------

    def _slow_disk(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.sync_delay_us = self._span(n[1], 5 * MS, 2 * SECOND)
        self.scheduler.after(self._span(n[2], SECOND, 8 * SECOND), self._normal_disk, node)
        return True

    def _normal_disk(self, node: SimNode) -> None:
        node.sync_delay_us = 400

    def _fsync_fails(self, n: Numbers) -> bool:
        self._node(n[0]).sync_fails = True
        return True

    def _full_disk(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.disk.is_full = True
        self.scheduler.after(self._span(n[1], 100 * MS, 8 * SECOND), node.disk_has_room)
        return True

    def _lost_disk(self, n: Numbers) -> bool:
        """The disk is gone; the node comes back with another directory id and an empty log."""
        node = self._node(n[0])
        if not self.tolerates(lost=node.key):
            return False
        node.stop("all", silent=n[1] < 0.3)
        self._replace_disk(node)
        self._start_later(node, self._span(n[2], 10 * MS, 5 * SECOND))
        return True

    def _damaged_disk(self, n: Numbers) -> bool:
        """A bit flips where recovery cannot tell what was there: the node refuses to start, until
        someone replaces the disk.
        """
        node = self._node(n[0])
        if node.disk.is_damaged or not self.tolerates(lost=node.key):
            return False
        node.stop("prefix")
        node.disk.is_damaged = True
        wait = self._span(n[2], 200 * MS, 8 * SECOND)
        self.scheduler.after(wait, self._replace_damaged, node)
        return True

    def _replace_damaged(self, node: SimNode) -> None:
        if node.disk.is_damaged:
            self._replace_disk(node)
            self.start(node)

    def _replace_disk(self, node: SimNode) -> None:
        from tests.simulation.cluster import directory_id

        self._disks += 1
        self.lost_disks += 1
        self.cluster.oracle.lost_disks[node.key] = node.disk
        node.disk = Disk(directory_id(node.id, self._disks))
        node.voter_sets = []
        if self.cluster.trace is not None:
            self.cluster.trace(node, f"has another disk: {node.key}")

    # --- membership -------------------------------------------------------------------------------

    def _ask(self, number: float, request: object) -> bool:
        """Ask the leader, or one time in five anyone."""
        leader = self.cluster.leader()
        node = leader if leader is not None and number < 0.8 else self._node(number)
        if node.raft is None:
            return False
        self.cluster.pending_changes[id(request)] = request
        delay = 200 + int(self.random.random() * 5 * MS)
        self.scheduler.after(delay, node.receive_request, request, _heard, 0, 0)
        return True

    def _timeout_ms(self, number: float) -> int:
        return 100 + int(number * number * 8_000)

    def _add_node(self, node: SimNode, n: Numbers) -> bool:
        endpoints = (self.cluster.endpoint(node.id, node.port),)
        request = AddVoterRequest("sim", node.key, endpoints, self._timeout_ms(n[2]), n[3] < 0.8)
        return self._ask(n[1], request)

    def _add(self, n: Numbers) -> bool:
        voters = self._believed_voters()
        others = [node for node in self.cluster.nodes if node.key not in voters]
        if not others:
            return False
        return self._add_node(others[int(n[0] * len(others))], n)

    def _add_nonsense(self, n: Numbers) -> bool:
        """A voter that is not there, or not who it should be."""
        node = self._node(n[0])
        key, endpoint = node.key, self.cluster.endpoint(node.id, node.port)
        if n[3] < 0.4:
            endpoint = self.cluster.endpoint(node.id, 1)
        elif n[3] < 0.7:
            key = ReplicaKey(node.id, "nobody".ljust(22, "_"))
        else:
            endpoint = self.cluster.endpoint(1 + int(n[4] * len(self.cluster.nodes)), 9_000)
        request = AddVoterRequest("sim", key, (endpoint,), self._timeout_ms(n[2]), True)
        return self._ask(n[1], request)

    def _remove_key(self, key: ReplicaKey, n: Numbers) -> bool:
        if not self.tolerates(removed=key):
            return False
        return self._ask(n[1], RemoveVoterRequest("sim", key, self._timeout_ms(n[2])))

    def _remove(self, n: Numbers) -> bool:
        key = self._voter(n[0])
        return key is not None and self._remove_key(key, n)

    def _remove_leader(self, n: Numbers) -> bool:
        leader = self.cluster.leader()
        return leader is not None and self._remove_key(leader.key, n)

    def _two_callers(self, n: Numbers) -> bool:
        """Two at once, who do not know of each other."""
        one = self._add(n) if n[3] < 0.5 else self._remove(n)
        two = self._remove((n[4], *n[1:])) if n[5] < 0.7 else self._add((n[4], *n[1:]))
        return one or two

    def _change_at_election(self, n: Numbers) -> bool:
        """A change for whoever leads next, before it has committed anything; half the time the
        leader of now, which has such a change as well, is cut off first.
        """
        self._at_election.append(n)
        if n[4] < 0.5:
            self._remove(n) if n[5] < 0.5 else self._add(n)
            wait = 300 + int(n[4] * 10 * MS)
            self.scheduler.after(wait, self._cut_off_with_one, n)
        return True

    def _cut_off_with_one(self, n: Numbers) -> None:
        """The leader keeps one link."""
        leader = self.cluster.leader()
        if leader is not None and not self.healed:
            others = [node.index for node in self.cluster.nodes if node is not leader]
            self.random.shuffle(others)
            links = [(leader.index, other) for other in others[1:]]
            self._for_a_while(links + [(b, a) for a, b in links], n[1])

    def elected(self, node: SimNode) -> None:
        """A node leads: it is asked at once for what waits for it."""
        waiting, self._at_election = self._at_election, []
        if not self.healed:
            for n in waiting:
                delay = int(n[2] * 3 * MS)
                self.scheduler.after(
                    delay, self._remove if n[3] < 0.6 else self._add, (*n[:1], 0.0, 0.9, *n[3:])
                )

    def _replace(self, n: Numbers) -> bool:
        """What an operator does about a voter whose disk was lost: remove, then add."""
        whole = {node.id: node.key for node in self.cluster.nodes}
        for voter in self._believed_voters():
            node = self.cluster.nodes[voter.id - 1]
            if voter.key.directory_id is not None and whole[voter.id] != voter.key:
                asked = self._remove_key(voter.key, n)
                wait = self._span(n[4], 50 * MS, 3 * SECOND)
                self.scheduler.after(wait, self._add_if_healthy, node, n)
                return asked
        return False

    def _add_if_healthy(self, node: SimNode, n: Numbers) -> None:
        if node.raft is not None and not self.healed:
            self._add_node(node, n)

    def _update(self, n: Numbers) -> bool:
        """A voter comes back on another port; until the log says so, it counts as lost."""
        node = self._node(n[0])
        static = self.cluster.static_voters.get(node.id)
        if static is not None or not self.tolerates(lost=node.key):
            return False
        node.stop("prefix")
        node.port += 1
        self.cluster.listen(node)
        self._start_later(node, self._span(n[1], 10 * MS, 2 * SECOND))
        return True

    def _upgrade(self, n: Numbers) -> bool:
        return self._ask(n[1], UpdateKRaftVersionRequest("sim", 1, False, self._timeout_ms(n[2])))

    def _transfer(self, n: Numbers) -> bool:
        key = self._voter(n[0])
        if key is None:
            return False
        return self._ask(n[1], TransferLeadershipRequest("sim", key, self._timeout_ms(n[2])))

    # --- the log ----------------------------------------------------------------------------------

    def _snapshot(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.take_snapshot()
        if n[1] < 0.5:
            node.clean_log()
        return True

    def _clean(self, n: Numbers) -> bool:
        self._node(n[0]).clean_log()
        return True

    # --- the end ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """No more faults: what is down starts, what is cut is joined."""
        self.healed = True
        self.network.heal_all()
        for node in self.cluster.nodes:
            node.fuse = node.fuse_at_election = -1
            node.sync_fails = False
            node.sync_delay_us = 400
            node.clock.change(self.scheduler.now, rate=TRUE_RATE)
            node.paused_until = min(node.paused_until, self.scheduler.now)
            node.disk_has_room()
            self._kick(node)
            if node.raft is not None and node.raft.core.shutting_down:
                node.stop("prefix")
            self._replace_damaged(node)
            if node.raft is None:
                self._start_later(node, int(self.random.random() * 500 * MS))


def _heard(node: SimNode, request: object, response: object) -> None:
    """The administrator hears the answer; what it means, the oracle checks."""
