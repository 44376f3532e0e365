"""What is done to a cluster: every kind of action of a plan, and the end of all of them.

Here are those on processes, clocks, disks and logs; `link_faults`, `changes` and `forgeries` have
the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.raft.roles import Leader

from tests.replica.disk import Disk
from tests.simulation.clock import TRUE_RATE
from tests.simulation.forgeries import Forgeries
from tests.simulation.plan import Action
from tests.simulation.scheduler import MS, SECOND
from tests.simulation.targets import Numbers

if TYPE_CHECKING:
    from tests.simulation.node import SimNode


CRASH_MODES = ("all", "prefix", "torn")


class Injector(Forgeries):
    """Does the actions. counts: how many of each kind had an effect."""

    def do(self, action: Action) -> None:
        act: Callable[[Numbers], bool] = getattr(self, f"_{action.kind}")
        if self.cluster.trace is not None:
            self.cluster.trace(None, f"--- {action.kind}")
        if act(action.numbers):
            self.counts[action.kind] += 1

    # --- processes --------------------------------------------------------------------------------

    def process_ends(self, node: SimNode, mode: str, reason: str, down_us: int = 0) -> None:
        """A process ends and is started again."""
        if self.cluster.trace is not None:
            self.cluster.trace(node, f"the process ends: {reason}")
        node.stop(mode)
        self._start_later(node, down_us or 20 * MS + int(self.random.random() * 3 * SECOND))

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

    def _crash_while_installing(self, n: Numbers) -> bool:
        """The leader's process ends while a follower installs its snapshot, some time from now."""
        self.at_install = n
        return True

    def installs(self, node: SimNode) -> None:
        """A node begins to install a snapshot."""
        n, self.at_install = self.at_install, None
        leader = self.cluster.leader()
        if n is not None and leader is not None and leader is not node and not self.healed:
            leader.stop(CRASH_MODES[int(n[1] * 3)])
            self._start_later(leader, self._span(n[3], SECOND, 8 * SECOND))

    def _pause(self, n: Numbers) -> bool:
        node = self._node(n[0])
        if node.raft is None or node.paused_until > self.scheduler.now:
            return False
        node.paused_until = self.scheduler.now + self._span(n[1], 5 * MS, 6 * SECOND)
        return True

    def _clock_jump(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.clock.change(self.scheduler.now, jump_us=self._span(n[1], 10 * MS, 10 * SECOND))
        node.clock_moved()
        return True

    def _clock_back(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.clock.change(self.scheduler.now, jump_us=-self._span(n[1], 10 * MS, 3 * SECOND))
        return True

    def _clock_rate(self, n: Numbers) -> bool:
        node = self._node(n[0])
        node.clock.change(self.scheduler.now, rate=int(TRUE_RATE * (0.6 + n[1])))
        node.clock_moved()
        return True

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

    def _add_after_lost_disk(self, n: Numbers) -> bool:
        """An observer that fetched lately loses its disk, and the empty one is to be a voter's."""
        sets = self._sets_in_force()
        others = [
            node
            for node in self._running()
            if node.can_vote and not any(node.key in voters for voters in sets)
        ]
        if self.cluster.leader() is None or not others:
            return False
        node = others[int(n[0] * len(others))]
        if not self.tolerates(lost=node.key):
            return False
        node.stop("all")
        self._replace_disk(node)
        self.start(node)
        return self._add_node(node, (n[0], 0.0, 0.9, *n[3:]))

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

    def _lost_records(self, n: Numbers) -> bool:
        """Synced batches are gone after a crash, and recovery notices."""
        node = self._node(n[0])
        if node.disk.is_damaged or not self.tolerates(lost=node.key):
            return False
        end_offset = self._last_voters(node) if n[4] < 0.3 else self._batch_end(node, n[1])
        if end_offset is None:
            return False
        node.stop("prefix", silent=n[2] < 0.3)
        if end_offset < node.disk.log.end:
            node.disk.lose_records(end_offset)
            self._note_loss(node)
        self._start_later(node, self._span(n[3], 10 * MS, 3 * SECOND))
        return True

    def _lost_records_everywhere(self, n: Numbers) -> bool:
        """Power is lost everywhere, and every node may lose synced batches; one voter keeps all
        that is committed. No voter set is lost, so no operator is needed.
        """
        sets = self._sets_in_force()
        nodes = self.cluster.nodes
        if not all(
            self._is_there(v, []) and self._is_whole(nodes[v.id - 1]) for s in sets for v in s
        ):
            return False
        in_all = [node for node in nodes if sets and all(node.key in voters for voters in sets)]
        committed = self.cluster.oracle.committed_end
        for node in nodes:
            node.stop("prefix", silent=n[2] < 0.5)
        keeping = [node for node in in_all if self._holds_committed(node)]
        keeper = keeping[int(n[0] * len(keeping))] if keeping else None
        for node in nodes:
            end_offset = self._batch_end(node, self.random.random())
            if node is keeper and end_offset is not None:
                end_offset = max(end_offset, committed)
            if (
                keeper is not None
                and end_offset is not None
                and self._loses_data_only(node, end_offset)
            ):
                node.disk.lose_records(end_offset)
                self._note_loss(node)
            self._start_later(node, self._span(self.random.random(), 10 * MS, 3 * SECOND))
        return True

    def _holds_committed(self, node: SimNode) -> bool:
        oracle, log = self.cluster.oracle, node.disk.log
        if not oracle.committed or log.durable_end < oracle.committed_end:
            return False
        if log.start.offset >= oracle.committed_end:
            return True
        return log.batch_before(oracle.committed_end) == oracle.committed[-1]

    @staticmethod
    def _loses_data_only(node: SimNode, end_offset: int) -> bool:
        log = node.disk.log
        lost = log.batches_between(end_offset, log.end)
        return bool(lost) and not any(batch.control for batch in lost)

    @staticmethod
    def _batch_end(node: SimNode, number: float) -> int | None:
        """Where a batch of the log begins, the last ones more often; None for an empty log."""
        log = node.disk.log
        batches = log.batches_between(log.start.offset, log.end)
        if not batches:
            return None
        return batches[-1 - int(number * number * number * len(batches))].base_offset

    @staticmethod
    def _last_voters(node: SimNode) -> int | None:
        """Where the last batch of the log begins that has control records, None if none does."""
        log = node.disk.log
        batches = log.batches_between(log.start.offset, log.end)
        return next((batch.base_offset for batch in reversed(batches) if batch.control), None)

    def _note_loss(self, node: SimNode) -> None:
        if self.cluster.trace is not None:
            self.cluster.trace(node, f"lost records: {node.disk.log}, {node.disk.required_end}")

    def _rollback(self, n: Numbers) -> bool:
        """A node restarts at once on a directory that lost records without a trace. The leader that
        has their acknowledgement lives. All that is lost is committed, and all other voters have
        it, so that nothing is at risk until the leader tells.
        """
        leader, node = self.cluster.leader(), self._node(n[0])
        end_offset = self._batch_end(node, n[1])
        if leader is None or leader.raft is None or node is leader or node.raft is None:
            return False
        log, core = node.disk.log, leader.raft.core
        end = log.end
        others = [
            self.cluster.nodes[voter.id - 1]
            for voters in self._sets_in_force()
            for voter in voters
            if voter.key != node.key
        ]
        role = core.role
        acknowledged = -1
        if isinstance(role, Leader) and node.key in role.replicas:
            acknowledged = role.replicas[node.key].end_offset
        if (
            end_offset is None
            or node.disk.required_end is not None
            or (node.disk.latest is not None and node.disk.latest.id.offset > end_offset)
            or acknowledged != end
            or not end == log.durable_end <= self.cluster.oracle.committed_end
            or any(other.disk.log.durable_end < end for other in others)
            # A log may be as long and yet of another epoch.
            or any(other.disk.log.batch_before(end) != log.batch_before(end) for other in others)
            or any(self.cluster.nodes[o.index].key != o.key for o in others)
            or any(batch.control for batch in log.batches_between(end_offset, end))
        ):
            return False
        node.stop("prefix")
        node.lose_untold(end_offset, core.epoch)
        return True

    def _replace_disk(self, node: SimNode) -> None:
        from tests.simulation.cluster import directory_id

        self._disks += 1
        self.lost_disks += 1
        self.cluster.oracle.lost_disks[node.key] = node.disk
        node.use_disk(Disk(directory_id(node.id, self._disks)))
        node.voter_sets = []
        if self.cluster.trace is not None:
            self.cluster.trace(node, f"has another disk: {node.key}")

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
            node.clock_moved()
            if node.raft is not None and node.raft.core.shutting_down:
                node.stop("prefix")
            self._replace_damaged(node)
            if node.raft is None:
                self._start_later(node, int(self.random.random() * 500 * MS))
