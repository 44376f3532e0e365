"""Mutants of replication, commit and reads."""

from __future__ import annotations

from tests.simulation.mutants.mutant import FORGETTING, mutant

REPLICATION = (
    mutant(
        "commit_by_counting_old_epochs",
        "the high watermark needs a record of this epoch",
        "replication",
        "    return offset > leader.epoch_start_offset and core.advance_high_watermark(offset)\n",
        "    return core.advance_high_watermark(offset)\n",
    ),
    mutant(
        "commit_one_short_of_a_majority",
        "a majority of the voters commits",
        "replication",
        "    missing = len(values) - core.voters.majority\n",
        "    missing = len(values) - max(1, core.voters.majority - 1)\n",
    ),
    mutant(
        "leader_counts_its_unsynced_tail",
        "the leader counts itself up to its durable end",
        "replication",
        "        held.append(core.log.durable_end)\n",
        "        held.append(core.log.end_offset)\n",
    ),
    mutant(
        "removed_leader_counts_itself",
        "a leader that is no voter does not count itself",
        "replication",
        """    if core.is_voter:
        held.append(core.log.durable_end)
""",
        """    held.append(core.log.durable_end)
""",
    ),
    mutant(
        "fetch_of_any_directory_counts",
        "an acknowledgement is of this (id, directory id) and no other",
        "replication",
        """    if voter.key.directory_id is not None:
        return leader.replicas.get(voter.key)
    same_id""",
        """    same_id""",
        "    if leader.tracked_set is core.voters:\n",
        "    if False:\n",
    ),
    mutant(
        "voters_counted_once_and_for_all",
        "whose acknowledgements count is looked up anew for another voter set",
        "replication",
        "    if leader.tracked_set is core.voters:\n",
        "    if leader.tracked_set is not None:\n",
        "        leader.tracked_set = None\n",
        """        if not leader.tracked:
            leader.tracked_set = None
""",
    ),
    mutant(
        "fetch_before_durable",
        "a follower syncs before its next Fetch acknowledges",
        "follower",
        "        elif core.log.is_durable:\n",
        "        else:\n",
    ),
    mutant(
        "any_ticket_makes_all_durable",
        "a ticket makes durable what came before it, not after",
        "logstate",
        "            self.durable_end = self._unsynced.popleft()[1]\n",
        """            self._unsynced.popleft()
            self.durable_end = self.end_offset
""",
    ),
    mutant(
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
    mutant(
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
    mutant(
        "divergence_ignored",
        "a Fetch position must be in the leader's log",
        "logstate",
        "        if end.epoch != last_epoch or offset > end.offset:\n",
        "        if False:\n",
    ),
    mutant(
        "divergence_by_offset_only",
        "the last epoch must be the leader's too",
        "logstate",
        "        if end.epoch != last_epoch or offset > end.offset:\n",
        "        if offset > self.end_offset:\n",
    ),
    mutant(
        "fetch_acknowledges_before_validation",
        "a position that diverges acknowledges nothing",
        "replication",
        "        progress.endpoints = request.endpoints or progress.endpoints\n",
        """        progress.endpoints = request.endpoints or progress.endpoints
        progress.end_offset = request.offset
""",
    ),
    mutant(
        "fetch_of_older_epochs_is_served",
        "a Fetch is of the leader's epoch",
        "replication",
        """    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
""",
        "",
    ),
    mutant(
        "answers_of_older_epochs_are_taken",
        "an answer is of the epoch in which it was asked for, and of the fetch under way",
        "follower",
        "role.epoch == request.epoch == leader.epoch:\n",
        "True:\n",
        also=(
            FORGETTING,
            (
                "node",
                "if isinstance(response, FetchResponse) and request_id == core.fetch_id:\n",
                "if isinstance(response, FetchResponse):\n",
            ),
        ),
    ),
    mutant(
        "follower_commits_its_whole_log",
        "a follower's high watermark is its leader's",
        "follower",
        "        core.advance_high_watermark(offset)\n",
        "        core.advance_high_watermark(core.log.end_offset)\n",
    ),
    mutant(
        "high_watermark_goes_back",
        "the high watermark never decreases (KAFKA-16530)",
        "core",
        "        if offset <= self.high_watermark:\n            return False\n        assert",
        "        if offset == self.high_watermark:\n            return False\n        assert",
    ),
    mutant(
        "deposed_leader_keeps_its_waiters",
        "what a deposed leader did not commit has an unknown outcome",
        "core",
        "        self.emit(LeadershipLost(old.epoch))\n",
        "",
    ),
    mutant(
        "leadership_lost_answers_nobody",
        "requests that wait for a former leader are answered",
        "core",
        """        for read in old.reads:
            self.respond(read.request_id, ReadIndexResponse(error, leader))
""",
        "",
    ),
)

READS = (
    mutant(
        "read_without_a_majority",
        "a leader confirms itself before it answers a read",
        "reads",
        "    return replication.reached_by_majority(core, rounds)\n",
        "    return leader.read_round\n",
    ),
    mutant(
        "read_before_the_epoch_commits",
        "a new leader's high watermark may be older than what is committed",
        "reads",
        "    if core.high_watermark <= leader.epoch_start_offset:\n",
        "    if False:\n",
    ),
    mutant(
        "read_round_of_the_past_counts",
        "a read waits for a round that began after it",
        "reads",
        "    leader.read_round += 1\n",
        "    leader.read_round = max(1, leader.read_round)\n",
    ),
    mutant(
        "read_counts_another_round",
        "a round confirms the reads that it was begun for",
        "reads",
        "0 <= leader.reads[0].round <= confirmed:\n",
        "0 <= leader.reads[0].round <= confirmed + 1:\n",
    ),
    mutant(
        "read_counts_a_removed_leader",
        "a leader that is no voter does not confirm itself",
        "reads",
        "    if core.is_voter:\n        rounds.append(leader.read_round)\n",
        "    rounds.append(leader.read_round)\n",
    ),
    mutant(
        "cancelled_read_goes_on",
        "a read or transfer whose sender disconnected is dropped, and not answered",
        "node",
        "            reads.cancel(core.role, request_id)\n",
        "",
    ),
)

TRANSFERS = (
    mutant(
        "transfer_to_the_silent",
        "a leader resigns for a voter that fetches, and has fetched since it was asked",
        "reads",
        "        code, text = _not_ready(core, leader, target)\n",
        "",
        "    if progress is None or progress.read_round < transfer.round:\n",
        "    if progress is None:\n",
    ),
    mutant(
        "transfer_refuses_appends_for_long",
        "a transfer refuses appends for an election timeout at most",
        "reads",
        "min(request.timeout_ms, core.config.election_timeout_ms)",
        "request.timeout_ms",
    ),
)
