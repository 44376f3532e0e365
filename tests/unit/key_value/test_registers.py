"""The register check agrees with a search through all orders, and names what it finds."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.key_value.registers import OPEN, Operation, check_registers


def put(value: str, begin: float, end: float) -> Operation:
    return Operation("k", value, True, begin, end)


def get(value: str | None, begin: float, end: float) -> Operation:
    return Operation("k", value, False, begin, end)


def test_overlapping_operations_may_take_effect_in_any_order() -> None:
    puts = [put("a", 0, 10), put("b", 0, 10)]
    assert check_registers([*puts, get("a", 1, 2), get("b", 3, 4)]) == []
    assert check_registers([*puts, get("b", 1, 2), get("a", 3, 4)]) == []


def test_a_value_does_not_come_back() -> None:
    history = [put("a", 0, 10), put("b", 0, 10), get("a", 1, 2), get("b", 3, 4), get("a", 5, 6)]
    [text] = check_registers(history)
    assert "get a" in text
    assert "get b" in text


def test_a_get_after_a_put_does_not_return_what_was_there_before() -> None:
    assert check_registers([put("a", 0, 1), put("b", 2, 3), get("a", 4, 5)])
    assert check_registers([put("a", 0, 1), get(None, 2, 3)])
    assert check_registers([get(None, 0, 1), put("a", 2, 3), get("a", 4, 5)]) == []


def test_an_open_put_takes_effect_late_or_never() -> None:
    history = [put("a", 0, 1), put("b", 2, OPEN), get("a", 3, 4)]
    assert check_registers(history) == []
    assert check_registers([*history, get("b", 9, 10)]) == []
    assert check_registers([*history, get("b", 9, 10), get("a", 11, 12)])


def test_a_get_returns_nothing_invented_and_nothing_from_the_future() -> None:
    assert "nobody put" in check_registers([get("a", 0, 1)])[0]
    assert "before" in check_registers([get("a", 0, 1), put("a", 2, 3)])[0]


def test_keys_are_independent() -> None:
    other = Operation("other", None, False, 5, 6)
    assert check_registers([put("a", 0, 1), other]) == []


def test_values_must_be_unique() -> None:
    with pytest.raises(ValueError, match="put twice"):
        check_registers([put("a", 0, 1), put("a", 2, 3)])


def linearizable(history: list[Operation]) -> bool:
    """Search all orders, with each subset of the open puts."""
    closed = [each for each in history if each.end != OPEN]
    unknown = [each for each in history if each.end == OPEN]
    return any(
        _in_order(order)
        for count in range(len(unknown) + 1)
        for some in itertools.combinations(unknown, count)
        for order in itertools.permutations([*closed, *some])
    )


def _in_order(order: tuple[Operation, ...]) -> bool:
    value: str | None = None
    for index, operation in enumerate(order):
        if any(later.end < operation.begin for later in order[index + 1 :]):
            return False
        if operation.is_put:
            value = operation.value
        elif operation.value != value:
            return False
    return True


def test_it_agrees_with_a_search_through_all_orders() -> None:
    chance = random.Random(7)
    verdicts = []
    for _ in range(600):
        history = []
        for number in range(chance.randint(1, 3)):
            begin = chance.randint(0, 8)
            end = OPEN if chance.random() < 0.2 else begin + chance.randint(1, 5)
            history.append(put(f"v{number}", begin + chance.random(), end + chance.random()))
        values = [None, *(each.value for each in history)]
        for _ in range(chance.randint(1, 3)):
            begin = chance.randint(0, 10)
            end = begin + chance.randint(1, 4)
            value = chance.choice(values)
            history.append(get(value, begin + chance.random(), end + chance.random()))
        verdicts.append(linearizable(history))
        assert (check_registers(history) == []) == verdicts[-1], history
    assert 100 < sum(verdicts) < 500
