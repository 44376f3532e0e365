"""The invariants of single logs and of the logs of a quorum: `ElectionSafety`, `LogMatching`,
`NeighbouringVoterSetsDifferByOne`, `VotersHaveDirectories`, `SnapshotHoldsVoters`,
`SnapshotAtLogStart` (`tests/simulation/invariants.py` says what they are).

The simulation checks them as its nodes run, `tests/logs/checks.py` in the files of real processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from quorate.raft.batches import Batch, KRaftVersion, VotersRecord
from quorate.raft.history import NOT_IN_LOG
from quorate.raft.types import OffsetAndEpoch, VoterSet

from tests.replica.errors import InvariantError

Leader = TypeVar("Leader")


def check_leads_once(leaders: dict[int, Leader], epoch: int, leader: Leader) -> None:
    """Note who leads an epoch, for which this is called once. leaders: by epoch."""
    if epoch in leaders:
        raise InvariantError("ElectionSafety", f"{leaders[epoch]} and {leader} lead epoch {epoch}")
    leaders[epoch] = leader


class WrittenBatches:
    """All batches that any log has held, by offset and epoch, and the epoch before each."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[Batch, int | None]] = {}

    def append(self, owner: object, batches: Iterable[Batch], previous: int | None) -> None:
        """Batches of a log that follow a batch of epoch `previous`; None if that is unknown."""
        written = self._written
        for batch in batches:
            place = batch.base_offset << 24 | batch.epoch
            known = written.get(place)
            if known is None:
                written[place] = batch, previous
            elif (known[1] != previous and None not in (known[1], previous)) or (
                known[0] is not batch and known[0] != batch
            ):
                raise InvariantError(
                    "LogMatching",
                    f"{owner} appends {batch} after epoch {previous}; {known[0]} after epoch "
                    f"{known[1]} has its offset and epoch",
                )
            previous = batch.epoch


class LogMembership:
    """The voter sets and kraft.versions of a log, each with the offset of its record.

    changes: how many of the records differ from the set before.
    """

    def __init__(self, static_voters: VoterSet) -> None:
        self.voter_sets: list[tuple[int, VoterSet]] = [(NOT_IN_LOG, static_voters)]
        self.versions: list[tuple[int, int]] = [(NOT_IN_LOG, 0)]
        self.changes = 0

    @property
    def voters(self) -> VoterSet:
        return self.voter_sets[-1][1]

    @property
    def level(self) -> int:
        """The kraft.version."""
        return self.versions[-1][1]

    def load(self, end_offset: int, level: int, voters: VoterSet) -> None:
        """Take the set and the kraft.version of a snapshot that ends there."""
        self.voter_sets.append((end_offset - 1, voters))
        self.versions.append((end_offset - 1, level))

    def append(self, batch: Batch) -> None:
        """Take the records of a control batch."""
        for index, record in enumerate(batch.control):
            if isinstance(record, VotersRecord):
                if len(self.voter_sets) > 1 or self.level > 0:
                    check_neighbours(self.voters, record.voters)
                if record.voters != self.voters:
                    self.changes += 1
                self.voter_sets.append((batch.base_offset + index, record.voters))
            elif isinstance(record, KRaftVersion):
                self.versions.append((batch.base_offset + index, record.level))
        unknown = [voter.id for voter in self.voters if voter.key.directory_id is None]
        if self.level > 0 and unknown:
            text = f"{batch} leaves the directories of {unknown} unknown at kraft.version 1"
            raise InvariantError("VotersHaveDirectories", text)

    def at(self, end_offset: int) -> tuple[int, VoterSet]:
        """The kraft.version and the voter set in force before `end_offset`."""
        level = [level for offset, level in self.versions if offset < end_offset][-1]
        return level, [voters for offset, voters in self.voter_sets if offset < end_offset][-1]

    def check_snapshot(
        self, owner: object, snapshot: OffsetAndEpoch, level: int, voters: VoterSet | None
    ) -> None:
        """A snapshot of this log says who the voters were where it ends. voters: at kraft.version
        1.
        """
        known_level, known = self.at(snapshot.offset)
        if (level, voters) != (known_level, known if known_level > 0 else None):
            text = (
                f"{owner}: {snapshot} has {voters} at kraft.version {level}, in the log are "
                f"{known} at kraft.version {known_level}"
            )
            raise InvariantError("SnapshotHoldsVoters", text)


def check_neighbours(old: VoterSet, new: VoterSet) -> None:
    """At most one voter more or less, or the same voters, described better. So every majority of
    one meets every majority of the other.
    """
    if not len(old):
        return
    same = sum(1 for voter in new if old.find(voter.key) is not None)
    if (len(old) - same) + (len(new) - same) > 1:
        text = f"{old} is followed by {new}"
        raise InvariantError("NeighbouringVoterSetsDifferByOne", text)


def check_log_start(owner: object, start: OffsetAndEpoch, latest: OffsetAndEpoch | None) -> None:
    """A log that was cut at its start has the snapshot for it. latest: the newest snapshot."""
    if start.offset > 0 and (latest is None or latest.offset < start.offset):
        text = f"{owner}: the log starts at {start}, the newest snapshot is {latest}"
        raise InvariantError("SnapshotAtLogStart", text)
