"""The errors of telemetry, and the extra with its optional dependencies."""

from __future__ import annotations

EXTRA = "telemetry"


class TelemetryError(Exception):
    """A telemetry setting cannot be applied. The text is one line for the user."""


class ExtraMissingError(TelemetryError):
    """A setting needs the extra "telemetry". The text says how to install it."""

    def __init__(self, setting: str, missing: str | None) -> None:
        super().__init__(
            f"{setting} requires the extra {EXTRA!r}, but {missing} is not installed: pip install "
            f"'quorate[{EXTRA}]'"
        )
