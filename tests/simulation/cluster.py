"""A whole cluster in one process: nodes, network, clients, faults and the checker, from one seed.

A run has two parts: first the plan's actions under load; then everything heals, and the cluster
has to settle: one leader that all know, every pending change decided, every replica caught up, an
append committed, every request answered. At the end the clients' history is checked against the
log.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.config import RaftConfig
from quorate.raft.messages import AdminResponse
from quorate.raft.outputs import RoleName
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch, ReplicaKey, Voter, VoterSet

from tests.replica.disk import BATCH_BYTES, Disk, Snapshot
from tests.replica.errors import InvariantError
from tests.replica.voters import without_directories
from tests.simulation.clients import Clients
from tests.simulation.clock import Clock
from tests.simulation.electable import nobody_can_win
from tests.simulation.errors import NobodyCanWinError
from tests.simulation.faults import Injector
from tests.simulation.invariants import Oracle
from tests.simulation.network import Network
from tests.simulation.node import SimNode
from tests.simulation.plan import Scenario
from tests.simulation.scheduler import MS, SECOND, Scheduler

CLUSTER_ID = "sim"
FIXED_PORT = 9_000
"""Where every node listens always: what bootstrap servers name."""

CLOCKS_BEGIN_MS = 100_000_000
"""What the nodes' clocks show at the start, or a little more. What they show means nothing; below
2**30 Python counts in one machine word.
"""

LEADER_WITHIN_TIMEOUTS = 10
"""After the faults: a leader within this many election timeouts, backoffs and fetch timeouts of
silence included."""

FIRST_LEADER_US = 5 * SECOND
"""By then a quorum without faults has its first leader."""

PROBES = 2
SETTLED_WITHIN_US = 90 * SECOND
"""After the faults: everything decided and caught up. The longest admin request waits 30 s."""

Trace = Callable[[int, SimNode | None, str], None]
"""Called with the time, the node (None for the world) and what happens."""


@dataclass(slots=True)
class Result:
    """What a run did. is_leaderless: after what was lost nobody can win. violation: None if nothing
    broke.
    """

    seed: int
    events: int = 0
    time_us: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    commits: int = 0
    elections: int = 0
    snapshots: int = 0
    lost_disks: int = 0
    leader_after_us: int = 0
    cpu_s: float = 0.0
    is_leaderless: bool = False
    violation: str | None = None


class Cluster:
    """The world of one run. trace: None, or what writes everything down."""

    def __init__(self, scenario: Scenario, trace: Trace | None = None) -> None:
        self.scenario = scenario
        self.trace = None if trace is None else partial(self._trace, trace)
        self.random = Random(f"run {scenario.seed}")
        self.scheduler = Scheduler()
        self.nodes: list[SimNode] = []
        self.pending_changes: dict[int, object] = {}
        self.images: dict[bytes, Snapshot] = {}
        self.elections = 0
        self.first_elections = 0
        self.installed = 0
        self.install_us = scenario.install_us
        self.static_voters = VoterSet()
        count = scenario.nodes + scenario.brokers
        keys = [ReplicaKey(i + 1, directory_id(i + 1, 0)) for i in range(count)]
        voters = VoterSet.of(
            Voter(key, (self.endpoint(key.id, FIXED_PORT + 1),)) for key in keys[: scenario.voters]
        )
        if scenario.level == 0:
            self.static_voters = without_directories(voters)
        self.oracle = Oracle(self.nodes, self.static_voters)
        self.network = Network(self, Random(f"network {scenario.seed}"))
        self.clients = Clients(self, Random(f"clients {scenario.seed}"))
        self.injector = Injector(self, Random(f"faults {scenario.seed}"))
        self._build(keys, voters)

    def _trace(self, trace: Trace, node: SimNode | None, text: str) -> None:
        trace(self.scheduler.now, node, text)

    def _build(self, keys: list[ReplicaKey], voters: VoterSet) -> None:
        scenario = self.scenario
        if scenario.level > 0:
            self.oracle.bootstrap(scenario.level, voters)
        for index, key in enumerate(keys):
            assert key.directory_id is not None
            disk = Disk(key.directory_id, self.static_voters)
            if scenario.level > 0 and key in voters:
                disk.keep(Snapshot(BOOTSTRAP_SNAPSHOT, scenario.level, voters, 0, b""))
            clock = Clock(CLOCKS_BEGIN_MS + self.random.randint(0, 10_000))
            # The voters have this very key: equal keys are found faster so.
            node = SimNode(self, index, key, disk, clock)
            node.port = FIXED_PORT + 1
            node.can_vote = index < scenario.nodes
            node.auto_join = scenario.auto_join and node.can_vote
            self.nodes.append(node)
            self.listen(node)
        network = self.network
        network.loss, network.duplicates = scenario.loss, scenario.duplicates
        network.stragglers = scenario.stragglers
        for action in scenario.actions:
            self.scheduler.at(action.at_us, self.injector.do, action)
        for node in self.nodes:
            delay = self.random.randint(0, 300) * MS
            self.scheduler.after(delay, self.injector.start, node)
        self.scheduler.after(scenario.snapshot_period_us, self._snapshot_sometimes)
        self.clients.start()

    # --- nodes ------------------------------------------------------------------------------------

    @staticmethod
    def endpoint(node_id: int, port: int) -> Endpoint:
        return Endpoint("CONTROLLER", f"n{node_id}", port)

    def listen(self, node: SimNode) -> None:
        """The node listens on its fixed port and on the one that it advertises."""
        self.network.listen(node, f"n{node.id}", (FIXED_PORT, node.port))

    def config_of(self, node: SimNode) -> RaftConfig:
        scenario = self.scenario
        return RaftConfig(
            cluster_id=CLUSTER_ID,
            local=node.key,
            endpoints=(self.endpoint(node.id, node.port),),
            bootstrap=tuple(
                self.endpoint(other.id, FIXED_PORT) for other in self.nodes if other is not node
            ),
            static_voters=node.disk.static_voters,
            can_vote=node.can_vote,
            auto_join=node.auto_join,
            incarnation=node.id << 32 | node.life,
            election_timeout_ms=scenario.election_timeout_ms,
            election_backoff_max_ms=scenario.election_timeout_ms,
            fetch_timeout_ms=scenario.fetch_timeout_ms,
            request_timeout_ms=scenario.fetch_timeout_ms,
            step_down_period_ms=scenario.fetch_timeout_ms,
            fetch_max_wait_ms=min(500, scenario.fetch_timeout_ms // 2),
            fetch_bytes_max=scenario.fetch_batches_max * BATCH_BYTES,
            snapshot_chunk_bytes_max=scenario.chunk_bytes,
        )

    def leader(self) -> SimNode | None:
        """The leader of the latest epoch, if it runs."""
        best: SimNode | None = None
        for node in self.nodes:
            leads = node.raft is not None and node.raft.is_leader
            if leads and (best is None or node.led_epoch > best.led_epoch):
                best = node
        return best

    def name(self, source: object) -> str:
        return f"n{source.id}" if isinstance(source, SimNode) else "client"

    # --- changes of the voters that are under way ------------------------------------------------

    def dropped(self, request: object) -> None:
        """A request will never be done, unless it was before."""
        self.pending_changes.pop(id(request), None)

    def answered(self, node: SimNode, request: object, response: object) -> None:
        self.pending_changes.pop(id(request), None)
        if isinstance(response, AdminResponse) and response.error is ErrorCode.NONE:
            self.oracle.acknowledges(node, request)

    # --- snapshots --------------------------------------------------------------------------------

    def _snapshot_sometimes(self) -> None:
        if self.clients.running:
            node = self.nodes[int(self.random.random() * len(self.nodes))]
            node.take_snapshot()
            if self.random.random() < 0.4:
                node.clean_log()
            wait = int(self.random.random() * 2 * self.scenario.snapshot_period_us)
            self.scheduler.after(1 + wait, self._snapshot_sometimes)

    def make_snapshot(self, node: SimNode, offset: int) -> Snapshot:
        def content(name: OffsetAndEpoch, level: int, voters: VoterSet) -> bytes:
            text = f"{name} {level} {voters if level else None} {node.applied}"
            size = self.scenario.snapshot_bytes
            return (hashlib.sha256(text.encode()).digest() * (size // 32 + 1))[: size + 32]

        snapshot = node.snapshot_at(offset, node.applied, content)
        self.images[snapshot.content] = snapshot
        return snapshot

    def read_snapshot(self, name: OffsetAndEpoch, content: bytes) -> Snapshot | None:
        """The snapshot that these bytes are, None if they are none's."""
        snapshot = self.images.get(content)
        return snapshot if snapshot is not None and snapshot.id == name else None

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> Result:
        """Run to the end or to the first violation."""
        result = Result(self.scenario.seed)
        begun = time.process_time()
        try:
            self.scheduler.run_until(min(FIRST_LEADER_US, self.scenario.faults_us))
            self.first_elections = len(self.oracle.leaders)
            self.scheduler.run_until(self.scenario.faults_us)
            self._settle(result)
            self.verify()
        except NobodyCanWinError:
            result.is_leaderless = True
        except InvariantError as error:
            result.violation = str(error)
        except Exception as error:
            result.violation = f"Exception: {type(error).__name__}: {error}"
            if self.trace is not None:
                self.trace(None, traceback.format_exc())
        result.cpu_s = time.process_time() - begun
        result.events = self.scheduler.events
        result.time_us = self.scheduler.now
        result.faults = self.injector.counts
        for kind in ("lost", "duplicated", "straggled"):
            result.faults[f"messages {kind}"] = getattr(self.network, kind)
        result.changes = self.oracle.membership.changes
        result.commits = self.clients.history.acknowledged_count
        result.elections = self.elections
        result.snapshots = self.installed
        result.lost_disks = self.injector.lost_disks
        return result

    def _settle(self, result: Result) -> None:
        scheduler = self.scheduler
        self.injector.heal()
        begun = scheduler.now
        self._await_leader()
        result.leader_after_us = scheduler.now - begun
        limit = begun + SETTLED_WITHIN_US
        self.clients.running = False
        while (reason := self.unsettled()) is not None:
            if scheduler.now >= limit:
                raise InvariantError("Settled", f"{reason}\n{self.describe()}")
            scheduler.run_until(scheduler.now + 200 * MS)
        self._probe()

    def _await_leader(self) -> None:
        """NobodyCanWinError, InvariantError."""
        scheduler = self.scheduler
        timeouts = self.scenario.election_timeout_ms + self.scenario.fetch_timeout_ms
        limit = scheduler.now + LEADER_WITHIN_TIMEOUTS * timeouts * MS
        while not self._has_leader():
            if scheduler.now >= limit:
                if nobody_can_win(self.nodes):
                    raise NobodyCanWinError
                raise InvariantError("LeaderElected", self.describe())
            scheduler.run_until(scheduler.now + 50 * MS)

    def _has_leader(self) -> bool:
        leader = self.leader()
        if leader is None or leader.raft is None:
            return False
        epoch = leader.raft.epoch
        return leader.high_watermark > 0 and all(
            node.raft is not None and node.raft.epoch == epoch
            for node in self.nodes
            if node.key in leader.voters
        )

    def unsettled(self) -> str | None:
        """Why the cluster is not settled, None if it is."""
        leader = self.leader()
        if leader is None or leader.raft is None:
            return "nobody leads"
        core = leader.raft.core
        if core.high_watermark != core.log.end_offset:
            return f"committed is {core.high_watermark} of {core.log.end_offset}"
        if not leader.raft.is_voter:
            return f"{leader.key} leads and is no voter"
        if self.pending_changes:
            return f"undecided: {list(self.pending_changes.values())}"
        for node in self.nodes:
            raft = node.raft
            if raft is None or raft.current_leader.id != leader.id or raft.epoch != core.epoch:
                return f"{node.key} does not follow {leader.key}"
            if raft.role not in (RoleName.FOLLOWER, RoleName.LEADER):
                return f"{node.key} is {raft.role}"
            if node.disk.log.end != leader.disk.log.end or raft.high_watermark != node.disk.log.end:
                return f"{node.key} is not caught up"
            if node is not leader and (node.waiting or node.appends):
                return f"{node.key} has not answered {list(node.waiting.values())}"
            entry = leader.raft.voters.find(node.key)
            if raft.kraft_version > 0 and entry is not None:
                told = (self.endpoint(node.id, node.port),)
                if entry.endpoints != told:
                    return f"{node.key} listens at {told}, the log says {entry.endpoints}"
            may_join = node.auto_join and raft.kraft_version > 0
            if may_join and not (raft.is_voter or raft.core.removed):
                return f"{node.key} has not joined"
        waiting = [w[3] for w in leader.waiting.values() if not isinstance(w[0], SimNode)]
        return f"{leader.key} has not answered {waiting}" if waiting else None

    def _probe(self) -> None:
        """An append after all that must commit. The leader may resign once more, because of a Fetch
        that was lost before the network healed.
        """
        before = self.clients.history.acknowledged_count
        for _ in range(PROBES):
            self._await_leader()
            leader = self.leader()
            assert leader is not None
            self.clients.append(leader)
            self.scheduler.run_until(self.scheduler.now + 2 * SECOND)
            if self.clients.history.acknowledged_count > before:
                return
        raise InvariantError("Settled", f"an append did not commit\n{self.describe()}")

    def verify(self) -> None:
        """Durability and agreement at the end: the leader's log is the committed one, and the
        clients' history fits it.
        """
        leader = self.leader()
        if leader is None:
            raise InvariantError("Settled", "nobody leads at the end")
        for node in self.nodes:
            if node.raft is not None and node.core.concurrent:
                text = f"{node.key} took late Fetches for a second process of one replica"
                raise InvariantError("SingleProcess", text)
        if self.scenario.stable and len(self.oracle.leaders) > self.first_elections:
            text = f"{self.oracle.leaders} led, without a reason to change"
            raise InvariantError("StableLeadership", text)
        log, oracle = leader.disk.log, self.oracle
        held = log.batches_between(log.start.offset, oracle.committed_end)
        expected = oracle.committed[len(oracle.committed) - len(held) :]
        first = expected[0].base_offset if expected else oracle.committed_end
        if held != expected or first > max(log.start.offset, 0):
            raise InvariantError("Durability", f"{leader.key} lacks what was committed")
        self.clients.verify(self.clients.values_between(0, oracle.committed_end))

    def describe(self) -> str:
        """One line for each node, for people."""
        lines = []
        for node in self.nodes:
            state = "down"
            if node.raft is not None:
                raft = node.raft
                state = (
                    f"{raft.role} of epoch {raft.epoch}, leader {raft.current_leader.id}, "
                    f"log {raft.core.log.start} to {raft.core.log.end_offset}, "
                    f"committed {raft.high_watermark}, voters {raft.voters}"
                )
            lines.append(f"  {node.key}: {state}")
        return "\n".join(lines)


def directory_id(node_id: int, number: int) -> str:
    """A readable directory id: 22 characters, like a UUID in base64."""
    return f"disk{number}of{node_id}".ljust(22, "_")
