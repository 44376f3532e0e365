"""The operator's own metrics, in Prometheus' text format.

The states of Quorums and QuorumBackups are read when the page is rendered, so those of a deleted
one disappear with it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from quorate_operator.naming import Object

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class ReportedQuorum(NamedTuple):
    """A Quorum with the last reported status."""

    namespace: str
    name: str
    status: Object
    observed_s: float
    """When the state was last observed, in seconds since 1970; 0 for never."""


class ReportedBackup(NamedTuple):
    """A QuorumBackup with the last reported status."""

    namespace: str
    name: str
    status: Object
    created: str | None = None
    """When it was created, as the API server writes times; None if it is deleted."""


class OperatorMetrics:
    """The metrics of one operator process. The counters may be used on any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._passes = Counter(
            "quorate_operator_passes",
            "Passes over a Quorum: observe, plan, act.",
            ["result"],
            registry=self._registry,
        )
        self._actions = Counter(
            "quorate_operator_actions",
            "Actions that change something.",
            ["action", "result"],
            registry=self._registry,
        )
        self._requests = Counter(
            "quorate_operator_api_requests",
            "Requests to the API server, watches included; code 0: no answer.",
            ["method", "code"],
            registry=self._registry,
        )
        self._lease = Gauge(
            "quorate_operator_holds_lease",
            "Whether this operator is the active one.",
            registry=self._registry,
        )

    def passed(self, *, is_done: bool) -> None:
        self._passes.labels("done" if is_done else "failed").inc()

    def acted(self, action: str, *, is_done: bool) -> None:
        self._actions.labels(action, "done" if is_done else "failed").inc()

    def requested(self, method: str, code: int) -> None:
        self._requests.labels(method, str(code)).inc()

    def watch_lease(self, is_held: Callable[[], bool]) -> None:
        """Report whether the lease is held from now on."""
        self._lease.set_function(lambda: float(is_held()))

    def watch_quorums(self, quorums: Callable[[], Iterable[ReportedQuorum]]) -> None:
        """Report the conditions of these Quorums from now on."""
        self._registry.register(_Quorums(quorums))

    def watch_backups(self, backups: Callable[[], Iterable[ReportedBackup]]) -> None:
        """Report the conditions and the results of these QuorumBackups from now on."""
        self._registry.register(_Backups(backups))

    def watch_claims(self, claims: Callable[[], Mapping[str, bool]]) -> None:
        """Report which namespaces this operator tends from now on."""
        self._registry.register(_Claims(claims))

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _Quorums(Collector):
    def __init__(self, quorums: Callable[[], Iterable[ReportedQuorum]]) -> None:
        self._quorums = quorums

    def collect(self) -> Iterator[Metric]:
        conditions = GaugeMetricFamily(
            "quorate_quorum_condition",
            "1 for the status (True, False or Unknown) that a condition of a Quorum has.",
            labels=["namespace", "quorum", "condition", "status"],
        )
        observed = GaugeMetricFamily(
            "quorate_quorum_last_observed_timestamp_seconds",
            "When the operator last observed the state of a Quorum.",
            labels=["namespace", "quorum"],
        )
        for each in self._quorums():
            observed.add_metric([each.namespace, each.name], each.observed_s)
            for condition in each.status.get("conditions") or ():
                labels = [each.namespace, each.name, condition["type"], condition["status"]]
                conditions.add_metric(labels, 1.0)
        yield conditions
        yield observed


class _Claims(Collector):
    def __init__(self, claims: Callable[[], Mapping[str, bool]]) -> None:
        self._claims = claims

    def collect(self) -> Iterator[Metric]:
        held = GaugeMetricFamily(
            "quorate_operator_holds_namespace",
            "Whether this operator tends a namespace that it watches; 0: another one may.",
            labels=["namespace"],
        )
        for namespace, is_held in sorted(self._claims().items()):
            held.add_metric([namespace], float(is_held))
        yield held


class _Backups(Collector):
    def __init__(self, backups: Callable[[], Iterable[ReportedBackup]]) -> None:
        self._backups = backups

    def collect(self) -> Iterator[Metric]:
        conditions = GaugeMetricFamily(
            "quorate_backup_condition",
            "1 for the status (True, False or Unknown) that a condition of a QuorumBackup has.",
            labels=["namespace", "name", "type", "status"],
        )
        texts = {
            "quorate_backup_created_timestamp_seconds": "When a QuorumBackup was created.",
            "quorate_backup_last_success_timestamp_seconds": "When a backup last succeeded.",
            "quorate_backup_end_offset": "Where the archive ended then.",
            "quorate_backup_last_drill_timestamp_seconds": "When a restore drill last succeeded.",
            "quorate_backup_drill_end_offset": "Where the archive ended then.",
            "quorate_backup_drill_seconds": "How long that drill took.",
        }
        values = {
            name: GaugeMetricFamily(name, text, labels=["namespace", "name"])
            for name, text in texts.items()
        }
        for each in self._backups():
            labels = [each.namespace, each.name]
            for condition in each.status.get("conditions") or ():
                conditions.add_metric([*labels, condition["type"], condition["status"]], 1.0)
            for family, value in zip(values.values(), _results(each), strict=True):
                if value is not None:
                    family.add_metric(labels, float(value))
        yield conditions
        yield from values.values()


def _results(backup: ReportedBackup) -> Iterator[float | None]:
    """The values of a QuorumBackup, in the order of their metrics; None for an unknown one."""
    status = backup.status
    drill = status.get("lastDrill") or {}
    yield _seconds(backup.created)
    yield _seconds(status.get("lastSuccess"))
    yield status.get("lastOffset")
    yield _seconds(drill.get("time"))
    yield drill.get("endOffset")
    yield drill.get("seconds")


def _seconds(time: str | None) -> float | None:
    """A time of the API server in seconds since 1970; None without one that Python can read.

    Whoever may write a status could otherwise end the page for all.
    """
    try:
        return dt.datetime.fromisoformat(time).timestamp() if time else None
    except (ValueError, OverflowError):
        return None
