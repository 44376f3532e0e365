"""The voter sets and kraft.versions along the log: in force as soon as they are appended, rolled
back on truncation.

Offsets are those of the control records; entries that a snapshot at offset N carries stand at N - 1
(so the bootstrap checkpoint's stand at -1). Without any VotersRecord the statically configured set
is in force (kraft.version 0).

Source: KIP-853, "Internal listener", "Snapshots", VotersRecord "Handling".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from quorate.raft.batches import Batch, KRaftVersion, VotersRecord
from quorate.raft.types import VoterSet

_T = TypeVar("_T")

NOT_IN_LOG = -2
"""The offset of a voter set that no record holds: it comes from the configuration."""


class MembershipHistory:
    """All voter sets and kraft.versions from the last snapshot to the end of the log.

    voters: the set in force, the last one appended, committed or not.
    """

    def __init__(
        self,
        static_voters: VoterSet,
        voters: Iterable[tuple[int, VoterSet]] = (),
        kraft_versions: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._static = static_voters
        self._voters: list[tuple[int, VoterSet]] = list(voters)
        self._versions: list[tuple[int, int]] = list(kraft_versions)
        self.voters = static_voters
        self._settle()

    def _settle(self) -> None:
        """Know the voter set in force, the last one appended, without a look: it is asked for at
        every message.
        """
        self.voters = self._voters[-1][1] if self._voters else self._static

    @property
    def voters_offset(self) -> int:
        return self._voters[-1][0] if self._voters else NOT_IN_LOG

    @property
    def kraft_version(self) -> int:
        """The level last appended, committed or not."""
        return self._versions[-1][1] if self._versions else 0

    @property
    def last_change_offset(self) -> int:
        """Offset of the last voters or version record."""
        version_offset = self._versions[-1][0] if self._versions else NOT_IN_LOG
        return max(self.voters_offset, version_offset)

    def voters_at(self, end_offset: int) -> VoterSet:
        """The set in force when only records before `end_offset` count."""
        for offset, voters in reversed(self._voters):
            if offset < end_offset:
                return voters
        return self._static

    def since(self, end_offset: int) -> list[VoterSet]:
        """The set in force at `end_offset`, as `voters_at` says, and all that followed."""
        later = [voters for offset, voters in self._voters if offset >= end_offset]
        return [self.voters_at(end_offset), *later]

    def kraft_version_at(self, end_offset: int) -> int:
        for offset, level in reversed(self._versions):
            if offset < end_offset:
                return level
        return 0

    def append(self, batch: Batch) -> bool:
        """Take the control records of an appended batch; return whether anything changed."""
        changed = False
        for index, record in enumerate(batch.control):
            offset = batch.base_offset + index
            if isinstance(record, VotersRecord):
                self._voters.append((offset, record.voters))
                changed = True
            elif isinstance(record, KRaftVersion):
                self._versions.append((offset, record.level))
                changed = True
        self._settle()
        return changed

    def truncate(self, end_offset: int) -> bool:
        """Forget what was at or after `end_offset`; return whether anything changed."""
        changed = False
        while self._voters and self._voters[-1][0] >= end_offset:
            self._voters.pop()
            changed = True
        while self._versions and self._versions[-1][0] >= end_offset:
            self._versions.pop()
            changed = True
        self._settle()
        return changed

    def trim(self, start_offset: int) -> None:
        """Keep what is needed from `start_offset` on: the last entries before it and all after."""
        self._voters = _from_last_before(self._voters, start_offset)
        self._versions = _from_last_before(self._versions, start_offset)
        self._settle()

    def reset(
        self, voters: Iterable[tuple[int, VoterSet]], kraft_versions: Iterable[tuple[int, int]]
    ) -> None:
        """A snapshot replaced the log."""
        self._voters = list(voters)
        self._versions = list(kraft_versions)
        self._settle()


def _from_last_before(entries: list[tuple[int, _T]], start_offset: int) -> list[tuple[int, _T]]:
    keep = 0
    for index, (offset, _) in enumerate(entries):
        if offset < start_offset:
            keep = index
    return entries[keep:]
