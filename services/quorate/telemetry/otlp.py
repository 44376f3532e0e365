"""Exporters to an OpenTelemetry collector over gRPC.

A connection to an https endpoint uses TLS. It trusts the system's authorities, or those in the file
that OTEL_EXPORTER_OTLP_CERTIFICATE names, as OpenTelemetry specifies.
"""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

TIMEOUT_S = 5


def metric_exporter(endpoint: str) -> MetricExporter:
    return OTLPMetricExporter(endpoint, _is_clear(endpoint), timeout=TIMEOUT_S)


def span_exporter(endpoint: str) -> SpanExporter:
    return OTLPSpanExporter(endpoint, _is_clear(endpoint), timeout=TIMEOUT_S)


def _is_clear(endpoint: str) -> bool:
    return not endpoint.startswith("https://")
