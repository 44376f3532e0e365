"""Mutants of elections: votes, pre-votes, epochs."""

# ruff: noqa: E501 - the changes quote lines of the protocol with their indentation
from __future__ import annotations

from tests.simulation.mutants.mutant import FORGETTING, mutant

_ADOPT = """    if response.acknowledged is not None:
        required_end.adopt(core, response.acknowledged)
"""

_UP_TO_DATE = """    up_to_date = (request.last_epoch, request.last_offset) >= (
        core.log.last_epoch,
        core.log.end_offset,
    )
"""

_NEVER_ASKED = (
    "election",
    "        core.stand_at_ms = core.election_deadline()\n",
    "        pass\n",
)
"""Nobody stands because a candidate asked for its vote."""

ELECTIONS = (
    mutant(
        "elections_without_log_comparison",
        "votes and pre-votes go only to a log that is at least as long",
        "election",
        _UP_TO_DATE,
        "    up_to_date = True\n",
    ),
    mutant(
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
    mutant(
        "vote_compares_offsets_only",
        "a later last epoch beats a longer log",
        "election",
        _UP_TO_DATE,
        """    up_to_date = request.last_offset >= core.log.end_offset
""",
    ),
    mutant(
        "vote_compares_epochs_only",
        "of two logs of one last epoch the longer wins",
        "election",
        _UP_TO_DATE,
        """    up_to_date = request.last_epoch >= core.log.last_epoch
""",
    ),
    mutant(
        "vote_twice",
        "one vote in an epoch",
        "election",
        """    if role.voted is not None:
        return same_replica(role.voted, request.candidate)
""",
        "",
    ),
    mutant(
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
    mutant(
        "vote_meant_for_the_old_disk",
        "a request for another directory gets no vote (KAFKA-14077)",
        "election",
        """    return addressed.directory_id is None or addressed.directory_id == core.local.directory_id
""",
        """    return True
""",
    ),
    mutant(
        "vote_in_older_epochs",
        "an epoch below ours is fenced",
        "election",
        """    if request.epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not sound or request""",
        """    if not sound or request""",
    ),
    mutant(
        "answers_outlive_their_epoch",
        "a grant counts in the epoch it was asked in, and what was asked in another is forgotten",
        "election",
        """    if not isinstance(role, Prospective | Candidate) or request.epoch != role.epoch:
""",
        """    if not isinstance(role, Prospective | Candidate):
""",
        also=(FORGETTING,),
    ),
    mutant(
        "elected_one_short_of_a_majority",
        "a majority of the voters elects",
        "roles",
        "if needs_all else voters.majority\n",
        "if needs_all else max(1, voters.majority - 1)\n",
    ),
    mutant(
        "half_is_a_majority",
        "a majority is more than half",
        "types",
        '"majority", len(ordered) // 2 + 1)',
        '"majority", max(1, (len(ordered) + 1) // 2))',
    ),
    mutant(
        "candidate_counts_itself_always",
        "a replica counts its own vote only if it is in the set",
        "roles",
        "{local.id} if local in voters else set()",
        "{local.id}",
    ),
    mutant(
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
    mutant(
        "vote_is_not_persisted",
        "a vote survives a restart",
        "core",
        """        if state != self.persisted:
            if""",
        """        if self.persisted is None or state.epoch != self.persisted.epoch:
            if""",
    ),
    mutant(
        "candidate_forgets_its_own_vote",
        "a candidate's vote for itself survives a restart",
        "core",
        "            return ElectionState(role.epoch, None, self.local)\n",
        "            return ElectionState(role.epoch, None, None)\n",
    ),
    mutant(
        "vote_forgotten_at_restart",
        "what was voted is read back",
        "core",
        "        return Unattached(state.epoch, leader_id, state.voted, deadline)\n",
        "        return Unattached(state.epoch, leader_id, None, deadline)\n",
    ),
    mutant(
        "vote_lost_when_pre_voting",
        "a pre-vote does not forget the vote",
        "election",
        "        leader_id, voted = old.leader_id, old.voted\n",
        "        leader_id, voted = old.leader_id, None\n",
    ),
    mutant(
        "pre_vote_by_attached_followers",
        "who fetches from a leader grants no pre-vote",
        "election",
        "            return up_to_date and not _hears_leader(core, role)\n",
        "            return up_to_date\n",
    ),
    mutant(
        "no_pre_vote",
        "nobody's epoch moves before a majority would vote",
        "election",
        "    if elect_now or ballot.is_won:\n",
        "    if True:\n",
    ),
    mutant(
        "no_check_quorum",
        "a leader that hears no majority resigns (KAFKA-15489)",
        "leader",
        """        replication.resign(core, "no majority of the voters fetched in time")
        return
""",
        "        leader.check_quorum_deadline_ms = now + 3_600_000\n",
    ),
    mutant(
        "single_voter_checks_quorum",
        "a single voter has nobody to lose (KAFKA-16144)",
        "replication",
        "    return core.voters.is_only(core.local) and core.is_voter\n",
        "    return False\n",
    ),
    mutant(
        "no_fetch_timeout",
        "a follower whose leader is silent elects",
        "node",
        "        return self._core.may_elect and self._core.now_ms >= role.fetch_deadline_ms\n",
        "        return False\n",
    ),
    mutant(
        "leader_that_never_answered_is_followed_again",
        "who loses a pre-vote follows only a leader that answers",
        "election",
        "    if role.leader_id is not None and role.leader_endpoints and role.leader_answered:\n",
        "    if role.leader_id is not None and role.leader_endpoints:\n",
    ),
    mutant(
        "removed_replica_never_elects",
        "who is out by a record that is not committed may have to lead (Ongaro 4.2.2), by itself or asked",
        "core",
        "        return any(self.local in voters for voters in self.history.since(self.high_watermark))\n",
        "        return False\n",
        also=(_NEVER_ASKED,),
    ),
    mutant(
        "removed_replica_elects_by_what_is_committed",
        "after a restart nothing is known to be committed, so any set of the log may be; or who is asked",
        "core",
        "        return any(self.local in voters for voters in self.history.since(self.high_watermark))\n",
        "        return self.local in self.history.voters_at(self.high_watermark)\n",
        also=(_NEVER_ASKED,),
    ),
    mutant(
        "resigned_single_voter_elects_at_once",
        "a reason to resign that stays does not spin",
        "replication",
        "max(core.election_deadline(), core.now_ms + core.config.election_timeout_ms)",
        "core.election_deadline()",
    ),
    mutant(
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

LOST_RECORDS = (
    mutant(
        "vote_ignores_the_required_end",
        "who may have lost records votes as if it still had them",
        "election",
        "    only_if_all = required_end.restricts_vote(core, request)\n",
        "    only_if_all = False\n",
    ),
    mutant(
        "required_end_wins_by_a_majority",
        "who may have lost records wins only with the votes of all voters",
        "required_end",
        "needs_all=core.required_end is not None",
        "needs_all=False",
    ),
    mutant(
        "conditional_votes_count_always",
        "a conditional vote counts only with the votes of all voters",
        "election",
        "        role.ballot.grant_if_all(request.voter.id)\n",
        "        role.ballot.grant(request.voter.id)\n",
    ),
    mutant(
        "no_conditional_votes",
        "after a power failure of all replicas the longest log wins",
        "election",
        "granted_if_all=granted and only_if_all",
        "granted_if_all=False",
    ),
    mutant(
        "conditional_votes_without_the_voters",
        "who may have lost a voter set gives no conditional vote",
        "election",
        "        granted = granted and core.required_end.may_stand\n",
        "        pass\n",
    ),
    mutant(
        "stands_without_the_voters",
        "who may have lost a voter set does not stand",
        "core",
        """        if self.required_end is not None and not self.required_end.may_stand:
            return False
""",
        "",
    ),
    mutant(
        "required_end_is_forgotten",
        "the required end survives a restart",
        "core",
        "        self.emit(PersistRequiredEnd(required_end))\n",
        "",
    ),
    mutant(
        "required_end_lifted_before_durable",
        "the required end is lifted when the durable log reaches it",
        "required_end",
        "    if _is_below(log.epoch_before(log.durable_end), log.durable_end, required.end):\n",
        "    if _is_below(log.last_epoch, log.end_offset, required.end):\n",
        also=(
            (
                "follower",
                "        core.append(batches if good == len(batches) else batches[:good])\n",
                """        core.append(batches if good == len(batches) else batches[:good])
        required_end.clear_if_reached(core)
""",
            ),
        ),
    ),
    mutant(
        "required_end_adopted_late",
        "what the leader tells of lost records is in force before its answer is taken",
        "follower",
        _ADOPT,
        "",
        "        core.advance_high_watermark(offset)\n",
        "        core.advance_high_watermark(offset)\n" + _ADOPT,
    ),
    mutant(
        "loss_is_not_told",
        "the leader tells a replica that lost what it acknowledged",
        "leader",
        "    if request.offset < progress.promised:\n",
        "    if False:\n",
    ),
    mutant(
        "restarted_leader_is_silent",
        "a leader that restarts tells the voters",
        "core",
        "            unacknowledged = {key.id: self.now_ms for key in preferred}\n",
        "            unacknowledged = {}\n",
    ),
    mutant(
        "brokers_stand",
        "a broker never stands for election",
        "core",
        "        self.is_voter = self.config.can_vote and self.local in self.voters\n",
        "        self.is_voter = self.local in self.voters\n",
    ),
    mutant(
        "brokers_stand_when_asked",
        "a broker does not stand when a candidate asks for its vote",
        "election",
        "    if core.is_electable or not core.config.can_vote or request",
        "    if core.is_electable or request",
    ),
    mutant(
        "brokers_vote",
        "a broker never votes",
        "election",
        "    granted = core.config.can_vote and _can_grant(",
        "    granted = _can_grant(",
    ),
)
