"""How many lines somebody who does wrong again and again may write."""

from __future__ import annotations

import logging

import pytest
from quorate.telemetry.limited_log import LimitedLog

INTERVAL_S = 10.0


class Limited:
    """A log with a clock that a test moves."""

    def __init__(self, *, burst: int = 1, keys_max: int = 4) -> None:
        self.now_s = 100.0
        self.log = LimitedLog(
            logging.getLogger("limited"),
            burst=burst,
            interval_s=INTERVAL_S,
            keys_max=keys_max,
            clock=lambda: self.now_s,
        )

    def warn(self, key: str, count: int = 1) -> None:
        for _ in range(count):
            self.log.warning(key, "%s does wrong", key)


def test_a_burst_is_written_and_then_one_line_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    limited = Limited(burst=3)
    limited.warn("a", 100)
    assert caplog.messages == ["a does wrong"] * 3
    caplog.clear()
    for _ in range(5):
        limited.now_s += INTERVAL_S / 2
        limited.warn("a")
    assert caplog.messages == [
        "a does wrong (98 earlier messages suppressed)",
        "a does wrong (1 earlier messages suppressed)",
    ]
    limited.now_s += 100 * INTERVAL_S
    caplog.clear()
    limited.warn("a", 100)
    assert len(caplog.messages) == 3, "quiet times add up to a burst, not to more"


def test_a_key_does_not_silence_another(caplog: pytest.LogCaptureFixture) -> None:
    limited = Limited()
    limited.warn("a", 10)
    limited.warn("b", 10)
    assert caplog.messages == ["a does wrong", "b does wrong"]
    limited.now_s += INTERVAL_S
    limited.warn("b")
    assert caplog.messages[-1] == "b does wrong (9 earlier messages suppressed)", "its own"


def test_a_line_is_the_callers(caplog: pytest.LogCaptureFixture) -> None:
    limited = Limited()
    limited.warn("a")
    assert (caplog.records[0].name, caplog.records[0].funcName) == ("limited", "warn")


def test_strangers_who_choose_their_keys_write_no_more_than_the_keys_there_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = Limited(keys_max=4)
    for number in range(10_000):
        limited.warn(f"stranger {number}")
    assert len(caplog.messages) == 4 + 1, "each key there is room for, and all others together"
    limited.now_s += INTERVAL_S - 1
    limited.warn("stranger 0")
    limited.warn("late")
    assert len(caplog.messages) == 4 + 1
    caplog.clear()
    limited.now_s += 1
    limited.warn("stranger 0")
    assert caplog.messages == ["stranger 0 does wrong (1 earlier messages suppressed)"]
    for number in range(4):
        limited.warn(f"new {number}")
    assert caplog.messages[1:] == [
        *(f"new {number} does wrong" for number in range(3)),
        f"new 3 does wrong ({10_000 - 4} earlier messages suppressed)",
    ], "three were quiet and made room; the fourth shares the line of those who found none"


def test_what_was_left_out_of_a_forgotten_key_is_told_by_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = Limited(keys_max=1)
    limited.warn("a", 6)
    limited.now_s += INTERVAL_S
    limited.warn("b")
    limited.warn("c")
    assert caplog.messages == [
        "a does wrong",
        "b does wrong",
        "c does wrong (5 earlier messages suppressed)",
    ]
