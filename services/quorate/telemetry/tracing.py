"""Spans that show where the time of a write goes, across clients and controllers.

This module needs the extra "telemetry". A process that does not trace has no `Tracing`, and no
cost. A process that traces has one, which creates its spans.

The process that starts a trace decides whether it is sampled, and all others follow (W3C Trace
Context). A client decides by its own provider, a controller by its ratio if the client did not
decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from quorate.telemetry.context import TRACE_PARENT, TRACE_PARENT_CHARS

SCOPE = "quorate"

Attributes = Mapping[str, str | int]


def trace_parent(span: Span) -> str:
    """The `traceparent` of a span, for child spans in other processes."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def parse_trace_parent(text: str) -> SpanContext | None:
    """Parse what `trace_parent` wrote; None for any other text, which is not an error."""
    parts = text.split("-")
    if len(text) != TRACE_PARENT_CHARS or [len(part) for part in parts] != [2, 32, 16, 2]:
        return None
    if parts[0] != "00" or not all(c in "0123456789abcdef-" for c in text):
        return None
    context = SpanContext(
        int(parts[1], 16),
        int(parts[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(parts[3], 16)),
    )
    return context if context.is_valid else None


class Tracing:
    """Creates the spans of one process. `close` exports the pending ones."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SCOPE)

    @classmethod
    def to(cls, exporter: SpanExporter, ratio: float, resource: Mapping[str, str]) -> Tracing:
        """Export spans in batches. ratio: the share of the traces started here that is sampled."""
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=Resource.create({"service.name": SCOPE, **resource}),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    def close(self) -> None:
        self._provider.shutdown()

    @contextmanager
    def calling(self, name: str, attributes: Attributes) -> Iterator[Span]:
        """The span of an outgoing request, a child of the application's current span."""
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)
        token = TRACE_PARENT.set(trace_parent(span))
        try:
            with _ending(span):
                yield span
        finally:
            TRACE_PARENT.reset(token)

    @contextmanager
    def serving(self, name: str, attributes: Attributes) -> Iterator[Span]:
        """The span of serving a request, a child of the caller's (`context.TRACE_PARENT`)."""
        with _ending(self._begin(name, TRACE_PARENT.get(), SpanKind.SERVER, attributes)) as span:
            yield span

    def following(self, name: str, parent: str, attributes: Attributes) -> Span:
        """The span of work for a request that another process serves. The caller ends it."""
        return self._begin(name, parent, SpanKind.CONSUMER, attributes)

    def within(self, name: str, parent: Span, attributes: Attributes) -> Span:
        """A child span of `parent`. The caller ends it."""
        context = set_span_in_context(parent, Context())
        return self._tracer.start_span(name, context, attributes=attributes)

    def _begin(self, name: str, parent: str, kind: SpanKind, attributes: Attributes) -> Span:
        context = Context()
        remote = parse_trace_parent(parent)
        if remote is not None:
            context = set_span_in_context(NonRecordingSpan(remote), context)
        return self._tracer.start_span(name, context, kind, attributes)


@contextmanager
def _ending(span: Span) -> Iterator[Span]:
    try:
        yield span
    except BaseException as error:
        fail(span, f"{type(error).__name__}: {error}")
        raise
    finally:
        span.end()


def fail(span: Span, reason: str) -> None:
    """Mark a span as failed."""
    span.set_status(Status(StatusCode.ERROR, reason))
