"""A node's disk: the log with a page cache, quorum-state, snapshots, and what a crash leaves.

Rules:
- an append or a truncation is volatile until a sync that began after it has ended; a crash keeps a
  prefix of the volatile changes, in their order, and may tear the last kept append between its
  batches (a torn batch does not survive recovery);
- quorum-state is written atomically and durably at once; so are snapshots, and the installation of
  a received snapshot, which replaces the log and what is pending for it;
- bytes of a snapshot being received are volatile;
- recovery makes durable what it found;
- a disk may lose synced batches from its log's end (`Log.lose`), with the mark that recovery
  leaves then (`Disk.lose_records`) or without a trace.

Source: KIP-595, KIP-630; design: "What lies on disk".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

from quorate.common.value import value
from quorate.raft.batches import Batch, KRaftVersion, VotersRecord
from quorate.raft.config import InitialState
from quorate.raft.logstate import LogState
from quorate.raft.types import (
    BOOTSTRAP_SNAPSHOT,
    ElectionState,
    OffsetAndEpoch,
    RequiredEnd,
    VoterSet,
)

from tests.replica.errors import InvariantError

BATCH_BYTES = 100
"""What a batch counts against `max_bytes`."""


@value
class Snapshot:
    """A checkpoint of committed records.

    voters: None at kraft.version 0. count: how many committed batches it stands for, which is the
    state of the simulated state machine. content: its bytes, as they are replicated.
    """

    id: OffsetAndEpoch
    kraft_version: int
    voters: VoterSet | None
    count: int
    content: bytes

    @property
    def membership(self) -> tuple[tuple[tuple[int, VoterSet], ...], tuple[tuple[int, int], ...]]:
        """Voter sets and kraft.versions as `InitialState` and `snapshot_installed` take them."""
        offset = self.id.offset - 1
        if self.voters is None:
            return (), ()
        return ((offset, self.voters),), ((offset, self.kraft_version),)


_Change = tuple[int, int, list[Batch] | None]
"""A volatile change, with what undoes it: (ticket, offset, the batches that a truncation to
`offset` removed; None for an append from `offset` on).
"""


class Log:
    """The log as a list of batches, with a journal of what is not synced. last_ticket: that of the
    last volatile change, None if all is durable.
    """

    __slots__ = ("_bases", "_batches", "_journal", "durable_end", "end", "last_ticket", "start")

    def __init__(self) -> None:
        self.start = BOOTSTRAP_SNAPSHOT
        self.end = 0
        self.durable_end = 0
        self._batches: list[Batch] = []
        self._bases: list[int] = []
        self._journal: deque[_Change] = deque()
        self.last_ticket: int | None = None

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}), durable to {self.durable_end}"

    def append(self, ticket: int, batches: tuple[Batch, ...]) -> None:
        end = self.end
        self.last_ticket = ticket
        self._journal.append((ticket, end, None))
        for batch in batches:
            base = batch.base_offset
            if base != end:
                text = f"append of {base} to a log that ends at {end}"
                raise InvariantError("LogContract", text)
            self._batches.append(batch)
            self._bases.append(base)
            self.end = end = batch.last_offset + 1

    def truncate(self, ticket: int, end_offset: int) -> None:
        if not self.start.offset <= end_offset <= self.end:
            text = f"truncation to {end_offset} outside of [{self.start.offset}, {self.end}]"
            raise InvariantError("LogContract", text)
        self.last_ticket = ticket
        self._journal.append((ticket, end_offset, self._cut(end_offset)))
        self.durable_end = min(self.durable_end, end_offset)

    def _cut(self, end_offset: int) -> list[Batch]:
        keep = bisect_right(self._bases, end_offset - 1)
        removed = self._batches[keep:]
        del self._batches[keep:], self._bases[keep:]
        if self._batches and self._batches[-1].end_offset > end_offset:
            raise InvariantError("LogContract", f"{end_offset} is inside of {self._batches[-1]}")
        self.end = self._batches[-1].end_offset if self._batches else self.start.offset
        return removed

    def synced(self, ticket: int) -> None:
        """Everything up to this ticket is durable."""
        journal, end, start = self._journal, self.end, self.start.offset
        while journal and journal[0][0] <= ticket:
            journal.popleft()
        if journal:
            for _, offset, _ in journal:
                if offset < end:  # noqa: PLR1730 - once a sync: a call costs more
                    end = offset
        else:
            self.last_ticket = None
        self.durable_end = end if end > start else start  # noqa: FURB136 - a call costs more

    def read(self, offset: int, max_bytes: int) -> tuple[Batch, ...]:
        """At least one batch, more as far as `max_bytes` allows."""
        first = bisect_right(self._bases, offset) - 1
        if first < 0 or self._batches[first].last_offset < offset:
            return ()
        return tuple(self._batches[first : first + (max_bytes // BATCH_BYTES or 1)])

    def batch_before(self, offset: int) -> Batch | None:
        """The batch that ends at `offset`, None if it is not in the log."""
        batches = self._batches
        if offset == self.end and batches:
            return batches[-1]
        index = bisect_right(self._bases, offset - 1) - 1
        if index < 0 or batches[index].last_offset + 1 != offset:
            return None
        return batches[index]

    def batches_between(self, offset: int, end_offset: int) -> list[Batch]:
        first = bisect_right(self._bases, offset - 1)
        last = bisect_right(self._bases, end_offset - 1)
        return self._batches[first:last]

    def clean(self, start: OffsetAndEpoch) -> None:
        """Delete what lies before `start`, a snapshot's id."""
        if start.offset <= self.start.offset:
            return
        gone = bisect_right(self._bases, start.offset - 1)
        del self._batches[:gone], self._bases[:gone]
        self.start = start
        self.durable_end = max(self.durable_end, start.offset)

    def install(self, snapshot: Snapshot) -> None:
        """A snapshot replaces the log, durably."""
        self._batches, self._bases = [], []
        self._forget_journal()
        self.start = snapshot.id
        self.end = self.durable_end = snapshot.id.offset

    def crash(self, random: Random, mode: str) -> None:
        """Lose volatile changes: "all" of them, those after a "prefix", or after a "torn" one."""
        kept = 0 if mode == "all" else int(random.random() * (len(self._journal) + 1))
        self._undo_after(kept)
        if mode == "torn" and self._journal and self._journal[-1][2] is None:
            bases = [base for base in self._bases if base >= self._journal[-1][1]]
            if bases:
                self._cut(bases[int(random.random() * len(bases))])
        self._forget_journal()

    @property
    def last(self) -> OffsetAndEpoch:
        """The log's end, and the epoch of the record before it."""
        epoch = self._batches[-1].epoch if self._batches else self.start.epoch
        return OffsetAndEpoch(self.end, epoch)

    def lose(self, end_offset: int) -> list[Batch]:
        """The batches from `end_offset` on are gone, durable or not. Return them."""
        lost = self._cut(end_offset)
        self._forget_journal()
        self.durable_end = self.end
        return lost

    def _forget_journal(self) -> None:
        self._journal.clear()
        self.last_ticket = None

    def lose_volatile(self) -> None:
        """Lose all volatile changes."""
        self._undo_after(0)
        self._forget_journal()

    def _undo_after(self, kept: int) -> None:
        while len(self._journal) > kept:
            self._undo(self._journal.pop())

    def _undo(self, change: _Change) -> None:
        _, offset, removed = change
        if removed is None:
            if offset < self.end:
                self._cut(max(offset, self.start.offset))
            return
        for batch in removed:
            if batch.base_offset >= self.start.offset:
                self._batches.append(batch)
                self._bases.append(batch.base_offset)
                self.end = batch.end_offset

    def recover(self, snapshot: Snapshot | None) -> InitialState:
        """Read the log again; what is there is durable from now on."""
        if snapshot is not None and snapshot.id.offset > self.end:
            # The state machine ran ahead of the log's sync: what the snapshot stands for replaces
            # the shorter log.
            self.install(snapshot)
        self.durable_end = self.end
        epochs: list[tuple[int, int]] = []
        first = snapshot.id.offset if snapshot is not None else 0
        voters: list[tuple[int, VoterSet]] = []
        versions: list[tuple[int, int]] = []
        if snapshot is not None:
            snapshot_voters, snapshot_versions = snapshot.membership
            voters += snapshot_voters
            versions += snapshot_versions
        for batch in self._batches:
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, batch.base_offset))
            for index, record in enumerate(batch.control):
                offset = batch.base_offset + index
                if offset >= first and isinstance(record, VotersRecord):
                    voters.append((offset, record.voters))
                elif offset >= first and isinstance(record, KRaftVersion):
                    versions.append((offset, record.level))
        state = LogState(self.start, self.end, epochs, snapshot.id if snapshot else None)
        return InitialState(None, state, tuple(voters), tuple(versions))


@dataclass(slots=True)
class Disk:
    """All that a node keeps. A lost disk is replaced by a new one with another directory id.

    static_voters: controller.quorum.voters of the configuration that the disk is used with. A disk
    that replaces another has none: disks are lost only once kraft.version is 1, and then they are
    formatted with --no-initial-controllers, which refuses to leave static voters in the
    configuration. Else an empty log would believe in them, and a single one would elect itself.
    """

    directory_id: str
    static_voters: VoterSet = field(default_factory=VoterSet)
    log: Log = field(default_factory=Log)
    election: ElectionState | None = None
    removed: bool = False
    required_end: RequiredEnd | None = None
    snapshots: dict[OffsetAndEpoch, Snapshot] = field(default_factory=dict)
    parts: dict[OffsetAndEpoch, bytearray] = field(default_factory=dict)
    latest: Snapshot | None = None
    is_full: bool = False
    is_damaged: bool = False

    def keep(self, snapshot: Snapshot) -> None:
        self.snapshots[snapshot.id] = snapshot
        if self.latest is None or snapshot.id.offset > self.latest.id.offset:
            self.latest = snapshot

    def part(self, name: OffsetAndEpoch) -> bytearray:
        """What has arrived of a snapshot that is being received."""
        return self.parts.setdefault(name, bytearray())

    def clean(self, start: OffsetAndEpoch) -> None:
        """Delete the log before `start`, a snapshot's id, and older snapshots."""
        self.snapshots = {name: kept for name, kept in self.snapshots.items() if name >= start}
        self.log.clean(start)

    def lose_records(self, end_offset: int) -> None:
        """Synced batches are gone, and recovery sees that: it marks what it drops."""
        end = self.log.last
        lost = self.log.lose(end_offset)
        known = self.required_end
        if known is not None and (known.end.epoch, known.end.offset) >= (end.epoch, end.offset):
            end = known.end
        may_stand = known is None or known.may_stand
        self.required_end = RequiredEnd(end, may_stand and not any(b.control for b in lost))

    def crash(self, random: Random, mode: str) -> None:
        self.log.crash(random, mode)
        for part in self.parts.values():
            del part[int(random.random() * (len(part) + 1)) :]

    def recover(self) -> InitialState:
        """What a process finds that starts on this disk."""
        return replace(
            self.log.recover(self.latest),
            election=self.election,
            removed=self.removed,
            required_end=self.required_end,
        )
