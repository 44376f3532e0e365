"""The garbage collector of a process that serves looks at little at a time."""

from __future__ import annotations

import gc
import sys

import pytest
from quorate.runtime.gc_tuning import collect_briefly

PARKED = 50_000


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="that collector has other generations")
def test_what_is_looked_at_while_much_is_made_that_stays_is_little() -> None:
    """The lists stand for calls that are parked: each is young once, and then old."""
    before = gc.get_threshold()
    frozen = gc.get_freeze_count()
    looks: list[tuple[int, int]] = []

    def on_look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generation = info["generation"]
            looks.append((generation, sum(len(gc.get_objects(g)) for g in range(generation + 1))))

    try:
        collect_briefly()
        assert gc.get_freeze_count() > frozen
        gc.callbacks.append(on_look)
        parked = [[number] for number in range(PARKED)]
    finally:
        if on_look in gc.callbacks:
            gc.callbacks.remove(on_look)
        gc.set_threshold(*before)
        gc.unfreeze()
    assert len(parked) == PARKED
    assert {generation for generation, _ in looks} == {0, 1}
    assert max(count for _, count in looks) < 2_000
