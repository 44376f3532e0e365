"""No hot path costs more instructions than what is kept of it (see `instructions`)."""

from __future__ import annotations

import os
import time

import pytest

from tests.bench.instructions import PATHS, TOLERANCE, VERSION, instructions, kept

AGAIN = "python -m tests.bench.instructions --write keeps what is counted now"


def test_instructions_are_those_of_the_work_alone() -> None:
    assert instructions(lambda: time.sleep(0.01)) == 0, "of others' code nothing counts"
    measure = PATHS["an append's messages and batch, a value alone"]
    assert measure() == measure() > 100


@pytest.mark.parametrize("path", PATHS)
def test_a_path_costs_what_it_did(path: str) -> None:
    was = kept().get(path)
    if was is None:
        text = f"nothing is kept for Python {VERSION}: {AGAIN}"
        assert not os.environ.get("CI"), text
        pytest.skip(text)
    now = PATHS[path]()
    assert now <= was * (1 + TOLERANCE), (
        f"{now:.1f} instructions, and {was:.1f} are kept: find out why it costs more; if it must, "
        f"{AGAIN}"
    )
    assert now >= was * (1 - TOLERANCE), f"{now:.1f} instructions, not {was:.1f}: a gain. {AGAIN}"
