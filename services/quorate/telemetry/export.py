"""Exports metrics in Prometheus' text format and over OTLP, with OpenTelemetry instruments.

1. Every metric of the catalogue except the histograms is an observable instrument of the SDK. A
   collection calls `collect` once, and the callback of each instrument reports its part.
2. `histogram.Histogram` counts the histograms. They are added to the data that the SDK collected,
   on its way to the exporter, as data points of the SDK's own type.
3. No work happens between two collections.

Callbacks run on the collecting thread; `collect` and `histograms` must be safe to call there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    MetricExporter,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.metrics.export import Metric as MetricData
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from quorate.telemetry.catalogue import BY_NAME, METRICS, PREFIX, Metric, MetricKind
from quorate.telemetry.histogram import Distribution
from quorate.telemetry.samples import Sample

SCOPE = "quorate"
SAME_COLLECTION_S = 0.2
"""Callbacks within this time belong to one collection and share one reading, seconds."""

OTLP_PERIOD_MS = 10_000
OTLP_TIMEOUT_MS = 5_000

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

Collect = Callable[[], Iterable[Sample]]
Histograms = Callable[[], Mapping[str, Distribution]]


class Metrics:
    """The instruments of one process. `render` returns them in Prometheus' text format.

    collect: returns all current samples. histograms: returns the histograms by metric name.
    resource: the OTLP attributes of the process, such as `service.instance.id`. otlp: receives the
    metrics every ten seconds; None for no OTLP.
    """

    def __init__(
        self,
        collect: Collect,
        histograms: Histograms,
        resource: Mapping[str, str],
        otlp: MetricExporter | None = None,
    ) -> None:
        self._collect = collect
        self._histograms = histograms
        self._guard = threading.Lock()
        self._samples: dict[str, list[Observation]] = {}
        self._read_at = -SAME_COLLECTION_S
        self._began_ns = time.time_ns()
        self._registry = CollectorRegistry()
        readers: list[MetricReader] = [_Prometheus(self, self._registry)]
        if otlp is not None:
            readers.append(_Otlp(self, otlp))
        self._provider = MeterProvider(
            readers, Resource.create({"service.name": SCOPE, **resource}), shutdown_on_exit=False
        )
        meter = self._provider.get_meter(SCOPE)
        for metric in METRICS:
            if metric.kind is not MetricKind.HISTOGRAM:
                self._observe(meter, metric)

    def render(self) -> bytes:
        """The current metrics in Prometheus' text format.

        This takes milliseconds: call it in a worker thread.
        """
        with self._guard:
            self._read_at = -SAME_COLLECTION_S
        return generate_latest(self._registry)

    def close(self) -> None:
        """Export the remaining metrics and shut down."""
        self._provider.shutdown(timeout_millis=OTLP_TIMEOUT_MS)

    def _observe(self, meter: Meter, metric: Metric) -> None:
        def read(_: CallbackOptions) -> Sequence[Observation]:
            return self._reading().get(metric.name, ())

        create = (
            meter.create_observable_counter
            if metric.kind is MetricKind.COUNTER
            else meter.create_observable_gauge
        )
        create(metric.name, [read], metric.unit, metric.description)

    def _reading(self) -> Mapping[str, Sequence[Observation]]:
        with self._guard:
            if time.monotonic() - self._read_at >= SAME_COLLECTION_S:
                samples: dict[str, list[Observation]] = {}
                for sample in self._collect():
                    observation = Observation(sample.value, sample.attributes)
                    samples.setdefault(sample.name, []).append(observation)
                self._samples, self._read_at = samples, time.monotonic()
            return self._samples

    def with_histograms(self, collected: MetricsData) -> MetricsData:
        """The data that the SDK collected, with the histograms added in the same scope."""
        added = [self._point(name, found) for name, found in self._histograms().items()]
        resources = [
            replace(
                each,
                scope_metrics=[
                    replace(scope, metrics=[*scope.metrics, *added])
                    if scope.scope.name == SCOPE
                    else scope
                    for scope in each.scope_metrics
                ],
            )
            for each in collected.resource_metrics
        ]
        return MetricsData(resources)

    def _point(self, name: str, found: Distribution) -> MetricData:
        metric = BY_NAME[name]
        point = HistogramDataPoint(
            attributes={},
            start_time_unix_nano=self._began_ns,
            time_unix_nano=time.time_ns(),
            count=found.count,
            sum=found.total,
            bucket_counts=found.counts,
            explicit_bounds=found.bounds,
            # A distribution has no minimum and maximum. OTLP omits fields that are None.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
        )
        data = HistogramData([point], AggregationTemporality.CUMULATIVE)
        return MetricData(metric.name, metric.description, metric.unit, data)


class _Prometheus(PrometheusMetricReader):
    def __init__(self, metrics: Metrics, registry: CollectorRegistry) -> None:
        super().__init__(
            disable_target_info=True, prefix=PREFIX, scope_info_enabled=False, registry=registry
        )
        self._ours = metrics

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object
    ) -> None:
        added = self._ours.with_histograms(metrics_data)
        super()._receive_metrics(added, timeout_millis, **kwargs)


class _Otlp(PeriodicExportingMetricReader):
    def __init__(self, metrics: Metrics, exporter: MetricExporter) -> None:
        self._ours = metrics
        super().__init__(exporter, OTLP_PERIOD_MS, OTLP_TIMEOUT_MS)

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object
    ) -> None:
        added = self._ours.with_histograms(metrics_data)
        super()._receive_metrics(added, timeout_millis, **kwargs)
