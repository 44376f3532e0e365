"""The replicated state machine of a program, and what a node passes to it.

A node passes the committed records of applications (records with a key) to its state machine, each
once and in the order of the log. State machines that start empty and are deterministic therefore
have the same state at the same offset on every node. Metadata and control records are not passed.

Source: Kafka's RaftClient.Listener; KIP-595, KIP-630.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Sequence

from quorate.log.metadata_log import MetadataLog
from quorate.process.shutdown import NodeError
from quorate.raft.errors import MisuseError
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import Record, read_header, snapshot_records


class StateMachineError(NodeError):
    """A method of the state machine raised, which stopped its node; `__cause__` is that exception.

    Example:
        result = await node.append([(b"key", b"value")])
        try:
            await node.applied(result.base_offset)
        except quorate.StateMachineError as error:
            print(error, error.__cause__)
    """


class StateSnapshot:
    """The records that a snapshot has in place of the log before `offset`, as batches.

    epoch: of the last record before `offset`. Records of snapshots that were written before
    snapshots kept offsets have `offset` None.

    Example:
        def restore(self, snapshot):
            self.values = {r.key: r.value for batch in snapshot for r in batch}
    """

    def __init__(self, log: MetadataLog, snapshot: OffsetAndEpoch) -> None:
        """Open the snapshot. Raises SnapshotNotFoundError."""
        self.offset, self.epoch = snapshot.offset, snapshot.epoch
        self._batches = log.iter_snapshot_batches(snapshot)
        self._is_read = False

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """Each batch, in order, once. Raises LogError if the snapshot is damaged; MisuseError."""
        if self._is_read:
            raise MisuseError("a snapshot can be read once: keep what it holds")
        self._is_read = True
        for batch in self._batches:
            assert isinstance(batch.data, bytes | memoryview), type(batch.data)
            data = memoryview(batch.data)
            records = tuple(
                each for each in snapshot_records(data, read_header(data)) if each.key is not None
            )
            if records:
                yield records


class StateMachine(ABC):
    """The state that a program derives from the log. It must start empty: a node replays the log.

    The node calls one method at a time. `restore` runs in a worker thread, all others on the event
    loop of the node: they must return within milliseconds, or be coroutine functions, which the
    node awaits. An event loop that is blocked for longer than the fetch timeout costs a leader its
    leadership. With `quorate.sync`, all methods run in one thread of their own and may block. They
    may await `Node.append`, but not `Node.read_index` and `Node.applied`, which wait for them:
    MisuseError.

    An exception stops the node (`StateMachineError`): the state of this node may differ from that
    of the others. For the same reason the methods must be deterministic: the state depends on the
    records alone, not on the time, on random numbers, on this node or on the size of the batches.
    Only while the node stops may a method let the ClientError or NodeError of `Node.append` pass:
    it is interrupted, and no records follow.

    Example:
        class KeyValues(quorate.StateMachine):
            def __init__(self):
                self.values = {}

            def apply(self, batch):
                self.values.update((record.key, record.value) for record in batch)

            def restore(self, snapshot):
                self.values = {r.key: r.value for batch in snapshot for r in batch}
    """

    @abstractmethod
    def apply(self, batch: Sequence[Record]) -> Awaitable[None] | None:
        """Apply the records of one committed batch. They were appended together.

        A record whose value is None deletes its key.
        """

    @abstractmethod
    def restore(self, snapshot: StateSnapshot) -> None:
        """Replace the state by that of the snapshot; called if it replaces log that is not applied.

        This happens at a start, and if this node lagged so far behind that the leader no longer has
        the records. Build the new state first and assign it at the end: the program may read the
        state meanwhile. Batches from `snapshot.offset` on follow.
        """

    def leadership_acquired(self, epoch: int) -> Awaitable[None] | None:  # noqa: ARG002
        """This node leads `epoch`. Everything before the epoch is applied, and nothing of it,
        except records of a snapshot that was restored meanwhile.
        """
        return None

    def leadership_lost(self, epoch: int) -> Awaitable[None] | None:  # noqa: ARG002
        """This node no longer leads `epoch`, which it had acquired, or is stopping.

        It comes before `leadership_acquired` of another epoch, and before records of one.
        """
        return None


def check_machine(machine: StateMachine) -> None:
    """Raise MisuseError if a node would not run `machine` as a state machine."""
    if not isinstance(machine, StateMachine):
        raise MisuseError(f"{machine!r} is no StateMachine: pass an instance of a subclass")
    if inspect.iscoroutinefunction(machine.restore):
        raise MisuseError("restore is a coroutine function, but it runs in a worker thread")


def check_result(result: object) -> None:
    """Raise MisuseError if a method that nothing awaits has returned a coroutine."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise MisuseError("it returned a coroutine, which nothing awaits")
