"""The audit: nothing on healthy directories; several faults at once, each by name.

`tests/spark_long` plants each fault by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quorate.spark.audit import audit
from quorate.spark.files import find_replicas

from tests.spark.conftest import writable_copy
from tests.spark.faults import FAULTS, Planted, Victim

CONTROLLERS = ("controller-1", "controller-2", "controller-3")

pytestmark = pytest.mark.slow


def assert_told(found: list[Any], planted: Planted, below: Path) -> Any:
    """The planted fault is named: rule, replica, offset, and bytes as they lie in the file."""
    told = [
        row
        for row in found
        if row.rule in [rule.text for rule in planted.rules]
        and row.replica == planted.replica
        and planted.offset in (None, row.offset)
    ]
    assert told, (planted, found)
    row = told[0]
    assert row.bytes
    assert row.file.startswith(str(below))
    assert Path(row.file).read_bytes()[row.position :].startswith(bytes(row.bytes))
    return row


@pytest.mark.timeout(600)
def test_healthy_directories_have_no_violation(spark: Any, golden: Path) -> None:
    replicas = find_replicas([golden / "full-history"])
    assert len(replicas) == 4
    assert audit(spark, replicas).collect() == []


@pytest.mark.timeout(600)
def test_faults_are_named(spark: Any, golden: Path, tmp_path: Path) -> None:
    copies = [writable_copy(golden / "full-history" / n, tmp_path / n) for n in CONTROLLERS]
    planted = [
        FAULTS[name][1](Victim(copies[at]))
        for at, name in (
            (1, "divergent committed record"),
            (1, "old quorum-state"),
            (2, "two leaders in an epoch"),
            (2, "wrong cluster id"),
        )
    ]
    found = audit(spark, find_replicas(copies)).collect()
    rows = [assert_told(found, each, tmp_path) for each in planted]
    assert {row.replica for row in found} == {planted[0].replica, planted[2].replica}
    divergent = rows[0]
    assert divergent.other not in (None, divergent.replica)
    assert divergent.bytes != divergent.other_bytes
    other = Path(divergent.other_file).read_bytes()
    assert other[divergent.other_position :].startswith(bytes(divergent.other_bytes))
