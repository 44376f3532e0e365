"""What is done to the network: links cut in many shapes, bad links, broken connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.replica.errors import InvariantError
from tests.simulation.scheduler import MS, SECOND
from tests.simulation.targets import Numbers, Targets

if TYPE_CHECKING:
    from tests.simulation.node import SimNode


class LinkFaults(Targets):
    """The actions on links and streams."""

    def _for_a_while(self, links: list[tuple[int, int]], number: float) -> bool:
        if not links:
            return False
        cut = self.network.cut(links)
        self.scheduler.after(self._a_while(number), self.network.heal, cut)
        return True

    def _a_while(self, number: float) -> int:
        # In a stable scenario who was cut off is back at the leader before the next fault: two
        # faults at once may well be a reason to change it.
        longest = 7 * SECOND if self.cluster.scenario.stable else 10 * SECOND
        return self._span(number, 50 * MS, longest)

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
        """CheckQuorum: a leader that has not heard from a majority for this long has resigned."""
        now_ms = node.now_ms()
        if node.raft is None or node.life != life or self.healed:
            return
        still_leads = node.is_leading and node.led_epoch == epoch and node.paused_until == 0
        if still_leads and len(node.voters) > 1 and not node.clock.was_changed:
            waited_ms = now_ms - since_ms
            if waited_ms > 2 * node.core.config.check_quorum_timeout_ms + 1_000:
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
