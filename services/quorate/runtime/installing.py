"""Receiving a snapshot from the leader: its bytes, resumable, and its installation.

Source: KIP-630, FetchSnapshot; the install is atomic (`log.SnapshotInstall`).
"""

from __future__ import annotations

from quorate.log.install import SnapshotInstall
from quorate.log.metadata_log import MetadataLog
from quorate.raft.types import OffsetAndEpoch, VoterSet

VoterSets = tuple[tuple[int, VoterSet], ...]
Versions = tuple[tuple[int, int], ...]


class SnapshotReceiver:
    """At most one snapshot at a time; what has arrived survives a change of leader."""

    def __init__(self, log: MetadataLog) -> None:
        self._log = log
        self._install: SnapshotInstall | None = None
        self._snapshot: OffsetAndEpoch | None = None

    def begin(self, snapshot: OffsetAndEpoch) -> int:
        """Prepare for `snapshot`; return how many of its bytes are here already."""
        self._install = self._log.begin_install(snapshot)
        self._snapshot = snapshot
        return self._install.position

    def write(self, snapshot: OffsetAndEpoch, position: int, data: bytes) -> None:
        assert self._install is not None, "a chunk without a snapshot being received"
        assert snapshot == self._snapshot, f"a chunk of {snapshot}, receiving {self._snapshot}"
        self._install.write(position, data)

    def install(self, snapshot: OffsetAndEpoch, ticket: int) -> tuple[VoterSets, Versions]:
        """Verify what arrived and let it replace the log; its voter sets and kraft.versions."""
        assert self._install is not None, "nothing to install"
        assert snapshot == self._snapshot, f"install of {snapshot}, received {self._snapshot}"
        install, self._install, self._snapshot = self._install, None, None
        recovered = install.finish(ticket)
        return recovered.voters, recovered.kraft_versions
