"""The trace that the current task works for, as it travels: W3C's `traceparent`.

Kept apart from `tracing`, which needs OpenTelemetry: the wire reads and writes it whether or not
this process traces anything. Source: W3C Trace Context, level 1, "traceparent header".
"""

from __future__ import annotations

from contextvars import ContextVar

TRACE_PARENT: ContextVar[str] = ContextVar("trace_parent", default="")
"""Empty: none."""

TRACE_PARENT_CHARS = 55
"""Of version 00, the only one there is."""

TRACE_PARENT_KEY = "traceparent"
"""The name of the metadata of a unary call."""
