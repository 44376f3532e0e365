"""A process: a replica whose clock, network and syncs are simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import floor
from random import Random
from typing import TYPE_CHECKING, Any

from quorate.common.error_codes import ErrorCode
from quorate.raft.config import RaftConfig
from quorate.raft.core import Core
from quorate.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Request,
    Response,
)
from quorate.raft.outputs import Output, Send, SendAdmin
from quorate.raft.roles import NEVER
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch, ReplicaKey, VoterSet

from tests.replica.disk import Disk, Snapshot
from tests.replica.driver import Replica
from tests.replica.errors import InvariantError
from tests.simulation.clock import Clock
from tests.simulation.outputs import EXECUTORS

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

FETCHES = frozenset({FetchRequest, FetchSnapshotRequest})


class SimNode(Replica):
    """One node. What waits for a response is a node, or a callback. `heard`: when every replica, by
    its directory id, fetched last in the epoch that this process leads, on its own clock. `turns`:
    the last change of the log when a removal came, if that was committed. `refusing`: the transfer
    in whose favour appends are refused, and since when. `was_asked`: whether it refused its vote to
    a candidate with an older log since it last gave up an election.
    """

    __slots__ = (
        "_armed_ms", "_timer_us", "appends", "applied", "auto_join", "can_vote", "clock", "cluster",
        "core", "cut", "fuse", "fuse_at_election", "heard", "high_watermark", "id",
        "index", "installing", "is_leading", "is_silent", "led_epoch", "loaded", "network",
        "oracle", "paused_until", "port", "random", "refusing", "scheduler", "sync_delay_us",
        "sync_fails", "syncing", "told_of_loss", "trace", "turns", "voter_sets", "voters",
        "voters_moved", "was_asked",
    )  # fmt: skip
    executors = EXECUTORS

    def __init__(
        self, cluster: Cluster, index: int, key: ReplicaKey, disk: Disk, clock: Clock
    ) -> None:
        super().__init__(key, disk)
        self.cluster = cluster
        self.scheduler = cluster.scheduler
        self.oracle = cluster.oracle
        self.network = cluster.network
        self.trace = cluster.trace
        self.index = index
        self.id = key.id
        self.clock = clock
        self.core: Core
        self.port = 0
        self.can_vote = True
        self.auto_join = False
        self.is_silent = False
        self.cut = 0
        self.paused_until = 0
        self.fuse = -1
        self.fuse_at_election = -1
        self.sync_delay_us = 400
        self.sync_fails = False
        self.random = Random(cluster.random.getrandbits(64))
        self._reset()

    def _reset(self) -> None:
        self.turns: dict[int, int] = {}
        self.refusing: tuple[object, int] | None = None
        self.appends: deque[tuple[int, tuple[object, ...]]] = deque()
        self.heard: dict[str | None, int] = {}
        self.high_watermark = 0
        self.applied = 0
        self.led_epoch = -1
        self.is_leading = False
        self.voters = VoterSet()
        self.voter_sets: list[tuple[int, VoterSet]] = []
        self.syncing = False
        self.installing: OffsetAndEpoch | None = None
        self.told_of_loss: tuple[int, int] | None = None
        self.voters_moved = True
        self.fuse = self.fuse_at_election = -1
        self.loaded = -1
        self.was_asked = False
        self._timer_us = -1
        self._armed_ms = NEVER

    @property
    def voters_in_log(self) -> VoterSet:
        return self.voter_sets[-1][1] if self.voter_sets else self.disk.static_voters

    def now_ms(self) -> int:
        return self.clock.now_ms(self.scheduler.now)

    def make_config(self) -> RaftConfig:
        return self.cluster.config_of(self)

    # --- the process ------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover from the disk and run."""
        self._reset()
        initial = self.recover(self.random)
        assert self.raft is not None
        self.core = self.raft.core
        disk = self.disk
        self.oracle.log_start(self, disk.log.start)
        if disk.latest is not None:
            self.high_watermark = disk.latest.id.offset
            self.applied = disk.latest.count
        self.voter_sets = list(initial.voters)
        self.voters = initial.voters[-1][1] if initial.voters else disk.static_voters
        if self.trace is not None:
            self.trace(self, f"starts: log [{disk.log.start}, {disk.log.end}), "
                               f"election {disk.election}, voters {self.voters}")  # fmt: skip
        self.oracle.starts(self)
        self.flush()

    def stop(self, mode: str, *, silent: bool = False) -> None:
        """The process ends now. mode: what becomes of volatile changes (see `Log.crash`)."""
        if self.raft is None:
            return
        if self.trace is not None:
            self.trace(self, f"ends, {mode} of what is volatile is at risk")
        self.raft = None
        self.life += 1
        self.is_silent = silent
        self.paused_until = 0
        for waiter in self.waiting.values():
            self.cluster.dropped(waiter[3])
        for _, values in self.appends:
            self.cluster.clients.unknown(values)
        self.appends.clear()
        self.disk.crash(self.random, mode)
        if not silent:
            self.network.break_streams(self)
            for source, life, request_id, _ in self.waiting.values():
                if isinstance(source, SimNode) and self.network.reaches(self, source):
                    self.scheduler.after(300, source.receive_reset, life, request_id)
        self.waiting = {}

    # --- inputs -----------------------------------------------------------------------------------

    def _deferred(self, function: Callable[..., None], *args: Any) -> bool:
        """Whether the process stands still; then the input waits for it."""
        if self.paused_until <= self.scheduler.now:
            return False
        self.scheduler.at(self.paused_until, function, *args)
        return True

    def receive_request(self, request: Request, source: object, life: int, request_id: int) -> None:
        raft = self.raft
        if raft is None:
            self.cluster.dropped(request)
            return
        if self.paused_until and self._deferred(
            self.receive_request, request, source, life, request_id
        ):
            return
        if self.trace is not None:
            self.trace(self, f"<- {self.cluster.name(source)} {request}")
        now_ms = self.clock.now_ms(self.scheduler.now)
        if request.__class__ in FETCHES and request.epoch == self.led_epoch:  # type: ignore[union-attr]
            self.heard[request.replica.directory_id] = now_ms  # type: ignore[union-attr]
        mine = self.handle_request(request, source, life, request_id, now_ms)
        if isinstance(request, AddVoterRequest | RemoveVoterRequest):
            self.oracle.takes_change(self, mine, request)
        self.flush()

    def cancel(self, request_id: int) -> None:
        """Whoever sent this request waits no longer."""
        raft = self.raft
        assert raft is not None
        request = self.waiting.pop(request_id)[3]
        self.cluster.dropped(request)
        if self.trace is not None:
            self.trace(self, f"<- cancelled: {request}")
        self.feed(raft.cancel_request, request_id)

    def receive_response(self, life: int, request_id: int, response: Response) -> None:
        raft = self.raft
        if raft is None or life != self.life:
            return
        if self.paused_until and self._deferred(self.receive_response, life, request_id, response):
            return
        if self.trace is not None:
            self.trace(self, f"<- answer {request_id} {response}")
        is_old = response.__class__ is FetchResponse and response.leader.epoch < self.core.epoch
        raft.handle_response(request_id, response, self.clock.now_ms(self.scheduler.now))
        if is_old:
            self.oracle.takes_nothing(self, response)
        if response.__class__ is FetchResponse and (
            response.acknowledged is not None or self.told_of_loss is not None  # type: ignore[union-attr]
        ):
            self.oracle.learns_of_loss(self, response)  # type: ignore[arg-type]
        self.flush()

    def receive_refusal(self, life: int, output: Send | SendAdmin) -> None:
        self.receive_reset(life, output.request_id)

    def receive_reset(self, life: int, request_id: int) -> None:
        raft = self.raft
        if raft is None or life != self.life:
            return
        if self._deferred(self.receive_reset, life, request_id):
            return
        if self.trace is not None:
            self.trace(self, f"<- request {request_id} was refused")
        self.feed(self.handle_reset, request_id, "connection refused")

    def receive_lost_connection(self, life: int, leader_id: int) -> None:
        raft = self.raft
        if raft is None or life != self.life:
            return
        if self._deferred(self.receive_lost_connection, life, leader_id):
            return
        if self.trace is not None:
            self.trace(self, f"<- the stream to {leader_id} broke")
        self.feed(raft.connection_lost, leader_id)

    def tick(self, life: int, timer_us: int) -> None:
        raft = self.raft
        if raft is None or life != self.life or timer_us != self._timer_us:
            return
        if self.paused_until and self._deferred(self.tick, life, timer_us):
            return
        self._timer_us, self._armed_ms = -1, NEVER
        now_ms = self.clock.now_ms(self.scheduler.now)
        deadline_ms = raft.next_deadline_ms()
        if now_ms < deadline_ms:
            self._arm(deadline_ms)  # an earlier input made this tick needless
            return
        if self.trace is not None:
            self.trace(self, "tick")
        raft.tick(now_ms)
        self.flush()

    def pass_time(self) -> None:
        """Do what the clock asks for by now, so that the next input alone causes what it causes."""
        if self.raft is not None and self.paused_until <= self.scheduler.now:
            self.feed(self.raft.tick)

    def sync_ends(self, life: int, ticket: int) -> None:
        raft = self.raft
        if raft is None or life != self.life:
            return
        if self.paused_until and self._deferred(self.sync_ends, life, ticket):
            return
        if self.sync_fails:
            self.sync_fails = False
            self.cluster.injector.process_ends(self, "prefix", "its fsync failed")
            return
        self.syncing = False
        self.synced(ticket, self.clock.now_ms(self.scheduler.now))
        if self.trace is not None:
            self.trace(self, f"<- log durable to {self.disk.log.durable_end}")
        if self.disk.log.last_ticket is not None:
            self.sync()
        self.flush()

    def sync(self) -> None:
        """Begin a sync of what is volatile, unless one is under way or the disk is full."""
        if self.syncing:
            return
        disk = self.disk
        ticket = disk.log.last_ticket
        if ticket is None or disk.is_full:
            return
        self.syncing = True
        delay = 100 + floor(self.random.random() * self.sync_delay_us)
        self.scheduler.after(delay, self.sync_ends, self.life, ticket)

    def lose_untold(self, end_offset: int, epoch: int) -> None:
        """Records are gone without a trace, that this replica acknowledged in this epoch; its next
        process must learn it from the leader.
        """
        acknowledged = self.disk.log.end
        self.disk.log.lose(end_offset)
        self.start()
        self.told_of_loss = epoch, acknowledged

    def disk_has_room(self) -> None:
        self.disk.is_full = False
        if self.raft is not None:
            self.sync()

    def resign(self, life: int, reason: str) -> None:
        if self.raft is not None and life == self.life:
            self.feed(self.raft.resign, reason)

    def shut_down(self) -> None:
        if self.raft is not None:
            self.feed(self.raft.shut_down)

    def append(self, values: tuple[tuple[object, ...], ...]) -> bool:
        """Append one batch for each group of values; False if this node refuses."""
        raft = self.raft
        assert raft is not None
        payloads = [(len(group), group) for group in values]
        offset = raft.append(payloads, self.clock.now_ms(self.scheduler.now))
        if isinstance(offset, ErrorCode):
            self.oracle.refuses_append(self)
            return False
        self.refusing = None
        for group in values:
            self.appends.append((offset, group))
            offset += len(group)
        self.flush()
        return True

    def take_snapshot(self) -> None:
        """The state machine writes a checkpoint of what it has applied."""
        disk, offset = self.disk, self.high_watermark
        if self.raft is None or offset == 0 or (disk.latest and disk.latest.id.offset >= offset):
            return
        snapshot = self.cluster.make_snapshot(self, offset)
        self.oracle.snapshots(self, snapshot)
        if self.trace is not None:
            self.trace(self, f"snapshot {snapshot.id} of {snapshot.voters}")
        self.feed(self.keep, snapshot)

    def clean_log(self) -> None:
        """Delete what lies before the newest snapshot, and older snapshots."""
        latest = self.disk.latest
        if self.raft is None or latest is None or latest.id == BOOTSTRAP_SNAPSHOT or self.syncing:
            return
        self.clean(latest.id, self.now_ms())
        self.oracle.log_start(self, self.disk.log.start)
        if self.trace is not None:
            self.trace(self, f"log cleaned up to {latest.id}")
        self.flush()

    # --- outputs ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Execute the outputs. That is no input, so there are no more afterwards."""
        raft, core = self.raft, self.core
        if raft is None:
            return
        if core.outputs:
            outputs: Iterable[Output] = raft.take_outputs()
            if self.fuse >= 0 or self.fuse_at_election >= 0:
                outputs = self._until_fuse_burns(outputs)
            self.execute(outputs)
            if self.raft is not raft:
                return
        disk = self.disk
        election = disk.election
        if election is None or core.epoch != election.epoch:
            text = f"{self.key} is in epoch {core.epoch}, on disk is {election}"
            raise InvariantError("MonotonicEpoch", text)
        if core.log.durable_end > disk.log.durable_end:
            text = f"{self.key} takes {core.log.durable_end} for durable, on disk is {disk.log}"
            raise InvariantError("DurableBeforePromised", text)
        if self.voters_moved:
            self.voters_moved = False
            self.oracle.follows_its_log(self, raft.voters)
        if core.due_ms < self._armed_ms:
            deadline_ms = raft.next_deadline_ms()
            if deadline_ms < self._armed_ms:
                self._arm(deadline_ms)

    def _until_fuse_burns(self, outputs: Iterable[Output]) -> Iterator[Output]:
        for output in outputs:
            if self.fuse == 0:
                self.cluster.injector.process_ends(self, "prefix", "between two outputs")
                return
            if self.fuse > 0:
                self.fuse -= 1
            yield output

    def clock_moved(self) -> None:
        """What the timer was set for is due at another time."""
        if self.raft is not None:
            self._arm(self.raft.next_deadline_ms())

    def _arm(self, deadline_ms: int) -> None:
        """See to it that `tick` comes no later than this."""
        self._armed_ms = deadline_ms
        when = self.clock.when_us(deadline_ms)
        if when < self._timer_us or self._timer_us < 0:
            now = self.scheduler.now
            self._timer_us = when = when if when > now else now + 1
            self.scheduler.after(when - now, self.tick, self.life, when)

    # --- receiving a snapshot ---------------------------------------------------------------------

    def position(self, life: int, snapshot: OffsetAndEpoch, position: int) -> None:
        if self.raft is not None and life == self.life:
            self.feed(self.raft.snapshot_position, snapshot, position)

    def installed(self, life: int, snapshot_id: OffsetAndEpoch) -> None:
        raft = self.raft
        if raft is None or life != self.life:
            return
        if self._deferred(self.installed, life, snapshot_id):
            return
        self.installing = None
        if raft.is_leader:
            text = f"{self.key} leads epoch {raft.epoch} and loads {snapshot_id}"
            raise InvariantError("LeaderNeverLoadsSnapshot", text)
        snapshot = self.install(snapshot_id, self.now_ms())
        if snapshot is None:
            self.flush()
            return
        self.cluster.installed += 1
        self.high_watermark = snapshot_id.offset
        self.applied = snapshot.count
        voters, _ = snapshot.membership
        self.voter_sets = list(voters)
        self.voters_moved = True
        if snapshot.voters is not None:
            self.voters = snapshot.voters
        self.loaded = snapshot_id.offset
        self.flush()
        self.loaded = -1

    def read_snapshot(self, name: OffsetAndEpoch, content: bytes) -> Snapshot:
        snapshot = self.cluster.read_snapshot(name, content)
        if snapshot is None:
            raise ValueError("its bytes are damaged")
        if self.trace is not None:
            self.trace(self, f"installs {name} with {snapshot.voters}")
        self.oracle.snapshots(self, snapshot)
        if name.offset < self.high_watermark:
            text = f"{self.key} loads {name} at {self.high_watermark}"
            raise InvariantError("MonotonicHighWatermark", text)
        return snapshot
