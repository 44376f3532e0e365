"""The harness that kills the key-value store's processes, for a short run without partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.key_value.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_store_keeps_its_guarantees_under_faults(tmp_path: Path) -> None:
    run = Run("quorate", tmp_path, None, seconds=10, seed=4, local_reads=False, say=print)
    report = run.run()
    assert report.violations == report.failures == []
    assert sum(report.faults.values()) >= 1
    assert report.acknowledged > 50
    assert report.gets > 50
    assert not any(process.is_alive for process in run.stores.processes.values())
