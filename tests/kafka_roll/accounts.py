"""Accounts for what the logs of a roll show: each election has a cause, each change a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise, zip_longest
from typing import Any

from quorate.raft.types import ReplicaKey, VoterSet

from tests.kafka_roll.controllers import MixedControllers, kind
from tests.logs.checks import Term, check_logs
from tests.logs.files import read_log

ADDED = "added"
REMOVED = "removed"
Change = tuple[str, ReplicaKey]
TEXT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Kill:
    """A controller that was killed. began_ms, ended_ms: before the signal, and when it was gone."""

    node: int
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Election:
    """was_killed, was_removed: what ended the term of the leader before. Both can be true: then the
    leader was killed before it resigned.
    """

    term: Term
    is_first: bool = False
    was_killed: bool = False
    was_removed: bool = False

    @property
    def has_cause(self) -> bool:
        return self.is_first or self.was_killed or self.was_removed


def elections(terms: Sequence[Term], kills: Iterable[Kill]) -> tuple[list[Election], list[Kill]]:
    """What caused each election, and the kills that caused none.

    terms: of all logs, by epoch. A leader was removed if it is no voter where the next one begins.
    A kill ended a term if it was that leader's, between the two LeaderChange records. Their times
    are of this machine's clock, as those of the kills are.

    There are kills that cause no election: a leader that was killed before its LeaderChange record
    reached another controller never appears in the logs, and a controller may have lost leadership
    between the moment it was chosen and its end. Such kills excuse no other election.
    """
    left = list(kills)
    found = [Election(term, is_first=True) for term in terms[:1]]
    for before, term in pairwise(terms):
        killed = next((kill for kill in left if _ended(kill, before, term)), None)
        if killed is not None:
            left.remove(killed)
        was_removed = term.voters.get(before.leader) is None
        found.append(Election(term, was_killed=killed is not None, was_removed=was_removed))
    return found, left


def _ended(kill: Kill, term: Term, following: Term) -> bool:
    was_leader = kill.node == term.leader and term.at_ms <= kill.ended_ms
    return was_leader and kill.began_ms <= following.at_ms


def changes_of(voter_sets: Sequence[VoterSet]) -> Iterator[Change]:
    """Who was added and removed, in order. voter_sets: as in the log; empty ones are unknown."""
    for old, new in pairwise(each for each in voter_sets if len(each)):
        yield from ((REMOVED, voter.key) for voter in old if not _has(new, voter.key))
        yield from ((ADDED, voter.key) for voter in new if not _has(old, voter.key))


def unasked(asked: Sequence[Change], made: Sequence[Change]) -> Iterator[str]:
    """The first change that was acknowledged and is not in the log, or is there and was not."""
    for number, (each, found) in enumerate(zip_longest(asked, made), 1):
        if each != found:
            yield f"ChangeIsCommitted: change {number} was {each}, in the log it is {found}"
            return


def _has(voters: VoterSet, key: ReplicaKey) -> bool:
    """Whether a replica is a voter. Static voters have no directory ids."""
    found = voters.get(key.id)
    if found is None or None in (found.key.directory_id, key.directory_id):
        return found is not None
    return found.key == key


@dataclass(frozen=True, slots=True)
class Findings:
    """What the logs of a roll show. faults: what is wrong. figures: for the report. terms: a row
    for each election.
    """

    faults: list[str]
    figures: dict[str, Any]
    terms: list[dict[str, Any]]


def judge(
    controllers: MixedControllers, kills: Sequence[Kill], changes: Sequence[Change], reached: int
) -> Findings:
    """Check the logs of the stopped controllers, and account for what they show.

    changes: as they were acknowledged. reached: the offset that all controllers have reached.
    """
    report = check_logs(
        [read_log(controllers.directory(node)) for node in controllers.ids], reached
    )
    found, idle = elections(report.terms, kills)
    faults = [str(violation)[:TEXT_MAX] for violation in report.violations]
    faults += [
        f"no cause for the election in epoch {e.term.epoch}" for e in found if not e.has_cause
    ]
    made = list(changes_of(report.voter_sets))
    faults += unasked(changes, made)
    leaders = [before.term.leader for before, election in pairwise(found) if election.was_removed]
    figures = {
        "leaders killed": dict(Counter(kind(kill.node) for kill in kills)),
        "leaders removed": dict(Counter(map(kind, leaders))),
        "elections": len(found),
        "elections without a cause": sum(not election.has_cause for election in found),
        "kills that caused no election": [
            f"{kill.node} at {clock(kill.began_ms)}" for kill in idle
        ],
        "last epoch": report.terms[-1].epoch,
        "changes of the voters": len(made),
        "errors of Kafka's tool": dict(Counter(controllers.errors)),
        "controllers that needed an empty directory": controllers.formatted,
        "batches": report.batches,
        "batches in several logs": report.compared,
        "offset that all logs reached": reached,
    }
    return Findings(faults, figures, [row(election) for election in found])


def row(election: Election) -> dict[str, Any]:
    term = election.term
    causes = {
        "the first": election.is_first,
        "leader killed": election.was_killed,
        "leader removed": election.was_removed,
    }
    return {
        "epoch": term.epoch,
        "offset": term.offset,
        "at": clock(term.at_ms),
        "leader": term.leader,
        "implementation": kind(term.leader),
        "cause": ", ".join(name for name, holds in causes.items() if holds) or "none",
    }


def clock(at_ms: int) -> str:
    """A time of day, UTC, with milliseconds."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S.%f}"[:-3]
