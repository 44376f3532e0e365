"""The verdict on a store finds nodes that differ, and counts what was restored."""

from __future__ import annotations

from tests.key_value.clients import Histories
from tests.key_value.registers import OPEN, Operation
from tests.key_value.verdict import errors_of, longest_gap, merge, segments


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_trace_is_split_where_the_node_starts_or_restores() -> None:
    trace = "start\n0 k a\n1 k b\nrestored\n9 k c\nstart\nrestored\n9 k c"
    found = segments(1, lines(trace))
    assert [len(each.applied) for each in found] == [2, 1, 0, 1]
    assert [each.is_restored for each in found] == [False, True, False, True]
    assert [each.is_first for each in found] == [True, False, True, True]


def test_equal_traces_make_one_log() -> None:
    one = segments(1, lines("start\n0 k a\n2 k b\n3 k c"))
    other = segments(2, lines("start\n0 k a\nstart\nrestored\n3 k c"))
    log, differing = merge([*one, *other])
    assert log == {0: ("k", "a"), 2: ("k", "b"), 3: ("k", "c")}
    assert differing == []


def test_nodes_that_applied_something_else_differ() -> None:
    text = "start\n0 k a\n2 k b\n3 k c"
    most = [*segments(1, lines(text)), *segments(2, lines(text))]
    log, _ = merge(most)
    found, [differing] = merge([*segments(3, lines("start\n0 k a\n2 k x\n3 k c")), *most])
    assert found == log
    assert "offset 2 is ('k', 'x') at nodes [3]; ('k', 'b') at nodes [1, 2]" in differing
    found, [differing] = merge([*segments(3, lines("start\n0 k a\n3 k c")), *most])
    assert found == log
    assert "offset 2 is ('k', 'b') at nodes [1, 2]; None at nodes [3]" in differing
    found, [differing] = merge([*segments(3, lines("start\n0 k a\n1 k x\n2 k b")), *most])
    assert found == log
    assert "offset 1 is" in differing


def test_a_node_applies_in_order_and_once() -> None:
    twice = segments(1, lines("start\n0 k a\n2 k b\n2 k b\n3 k c"))
    _, [differing] = merge(twice)
    assert "offset 2 after 2" in differing


def test_the_longest_gap_is_named_after_the_last_fault_before_its_end() -> None:
    faults = [(1.5, "kill"), (4.0, "pause"), (20.0, "cut")]
    assert longest_gap([1.0, 2.0, 9.0, 10.0], faults) == (7.0, "pause")
    assert longest_gap([], faults) == (0.0, "")


def test_replies_of_puts_are_acknowledged_refused_or_unknown() -> None:
    replies = {
        "a": "ok 5",
        "b": "error: NOT_LEADER",
        "c": "error: LEADER_CHANGED",
        "d": None,
        "e": "error: OutcomeUnknownError: an append may or may not be committed",
        "f": "error: no leader within 5000 ms (127.0.0.1:1: refused)",
    }
    histories = Histories()
    for value, reply in replies.items():
        histories.begin(value)
        histories.put(Operation("k", value, True, 0.0, 1.0), reply)
    assert set(histories.unknown) == {"c", "d", "e"}
    assert histories.refused == {"b": "NOT_LEADER", "f": "no leader within 5000 ms"}
    assert [each.value for each in histories.operations if each.end == OPEN] == ["c", "d", "e"]
    assert histories.log.acknowledged_count == 1
    errors = errors_of(histories, {"a", "c"})
    assert errors["LEADER_CHANGED"] == {"puts": 1, "in the log": 1}
    violations = histories.log.verify([(5, "a"), (6, "b")])
    assert [each.rule.name for each in violations] == ["REFUSED_IS_ABSENT"]
