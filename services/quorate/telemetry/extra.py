"""The optional dependencies, and what to say when a setting asks for one that is not there."""

from __future__ import annotations

EXTRA = "telemetry"


class ExtraMissingError(Exception):
    """A setting needs the extra "telemetry"; one line that says how to get it."""

    def __init__(self, setting: str, missing: str) -> None:
        super().__init__(
            f"{setting} is set and needs the extra {EXTRA!r}, which is not installed "
            f"({missing} is missing): pip install 'quorate[{EXTRA}]'"
        )
