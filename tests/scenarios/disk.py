"""A replica's disk in memory: what was written, and what of it a crash leaves.

`live` is what the process sees, `durable` what survives a crash; `sync` makes the two equal.
quorum-state is durable at once, as `PersistElection` demands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quorate.raft import LogState
from quorate.raft.batches import Batch, KRaftVersion, Voters
from quorate.raft.config import InitialState
from quorate.raft.types import (
    BOOTSTRAP_SNAPSHOT,
    ElectionState,
    Endpoint,
    OffsetAndEpoch,
    ReplicaKey,
    RequiredEnd,
    VersionRange,
    Voter,
    VoterSet,
)

Change = Callable[["Image"], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot's name and what it says of the quorum; the state machine's records do not matter
    here.
    """

    id: OffsetAndEpoch
    kraft_version: int
    voters: VoterSet

    def encode(self) -> bytes:
        parts = [f"{self.id}", f"{self.kraft_version}"]
        parts += [
            f"{v.key.id},{v.key.directory_id or ''},{v.kraft_version},"
            + ",".join(f"{e.name}/{e.host}/{e.port}" for e in v.endpoints)
            for v in self.voters
        ]
        return "\n".join([*parts, "footer"]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Snapshot:
        """Raises ValueError unless it is complete."""
        if not data.endswith(b"\nfooter"):
            raise ValueError("the snapshot has no footer")
        name, level, *voters, _ = data.decode().split("\n")
        offset, epoch = name.split("@")
        return cls(
            OffsetAndEpoch(int(offset), int(epoch)),
            int(level),
            VoterSet.of(_decode_voter(text) for text in voters),
        )

    def sets(self) -> tuple[tuple[int, VoterSet], ...]:
        return ((self.id.offset - 1, self.voters),) if self.kraft_version else ()

    def versions(self) -> tuple[tuple[int, int], ...]:
        return ((self.id.offset - 1, self.kraft_version),) if self.kraft_version else ()


def _decode_voter(text: str) -> Voter:
    voter_id, directory, versions, *endpoints = text.split(",")
    low, high = versions.split("-")
    split = [endpoint.split("/") for endpoint in endpoints if endpoint]
    return Voter(
        ReplicaKey(int(voter_id), directory or None),
        tuple(Endpoint(name, host, int(port)) for name, host, port in split),
        VersionRange(int(low), int(high)),
    )


@dataclass(slots=True)
class Image:
    """A log and its snapshots. `start` is the snapshot that the log begins after."""

    start: OffsetAndEpoch = BOOTSTRAP_SNAPSHOT
    batches: list[Batch] = field(default_factory=list)
    snapshots: dict[OffsetAndEpoch, Snapshot] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    def append(self, batches: tuple[Batch, ...]) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset, (
                f"append at {batch.base_offset} to a log that ends at {self.end_offset}"
            )
            self.batches.append(batch)

    def truncate(self, end_offset: int) -> None:
        assert all(b.end_offset <= end_offset or b.base_offset >= end_offset for b in self.batches)
        self.batches = [batch for batch in self.batches if batch.end_offset <= end_offset]

    def install(self, snapshot: Snapshot) -> None:
        self.batches = []
        self.start = snapshot.id
        self.snapshots = {snapshot.id: snapshot}

    def advance_start(self, start: OffsetAndEpoch) -> None:
        self.start = start
        self.batches = [batch for batch in self.batches if batch.base_offset >= start.offset]
        self.snapshots = {k: v for k, v in self.snapshots.items() if k >= start}

    def copy(self) -> Image:
        return Image(self.start, list(self.batches), dict(self.snapshots))


class Disk:
    """One directory: the log, quorum-state, and whether a record removed this replica."""

    def __init__(self) -> None:
        self.live = Image()
        self.durable = Image()
        self.election: ElectionState | None = None
        self.removed = False
        self.required_end: RequiredEnd | None = None
        self.partial: dict[OffsetAndEpoch, bytes] = {}
        self._unsynced: list[tuple[int, Change]] = []

    def change(self, ticket: int, change: Change) -> None:
        """A write that a crash may undo."""
        change(self.live)
        self._unsynced.append((ticket, change))

    def change_durably(self, change: Change) -> None:
        """A write that is durable when it returns, and with it everything before."""
        self.sync()
        change(self.live)
        change(self.durable)

    def sync(self) -> int | None:
        """Make everything durable; return the last ticket, None if there was nothing to do."""
        pending, self._unsynced = self._unsynced, []
        for _, change in pending:
            change(self.durable)
        return pending[-1][0] if pending else None

    def crash(self) -> None:
        """Forget what was not synced."""
        self._unsynced.clear()
        self.live = self.durable.copy()

    def lose_records(self, end_offset: int, *, marks: bool) -> None:
        """Batches are gone that were durable. marks: recovery notices, and marks what it drops."""
        lost = [batch for batch in self.live.batches if batch.base_offset >= end_offset]
        if marks:
            end = OffsetAndEpoch(lost[-1].end_offset, lost[-1].epoch)
            self.required_end = RequiredEnd(end, not any(batch.control for batch in lost))
        self.live.truncate(end_offset)
        self.durable = self.live.copy()

    def recover(self) -> InitialState:
        """What a starting replica finds."""
        image = self.live
        latest = max(image.snapshots.values(), key=lambda s: s.id, default=None)
        first = image.snapshots.get(image.start)
        log = LogState(
            image.start,
            image.end_offset,
            [(batch.epoch, batch.base_offset) for batch in image.batches],
            latest.id if latest is not None else None,
        )
        sets = list(first.sets()) if first is not None else []
        versions = list(first.versions()) if first is not None else []
        for batch in image.batches:
            for index, record in enumerate(batch.control):
                if isinstance(record, Voters):
                    sets.append((batch.base_offset + index, record.voters))
                elif isinstance(record, KRaftVersion):
                    versions.append((batch.base_offset + index, record.level))
        return InitialState(
            self.election, log, tuple(sets), tuple(versions), self.removed, self.required_end
        )
