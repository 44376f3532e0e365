"""What the errors of the layers below mean to the person at the command line.

Loaded only after something went wrong, since it looks into every layer.
"""

from __future__ import annotations


def explain(error: Exception) -> str | None:
    """One line for the person, or None for an error that nobody foresaw."""
    from quorate.controller.config import ConfigError

    if isinstance(error, ConfigError):
        return str(error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror or error}"
    return None
