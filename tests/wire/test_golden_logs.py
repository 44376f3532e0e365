"""The checks of logs find no fault in what quorums of Kafka 4.3 wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.checks import check_logs
from tests.logs.files import read_log


@pytest.mark.parametrize(
    ("name", "terms"), [("full-history", [1, 2, 3, 2]), ("compacted", [1, 2, 3, 2, 1, 2])]
)
def test_logs_of_kafka(golden: Path, name: str, terms: list[int]) -> None:
    logs = [read_log(path.parent) for path in sorted(golden.glob(f"{name}/*/meta.properties"))]
    assert len(logs) == 4
    report = check_logs(logs)
    assert report.violations == ()
    assert [term.leader for term in report.terms] == terms
    assert report.compared > 70
