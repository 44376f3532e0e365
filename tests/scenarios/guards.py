"""The guards against what people ran into with Kafka: each can be taken out of the protocol.

A guard is a change of the protocol's source text that lets the bug in, with the transcript that
shows the bug's situation and what it then says. The change is made as the simulation's mutants are:
at the import of the changed module (`tests.mutation.patching`). Here the protocol and the harness
are imported once more for that, beside those in use, which are put back afterwards.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.scenarios import transcript
from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Mutant, mutant
from tests.simulation.mutants.patching import install

HERE = Path(__file__).parent
RELOADED = ("quorate", "tests.replica", "tests.scenarios")
"""Packages that are imported anew, with all in them."""

Execute = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Guard:
    """bug: what it guards against. without: the protocol that lacks it. shows: what the transcript
    says then, and never with it.
    """

    bug: str
    transcript: str
    without: Mutant
    shows: str

    @property
    def path(self) -> Path:
        return HERE / f"{self.transcript}.txt"


def _known(name: str) -> Mutant:
    """One that the simulation has as well."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


ONGARO = _known("change_before_this_epoch_committed")
DIVERGED = "2A has 3@2 LeaderChange(2 by 2A,3A,4A) for committed, another has 3@1 Voters"

GUARDS = (
    Guard(
        "KAFKA-14077",
        "vote_disk_replaced_gets_no_vote_in_its_name",
        _known("vote_meant_for_the_old_disk"),
        "3A is leader in epoch 2",
    ),
    Guard(
        "KAFKA-14077",
        "fetch_acknowledges_for_this_directory_only",
        _known("fetch_of_any_directory_counts"),
        "1A answers fetch 2B: Fetch nothing hw=4",
    ),
    Guard(
        "KAFKA-19400",
        "add_voter_acknowledged_on_append",
        mutant(
            "joining_waits_for_the_commit",
            "a replica that adds itself is answered when the record is appended",
            "membership",
            "            if not request.ack_when_committed:\n",
            "            if False:\n",
        ),
        "1A high watermark 4\n1A answers add-voter 4A",
    ),
    Guard(
        "KAFKA-19400",
        "kraft_version_upgrade_waits_for_every_voter",
        mutant(
            "updates_queue_behind_the_upgrade",
            "a change that waits for its voters lets later ones pass",
            "membership",
            "    for change in tuple(leader.changes):\n        moved = ",
            "    for change in tuple(leader.changes)[:1]:\n        moved = ",
        ),
        "1A leader epoch=1 log=0..1@1 hw=1 kraft.version=0 voters={1,2,3}",
    ),
    Guard(
        "KAFKA-15489",
        "check_quorum_partitioned_leader_resigns",
        _known("no_check_quorum"),
        "1A leader epoch=1",
    ),
    Guard(
        "a leader that never answers",
        "leader_that_never_answers",
        _known("leader_that_never_answered_is_followed_again"),
        "3A follower of 9 epoch=9 log=0..3@1",
    ),
    Guard(
        "a leader that moved",
        "leader_at_other_endpoints",
        mutant(
            "voter_that_may_not_stand_asks_nobody_else",
            "who may not elect looks for another leader than the silent one",
            "follower",
            "            if core.may_elect or core.now_ms < role.fetch_deadline_ms:\n",
            "            if core.is_voter or core.now_ms < role.fetch_deadline_ms:\n",
        ),
        "2A follower of 1 epoch=3 log=0..3@2",
    ),
    Guard(
        "a leader that moved",
        "leader_at_other_endpoints",
        mutant(
            "new_endpoints_of_a_leader_are_not_asked",
            "who may not elect asks the leader where others say it is",
            "core",
            "    role.fetch_deadline_ms = self.now_ms + self.config.fetch_timeout_ms\n",
            "    pass\n",
        ),
        "2A follower of 1 epoch=3 log=0..3@2",
    ),
    Guard(
        "KAFKA-16144",
        "check_quorum_single_voter_is_exempt",
        _known("single_voter_checks_quorum"),
        "1A is resigned in epoch 1: no majority of the voters fetched in time",
    ),
    Guard(
        "KAFKA-16530",
        "high_watermark_never_decreases",
        _known("high_watermark_goes_back"),
        "1A high watermark 3",
    ),
    Guard(
        "KAFKA-17608",
        "remove_voter_the_leader_itself",
        _known("removed_leader_stays"),
        "1A leader epoch=1 log=0..5@1 hw=5",
    ),
    Guard(
        "KAFKA-17608",
        "remove_voter_the_leader_itself",
        _known("removed_leader_counts_itself"),
        "1A leader epoch=1 log=0..5@1 hw=4",
    ),
    Guard(
        "KAFKA-19489",
        "two_standalone_quorums_do_not_mix",
        _known("voter_added_before_it_caught_up"),
        "1A voters {1A,2A}",
    ),
    Guard(
        "KAFKA-19489",
        "two_standalone_quorums_do_not_mix",
        mutant(
            "rival_leader_is_followed",
            "an epoch has one leader",
            "election",
            "(known is not None and known != request.leader.id):\n",
            "False:\n",
        ),
        "2A answers begin 1A: BeginQuorumEpoch ok",
    ),
    Guard(
        "KAFKA-20661",
        "update_voter_unreachable_endpoint_is_refused",
        mutant(
            "endpoints_are_written_unseen",
            "the leader dials a new endpoint before it writes it",
            "membership",
            "            return voter.id == core.local.id or _is_probed(\n",
            "            return True or _is_probed(\n",
        ),
        "1A appends 3@1 Voters{1A,2A(nowhere:1),3A}",
    ),
    Guard(
        "readiness",
        "readiness_of_a_wedged_quorum",
        mutant(
            "ready_once_is_ready_for_ever",
            "who follows is ready as long as its leader answers",
            "node",
            "            return role.has_fetched and self._core.now_ms < role.fetch_deadline_ms\n",
            "            return role.has_fetched\n",
        ),
        "4A ready\n4A ready",
    ),
    Guard(
        "two voters, one lost its disk",
        "two_voters_one_lost_its_disk",
        mutant(
            "nobody_says_who_is_missed",
            "who knows no leader says what it would take",
            "core",
            '        if self.leader_id is not None:\n            return ""\n',
            '        if True:\n            return ""\n',
        ),
        "1A answers add-voter 2B: NOT_LEADER_OR_FOLLOWER epoch=2 leader=-\n",
    ),
    Guard(
        "an empty disk is asked for its vote by id",
        "vote_empty_disk_votes_by_its_directory_only",
        mutant(
            "empty_disk_votes_by_id",
            "a replica that knows no voters votes only if the request names its directory",
            "election",
            " or _may_replace_voter(core, request.voter):\n",
            ":\n",
        ),
        "has 1@2 LeaderChange(3 by 2,3) for committed",
    ),
    Guard(
        "an observer with the newest log",
        "vote_asked_of_an_observer_lets_it_stand",
        mutant(
            "observer_never_stands",
            "who is no voter in its own log stands when a candidate cannot win against that log",
            "election",
            "        core.stand_at_ms = core.election_deadline()\n",
            "        pass\n",
        ),
        "3A follower of 1 epoch=2 log=0..7@1",
    ),
    Guard(
        "an observer asked in vain",
        "vote_asked_of_an_observer_in_vain",
        mutant(
            "observer_stands_while_it_hears_its_leader",
            "a replica that hears its leader does not stand, when asked or after the timeout",
            "election",
            "    if _can_grant(core, request, up_to_date=True):\n",
            "    if True:\n",
            "    if core.may_stand and not _has_leader(core):\n",
            "    if core.may_stand:\n",
        ),
        "1A -> 4A re: Vote not granted",
    ),
    Guard(
        "an observer asked in vain",
        "vote_asked_of_an_observer_in_vain",
        mutant(
            "observer_stands_for_its_id",
            "a candidate that names no directory may mean another replica",
            "election",
            " or request.voter != core.local:\n",
            ":\n",
        ),
        "at 9698 ms\n4A is prospective",
    ),
    Guard(
        "an observer asked in vain",
        "vote_asked_of_an_observer_in_vain",
        _known("brokers_stand_when_asked"),
        "7A is prospective",
    ),
    Guard(
        "an observer asked in vain",
        "vote_asked_of_an_observer_in_vain",
        mutant(
            "observer_stands_beside_its_vote",
            "a Vote that is granted again is no reason to stand",
            "election",
            "    if not (up_to_date or granted):\n",
            "    if not up_to_date:\n",
        ),
        "4A is prospective in epoch 2",
    ),
    Guard("Ongaro's bug: add, remove", "single_server_change_bug", ONGARO, DIVERGED),
    Guard("Ongaro's bug: add, add", "single_server_change_bug_two_adds", ONGARO, DIVERGED),
    Guard(
        "Ongaro's bug: remove, remove",
        "single_server_change_bug_two_removals",
        ONGARO,
        DIVERGED,
    ),
)


def play(path: Path, execute: Execute) -> str:
    """The transcript as it comes out; what it printed until then and the error, if it ends so."""
    printed: list[str] = []

    def executed(line: str) -> list[str]:
        lines = execute(line)
        printed.extend(lines)
        return lines

    try:
        return transcript.render(transcript.run(path, executed))
    except Exception as error:
        return "\n".join([*printed, f"{type(error).__name__}: {error}"])


@contextmanager
def protocol_without(guard: Mutant) -> Iterator[Execute]:
    """A harness over the protocol without a guard. Everything else goes on using the whole one."""
    saved = _take_out()
    finders = list(sys.meta_path)
    try:
        install(guard)
        _take_out()
        harness = importlib.import_module("tests.scenarios.harness")
        yield harness.Harness().execute
    finally:
        sys.meta_path[:] = finders
        _take_out()
        sys.modules.update(saved)
        for name, module in saved.items():
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], child, module)


def _take_out() -> dict[str, ModuleType]:
    """Forget the reloaded packages; return what was imported of them."""
    names = [name for name in sys.modules if name.startswith(tuple(f"{p}." for p in RELOADED))]
    names += [package for package in RELOADED if package in sys.modules]
    return {name: sys.modules.pop(name) for name in names}
