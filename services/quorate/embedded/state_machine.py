"""The replicated state machine of a program, and what a node passes to it.

A node passes the committed records of applications (records with a key) to its state machine, each
once and in the order of the log. State machines that start empty and are deterministic therefore
have the same state at the same offset on every node. Metadata and control records are not passed.

Source: Kafka's RaftClient.Listener; KIP-595, KIP-630.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from itertools import chain

from quorate.applications.chunks import joined_state
from quorate.log.metadata_log import MetadataLog
from quorate.process.shutdown import NodeError
from quorate.raft.errors import MisuseError
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import Record, has_keys, read_header, snapshot_records
from quorate.records.metadata import ApplicationTag
from quorate.runtime.metadata_batches import field_of


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
    """What a snapshot has in place of the log before `offset`: a state, then records, as batches.

    epoch: of the last record before `offset`. Records of snapshots that were written before
    snapshots kept offsets have `offset` None.

    Example:
        def restore(self, snapshot):
            size = int(b"".join(snapshot.state) or 0)
            self.size = size + sum(len(record.value) for batch in snapshot for record in batch)
    """

    def __init__(self, log: MetadataLog, snapshot: OffsetAndEpoch) -> None:
        """Open the snapshot. Raises SnapshotNotFoundError."""
        self.offset, self.epoch = snapshot.offset, snapshot.epoch
        self._source = log.iter_snapshot_batches(snapshot)
        self._first: bytes | memoryview | None = None
        self._has_state = False
        self._is_read = self._is_read_wholly = False
        self._state = joined_state(self._state_chunks())

    @property
    def state(self) -> Iterator[bytes]:
        """The chunks that `StateMachine.snapshot` returned, on this node or another one.

        They are in order, and each is as long as it was. There are none if the snapshot was written
        without a state: then the batches are all records from the beginning of the log on, or those
        that compaction left. Read them before the batches, and once. Raises as the batches.
        """
        return self._state

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """Each batch after the state, in order, once. Raises LogError if the snapshot is damaged.

        MisuseError if there is a state that was not read: the records do not contain it.
        """
        if self._is_read:
            raise MisuseError("a snapshot can be read once: keep what it holds")
        self._is_read = True
        if next(self._state, None) is not None:
            raise MisuseError("the snapshot has a state: read all of `state` before the records")
        first, self._first = self._first, None
        rest = (batch.data for batch in self._source)
        for data in rest if first is None else chain((first,), rest):
            assert isinstance(data, bytes | memoryview), type(data)
            records = tuple(
                each
                for each in snapshot_records(memoryview(data), read_header(data))
                if each.key is not None
            )
            if records:
                yield records
        self._is_read_wholly = True

    def check_read(self) -> None:
        """Raise MisuseError if `restore` took the state and left the records that follow it."""
        is_wanted = self._has_state and not self._is_read_wholly
        if is_wanted and (self._is_read or next(iter(self), None) is not None):
            raise MisuseError("restore did not read the records that follow the state")

    def _state_chunks(self) -> Iterator[bytes]:
        """The chunks, up to the first batch of records, which is kept."""
        for batch in self._source:
            data = batch.data
            assert isinstance(data, bytes | memoryview), type(data)
            if has_keys(data, read_header(data)):
                self._first = data
                return
            chunk = field_of(data)
            if chunk is not None and chunk[0] is ApplicationTag.STATE_CHUNK:
                self._has_state = True
                yield chunk[1]


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
        import json

        class KeyValues(quorate.StateMachine):
            def __init__(self):
                self.values = {}

            def apply(self, batch):
                put_all(self.values, batch)

            def snapshot(self):
                return [json.dumps(self.values).encode()]

            def restore(self, snapshot):
                values = json.loads(b"".join(snapshot.state) or "{}")
                for batch in snapshot:
                    put_all(values, batch)
                self.values = values

        def put_all(values, batch):
            for record in batch:
                if record.value is None:
                    values.pop(record.key.decode(), None)
                else:
                    values[record.key.decode()] = record.value.decode()
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
        the records. Take the state from `snapshot.state`, if it has one, then apply the batches of
        the snapshot. Build the new state first and assign it at the end: the program may read the
        state meanwhile. Batches from `snapshot.offset` on follow.
        """

    def snapshot(self) -> Iterable[bytes] | Awaitable[Iterable[bytes] | None] | None:
        """The state after all batches so far, as chunks of any size; None keeps the records.

        Once application.version 1 is finalized, snapshots contain these chunks in place of the
        records, which are deleted, so that disk usage and start depend on the size of the state.
        `restore` of any node, also in a later version of the program, gets the chunks in
        `snapshot.state`. Readers of the log get the records that follow the newest state only.

        The iterable is read in a worker thread, while batches are applied: it must not change with
        the state. Return what is complete, or a generator over a copy; a generator function is
        rejected, because its body runs later. All nodes of a quorum should run the same class: a
        node stops if its `restore` does not read the state that another one has written.
        """
        return None

    def leadership_acquired(self, epoch: int) -> Awaitable[None] | None:  # noqa: ARG002
        """This node leads `epoch`. Everything before the epoch is applied, and none of its records,
        except those of a snapshot that was restored meanwhile.
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
        raise MisuseError(f"{machine!r} is not a StateMachine: pass an instance of a subclass")
    if inspect.isgeneratorfunction(machine.snapshot):
        raise MisuseError("snapshot is a generator function: copy the state, return a generator")
    if inspect.iscoroutinefunction(machine.restore):
        raise MisuseError("restore is a coroutine function, but it runs in a worker thread")


def check_result(result: object) -> None:
    """Raise MisuseError if a method that nothing awaits has returned a coroutine."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise MisuseError("it returned a coroutine, which nothing awaits")


def check_chunks(chunks: object) -> None:
    """Raise MisuseError if `chunks` cannot be the chunks of a state."""
    if isinstance(chunks, bytes | bytearray | memoryview | str) or not isinstance(chunks, Iterable):
        raise MisuseError(f"snapshot returned {type(chunks).__name__}, not an iterable of bytes")


def check_chunk(chunk: object) -> bytes:
    """A chunk of a state. Raises MisuseError if it is none."""
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise MisuseError(f"a chunk of the state is {type(chunk).__name__}, not bytes")
    return bytes(chunk)
