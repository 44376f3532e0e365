"""Histograms, rates, the recorder, the catalogue: what is counted, and how it is named."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.telemetry.catalogue import BY_NAME, METRICS, MetricKind
from quorate.telemetry.histogram import SECONDS, Histogram
from quorate.telemetry.rates import Rate
from quorate.telemetry.recorder import Recorder

KIP_NAMES = {
    "current-state",
    "current-leader",
    "current-vote",
    "current-vote-directory-id",
    "current-epoch",
    "high-watermark",
    "log-end-offset",
    "log-end-epoch",
    "number-of-voters",
    "number-of-observers",
    "number-of-offline-voters",
    "uncommitted-voter-change",
    "IsObserver",
    "number-unknown-voter-connections",
    "ignored-static-voters",
    "commit-latency",
    "election-latency",
    "fetch-records-rate",
    "append-records-rate",
    "poll-idle-ratio",
    "ZkMigrationState",
    "MetadataType",
    "MigratingZkBrokerCount",
    "ZkWriteBehindLag",
    "ZkWriteSnapshotTimeMs",
    "ZkWriteDeltaTimeMs",
}


def test_the_catalogue_has_what_the_kips_name_and_each_name_once() -> None:
    assert set(BY_NAME) >= KIP_NAMES
    assert len(BY_NAME) == len(METRICS)
    assert len({metric.prometheus_name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"quorate_[a-z0-9_]+", metric.prometheus_name)
        assert (metric.source == "Quorate") == (metric.name not in KIP_NAMES)


def test_prometheus_names_carry_units() -> None:
    assert BY_NAME["commit-latency"].prometheus_name == "quorate_commit_latency_seconds"
    assert BY_NAME["pending-bytes"].prometheus_name == "quorate_pending_bytes"
    assert BY_NAME["cpu-time"].prometheus_name == "quorate_cpu_time_seconds_total"
    assert BY_NAME["cpu-time"].kind is MetricKind.COUNTER


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=200))
def test_a_histogram_puts_each_value_where_prometheus_wants_it(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    found = histogram.read()
    assert found.bounds == SECONDS
    assert found.count == len(values)
    assert found.total == pytest.approx(sum(values))
    cumulative = 0
    for bound, count in zip(found.bounds, found.counts, strict=False):
        cumulative += count
        assert cumulative == sum(value <= bound for value in values)


def test_a_histogram_refuses_bounds_that_do_not_grow() -> None:
    for bounds in ((), (2.0, 1.0), (1.0, 1.0)):
        with pytest.raises(AssertionError):
            Histogram(bounds)


def test_a_rate_is_the_average_over_its_window() -> None:
    rate = Rate(window_s=10.0)
    assert rate.per_second() == 0.0
    rate.sample(100.0, 0)
    assert rate.per_second() == 0.0
    for second in range(1, 21):
        rate.sample(100.0 + second, second * 5)
    assert rate.per_second() == pytest.approx(5.0)
    for second in range(21, 40):
        rate.sample(100.0 + second, 100)
    assert rate.per_second() == 0.0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 1000)), min_size=2, max_size=100))
def test_a_rate_is_never_negative_and_keeps_no_more_than_its_window(
    steps: list[tuple[float, int]],
) -> None:
    rate = Rate(window_s=7.0)
    now_s, total = 0.0, 0
    for pause_s, more in steps:
        now_s, total = now_s + pause_s, total + more
        rate.sample(now_s, total)
        assert rate.per_second() >= 0


def test_an_election_lasts_from_the_first_vote_asked_for_to_a_leader() -> None:
    recorder = Recorder()
    recorder.role_changed(1000, elects=False, has_leader=True)
    assert recorder.election_latency.read().count == 0
    recorder.role_changed(2000, elects=True, has_leader=False)
    recorder.role_changed(2400, elects=False, has_leader=False)
    recorder.role_changed(2600, elects=True, has_leader=False)
    recorder.role_changed(3000, elects=False, has_leader=True)
    recorder.role_changed(9000, elects=False, has_leader=True)
    found = recorder.election_latency.read()
    assert (found.count, found.total) == (1, 1.0)
    assert recorder.role_changes == 6
