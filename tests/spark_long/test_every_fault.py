"""Each planted fault by itself, in three places: the audit names it, the replica and the bytes.

Nothing is found in the compacted directories.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from quorate.spark.audit import audit
from quorate.spark.files import find_replicas

from tests.spark.conftest import golden, spark, writable_copy  # noqa: F401 (fixtures)
from tests.spark.faults import FAULTS, Victim
from tests.spark.test_audit import CONTROLLERS, assert_told

pytestmark = pytest.mark.timeout(900)


def test_compacted_directories_have_no_violation(spark: Any, golden: Path) -> None:  # noqa: F811
    assert audit(spark, find_replicas([golden / "compacted"])).collect() == []


@pytest.mark.parametrize("place", [None, 1, 2])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_planted_fault_is_found(
    spark: Any,  # noqa: F811
    golden: Path,  # noqa: F811
    tmp_path: Path,
    fault: str,
    place: int | None,
) -> None:
    """place: None for the first batch that fits of controller 2; else chosen, by this seed."""
    state, plant = FAULTS[fault]
    copies = [writable_copy(golden / state / name, tmp_path / name) for name in CONTROLLERS]
    chosen = None if place is None else random.Random(f"{fault} {place}")
    victim = copies[1] if chosen is None else chosen.choice(copies)
    planted = plant(Victim(victim, chosen))
    found = audit(spark, find_replicas(copies)).collect()
    assert_told(found, planted, tmp_path)
    assert len(found) == planted.findings
