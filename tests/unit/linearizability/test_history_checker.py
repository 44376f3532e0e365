"""The history checker finds each kind of broken history, and accepts sound ones."""

from __future__ import annotations

import pytest
from quorate.linearizability import HistoryChecker, Rule


def rules(checker: HistoryChecker[str], committed: list[tuple[int, str]]) -> set[Rule]:
    return {violation.rule for violation in checker.verify(committed)}


def test_a_sound_history_has_no_violations() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    for value in ("a", "b", "c", "d"):
        checker.begin(value)
    checker.acknowledged("b", 1)
    checker.acknowledged("a", 2)
    checker.unknown("c")
    checker.refused("d")
    token = checker.begin_read()
    checker.begin("e")
    checker.acknowledged("e", 5)
    checker.read(token, 4, [(1, "b"), (2, "a")])
    assert checker.verify([(1, "b"), (2, "a"), (5, "e")]) == []
    assert checker.acknowledged_count == 3
    assert (checker.begun_count, checker.reads_count) == (5, 1)


def test_an_unknown_append_may_be_there() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.unknown("a")
    assert checker.verify([(7, "a")]) == []


def test_a_lost_record() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.acknowledged("a", 3)
    assert rules(checker, []) == {Rule.NOTHING_LOST}
    assert rules(checker, [(4, "a")]) == {Rule.NOTHING_LOST}
    assert checker.verify([], from_offset=4) == []


def test_a_doubled_record() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.unknown("a")
    assert rules(checker, [(1, "a"), (2, "a")]) == {Rule.NOTHING_DOUBLED}


def test_an_invented_and_a_refused_record() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.refused("a")
    found = rules(checker, [(1, "a"), (2, "x")])
    assert found == {Rule.REFUSED_IS_ABSENT, Rule.NOTHING_INVENTED}


def test_real_time_order() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.acknowledged("a", 5)
    checker.begin("b")
    checker.begin("c")
    checker.acknowledged("b", 4)
    assert [violation.rule for violation in checker.violations] == [Rule.REAL_TIME_ORDER]
    checker.unknown("c")
    found = [v.rule for v in checker.verify([(3, "c"), (4, "b"), (5, "a")])]
    assert found.count(Rule.REAL_TIME_ORDER) == 3


def test_two_values_at_one_offset() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.begin("b")
    checker.acknowledged("a", 1)
    checker.acknowledged("b", 1)
    assert checker.violations[0].rule is Rule.ONE_HISTORY
    other: HistoryChecker[str] = HistoryChecker()
    other.begin("a")
    other.begin("b")
    other.read(other.begin_read(), 2, [(1, "a")])
    assert rules(other, [(1, "b")]) == {Rule.ONE_HISTORY}


def test_offsets_that_do_not_ascend() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.begin("b")
    assert rules(checker, [(2, "a"), (1, "b")]) == {Rule.ASCENDING_OFFSETS}


def test_a_stale_read() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.acknowledged("a", 3)
    token, stale = checker.begin_read(), checker.begin_read(linearizable=False)
    checker.read(stale, 1, [])
    assert checker.violations == []
    checker.read(token, 3, [])
    assert checker.violations[0].rule is Rule.READ_IS_LINEARIZABLE


def test_a_read_that_goes_back_behind_another_read() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.read(checker.begin_read(), 9, [])
    checker.read(checker.begin_read(), 8, [])
    assert checker.violations[0].rule is Rule.READ_IS_LINEARIZABLE


def test_a_read_with_a_hole_and_one_beyond_its_range() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    checker.begin("a")
    checker.begin("b")
    checker.acknowledged("a", 1)
    checker.acknowledged("b", 2)
    checker.read(checker.begin_read(), 3, [(2, "b")])
    assert rules(checker, [(1, "a"), (2, "b")]) == {Rule.READ_IS_PREFIX}
    checker.read(checker.begin_read(), 3, [(2, "b")], from_offset=2)
    checker.read(checker.begin_read(), 3, [(1, "a")], from_offset=2)
    assert checker.violations[-1].rule is Rule.READ_IS_PREFIX


def test_misuse() -> None:
    checker: HistoryChecker[str] = HistoryChecker()
    with pytest.raises(ValueError, match="has not begun"):
        checker.acknowledged("a", 1)
    checker.begin("a")
    with pytest.raises(ValueError, match="has already begun"):
        checker.begin("a")
    checker.refused("a")
    with pytest.raises(ValueError, match="has already ended"):
        checker.unknown("a")
