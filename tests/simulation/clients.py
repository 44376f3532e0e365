"""The clients: they append unique values, read, and remember what they were told.

Clients stand next to the nodes and lose no messages: an acknowledgement is recorded the moment a
node gives it, which is the strictest real-time order that any client could see. Whom they ask is
whoever takes itself for the leader, deposed leaders included.
"""

from __future__ import annotations

from bisect import bisect_left
from random import Random
from typing import TYPE_CHECKING, Any

from quorate.common.error_codes import ErrorCode
from quorate.linearizability import HistoryChecker, ReadToken
from quorate.raft.messages import ReadIndexRequest, ReadIndexResponse

from tests.replica.errors import InvariantError

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.node import SimNode

READ_TAIL = 30
"""How many offsets a read looks at: the whole prefix would make a run quadratic."""


class Clients:
    """Appends and linearizable reads at random times."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.random = random
        self.history: HistoryChecker[int] = HistoryChecker()
        self.running = True
        self.rest_until = 0
        self._last_value = 0

    def start(self) -> None:
        self._append_later()
        self._read_later()

    def _pick(self) -> SimNode | None:
        now = self.scheduler.now
        leading = [
            node
            for node in self.cluster.nodes
            if node.is_leading and node.raft is not None and node.paused_until <= now
        ]
        return leading[int(self.random.random() * len(leading))] if leading else None

    def _wait(self, mean_us: int) -> int:
        return 1 + int(self.random.random() * 2 * mean_us)

    # --- appends ----------------------------------------------------------------------------------

    def _append_later(self) -> None:
        wait = self._wait(self.cluster.scenario.append_period_us)
        self.scheduler.after(wait, self._append)

    def _append(self) -> None:
        if not self.running:
            return
        node = self._pick()
        if node is not None and self.scheduler.now >= self.rest_until:
            self.append(node)
        self._append_later()

    def append(self, node: SimNode) -> None:
        """Append one to three values in one or two batches."""
        shape = self.random.random()
        groups = ((1,), (2,), (1, 2))[0 if shape < 0.8 else 1 if shape < 0.9 else 2]
        batches = []
        for count in groups:
            values = tuple(range(self._last_value + 1, self._last_value + 1 + count))
            self._last_value += count
            batches.append(values)
            for value in values:
                self.history.begin(value)
        if not node.append(tuple(batches)):
            for values in batches:
                for value in values:
                    self.history.refused(value)

    def acknowledged(self, base: int, values: tuple[Any, ...]) -> None:
        for index, value in enumerate(values):
            self.history.acknowledged(value, base + index)
        self._raise()

    def unknown(self, values: tuple[Any, ...]) -> None:
        for value in values:
            self.history.unknown(value)

    # --- reads ------------------------------------------------------------------------------------

    def _read_later(self) -> None:
        self.scheduler.after(self._wait(self.cluster.scenario.read_period_us), self._read)

    def _read(self) -> None:
        if not self.running:
            return
        node = self._pick()
        if node is not None:
            self.read(node)
        self._read_later()

    def read(self, node: SimNode) -> None:
        """Ask one node for a linearizable read."""
        token, asked_ms = self.history.begin_read(), node.now_ms()
        request = ReadIndexRequest("sim", 1_000 + int(self.random.random() * 4_000))

        def answered(source: SimNode, _: object, response: ReadIndexResponse) -> None:
            if response.error is ErrorCode.NONE:
                self.cluster.oracle.confirms_read(source, asked_ms)
            self._answered(source, token, response)

        node.receive_request(request, answered, 0, 0)

    def _answered(self, node: SimNode, token: ReadToken, response: ReadIndexResponse) -> None:
        if response.error is not ErrorCode.NONE:
            return
        end = node.high_watermark
        if end < response.offset:
            text = f"{node.key} read at {response.offset}, has applied {end}"
            raise InvariantError("LinearizableReads", text)
        first = max(0, end - READ_TAIL)
        self.history.read(token, end, self.values_between(first, end), from_offset=first)
        self._raise()

    def values_between(self, from_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """The committed values of a range, as every replica that agrees with the committed log has
        them.
        """
        oracle = self.cluster.oracle
        first = bisect_left(oracle.committed_ends, from_offset + 1)
        found: list[tuple[int, int]] = []
        for batch in oracle.committed[first:]:
            base, values = batch.base_offset, batch.data
            if base >= end_offset:
                break
            if values.__class__ is not tuple:
                continue
            if base >= from_offset and batch.last_offset < end_offset:
                found += enumerate(values, base)
            else:
                for offset, value in enumerate(values, base):
                    if from_offset <= offset < end_offset:
                        found.append((offset, value))
        return found

    # --- the end ----------------------------------------------------------------------------------

    def _raise(self) -> None:
        if self.history.violations:
            self._fail(self.history.violations[0])

    def _fail(self, violation: object) -> None:
        raise InvariantError("ClientHistory", str(violation))

    def verify(self, committed: list[tuple[int, int]]) -> None:
        for violation in self.history.verify(committed):
            self._fail(violation)
