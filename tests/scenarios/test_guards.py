"""Every bug that people ran into comes back when its guard is taken out, and a transcript tells.

The list has what people ran into with Kafka, Ongaro's bug in its three forms, and leaders that a
replica looks for where they are not.
"""

from __future__ import annotations

import pytest

from tests.scenarios.guards import GUARDS, Guard, play, protocol_without
from tests.scenarios.harness import Harness

BUGS = {
    "KAFKA-14077": "a vote in the name of a replaced disk",
    "KAFKA-15489": "a partitioned leader that never resigns",
    "KAFKA-16144": "a single voter that resigns from itself",
    "KAFKA-16530": "a lower high watermark after a removal",
    "KAFKA-17608": "a leader that does not survive its own removal",
    "KAFKA-19400": "a change that keeps out what it waits for",
    "KAFKA-19489": "two standalone quorums that mix",
    "KAFKA-20661": "an unreachable endpoint in the log",
    "a leader that never answers": "a replica that follows it for ever",
    "a leader that moved": "a replica that asks only where it was",
    "an empty disk is asked for its vote by id": "a committed record is overwritten",
    "an observer asked in vain": "a replica that need not elect and disturbs",
    "an observer with the newest log": "voters that wait for each other for ever",
    "readiness": "a controller that is ready in a wedged quorum",
    "two voters, one lost its disk": "commands that do not say why they fail",
    "Ongaro's bug: add, add": "two majorities that do not meet",
    "Ongaro's bug: add, remove": "two majorities that do not meet",
    "Ongaro's bug: remove, remove": "two majorities that do not meet",
}


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.bug} {guard.without.name}")
def test_the_bug_is_kept_out_by_its_guard(guard: Guard) -> None:
    expected = guard.path.read_text(encoding="utf-8")
    assert play(guard.path, Harness().execute) == expected
    with protocol_without(guard.without) as execute:
        happened = play(guard.path, execute)
    assert guard.shows not in expected
    assert guard.shows in happened, happened


def test_every_bug_has_a_guard() -> None:
    assert {guard.bug for guard in GUARDS} == set(BUGS)


def test_what_was_taken_out_is_put_back() -> None:
    guard = GUARDS[0]
    with pytest.raises(ValueError, match="on purpose"), protocol_without(guard.without):
        raise ValueError("on purpose")
    assert play(guard.path, Harness().execute) == guard.path.read_text(encoding="utf-8")
