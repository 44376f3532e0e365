"""A short run of `tests.kafka_differential`: Kafka's controller and Quorate's do the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_differential.__main__ import described
from tests.kafka_differential.running import compare

REQUESTS = 1_000
SEED = 21
EVERY_RUN = "[^:]*: records: NO_OP_RECORD more"
"""The listed difference that each run has, as its first request with records is a broker's."""


@pytest.mark.timeout(600)
def test_one_stream_of_requests_has_the_same_effect_on_both_controllers(
    tmp_path: Path, kafka_tool: Callable[..., str]
) -> None:
    report = compare(REQUESTS, SEED, tmp_path / "nodes")
    assert not report.failure
    assert not report.violations
    unlisted = {name: kind for name, kind in report.kinds.items() if kind.reason is None}
    assert not unlisted, "".join(described(*each) for each in unlisted.items())
    listed = {kind.reason.pattern for kind in report.kinds.values() if kind.reason is not None}
    assert EVERY_RUN in listed
    assert report.requests.total() == REQUESTS
    # Most requests hit what is there, and nearly every kind writes something.
    assert report.records.total() > REQUESTS / 2
    assert len(report.requests) >= 22
    assert len(report.records) >= 16
