"""Mutants of the limits to epochs, and of what protects a leader that works."""

from __future__ import annotations

from tests.simulation.mutants.mutant import mutant

EPOCHS = (
    mutant(
        "epochs_without_a_last_one",
        "no epoch above the last one is adopted",
        "epochs",
        "        if epoch > EPOCH_MAX:\n",
        "        if False:\n",
        "        if epoch <= EPOCH_MAX and origin",
        "        if origin",
    ),
    mutant(
        "epochs_without_a_budget",
        "a message raises the epoch by its sender's budget at most",
        "epochs",
        "        if raised_by > room:\n            if origin is Origin.MESSAGE:\n",
        "        if False:\n            if origin is Origin.MESSAGE:\n",
    ),
    mutant(
        "epoch_budget_is_not_spent",
        "a raise is paid from the budget",
        "epochs",
        "            budget.take(raised_by)\n",
        "            pass\n",
    ),
    mutant(
        "every_stranger_has_a_budget",
        "senders that are no voters have one budget together",
        "epochs",
        "        if sender is None or sender not in voter_ids:\n",
        "        if sender is None:\n",
    ),
    mutant(
        "large_raises_at_once",
        "one large raise per second and sender",
        "epochs",
        "        if is_large and now_ms",
        "        if False and now_ms",
    ),
    mutant(
        "requests_use_the_catch_up_budget",
        "only answers may raise the epoch by more than the sender's budget",
        "epochs",
        "            if origin is Origin.MESSAGE:\n",
        "            if False:\n",
    ),
    mutant(
        "answers_raise_without_end",
        "the budget of answers has an end as well",
        "epochs",
        "            if raised_by > room:\n",
        "            if False:\n",
    ),
    mutant(
        "answers_raise_a_voter_by_anything",
        "a voter that has a log does not take any epoch from a server that it asked",
        "core",
        "            has_nothing=not self.is_voter or self.log.last_epoch < 1,\n",
        "            has_nothing=True,\n",
    ),
    mutant(
        "epoch_of_a_vote_for_another",
        "the receiver of a Vote must match before its epoch is adopted",
        "election",
        """    if not _is_for_me(core, request.voter) or _may_replace_voter(core, request.voter):
        return VoteResponse(
""",
        """    core.maybe_adopt(request.epoch, None, (), request.candidate.id)
    if not _is_for_me(core, request.voter) or _may_replace_voter(core, request.voter):
        return VoteResponse(
""",
    ),
    mutant(
        "epoch_of_a_leader_for_another",
        "the receiver of BeginQuorumEpoch must match before its epoch is adopted",
        "election",
        """    if not _is_for_me(core, request.voter):
        return BeginQuorumEpochResponse(
""",
        """    core.maybe_adopt(request.epoch, None, (), request.leader.id)
    if not _is_for_me(core, request.voter):
        return BeginQuorumEpochResponse(
""",
    ),
    mutant(
        "followers_leave_for_every_vote",
        "a follower that hears its leader ignores a Vote and its epoch",
        "election",
        "    return isinstance(role, Follower) and _hears_leader(core, role)\n",
        "    return False\n",
    ),
    mutant(
        "leaders_leave_for_every_vote",
        "a leader that hears a majority ignores a Vote and its epoch",
        "election",
        "        return in_time or replication.is_alone(core)\n",
        "        return False\n",
    ),
    mutant(
        "leader_steps_down_for_every_answer",
        "a leader steps down seldom for a voter in a higher epoch",
        "replication",
        "    if known.epoch <= core.epoch or core.now_ms < again_ms:\n",
        "    if known.epoch <= core.epoch:\n",
    ),
    mutant(
        "voter_in_a_higher_epoch_stays_out",
        "a leader steps down once for a voter in a higher epoch, which returns",
        "replication",
        "    if known.epoch <= core.epoch or core.now_ms < again_ms:\n",
        "    if True:\n",
    ),
    mutant(
        "observer_in_a_higher_epoch_stays_out",
        "a leader steps down once for a Fetch of a higher epoch",
        "leader",
        "        if error is ErrorCode.UNKNOWN_LEADER_EPOCH and isinstance(core.role, Leader):\n",
        "        if False:\n",
    ),
)
