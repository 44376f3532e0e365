"""A thread that waits for the interpreter gets it although another one keeps it busy."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from quorate.runtime.thread_switching import switch_soon

PYTHONS_OWN_S = 0.005
WAITS = 40
PAUSE_S = 0.002
ROUNDS = 8


@pytest.fixture
def _interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(PYTHONS_OWN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def waits() -> list[float]:
    """Seconds that a thread waits for the interpreter, each time it comes back from a sleep."""
    found: list[float] = []

    def come_back() -> None:
        for _ in range(WAITS):
            began = time.perf_counter()
            time.sleep(PAUSE_S)
            found.append(time.perf_counter() - began - PAUSE_S)

    thread = threading.Thread(target=come_back)
    thread.start()
    while thread.is_alive():
        sum(range(100))  # nothing that lets the interpreter go
    thread.join()
    return found


@pytest.mark.usefixtures("_interval")
def test_a_thread_waits_a_fraction_of_what_it_did() -> None:
    """Other processes only add to a wait: the smallest median of either kind counts."""
    usual, soon = [], []
    for _ in range(ROUNDS):
        sys.setswitchinterval(PYTHONS_OWN_S)
        usual.append(statistics.median(waits()))
        switch_soon()
        soon.append(statistics.median(waits()))
    assert min(soon) < min(usual) / 2
