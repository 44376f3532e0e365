"""The mutants: each removes or weakens one guard of the protocol."""

# ruff: noqa: E501 - the changes quote lines of the protocol with their indentation
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one module of `quorate.raft`.

    rule: the guard that is gone. changes: (old text, new text), each of which applies exactly once.
    """

    name: str
    rule: str
    module: str
    changes: tuple[tuple[str, str], ...]


def _mutant(name: str, rule: str, module: str, *changes: str) -> Mutant:
    pairs = tuple(zip(changes[::2], changes[1::2], strict=True))
    return Mutant(name, rule, module, pairs)


ELECTIONS = (
    _mutant(
        "vote_without_log_comparison",
        "a vote goes only to a log that is at least as long",
        "election",
        """    if role.leader_id is not None:
        return False
    return up_to_date
""",
        """    if role.leader_id is not None:
        return False
    return True
""",
    ),
    _mutant(
        "vote_compares_offsets_only",
        "a later last epoch beats a longer log",
        "election",
        """    up_to_date = (request.last_epoch, request.last_offset) >= (
        core.log.last_epoch,
        core.log.end_offset,
    )
""",
        """    up_to_date = request.last_offset >= core.log.end_offset
""",
    ),
    _mutant(
        "vote_compares_epochs_only",
        "of two logs of one last epoch the longer wins",
        "election",
        """    up_to_date = (request.last_epoch, request.last_offset) >= (
        core.log.last_epoch,
        core.log.end_offset,
    )
""",
        """    up_to_date = request.last_epoch >= core.log.last_epoch
""",
    ),
    _mutant(
        "vote_twice",
        "one vote in an epoch",
        "election",
        """    if role.voted is not None:
        return same_replica(role.voted, request.candidate)
""",
        "",
    ),
    _mutant(
        "vote_for_any_directory",
        "the vote is for a replica, not for an id",
        "election",
        """        return same_replica(role.voted, request.candidate)
""",
        """        return role.voted.id == request.candidate.id
""",
    ),
    _mutant(
        "vote_by_candidates",
        "a candidate has voted for itself",
        "election",
        """    if isinstance(role, Candidate | Resigned):
        return False
""",
        """    if isinstance(role, Candidate | Resigned):
        return up_to_date
""",
    ),
    _mutant(
        "vote_meant_for_the_old_disk",
        "a request for another directory gets no vote (KAFKA-14077)",
        "election",
        """    return addressed.directory_id is None or addressed.directory_id == core.local.directory_id
""",
        """    return True
""",
    ),
    _mutant(
        "vote_in_older_epochs",
        "an epoch below ours is fenced",
        "election",
        """    if request.epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not sound or request""",
        """    if not sound or request""",
    ),
    _mutant(
        "votes_of_an_older_election_count",
        "a grant counts in the epoch it was asked in",
        "election",
        """    if not isinstance(role, Prospective | Candidate) or request.epoch != role.epoch:
""",
        """    if not isinstance(role, Prospective | Candidate):
""",
    ),
    _mutant(
        "elected_one_short_of_a_majority",
        "a majority of the voters elects",
        "roles",
        "        return len(self.granted) >= self.voters.majority\n",
        "        return len(self.granted) >= max(1, self.voters.majority - 1)\n",
    ),
    _mutant(
        "half_is_a_majority",
        "a majority is more than half",
        "types",
        "        return len(self.voters) // 2 + 1\n",
        "        return max(1, (len(self.voters) + 1) // 2)\n",
    ),
    _mutant(
        "candidate_counts_itself_always",
        "a replica counts its own vote only if it is in the set",
        "roles",
        "{local.id} if local in voters else set()",
        "{local.id}",
    ),
    _mutant(
        "answer_before_quorum_state",
        "quorum-state is durable before the answer leaves",
        "node",
        """        outputs, self._core.outputs = self._core.outputs, []
        return outputs
""",
        """        outputs, self._core.outputs = self._core.outputs, []
        return sorted(outputs, key=lambda output: type(output).__name__ == "PersistElection")
""",
    ),
    _mutant(
        "vote_is_not_persisted",
        "a vote survives a restart",
        "core",
        """        if state != self.persisted:
            if""",
        """        if self.persisted is None or state.epoch != self.persisted.epoch:
            if""",
    ),
    _mutant(
        "candidate_forgets_its_own_vote",
        "a candidate's vote for itself survives a restart",
        "core",
        "            return ElectionState(role.epoch, None, self.local)\n",
        "            return ElectionState(role.epoch, None, None)\n",
    ),
    _mutant(
        "vote_forgotten_at_restart",
        "what was voted is read back",
        "core",
        "        return Unattached(state.epoch, leader_id, state.voted, deadline)\n",
        "        return Unattached(state.epoch, leader_id, None, deadline)\n",
    ),
    _mutant(
        "vote_lost_when_pre_voting",
        "a pre-vote does not forget the vote",
        "election",
        "        leader_id, voted = old.leader_id, old.voted\n",
        "        leader_id, voted = old.leader_id, None\n",
    ),
    _mutant(
        "pre_vote_by_attached_followers",
        "who fetches from a leader grants no pre-vote",
        "election",
        "            return up_to_date and not hears_leader\n",
        "            return up_to_date\n",
    ),
    _mutant(
        "no_pre_vote",
        "nobody's epoch moves before a majority would vote",
        "election",
        "    if elect_now or ballot.is_won:\n",
        "    if True:\n",
    ),
    _mutant(
        "no_check_quorum",
        "a leader that hears no majority resigns (KAFKA-15489)",
        "leader",
        "    if not replication.is_alone(core) and now >= leader.check_quorum_deadline_ms:\n",
        "    if False:\n",
    ),
    _mutant(
        "single_voter_checks_quorum",
        "a single voter has nobody to lose (KAFKA-16144)",
        "replication",
        "    return core.voters.is_only(core.local) and core.is_voter\n",
        "    return False\n",
    ),
    _mutant(
        "no_fetch_timeout",
        "a follower whose leader is silent elects",
        "node",
        "        return self._core.may_elect and self._core.now_ms >= role.fetch_deadline_ms\n",
        "        return False\n",
    ),
    _mutant(
        "removed_replica_never_elects",
        "who is out by a record that is not committed may have to lead (Ongaro 4.2.2)",
        "core",
        "        return uncommitted and self.local in history.voters_at(self.high_watermark)\n",
        "        return False\n",
    ),
    _mutant(
        "resigned_single_voter_elects_at_once",
        "a reason to resign that stays does not spin",
        "replication",
        "max(core.election_deadline(), core.now_ms + core.config.election_timeout_ms)",
        "core.election_deadline()",
    ),
    _mutant(
        "ex_leader_votes_in_its_epoch",
        "who led an epoch grants nothing in it after a restart",
        "core",
        """        if state.leader_id == self.local.id and self.is_voter:
""",
        """        if state.leader_id == self.local.id and self.is_voter:
            state = ElectionState(state.epoch)
        if False:
""",
    ),
)

REPLICATION = (
    _mutant(
        "commit_by_counting_old_epochs",
        "the high watermark needs a record of this epoch",
        "replication",
        "    return offset > leader.epoch_start_offset and core.advance_high_watermark(offset)\n",
        "    return core.advance_high_watermark(offset)\n",
    ),
    _mutant(
        "commit_one_short_of_a_majority",
        "a majority of the voters commits",
        "replication",
        "    offset = held[core.voters.majority - 1]\n",
        "    offset = held[max(0, core.voters.majority - 2)]\n",
    ),
    _mutant(
        "leader_counts_its_unsynced_tail",
        "the leader counts itself up to its durable end",
        "replication",
        "        return core.log.durable_end if core.local in core.voters else -1\n",
        "        return core.log.end_offset if core.local in core.voters else -1\n",
    ),
    _mutant(
        "removed_leader_counts_itself",
        "a leader that is no voter does not count itself",
        "replication",
        """    held = sorted((acknowledged(core, leader, voter) for voter in core.voters), reverse=True)
""",
        """    others = [v for v in core.voters if v.id != core.local.id]
    held = sorted([acknowledged(core, leader, v) for v in others] + [core.log.durable_end])[::-1]
""",
    ),
    _mutant(
        "fetch_of_any_directory_counts",
        "an acknowledgement is of this (id, directory id) and no other",
        "replication",
        """    if voter.key.directory_id is not None:
        return leader.replicas.get(voter.key)
    same_id""",
        """    same_id""",
    ),
    _mutant(
        "fetch_before_durable",
        "a follower syncs before its next Fetch acknowledges",
        "follower",
        """    if not core.log.is_durable:
        return
""",
        "",
    ),
    _mutant(
        "any_ticket_makes_all_durable",
        "a ticket makes durable what came before it, not after",
        "logstate",
        "            self.durable_end = self._unsynced.popleft()[1]\n",
        """            self._unsynced.popleft()
            self.durable_end = self.end_offset
""",
    ),
    _mutant(
        "truncation_keeps_the_durable_end",
        "what is truncated is not durable any more",
        "logstate",
        """        self.end_offset = end_offset
        self.durable_end = min(self.durable_end, end_offset)
        self._unsynced = deque((t, min(end, end_offset)) for t, end in self._unsynced)
        return self._new_ticket()

    def reset_to""",
        """        self.end_offset = end_offset
        return self._new_ticket()

    def reset_to""",
    ),
    _mutant(
        "truncation_keeps_the_epochs",
        "what is truncated has no epochs any more",
        "logstate",
        """        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = end_offset
""",
        """        self.end_offset = end_offset
""",
    ),
    _mutant(
        "divergence_ignored",
        "a Fetch position must be in the leader's log",
        "logstate",
        "        if end.epoch != last_epoch or offset > end.offset:\n",
        "        if False:\n",
    ),
    _mutant(
        "divergence_by_offset_only",
        "the last epoch must be the leader's too",
        "logstate",
        "        if end.epoch != last_epoch or offset > end.offset:\n",
        "        if offset > self.end_offset:\n",
    ),
    _mutant(
        "fetch_acknowledges_before_validation",
        "a position that diverges acknowledges nothing",
        "replication",
        "        progress.endpoints = request.endpoints or progress.endpoints\n",
        """        progress.endpoints = request.endpoints or progress.endpoints
        progress.end_offset = request.offset
""",
    ),
    _mutant(
        "fetch_of_older_epochs_is_served",
        "a Fetch is of the leader's epoch",
        "replication",
        """    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
""",
        "",
    ),
    _mutant(
        "answers_of_older_epochs_are_taken",
        "an answer is of the epoch in which it was asked for",
        "follower",
        "role.epoch == request.epoch == leader.epoch:\n",
        "True:\n",
    ),
    _mutant(
        "follower_commits_its_whole_log",
        "a follower's high watermark is its leader's",
        "follower",
        "        core.advance_high_watermark(min(response.high_watermark, core.log.end_offset))\n",
        "        core.advance_high_watermark(core.log.end_offset)\n",
    ),
    _mutant(
        "high_watermark_goes_back",
        "the high watermark never decreases (KAFKA-16530)",
        "core",
        "        if offset <= self.high_watermark:\n            return False\n        assert",
        "        if offset == self.high_watermark:\n            return False\n        assert",
    ),
    _mutant(
        "deposed_leader_keeps_its_waiters",
        "what a deposed leader did not commit has an unknown outcome",
        "core",
        "        self.emit(LeadershipLost(old.epoch))\n",
        "",
    ),
    _mutant(
        "leadership_lost_answers_nobody",
        "nobody who waits for an old leader is left waiting",
        "core",
        """        for read in old.reads:
            self.respond(read.request_id, ReadIndexResponse(error, leader))
""",
        "",
    ),
)

READS = (
    _mutant(
        "read_without_a_majority",
        "a leader confirms itself before it answers a read",
        "reads",
        "    return rounds[core.voters.majority - 1]\n",
        "    return leader.read_round\n",
    ),
    _mutant(
        "read_before_the_epoch_commits",
        "a new leader's high watermark may be older than what is committed",
        "reads",
        "    if core.high_watermark <= leader.epoch_start_offset:\n",
        "    if False:\n",
    ),
    _mutant(
        "read_round_of_the_past_counts",
        "a read waits for a round that began after it",
        "reads",
        "    leader.read_round += 1\n",
        "    leader.read_round = max(1, leader.read_round)\n",
    ),
)

MEMBERSHIP = (
    _mutant(
        "change_before_this_epoch_committed",
        "a change waits for a committed record of this epoch (Ongaro's bug)",
        "membership",
        "    return epoch_committed and core.history.last_change_offset < core.high_watermark\n",
        "    return core.history.last_change_offset < core.high_watermark\n",
    ),
    _mutant(
        "two_uncommitted_changes",
        "one uncommitted change at a time",
        "membership",
        "    return epoch_committed and core.history.last_change_offset < core.high_watermark\n",
        "    return epoch_committed\n",
    ),
    _mutant(
        "voters_in_force_on_commit",
        "a voter set is in force when it is appended",
        "core",
        """        return self.history.voters

    @property
    def is_voter(""",
        """        return self.history.voters_at(self.high_watermark)

    @property
    def is_voter(""",
    ),
    _mutant(
        "truncated_voters_stay",
        "a truncated voter set is rolled back",
        "core",
        "        if self.history.truncate(end_offset):\n",
        "        if False:\n",
    ),
    _mutant(
        "snapshot_brings_no_voters",
        "an installed snapshot brings the voter set",
        "follower",
        "    core.history.reset(voters, kraft_versions)\n",
        "    core.history.reset((), ())\n",
    ),
    _mutant(
        "snapshot_keeps_the_old_voters",
        "an installed snapshot replaces the voter set history",
        "follower",
        "    core.history.reset(voters, kraft_versions)\n",
        "",
    ),
    _mutant(
        "snapshot_with_uncommitted_voters",
        "a snapshot holds the voters of its end offset",
        "node",
        "        return history.kraft_version_at(end_offset), history.voters_at(end_offset)\n",
        "        return history.kraft_version, history.voters\n",
    ),
    _mutant(
        "history_trimmed_to_nothing",
        "the last voter set before a snapshot is kept",
        "history",
        "    return entries[keep:]\n",
        "    return [entry for entry in entries if entry[0] >= start_offset]\n",
    ),
    _mutant(
        "change_answered_before_commit",
        "a change is answered when it is committed",
        "membership",
        """            if core.high_watermark <= change.offset:
                return False
""",
        "",
    ),
    _mutant(
        "removed_leader_stays",
        "a leader that is removed hands over (KAFKA-17608)",
        "membership",
        """            if not core.is_voter:
                replication.resign(core, "the record that removes this leader is committed")
""",
        "",
        "    return not core.is_voter and _is_quiet(core, leader)\n",
        "    return False\n",
    ),
    _mutant(
        "last_voter_can_go",
        "the last voter cannot be removed",
        "membership",
        "    if len(core.voters) == 1:\n",
        "    if False:\n",
    ),
    _mutant(
        "removal_of_any_directory",
        "a removal names the id and the directory",
        "membership",
        '    if core.voters.find(request.voter) is None:\n        text = f"{request.voter} is not in',
        '    if core.voters.get(request.voter.id) is None:\n        text = f"{request.voter} is not in',
    ),
    _mutant(
        "same_id_added_twice",
        "an id is in the voter set once",
        "membership",
        '    if known is not None:\n        text = f"{known.key} is a voter',
        '    if False:\n        text = f"{request.voter} is a voter',
    ),
    _mutant(
        "voter_added_before_it_caught_up",
        "a new voter has caught up (KAFKA-19400)",
        "membership",
        """    if progress is None or progress.last_caught_up_ms < 0:
        return False
    return core.now_ms - progress.last_caught_up_ms <= core.config.fetch_timeout_ms
""",
        "    return True\n",
    ),
    _mutant(
        "first_leader_writes_no_voters",
        "the bootstrap's voters are replicated",
        "leader",
        "    if core.history.kraft_version >= 1 and core.history.voters_offset < 0:\n",
        "    if False:\n",
    ),
    _mutant(
        "upgrade_without_voters",
        "the upgrade to kraft.version 1 writes the voters with it",
        "membership",
        "core.append_control((KRaftVersion(request.level), Voters(voters)))",
        "core.append_control((KRaftVersion(request.level),))",
    ),
    _mutant(
        "new_endpoints_are_not_told",
        "a voter tells its new endpoints (KIP-853 UpdateVoter)",
        "follower",
        "        needed = entry != mine\n",
        "        needed = False\n",
    ),
)

SNAPSHOTS = (
    _mutant(
        "snapshot_with_an_old_end_is_loaded",
        "no snapshot that ends before the high watermark is loaded",
        "follower",
        "    if snapshot.offset < core.high_watermark or snapshot.epoch > core.epoch:\n",
        "    if False:\n",
    ),
    _mutant(
        "fetching_while_installing",
        "who installs a snapshot fetches nothing",
        "follower",
        "core.shutting_down or core.installing is not None:\n",
        "core.shutting_down:\n",
    ),
    _mutant(
        "electing_while_installing",
        "who installs a snapshot elects nobody",
        "core",
        "self.is_electable and not self.shutting_down and self.installing is None\n",
        "self.is_electable and not self.shutting_down\n",
    ),
    _mutant(
        "behind_the_log_start_is_not_noticed",
        "who is behind the log's start gets the snapshot",
        "logstate",
        "                return BehindSnapshot(self.snapshot)\n",
        "                return Valid()\n",
    ),
    _mutant(
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
    _mutant(
        "installed_snapshot_has_no_epoch",
        "an installed snapshot's epoch is the log's last",
        "logstate",
        "        self.start = self.snapshot = snapshot\n",
        "        self.snapshot = snapshot\n        self.start = OffsetAndEpoch(snapshot.offset, 0)\n",
        "        self._epochs, self._starts = [snapshot.epoch], [snapshot.offset]\n",
        "        self._epochs, self._starts = [], []\n",
    ),
)

MUTANTS = ELECTIONS + REPLICATION + READS + MEMBERSHIP + SNAPSHOTS
