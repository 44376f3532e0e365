"""Metrics, traces and logs of a node.

This is the lowest layer: every other layer may use it, and it has no notion of a replica.

`catalogue` lists every metric. The hot path uses only `histogram`, `rates` and `recorder`: they
cost well under a microsecond and need no library. `export`, `otlp` and `tracing` need the extra
"telemetry" (OpenTelemetry), which is imported only if a setting requires it.
"""
