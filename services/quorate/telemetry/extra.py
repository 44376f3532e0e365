"""What telemetry cannot do, and the optional dependencies of what it can."""

from __future__ import annotations

EXTRA = "telemetry"


class TelemetryError(Exception):
    """A setting of telemetry that cannot be followed; one line for the person who wrote it."""


class ExtraMissingError(TelemetryError):
    """A setting needs the extra "telemetry"; the line says how to get it."""

    def __init__(self, setting: str, missing: str | None) -> None:
        super().__init__(
            f"{setting} is set, which needs the extra {EXTRA!r}, and {missing} is not installed: "
            f"pip install 'quorate[{EXTRA}]'"
        )
