"""A small run of `tests.kafka_scale` on controllers of both kinds: what holds at every size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_scale.measuring import Figures
from tests.kafka_scale.phases import Scale, measure

SMALL = Scale(partitions=2_000, brokers=30, steady_s=4.0, kills=1)
TIMEOUT_S = 300
"""Each takes 40 s on an idle machine."""


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("kind", ["quorate", "kafka"])
def test_brokers_keep_their_sessions_and_partitions_their_leaders(
    kind: str, tmp_path: Path, kafka_tool: Callable[..., str]
) -> None:
    figures = measure(kind, SMALL, tmp_path)
    assert figures["brokers fenced wrongly"] == 0
    assert figures["partitions without a leader"] == 0
    # Three brokers of thirty were silent, so they led about a tenth.
    assert 0.05 < number(figures, "fence: leaderships to move") / SMALL.partitions < 0.2
    # A broker sends a heartbeat each 2 s.
    assert 0.6 < number(figures, "steady: heartbeats/s") / (SMALL.brokers / 2) < 1.1
    assert number(figures, "steady: processors of the leader") < 1.0


def number(figures: Figures, name: str) -> float:
    found = figures[name]
    assert isinstance(found, int | float), found
    return float(found)
