"""Metrics as Prometheus reads them, spans and their names on the wire."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families
from quorate.telemetry.context import TRACE_PARENT, TRACE_PARENT_CHARS
from quorate.telemetry.export import Metrics
from quorate.telemetry.histogram import Histogram
from quorate.telemetry.samples import Sample
from quorate.telemetry.tracing import Tracing, parse_trace_parent, trace_parent


def test_prometheus_gets_every_sample_and_histogram_once_and_now() -> None:
    latency = Histogram((0.01, 0.1))
    offset = 0

    def collect() -> Iterator[Sample]:
        nonlocal offset
        offset += 1
        yield Sample("high-watermark", offset)
        yield Sample("current-state", 1, {"state": "leader"})
        yield Sample("current-state", 0, {"state": "follower"})
        yield Sample("appended-records", 10 * offset)

    metrics = Metrics(collect, lambda: {"commit-latency": latency.read()}, {})
    try:
        for turn in (1, 2):
            latency.observe(0.05)
            found = list(text_string_to_metric_families(metrics.render().decode()))
            assert len({family.name for family in found}) == len(found)
            values = {
                (sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for family in found
                for sample in family.samples
            }
            assert values["quorate_high_watermark", ()] == turn
            assert values["quorate_current_state", (("state", "leader"),)] == 1
            assert values["quorate_current_state", (("state", "follower"),)] == 0
            assert values["quorate_appended_records_total", ()] == 10 * turn
            name = "quorate_commit_latency_seconds"
            assert values[f"{name}_bucket", (("le", "0.01"),)] == 0
            assert values[f"{name}_bucket", (("le", "0.1"),)] == turn
            assert values[f"{name}_bucket", (("le", "+Inf"),)] == turn
            assert values[f"{name}_count", ()] == turn
            assert values[f"{name}_sum", ()] == pytest.approx(0.05 * turn)
    finally:
        metrics.close()


def test_a_failing_source_fails_its_own_collection_only() -> None:
    is_broken = True

    def collect() -> Iterator[Sample]:
        if is_broken:
            raise OSError("no /proc")
        yield Sample("high-watermark", 5)

    metrics = Metrics(collect, dict, {})
    try:
        assert b"quorate_high_watermark 5" not in metrics.render()
        is_broken = False
        assert b"quorate_high_watermark 5.0" in metrics.render()
    finally:
        metrics.close()


class Kept(MetricExporter):
    """What was exported."""

    def __init__(self) -> None:
        super().__init__()
        self.exported: list[MetricsData] = []
        self.some = threading.Event()

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object
    ) -> MetricExportResult:
        self.exported.append(metrics_data)
        self.some.set()
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        pass


def test_otlp_gets_the_same_at_the_latest_at_the_end() -> None:
    kept = Kept()
    latency = Histogram((0.01, 0.1))
    latency.observe(0.05)
    metrics = Metrics(
        lambda: [Sample("high-watermark", 5)],
        lambda: {"commit-latency": latency.read()},
        {"service.instance.id": "3"},
        kept,
    )
    metrics.close()
    (resource,) = kept.exported[-1].resource_metrics
    assert resource.resource.attributes["service.instance.id"] == "3"
    (scope,) = resource.scope_metrics
    found = {metric.name: metric for metric in scope.metrics}
    assert set(found) == {"high-watermark", "commit-latency"}
    (point,) = found["commit-latency"].data.data_points
    assert list(point.bucket_counts) == [0, 1, 0]  # type: ignore[union-attr]
    (sent,) = encode_metrics(kept.exported[-1]).resource_metrics
    (sent_point,) = {metric.name: metric for metric in sent.scope_metrics[0].metrics}[
        "commit-latency"
    ].histogram.data_points
    assert sent_point.sum == pytest.approx(0.05)
    assert not sent_point.HasField("min")
    assert not sent_point.HasField("max")


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider)


def test_a_span_travels_as_its_traceparent(tracing: Tracing, spans: InMemorySpanExporter) -> None:
    with tracing.calling("calls", {}) as caller:
        carried = TRACE_PARENT.get()
        assert carried == trace_parent(caller)
        assert len(carried) == TRACE_PARENT_CHARS
        with tracing.serving("serves", {}) as server:
            tracing.within("part", server, {}).end()
    assert TRACE_PARENT.get() == ""
    part, serves, calls = spans.get_finished_spans()
    assert [part.name, serves.name, calls.name] == ["part", "serves", "calls"]
    assert part.parent.span_id == serves.context.span_id
    assert serves.parent.span_id == calls.context.span_id
    assert len({span.context.trace_id for span in (part, serves, calls)}) == 1


def test_what_fails_says_so(tracing: Tracing, spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="broken"), tracing.calling("calls", {}):
        raise ValueError("broken")
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert TRACE_PARENT.get() == ""


def test_an_unsampled_trace_stays_so(spans: InMemorySpanExporter) -> None:
    tracing = Tracing.to(spans, 1.0, {})
    parent = f"00-{1:032x}-{2:016x}-00"
    token = TRACE_PARENT.set(parent)
    with tracing.serving("serves", {}) as server:
        assert not server.is_recording()
    TRACE_PARENT.reset(token)
    tracing.close()
    assert spans.get_finished_spans() == ()


@given(st.one_of(st.text(max_size=60), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-..")))
def test_any_traceparent_is_either_understood_or_ignored(text: str) -> None:
    found = parse_trace_parent(text)
    if found is not None:
        assert f"{found.trace_id:032x}" in text
        assert f"{found.span_id:016x}" in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{0:032x}-{2:016x}-01",
        f"00-{1:032x}-{0:016x}-01",
        f"01-{1:032x}-{2:016x}-01",
        f"00-{1:032X}-{0xAB:016X}-01",
        f"00-{1:032x}-{2:016x}-0g",
    ],
)
def test_no_traceparent(text: str) -> None:
    assert parse_trace_parent(text) is None
