"""How many lines refusals may write."""

from __future__ import annotations

import logging

import pytest
from quorate.rpc.refusals import BURST, LINES_PER_SECOND, Refusals


def test_a_flood_of_refusals_is_counted_and_not_written(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    refusals = Refusals(logging.getLogger("refused"), lambda: now)
    for number in range(10_000):
        refusals.say("Fetch", "ipv4:10.0.0.1:5", f"reason {number}")
    assert len(caplog.messages) == BURST
    assert caplog.messages[0] == "Fetch from ipv4:10.0.0.1:5 is refused: reason 0"

    now += 1 / LINES_PER_SECOND
    refusals.say("Vote", "ipv4:10.0.0.2:6", "why")
    untold = 10_000 - BURST
    assert caplog.messages[-1] == (
        f"Vote from ipv4:10.0.0.2:6 is refused: why ({untold} more before it were left out)"
    )
    now += 1 / LINES_PER_SECOND
    refusals.say("Vote", "ipv4:10.0.0.2:6", "again")
    assert caplog.messages[-1].endswith("is refused: again")
