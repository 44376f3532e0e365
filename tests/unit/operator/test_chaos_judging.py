"""Whether a false Ready of a status is found, and nothing else: tests/chaos/judging.py."""

from __future__ import annotations

from collections.abc import Iterable

from tests.chaos.judging import Count, Period, Sample, false_claims, silences


def counted(*spans: tuple[int, int]) -> list[Count]:
    """Two appends a second during these spans; counted each second up to 200."""
    found, total = [], 0
    for second in range(200):
        total += 2 * any(begin <= second < end for begin, end in spans)
        found.append(Count(float(second), total))
    return found


def sampled(ready: Iterable[bool], *, absent: Iterable[int] = ()) -> list[Sample]:
    """absent: when no operator was there."""
    gone = set(absent)
    return [
        Sample(float(at), str(each), str(each), "AsWanted", at not in gone)
        for at, each in enumerate(ready)
    ]


ALWAYS = [True] * 200


def test_a_quorum_that_commits_may_say_ready() -> None:
    counts = counted((0, 200))
    assert silences(counts) == []
    assert false_claims(sampled(ALWAYS), counts) == []


def test_a_false_ready_is_one_period() -> None:
    counts = counted((0, 50), (80, 200))
    assert silences(counts) == [Period(49.0, 80.0)]
    assert false_claims(sampled(ALWAYS), counts) == [Period(49.0, 79.0)]


def test_a_short_silence_is_none() -> None:
    assert false_claims(sampled(ALWAYS), counted((0, 50), (64, 200))) == []


def test_a_status_that_says_so_is_true() -> None:
    ready = [not 60 <= at < 82 for at in range(200)]
    assert false_claims(sampled(ready), counted((0, 50), (80, 200))) == []


def test_a_client_needs_a_moment_to_notice_that_a_quorum_is_ready() -> None:
    ready = [not 60 <= at < 75 for at in range(200)]
    assert false_claims(sampled(ready), counted((0, 50), (80, 200))) == []


def test_a_status_that_turns_ready_too_early_is_false() -> None:
    ready = [not 60 <= at < 75 for at in range(200)]
    assert false_claims(sampled(ready), counted((0, 50), (100, 200))) == [Period(75.0, 99.0)]


def test_without_an_operator_nothing_is_claimed_until_it_had_its_time() -> None:
    counts = counted((0, 50), (100, 200))
    away = sampled(ALWAYS, absent=range(45, 90))
    assert false_claims(away, counts) == []
    assert false_claims(sampled(ALWAYS, absent=range(45, 70)), counts) == [Period(70.0, 99.0)]


def test_a_silence_at_the_end_is_found() -> None:
    found = false_claims(sampled(ALWAYS), counted((0, 100)))
    assert found == [Period(99.0, 199.0)]
    assert silences(counted((0, 100))) == [Period(99.0, 199.0)]


def test_an_api_server_that_does_not_answer_claims_nothing() -> None:
    counts = counted((0, 50), (100, 200))
    samples = [
        each if not 50 <= each.at < 99 else each._replace(ready="", quorate="")
        for each in sampled(ALWAYS)
    ]
    assert false_claims(samples, counts) == []
