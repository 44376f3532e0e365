"""What a node tells of itself: measurements, traces, log lines. The lowest layer: every other may
record here, and nothing here knows what a replica is.

`catalogue` names every metric. `histogram`, `rates` and `recorder` are what the hot path touches:
they cost well under a microsecond and need no library. `export`, `process` and `tracing` need the
extra "telemetry" (OpenTelemetry), which is imported only where a setting asks for it.
"""
