"""The measurements of a replica's driver, taken whether or not they are exported.

Source: KIP-595, "Metrics" (commit-latency, election-latency, fetch- and append-records-rate).
"""

from __future__ import annotations

from quorate.telemetry.histogram import Histogram


class Recorder:
    """Counters and histograms, written by the event loop's thread.

    appended_records: by this replica as leader. checksum_mismatches: ranges in which the
    consistency check found a difference. fetched_records: from a leader. role_changes: since the
    process began.
    """

    __slots__ = (
        "_election_began_ms",
        "appended_records",
        "checksum_mismatches",
        "commit_latency",
        "election_latency",
        "fetched_records",
        "role_changes",
    )

    def __init__(self) -> None:
        self.commit_latency = Histogram()
        self.election_latency = Histogram()
        self.appended_records = 0
        self.fetched_records = 0
        self.role_changes = 0
        self.checksum_mismatches = 0
        self._election_began_ms = -1

    def role_changed(self, now_ms: int, *, elects: bool, has_leader: bool) -> None:
        """Count a change of role, and measure how long elections take.

        elects: whether the new role takes part in an election, from the first pre-vote on.
        has_leader: whether a leader is known, which ends the election.
        """
        self.role_changes += 1
        if elects:
            if self._election_began_ms < 0:
                self._election_began_ms = now_ms
        elif has_leader and self._election_began_ms >= 0:
            self.election_latency.observe((now_ms - self._election_began_ms) / 1000)
            self._election_began_ms = -1
