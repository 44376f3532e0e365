"""KIP-841 seen end to end: 20 rounds of rolling restarts in each way, and nothing is lost.

With the checks off the same rounds endanger records: an ISR with a fenced replica is seen, or a
record is lost. QUORATE_ROLLING_ROUNDS says how many rounds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rolling.rolling import BROKERS, WAYS, Rolling

ROUNDS = int(os.environ.get("QUORATE_ROLLING_ROUNDS", "20"))


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_acknowledged_is_lost(tmp_path: Path, way: str) -> None:
    rolling = Rolling(tmp_path / "cluster")
    try:
        await rolling.start()
        for _ in range(ROUNDS):
            await rolling.round(way)
        figures = await rolling.finish()
    finally:
        await rolling.close()
    print(f"\n{way}: {figures}")
    assert (figures.lost, figures.doubled, figures.moved) == (0, 0, 0), figures
    assert figures.odd_isrs == []
    assert figures.acknowledged > ROUNDS * len(BROKERS) * 10
    if way == "wiped":
        assert figures.wiped_records > 0


@pytest.mark.timeout(900)
async def test_without_kip_841_records_are_endangered(tmp_path: Path) -> None:
    rolling = Rolling(tmp_path / "cluster", safe=False)
    try:
        await rolling.start()
        for _ in range(ROUNDS):
            await rolling.round("controlled")
            await rolling.round("kill")
            if rolling.figures.odd_isrs:
                break
        figures = await rolling.finish()
    finally:
        await rolling.close()
    print(f"\nwithout KIP-841's checks: {figures}")
    assert figures.odd_isrs or figures.lost, figures
