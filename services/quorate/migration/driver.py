"""The migration's state machine: inputs in, outputs out, no I/O and no clock.

The states and their order are those of KIP-866 ("Migration driver"). Each state waits for a
condition; most emit an output when they are entered, which the caller executes.

UNINITIALIZED               the log has not been read yet
INACTIVE                    this controller does not lead, or there is nothing to migrate
WAIT_FOR_CONTROLLER_QUORUM  until every controller of the quorum is ready for the migration
WAIT_FOR_BROKERS            until every broker known to ZooKeeper has registered with the quorum
BECOME_CONTROLLER           claims /controller and /controller_epoch, fencing the old controller
ZK_MIGRATION                copies every znode in one metadata transaction
SYNC_KRAFT_TO_ZK            updates ZooKeeper to match the log
KRAFT_CONTROLLER_TO_BROKER_COMM  sends the full state to every ZooKeeper-mode broker
DUAL_WRITE                  writes each change of the log to ZooKeeper and sends it to brokers

Rules:
1. Losing leadership leads to INACTIVE from every state. Results of outputs from an older epoch are
   ignored.
2. A leader that finds the state MIGRATION in the log does not copy again: it claims ZooKeeper and
   synchronizes.
3. A failed output is retried with exponential backoff, up to `RETRY_MS_MAX`. Losing the claim to a
   newer controller is not retried: this controller resigns.
4. The copy is one transaction. If it ends early, it is aborted and none of it takes effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from quorate.migration.znodes import Tree
from quorate.records.metadata import ZkMigrationState

RETRY_MS = 500
RETRY_MS_MAX = 30_000
POLL_MS = 1_000
"""How often WAIT_FOR_BROKERS reads the brokers in ZooKeeper, milliseconds."""


class State(StrEnum):
    """The driver's states (see the module's docstring)."""

    UNINITIALIZED = "UNINITIALIZED"
    INACTIVE = "INACTIVE"
    WAIT_FOR_CONTROLLER_QUORUM = "WAIT_FOR_CONTROLLER_QUORUM"
    WAIT_FOR_BROKERS = "WAIT_FOR_BROKERS"
    BECOME_CONTROLLER = "BECOME_CONTROLLER"
    ZK_MIGRATION = "ZK_MIGRATION"
    SYNC_KRAFT_TO_ZK = "SYNC_KRAFT_TO_ZK"
    KRAFT_CONTROLLER_TO_BROKER_COMM = "KRAFT_CONTROLLER_TO_BROKER_COMM"
    DUAL_WRITE = "DUAL_WRITE"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INACTIVE, State.WAIT_FOR_CONTROLLER_QUORUM}),
    State.INACTIVE: frozenset({State.WAIT_FOR_CONTROLLER_QUORUM}),
    State.WAIT_FOR_CONTROLLER_QUORUM: frozenset(
        {State.INACTIVE, State.WAIT_FOR_BROKERS, State.BECOME_CONTROLLER}
    ),
    State.WAIT_FOR_BROKERS: frozenset({State.INACTIVE, State.BECOME_CONTROLLER}),
    State.BECOME_CONTROLLER: frozenset(
        {State.INACTIVE, State.ZK_MIGRATION, State.SYNC_KRAFT_TO_ZK}
    ),
    State.ZK_MIGRATION: frozenset({State.INACTIVE, State.SYNC_KRAFT_TO_ZK}),
    State.SYNC_KRAFT_TO_ZK: frozenset({State.INACTIVE, State.KRAFT_CONTROLLER_TO_BROKER_COMM}),
    State.KRAFT_CONTROLLER_TO_BROKER_COMM: frozenset({State.INACTIVE, State.DUAL_WRITE}),
    State.DUAL_WRITE: frozenset({State.INACTIVE, State.SYNC_KRAFT_TO_ZK}),
}
"""The legal transitions, which `_move` asserts."""


# --- outputs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadBrokers:
    """Read the brokers known to ZooKeeper; report them with `brokers_read`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim ZooKeeper for the leader of `epoch`; report with `claimed` or `fenced`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ReadTree:
    """Read every metadata znode; report with `tree_read`."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Write the tree's records to the log in one transaction; report with `copied`.

    The transaction ends with the state MIGRATION.
    """

    tree: Tree


@dataclass(frozen=True, slots=True)
class AbortCopy:
    """Abort the transaction that an earlier leader left open."""


@dataclass(frozen=True, slots=True)
class Synchronize:
    """Make ZooKeeper equal to the image; report the image's offset with `synchronized`."""


@dataclass(frozen=True, slots=True)
class TellBrokers:
    """Send the full state to every ZooKeeper-mode broker; report with `brokers_notified`."""


@dataclass(frozen=True, slots=True)
class WriteChanges:
    """Write the log's changes up to `offset` to ZooKeeper, then send them to brokers.

    Report with `changes_written`.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Another controller has claimed ZooKeeper: this one must give up leadership."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The driver has changed its state; for logs and metrics."""

    before: State
    after: State
    reason: str


Output = (
    ReadBrokers
    | Claim
    | ReadTree
    | Copy
    | AbortCopy
    | Synchronize
    | TellBrokers
    | WriteChanges
    | Resign
    | Moved
)


@dataclass(slots=True)
class Driver:
    """One controller's part in the migration. Times are milliseconds of any monotonic clock."""

    enabled: bool
    """The setting zookeeper.metadata.migration.enable of this controller."""
    state: State = State.UNINITIALIZED
    epoch: int | None = None
    migration_state: ZkMigrationState = ZkMigrationState.NONE
    offset: int = -1
    written_offset: int = -1
    _in_transaction: bool = False
    _controllers_ready: bool = False
    _not_ready: str = ""
    _known_brokers: frozenset[int] | None = None
    _registered: frozenset[int] = frozenset()
    _outputs: list[Output] = field(default_factory=list)
    _retry_at_ms: int | None = None
    _pause_ms: int = RETRY_MS
    _writing: bool = False

    # --- queries ----------------------------------------------------------------------------------

    def take_outputs(self) -> list[Output]:
        """Return the outputs since the last call, in order."""
        outputs, self._outputs = self._outputs, []
        return outputs

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `tick`; None if nothing is scheduled."""
        return self._retry_at_ms

    @property
    def lag(self) -> int:
        """How many records of the log are not in ZooKeeper yet; 0 outside of DUAL_WRITE."""
        return max(0, self.offset - self.written_offset) if self.state is State.DUAL_WRITE else 0

    @property
    def accepts_requests(self) -> bool:
        """Whether the controller may serve metadata requests.

        Until the copy is complete, its responses and writes could contradict ZooKeeper (KIP-866
        "KRaft Controller Pre-Migration State").
        """
        return self.migration_state is not ZkMigrationState.PRE_MIGRATION

    @property
    def waits_for(self) -> str:
        """What the next step is waiting for, as text after "waiting for"."""
        match self.state:
            case State.WAIT_FOR_CONTROLLER_QUORUM:
                return self._not_ready or "the other controllers"
            case State.WAIT_FOR_BROKERS:
                if self._known_brokers is None:
                    return "the list of ZooKeeper's brokers"
                missing = sorted(self._known_brokers - self._registered)
                if not missing:
                    return "a broker to register"
                return f"brokers {', '.join(map(str, missing))} to register"
            case _:
                return ""

    # --- inputs -----------------------------------------------------------------------------------

    def led(self, epoch: int, now_ms: int) -> None:
        """This controller leads `epoch`, and has applied the log up to the start of that epoch."""
        self.epoch = epoch
        self._reset()
        if not self.enabled or self.migration_state not in (
            ZkMigrationState.PRE_MIGRATION,
            ZkMigrationState.MIGRATION,
        ):
            if self.state is State.UNINITIALIZED:
                self._move(State.INACTIVE, "nothing to migrate")
            return
        if self._in_transaction:
            self._outputs.append(AbortCopy())
        self._move(State.WAIT_FOR_CONTROLLER_QUORUM, f"leads epoch {epoch}")
        self._advance(now_ms)

    def resigned(self) -> None:
        """This controller is not the leader."""
        self.epoch = None
        self._reset()
        if self.state is not State.INACTIVE:
            self._move(State.INACTIVE, "does not lead")

    def applied(
        self,
        offset: int,
        migration_state: ZkMigrationState,
        registered: frozenset[int],
        now_ms: int,
        *,
        in_transaction: bool = False,
    ) -> None:
        """The image has advanced to `offset`.

        registered: the registered ZooKeeper-mode brokers, fenced ones included. in_transaction:
        whether a metadata transaction is open.
        """
        self.offset = max(self.offset, offset)
        self.migration_state = migration_state
        self._registered = registered
        self._in_transaction = in_transaction
        if migration_state is ZkMigrationState.POST_MIGRATION and self.state not in (
            State.INACTIVE,
            State.UNINITIALIZED,
        ):
            self._reset()
            self._move(State.INACTIVE, "the migration is finalized")
            return
        self._advance(now_ms)

    def controllers(self, *, ready: bool, reason: str, now_ms: int) -> None:
        """Whether every controller of the quorum is ready. reason: what is missing if not."""
        self._controllers_ready, self._not_ready = ready, reason
        self._advance(now_ms)

    def brokers_read(self, epoch: int, brokers: frozenset[int], now_ms: int) -> None:
        """The brokers known to ZooKeeper have been read."""
        if self._is_current(epoch, State.WAIT_FOR_BROKERS):
            self._known_brokers = brokers
            self._succeeded()
            self._advance(now_ms)

    def claimed(self, epoch: int) -> None:
        """ZooKeeper is claimed, and its previous controller is fenced."""
        if not self._is_current(epoch, State.BECOME_CONTROLLER):
            return
        self._succeeded()
        if self.migration_state is ZkMigrationState.MIGRATION:
            self._move(State.SYNC_KRAFT_TO_ZK, "the copy is already in the log")
        else:
            self._move(State.ZK_MIGRATION, "ZooKeeper is claimed")

    def tree_read(self, epoch: int, tree: Tree) -> None:
        """The metadata znodes have been read."""
        if self._is_current(epoch, State.ZK_MIGRATION):
            self._outputs.append(Copy(tree))

    def copied(self, epoch: int) -> None:
        """The transaction is committed."""
        if self._is_current(epoch, State.ZK_MIGRATION):
            self._succeeded()
            self._move(State.SYNC_KRAFT_TO_ZK, "the copy is complete")

    def synchronized(self, epoch: int, offset: int) -> None:
        """ZooKeeper matches the log up to `offset`."""
        if self._is_current(epoch, State.SYNC_KRAFT_TO_ZK):
            self._succeeded()
            self.written_offset = offset
            self._move(State.KRAFT_CONTROLLER_TO_BROKER_COMM, f"ZooKeeper is at offset {offset}")

    def brokers_notified(self, epoch: int, now_ms: int) -> None:
        """The full state is queued for every ZooKeeper-mode broker."""
        if self._is_current(epoch, State.KRAFT_CONTROLLER_TO_BROKER_COMM):
            self._succeeded()
            self._move(State.DUAL_WRITE, "the full state is queued for the brokers")
            self._advance(now_ms)

    def changes_written(self, epoch: int, offset: int, now_ms: int) -> None:
        """ZooKeeper has the changes up to `offset`, and they are queued for the brokers."""
        if self._is_current(epoch, State.DUAL_WRITE):
            self._writing = False
            self._succeeded()
            self.written_offset = max(self.written_offset, offset)
            self._advance(now_ms)

    def fenced(self, epoch: int) -> None:
        """A write to ZooKeeper failed because another controller has claimed it since."""
        if epoch == self.epoch and self.state is not State.INACTIVE:
            self._reset()
            self._move(State.INACTIVE, "another controller has claimed ZooKeeper")
            self._outputs.append(Resign())

    def failed(self, epoch: int, now_ms: int) -> None:
        """The last output failed and may be retried."""
        if epoch == self.epoch:
            self._writing = False
            self._retry_at_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)

    def tick(self, now_ms: int) -> None:
        """Retry or poll once `next_deadline_ms` has been reached."""
        if self._retry_at_ms is None or now_ms < self._retry_at_ms:
            return
        self._retry_at_ms = None
        output = self._output()
        if output is None:
            self._advance(now_ms)
        else:
            self._outputs.append(output)

    # --- steps ------------------------------------------------------------------------------------

    def _advance(self, now_ms: int) -> None:
        """Take the steps whose conditions hold."""
        if self.epoch is None:
            return
        if self.state is State.WAIT_FOR_CONTROLLER_QUORUM and self._controllers_ready:
            if self.migration_state is ZkMigrationState.MIGRATION:
                self._move(State.BECOME_CONTROLLER, "a migration is under way")
                return
            self._move(State.WAIT_FOR_BROKERS, "every controller is ready")
        if self.state is State.WAIT_FOR_BROKERS and self._known_brokers is not None:
            # No registered broker means that the cluster is starting, not that it has no brokers.
            if self._registered and self._known_brokers <= self._registered:
                self._move(State.BECOME_CONTROLLER, "every broker has registered")
            elif self._retry_at_ms is None:
                # Brokers may join or leave ZooKeeper during the wait.
                self._retry_at_ms = now_ms + POLL_MS
        if (
            self.state is State.DUAL_WRITE
            and not self._writing
            and self._retry_at_ms is None
            and self.offset > self.written_offset
        ):
            self._writing = True
            self._outputs.append(WriteChanges(self.offset))

    def _output(self) -> Output | None:
        """The output of the current state, on entry and on each retry; None if it has none."""
        match self.state:
            case State.WAIT_FOR_BROKERS:
                return ReadBrokers()
            case State.BECOME_CONTROLLER:
                assert self.epoch is not None, "only a leader claims"
                return Claim(self.epoch)
            case State.ZK_MIGRATION:
                return ReadTree()
            case State.SYNC_KRAFT_TO_ZK:
                return Synchronize()
            case State.KRAFT_CONTROLLER_TO_BROKER_COMM:
                return TellBrokers()
        return None

    def _is_current(self, epoch: int, state: State) -> bool:
        """Whether a result belongs to an output of this epoch and state."""
        return epoch == self.epoch and self.state is state

    def _succeeded(self) -> None:
        self._retry_at_ms = None
        self._pause_ms = RETRY_MS

    def _reset(self) -> None:
        self._succeeded()
        self._writing = False
        self._controllers_ready = False
        self._known_brokers = None

    def _move(self, state: State, reason: str) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} to {state}"
        self._outputs.append(Moved(self.state, state, reason))
        self.state = state
        output = self._output()
        if output is not None:
            self._outputs.append(output)
