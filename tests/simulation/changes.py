"""What administrators ask of a cluster: changes of the voters, upgrades, transfers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateKRaftVersionRequest,
)
from quorate.raft.roles import Leader
from quorate.raft.types import ReplicaKey

from tests.simulation.link_faults import LinkFaults
from tests.simulation.scheduler import MS, SECOND
from tests.simulation.targets import Numbers

if TYPE_CHECKING:
    from tests.simulation.node import SimNode


class Changes(LinkFaults):
    """The actions on membership and leadership."""

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
        others = [node for node in self.cluster.nodes if node.key not in voters and node.can_vote]
        if not others:
            return False
        return self._add_node(others[int(n[0] * len(others))], n)

    def _add_broker(self, n: Numbers) -> bool:
        """A broker is named as a voter by mistake: it replicates, and never votes nor stands."""
        voters = self._believed_voters()
        brokers = [o for o in self.cluster.nodes if not o.can_vote and o.key not in voters]
        if not brokers:
            return False
        node = brokers[int(n[0] * len(brokers))]
        joining = AddVoterRequest("sim", node.key, ())
        self.cluster.pending_changes[id(joining)] = joining
        tolerated = self.tolerates()
        del self.cluster.pending_changes[id(joining)]
        return tolerated and self._add_node(node, n)

    def _add_nonsense(self, n: Numbers) -> bool:
        """A voter that is not there, or not who it should be."""
        node = self._node(n[0])
        if not node.can_vote:
            return False
        key, endpoint = node.key, self.cluster.endpoint(node.id, node.port)
        if n[3] < 0.4:
            endpoint = self.cluster.endpoint(node.id, 1)
        elif n[3] < 0.7:
            key = ReplicaKey(node.id, "nobody".ljust(22, "_"))
        else:
            endpoint = self.cluster.endpoint(1 + int(n[4] * len(self.cluster.nodes)), 9_000)
        request = AddVoterRequest("sim", key, (endpoint,), self._timeout_ms(n[2]), True)
        return self._ask(n[1], request)

    def _remove_key(self, key: ReplicaKey, n: Numbers, *, force: bool = False) -> bool:
        is_last = all(voters.is_only(key) for voters in self._sets_in_force())
        if not is_last and not self.tolerates(removed=key):
            return False
        return self._ask(n[1], RemoveVoterRequest("sim", key, self._timeout_ms(n[2]), force))

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

    def _remove_while_silent(self, n: Numbers) -> bool:
        """As many voters go down as may; when the leader has not heard of them for a fetch timeout,
        someone wants one of the others to leave, with whom the last majority would go.
        """
        leader = self.cluster.leader()
        if leader is None:
            return False
        others = [voter.key for voter in leader.voters if voter.id != leader.id]
        self.random.shuffle(others)
        silent = others[: len(leader.voters) // 2]
        timeout_us = self.cluster.scenario.fetch_timeout_ms * MS
        for key in silent:
            node = self.cluster.nodes[key.id - 1]
            node.stop("prefix", silent=n[3] < 0.5)
            self._start_later(node, 3 * timeout_us + self._span(n[4], 10 * MS, 4 * SECOND))
        there = [leader.key, *others[len(silent) :]]
        leaving = there[int(n[0] * len(there))]
        wait = timeout_us + 10 * MS + int(n[1] * timeout_us // 4)
        self.scheduler.after(wait, self._remove_now, leaving, (n[0], 0.0, 0.9, *n[3:]))
        return bool(silent)

    def _remove_now(self, key: ReplicaKey, n: Numbers) -> None:
        if not self.healed and key in self._believed_voters():
            self._remove_key(key, n)

    def _force_removal(self, n: Numbers) -> bool:
        """The same, and an administrator forces it. The last voter must stay all the same."""
        leader = self.cluster.leader()
        if leader is None:
            return False
        others = [voter.key for voter in leader.voters if voter.id != leader.id]
        silent = others[: len(leader.voters) // 2]
        timeout_us = self.cluster.scenario.fetch_timeout_ms * MS
        for key in silent:
            node = self.cluster.nodes[key.id - 1]
            node.stop("prefix", silent=n[3] < 0.5)
            self._start_later(node, 2 * timeout_us + self._span(n[4], 10 * MS, 4 * SECOND))
        there = [leader.key, *others[len(silent) :]]
        leaving = there[int(n[0] * len(there))]
        self.scheduler.after(timeout_us + 10 * MS, self._force_now, leaving, n)
        return True

    def _force_now(self, key: ReplicaKey, n: Numbers) -> None:
        if not self.healed and key in self._believed_voters():
            self._remove_key(key, (n[0], 0.0, 0.9, *n[3:]), force=True)

    def _several_adds(self, n: Numbers) -> bool:
        """More AddVoters at once than may wait: every other node twice, but no broker, which would
        never vote, and some that do not answer or never catch up.
        """
        leader = self.cluster.leader()
        if leader is None:
            return False
        asked = False
        others = [o for o in self.cluster.nodes if o.key not in leader.voters and o.can_vote]
        for node in (*others, *others):
            asked = self._add_node(node, (n[0], 0.0, *n[2:])) or asked
        if n[4] < 0.5:
            for _ in range(12):
                asked = self._add_nobody(n) or asked
        return asked

    def _add_nobody(self, n: Numbers) -> bool:
        """A voter that never answers, for a long time."""
        key = ReplicaKey(90, "nobody".ljust(22, "_"))
        endpoint = self.cluster.endpoint(1, 1)
        return self._ask(0.0, AddVoterRequest("sim", key, (endpoint,), 8_000, True))

    def _stuck_add(self, n: Numbers) -> bool:
        """An AddVoter that never ends is ahead of a removal."""
        if not self._add_nobody(n):
            return False
        return self._remove((n[0], 0.0, 0.6, *n[3:]))

    def _cancel(self, n: Numbers) -> bool:
        """Whoever asked the leader for something disconnects: about half of them."""
        leader = self.cluster.leader()
        if leader is None or leader.paused_until > self.scheduler.now:
            return False
        waiting = [i for i, asked in leader.waiting.items() if callable(asked[0])]
        for index, request_id in enumerate(waiting):
            if n[index % len(n)] < 0.5:
                leader.cancel(request_id)
        return bool(waiting)

    def _transfer_to_the_dead(self, n: Numbers) -> bool:
        """A follower falls silent, and is to lead later; nothing is appended meanwhile."""
        leader = self.cluster.leader()
        if leader is None:
            return False
        others = [voter.key for voter in leader.voters if voter.id != leader.id]
        if not others:
            return False
        key = others[int(n[0] * len(others))]
        node = self.cluster.nodes[key.id - 1]
        timeout_us = self.cluster.scenario.fetch_timeout_ms * MS
        wait = self._span(n[1], 0, 2 * timeout_us)
        self.cluster.clients.rest_until = self.scheduler.now + wait + timeout_us
        node.stop("prefix", silent=True)
        self._start_later(node, wait + 2 * timeout_us)
        self.scheduler.after(wait, self._transfer_now, key, n)
        return True

    def _transfer_now(self, key: ReplicaKey, n: Numbers) -> None:
        if not self.healed:
            self._ask(0.0, TransferLeadershipRequest("sim", key, self._timeout_ms(n[2])))

    def _transfer_to_the_dying(self, n: Numbers) -> bool:
        """A follower falls silent just when the leader refuses appends in its favour."""
        leader = self.cluster.leader()
        if leader is None or leader.paused_until > self.scheduler.now:
            return False
        others = [voter.key for voter in leader.voters if voter.id != leader.id]
        if not others:
            return False
        key = others[int(n[0] * len(others))]
        self._ask(0.0, TransferLeadershipRequest("sim", key, 8_000))
        self._watch_transfer(leader, leader.life, self.cluster.nodes[key.id - 1], 300, n[1])
        return True

    def _watch_transfer(
        self, leader: SimNode, life: int, target: SimNode, left: int, number: float
    ) -> None:
        """Append all the time, so that the target lacks something."""
        if leader.raft is None or leader.life != life or not leader.is_leading or self.healed:
            return
        role = leader.core.role
        if isinstance(role, Leader) and role.refuses_appends:
            target.stop("prefix", silent=True)
            self._start_later(target, self._span(number, 4 * SECOND, 8 * SECOND))
            return
        if left:
            if left % 3 == 0:
                self.cluster.clients.append(leader)
            args = (leader, life, target, left - 1, number)
            self.scheduler.after(100, self._watch_transfer, *args)

    def _leave_unheard(self, n: Numbers) -> bool:
        """The leader is asked to leave, appends that, and nobody hears of it: its messages are lost
        from now on, and its process ends before it could resign.
        """
        leader = self.cluster.leader()
        if leader is None or not self._remove_key(leader.key, (n[0], 0.0, 0.9, *n[3:])):
            return False
        others = [node.index for node in self.cluster.nodes if node is not leader]
        cut = self.network.cut([(leader.index, other) for other in others])
        wait = 6 * MS + self._span(n[1], 0, 50 * MS)
        self.scheduler.after(wait, self._end_unheard, leader, leader.life, cut, n[2])
        return True

    def _end_unheard(self, node: SimNode, life: int, cut: int, number: float) -> None:
        if node.life == life and not self.healed:
            node.stop("prefix")
            self._start_later(node, self._span(number, 10 * MS, 2 * SECOND))
        self.network.heal(cut)

    def _read_while_leaving(self, n: Numbers) -> bool:
        """The leader of an even number of voters is asked to leave, and half of all voters cannot
        answer it nor the others from now on. Those elect another leader, because with the removal
        they are a majority; the old one still hears as many as it needed when it was a voter.
        """
        leader = self.cluster.leader()
        if leader is None or len(leader.voters) < 4 or len(leader.voters) % 2:
            return False
        others = [voter.id - 1 for voter in leader.voters if voter.id != leader.id]
        self.random.shuffle(others)
        near, far = others[len(leader.voters) // 2 :], others[: len(leader.voters) // 2]
        if not self._remove_key(leader.key, (n[0], 0.0, 0.9, *n[3:])):
            return False
        cut = self.network.cut([(a, b) for a in far for b in (leader.index, *near)])
        timeout_us = self.cluster.scenario.fetch_timeout_ms * MS
        self.scheduler.after(2 * timeout_us, self.network.heal, cut)
        for wait in range(timeout_us // 2, 2 * timeout_us, 20 * MS):
            self.scheduler.after(wait, self._read_and_append, leader)
        return True

    def _read_and_append(self, old: SimNode) -> None:
        """Append where someone leads by right, and read at the leader that was asked to leave."""
        leader = self.cluster.leader()
        if leader is old or leader is None or self.healed:
            return
        self.cluster.clients.append(leader)
        if old.raft is not None and old.is_leading and old.paused_until <= self.scheduler.now:
            self.scheduler.after(10 * MS, self._read_at, old)

    def _read_at(self, node: SimNode) -> None:
        if node.raft is not None and node.is_leading:
            self.cluster.clients.read(node)

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
                self.scheduler.after(delay, self._change_one, (n[0], 0.0, 0.9, *n[3:]))

    def _change_one(self, n: Numbers) -> None:
        _ = self._remove(n) if n[3] < 0.6 else self._add(n)

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
        if not node.can_vote:
            return False  # in a voter set by mistake, it would tell nobody its new endpoint
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


def _heard(node: SimNode, request: object, response: object) -> None:
    """The administrator hears the answer; what it means, the oracle checks."""
