"""Spans: where the time of one write went, across clients and controllers.

Needs the extra "telemetry". What traces nothing has no `Tracing` at all and pays nothing; what does
has one a process, and asks it for spans.

The one who begins a trace decides whether it is sampled, and everybody else follows (W3C Trace
Context): a client by its own provider, a controller by its ratio where the client did not say.
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
    """What a child elsewhere needs to know of a span."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def parse_trace_parent(text: str) -> SpanContext | None:
    """What `trace_parent` wrote; None for anything else, which is nobody's fault."""
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
    """Makes the spans of one process. `close` sends what is left."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SCOPE)

    @classmethod
    def to(cls, exporter: SpanExporter, ratio: float, resource: Mapping[str, str]) -> Tracing:
        """Spans in batches to an exporter; `ratio` of the traces that begin here."""
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
        """A request to somebody else, a child of the application's own current span."""
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)
        token = TRACE_PARENT.set(trace_parent(span))
        try:
            with _ending(span):
                yield span
        finally:
            TRACE_PARENT.reset(token)

    @contextmanager
    def serving(self, name: str, attributes: Attributes) -> Iterator[Span]:
        """The answer to a request, a child of what came with it (`context.TRACE_PARENT`)."""
        with _ending(self._begin(name, TRACE_PARENT.get(), SpanKind.SERVER, attributes)) as span:
            yield span

    def following(self, name: str, parent: str, attributes: Attributes) -> Span:
        """Work for a request that is not answered here. The caller ends it."""
        return self._begin(name, parent, SpanKind.CONSUMER, attributes)

    def within(self, name: str, parent: Span, attributes: Attributes) -> Span:
        """A part of `parent`. The caller ends it."""
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
    """Mark a span as one that did not do what it was for."""
    span.set_status(Status(StatusCode.ERROR, reason))
