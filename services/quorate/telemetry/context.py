"""The trace context of the current task, as a W3C `traceparent`.

It is separate from `tracing`, which needs OpenTelemetry: the RPC layer reads and writes it whether
or not this process exports traces. Source: W3C Trace Context, level 1, "traceparent header".
"""

from __future__ import annotations

from contextvars import ContextVar

TRACE_PARENT: ContextVar[str] = ContextVar("trace_parent", default="")
"""Empty if there is no trace."""

TRACE_PARENT_CHARS = 55
"""The length in version 00, the only version that is specified."""

TRACE_PARENT_KEY = "traceparent"
"""The metadata key of the `traceparent` in a unary call."""
