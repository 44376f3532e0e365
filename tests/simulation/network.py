"""The network: who reaches whom, how late, how often; and what a broken connection tells.

Rules:
- a message is lost, delayed, duplicated or overtaken at random, within the rates in force;
- a link may be cut in one direction; both ends notice nothing (silence), in contrast to a process
  that is gone, whose connections are refused or reset;
- an endpoint belongs to the node that listens on it now; nobody listening is a refusal;
- a request is answered at most once to its sender, and only to the incarnation that sent it.
"""

from __future__ import annotations

from bisect import insort
from math import floor
from random import Random
from typing import TYPE_CHECKING

from quorate.common.endpoints import Endpoint
from quorate.raft.messages import Response
from quorate.raft.outputs import Send, SendAdmin

from tests.simulation.scheduler import MS, Scheduler

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.node import SimNode


class Network:
    """Carries requests and their answers between nodes. Rates are probabilities per message.
    moves: how often a node began to listen elsewhere.
    """

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.scheduler: Scheduler = cluster.scheduler
        self.random = random.random
        self.loss = 0.0
        self.duplicates = 0.0
        self.stragglers = 0.0
        self.delay_min_us = 200
        self.delay_spread_us = 2 * MS
        self.straggle_us = 3_000 * MS
        self.moves = 0
        self._listening: dict[tuple[str, int], SimNode] = {}
        self._cuts: dict[int, list[tuple[int, int]]] = {}
        self._cut_number = 0
        self.lost = 0
        self.duplicated = 0
        self.straggled = 0

    # --- places -----------------------------------------------------------------------------------

    def listen(self, node: SimNode, host: str, ports: tuple[int, ...]) -> None:
        """The node listens on these ports of that host from now on, and on no other."""
        self.moves += 1
        listening = self._listening
        for place in [place for place in listening if place[0] == host]:
            del listening[place]
        for port in ports:
            listening[host, port] = node

    def _listener(self, endpoint: Endpoint) -> SimNode | None:
        return self._listening.get((endpoint.host, endpoint.port))

    # --- links ------------------------------------------------------------------------------------

    def cut(self, links: list[tuple[int, int]]) -> int:
        """Cut links, each (from, to) by the nodes' indices; return a number to heal them by."""
        self._cut_number += 1
        self._cuts[self._cut_number] = links
        self._apply()
        return self._cut_number

    def heal(self, number: int) -> None:
        if self._cuts.pop(number, None) is not None:
            self._apply()

    def heal_all(self) -> None:
        self._cuts.clear()
        self._apply()
        self.loss = self.duplicates = self.stragglers = 0.0

    def _apply(self) -> None:
        for node in self.cluster.nodes:
            node.cut = 0
        for links in self._cuts.values():
            for source, target in links:
                self.cluster.nodes[source].cut |= 1 << target

    def reaches(self, source: SimNode, target: SimNode) -> bool:
        return not source.cut >> target.index & 1

    # --- messages ---------------------------------------------------------------------------------

    def _delay(self) -> int:
        delay = self.delay_min_us + floor(self.random() * self.delay_spread_us)
        if self.stragglers and self.random() < self.stragglers:
            self.straggled += 1
            delay += floor(self.random() * self.straggle_us)
        return delay

    def _is_lost(self) -> bool:
        if self.loss and self.random() < self.loss:
            self.lost += 1
            return True
        return False

    def send(self, source: SimNode, output: Send | SendAdmin) -> None:
        endpoint, scheduler = output.endpoint, self.scheduler
        target = self._listening.get((endpoint.host, endpoint.port))
        if target is None:
            self.cluster.dropped(output.request)
            scheduler.after(self._delay(), source.receive_refusal, source.life, output)
            return
        if source.cut >> target.index & 1 or (self.loss and self._is_lost()):
            self.cluster.dropped(output.request)
            return
        life, moves = source.life, self.moves
        if self.stragglers:
            delay = self._delay()
        else:
            delay = self.delay_min_us + floor(self.random() * self.delay_spread_us)
        # As `after` does, without a call: every message passes here.
        scheduler.number = number = scheduler.number + 1
        arrival = target, source, life, output, moves
        insort(scheduler.queue, (scheduler.now + delay, number, self._arrive, arrival))
        if self.duplicates and isinstance(output, Send) and self.random() < self.duplicates:
            self.duplicated += 1
            scheduler.after(self._delay(), self._arrive, *arrival)

    def _arrive(
        self, target: SimNode, source: SimNode, life: int, output: Send | SendAdmin, moves: int
    ) -> None:
        if target.raft is None or (
            moves != self.moves and self._listener(output.endpoint) is not target
        ):
            self.cluster.dropped(output.request)
            if not target.is_silent and self.reaches(target, source):
                self.scheduler.after(self._delay(), source.receive_refusal, life, output)
            return
        target.receive_request(output.request, source, life, output.request_id)

    def respond(
        self, source: SimNode, target: SimNode, life: int, request_id: int, response: Response
    ) -> None:
        """Carry an answer from `source` to the incarnation of `target` that asked."""
        if source.cut >> target.index & 1 or (self.loss and self._is_lost()):
            return
        if self.stragglers:
            delay = self._delay()
        else:
            delay = self.delay_min_us + floor(self.random() * self.delay_spread_us)
        scheduler = self.scheduler
        scheduler.number = number = scheduler.number + 1
        answer = life, request_id, response
        insort(scheduler.queue, (scheduler.now + delay, number, target.receive_response, answer))

    # --- connections ------------------------------------------------------------------------------

    def break_streams(self, node: SimNode) -> None:
        """The node's process ended: peers that it can tell see their connections reset."""
        for other in self.cluster.nodes:
            if other is node or other.raft is None:
                continue
            if self.reaches(node, other) and self.random() < 0.9:
                self.hint(other, node.id)

    def hint(self, node: SimNode, leader_id: int) -> None:
        """Tell a node that its stream to `leader_id` broke, true or not."""
        self.scheduler.after(self._delay(), node.receive_lost_connection, node.life, leader_id)
