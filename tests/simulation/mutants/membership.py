"""Mutants of membership changes and snapshots."""

# ruff: noqa: E501 - the changes quote lines of the protocol with their indentation
from __future__ import annotations

from tests.simulation.mutants.mutant import mutant

MEMBERSHIP = (
    mutant(
        "change_before_this_epoch_committed",
        "a change waits for a committed record of this epoch (Ongaro's bug)",
        "membership",
        "    return epoch_committed and core.history.last_change_offset < core.high_watermark\n",
        "    return core.history.last_change_offset < core.high_watermark\n",
    ),
    mutant(
        "two_uncommitted_changes",
        "one uncommitted change at a time",
        "membership",
        "    return epoch_committed and core.history.last_change_offset < core.high_watermark\n",
        "    return epoch_committed\n",
    ),
    mutant(
        "voters_in_force_on_commit",
        "a voter set is in force when it is appended",
        "core",
        "        self.voters = self.history.voters\n",
        """        self.voters = self.history.voters_at(getattr(self, "high_watermark", 0))
""",
        "        self.high_watermark = offset\n        self.outputs",
        "        self.high_watermark = offset\n        self._know_voters()\n        self.outputs",
    ),
    mutant(
        "truncated_voters_stay",
        "a truncated voter set is rolled back",
        "core",
        "        if self.history.truncate(end_offset):\n",
        "        if False:\n",
    ),
    mutant(
        "snapshot_brings_no_voters",
        "an installed snapshot brings the voter set",
        "core",
        "        self.history.reset(voters, kraft_versions)\n",
        "        self.history.reset((), ())\n",
    ),
    mutant(
        "snapshot_keeps_the_old_voters",
        "an installed snapshot replaces the voter set history",
        "core",
        "        self.history.reset(voters, kraft_versions)\n",
        "",
    ),
    mutant(
        "snapshot_with_uncommitted_voters",
        "a snapshot holds the voters of its end offset",
        "node",
        "        return history.kraft_version_at(end_offset), history.voters_at(end_offset)\n",
        "        return history.kraft_version, history.voters\n",
    ),
    mutant(
        "history_trimmed_to_nothing",
        "the last voter set before a snapshot is kept",
        "history",
        "    return entries[keep:]\n",
        "    return [entry for entry in entries if entry[0] >= start_offset]\n",
    ),
    mutant(
        "change_answered_before_commit",
        "a change is answered when it is committed",
        "membership",
        """        if core.high_watermark <= change.offset:
            return False
        _finish""",
        "        _finish",
    ),
    mutant(
        "removed_leader_stays",
        "a leader that is removed hands over (KAFKA-17608)",
        "membership",
        """        if not core.is_voter:
            replication.resign(core, "the record that removes this leader is committed")
""",
        "",
        "    return not core.is_voter and _is_quiet(core, leader)\n",
        "    return False\n",
    ),
    mutant(
        "last_voter_can_go",
        "the last voter cannot be removed, not even by force",
        "preconditions",
        "    if len(core.voters) == 1:\n",
        "    if False:\n",
    ),
    mutant(
        "removal_that_cannot_commit",
        "a removal after which the voters that fetch are no majority is refused",
        "membership",
        "    if len(remaining) - len(silent) >= remaining.majority:\n",
        "    if True:\n",
    ),
    mutant(
        "removal_of_any_directory",
        "a removal names the id and the directory",
        "preconditions",
        '    if core.voters.find(request.voter) is None:\n        text = f"{request.voter} is not in',
        '    if core.voters.get(request.voter.id) is None:\n        text = f"{request.voter} is not in',
    ),
    mutant(
        "same_id_added_twice",
        "an id is in the voter set once",
        "preconditions",
        '    if known is not None:\n        text = f"{known.key} is a voter',
        '    if False:\n        text = f"{request.voter} is a voter',
    ),
    mutant(
        "catch_up_of_any_directory",
        "the replica that is added has caught up, not another with its id",
        "membership",
        "            return is_caught_up(core, leader.replicas.get(request.voter))\n",
        """            same_id = [p for k, p in leader.replicas.items() if k.id == request.voter.id]
            return is_caught_up(core, max(same_id, key=lambda p: p.last_caught_up_ms, default=None))
""",
    ),
    mutant(
        "voter_added_before_it_caught_up",
        "a new voter has caught up (KAFKA-19400)",
        "preconditions",
        """    if progress is None or progress.last_caught_up_ms < 0 or progress.is_copied:
        return False
    return core.now_ms - progress.last_caught_up_ms <= core.config.fetch_timeout_ms
""",
        "    return True\n",
    ),
    mutant(
        "first_leader_writes_no_voters",
        "the bootstrap's voters are replicated",
        "leader",
        "    if core.history.kraft_version >= 1 and core.history.voters_offset < 0:\n",
        "    if False:\n",
    ),
    mutant(
        "upgrade_without_voters",
        "the upgrade to kraft.version 1 writes the voters with it",
        "membership",
        "core.append_control((KRaftVersion(request.level), VotersRecord(voters)))",
        "core.append_control((KRaftVersion(request.level),))",
    ),
    mutant(
        "new_endpoints_are_not_told",
        "a voter tells its new endpoints (KIP-853 UpdateVoter)",
        "follower",
        "        needed = entry != mine\n",
        "        needed = False\n",
    ),
    mutant(
        "leader_keeps_its_old_endpoints",
        "a leader writes its own new endpoints (KIP-853 UpdateVoter)",
        "membership",
        "    if not mine.endpoints or core.voters.get(core.local.id) == mine:\n",
        "    if True:\n",
    ),
    mutant(
        "leader_updates_itself_once",
        "a leader whose update timed out behind another change asks again",
        "leader",
        "        membership.leader_updates_itself(core, leader)\n    membership.tick(core)\n",
        "    membership.tick(core)\n",
    ),
    mutant(
        "changes_queue_behind_the_first",
        "a change that waits for its voter lets later ones pass",
        "membership",
        "    for change in tuple(leader.changes):\n        moved = ",
        "    for change in tuple(leader.changes)[:1]:\n        moved = ",
    ),
    mutant(
        "change_checked_only_once",
        "what a change must meet is checked again before it is appended",
        "membership",
        "    decision = decide(core, leader, change)\n",
        """    is_probed = change.kraft_version is not None
    decision = None if is_probed else decide(core, leader, change)
""",
    ),
    mutant(
        "adds_without_limit",
        "a limited number of AddVoters waits",
        "membership",
        "        if waiting >= core.config.pending_adds_max:\n",
        "        if False:\n",
    ),
    mutant(
        "cancelled_change_goes_on",
        "a change whose sender disconnected is dropped, and not answered",
        "node",
        "            membership.cancel(core.role, request_id)\n",
        "",
    ),
    mutant(
        "voters_in_force_are_not_looked_up",
        "a record of the voters is in force for everything that asks who votes",
        "core",
        "        was_voter, before = self.is_voter, self.voters\n        self._know_voters()\n",
        "        was_voter, before = self.is_voter, self.voters\n",
    ),
)

SNAPSHOTS = (
    mutant(
        "snapshot_with_an_old_end_is_loaded",
        "no snapshot that ends before the high watermark is loaded, nor offered to who diverges",
        "follower",
        "    if snapshot.offset < oldest or snapshot.epoch > core.epoch:\n",
        "    if False:\n",
        also=(
            (
                "logstate",
                "            return Diverging(end)\n",
                """            is_there = self.snapshot is not None and self.snapshot != BOOTSTRAP_SNAPSHOT
            return BehindSnapshot(self.snapshot) if is_there else Diverging(end)
""",
            ),
        ),
    ),
    mutant(
        "fetching_while_installing",
        "who installs a snapshot fetches nothing",
        "follower",
        "core.shutting_down or core.installing is not None:\n",
        "core.shutting_down:\n",
    ),
    mutant(
        "electing_while_installing",
        "who installs a snapshot elects nobody",
        "core",
        "        if self.shutting_down or self.installing is not None:\n",
        "        if self.shutting_down:\n",
    ),
    mutant(
        "behind_the_log_start_is_not_noticed",
        "who is behind the log's start gets the snapshot",
        "logstate",
        "                return BehindSnapshot(self.snapshot)\n",
        "                return VALID\n",
    ),
    mutant(
        "log_start_without_its_epoch",
        "the epoch before the log's start is known",
        "logstate",
        """            self._starts[0] = max(self._starts[0], start.offset)
        self.start = start
""",
        """            self._starts[0] = max(self._starts[0], start.offset)
        self.start = OffsetAndEpoch(start.offset, 0)
""",
    ),
    mutant(
        "installed_snapshot_has_no_epoch",
        "an installed snapshot's epoch is the log's last",
        "logstate",
        "        self.start = self.snapshot = snapshot\n",
        "        self.snapshot = snapshot\n        self.start = OffsetAndEpoch(snapshot.offset, 0)\n",
        "        self._epochs, self._starts = [snapshot.epoch], [snapshot.offset]\n",
        "        self._epochs, self._starts = [], []\n",
    ),
)
