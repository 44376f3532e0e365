"""Compares what Kafka's controllers and Quorate's answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from tests.wire.tool_commands import Command

SETTLED_S: Final = 10.0
KNOWN_DIFFERENCE_S: Final = 1.0
POLL_S: Final = 0.2

Side = TypeVar("Side")


class Compared(Protocol):
    """A command or call. difference: the known reason for a difference, or empty."""

    @property
    def difference(self) -> str: ...

    @property
    def is_read(self) -> bool: ...


def compare(
    ask: Callable[[Side], str],
    sides: Sequence[Side],
    pool: ThreadPoolExecutor,
    compared: Compared,
    *,
    expected: str = "",
    unexpected: str | None = None,
) -> str:
    """Ask both sides at once. Why the results are not what the tables say, empty if they are.

    expected, unexpected: what both results contain, and what none of them contains.
    """

    def is_expected(result: str) -> bool:
        return expected in result and (unexpected is None or unexpected not in result)

    deadline = time.monotonic() + (KNOWN_DIFFERENCE_S if compared.difference else SETTLED_S)
    while True:
        kafkas, quorates = pool.map(ask, sides)
        is_settled = kafkas == quorates and is_expected(kafkas)
        if is_settled or not compared.is_read or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    if (
        is_expected(kafkas)
        and is_expected(quorates)
        and (kafkas != quorates) is bool(compared.difference)
    ):
        return ""
    return f"{compared}\n  Kafka: {kafkas}\n  Quorate: {quorates}\n"


def compare_all(
    run: Callable[[Side, Command], str],
    sides: Sequence[Side],
    pool: ThreadPoolExecutor,
    commands: Sequence[Command],
) -> None:
    """Run the commands on both sides, one after the other; fail with all unknown differences."""
    wrong = [
        compare(lambda side, each=each: run(side, each), sides, pool, each, expected=each.expected)
        for each in commands
    ]
    assert not any(wrong), "".join(wrong)
