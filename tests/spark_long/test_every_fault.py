"""Each planted fault by itself: the audit names it. Nothing on the compacted directories."""

from __future__ import annotations

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


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_planted_fault_is_found(
    spark: Any,  # noqa: F811
    golden: Path,  # noqa: F811
    tmp_path: Path,
    fault: str,
) -> None:
    state, plant = FAULTS[fault]
    copies = [writable_copy(golden / state / name, tmp_path / name) for name in CONTROLLERS]
    planted = plant(Victim(copies[1]))
    found = audit(spark, find_replicas(copies)).collect()
    assert_told(found, planted, tmp_path)
    assert len(found) == planted.findings
