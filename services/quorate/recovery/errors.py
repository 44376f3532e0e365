"""The exception of this package: its text is one line for the person who asked."""

from __future__ import annotations

from quorate.log.errors import LogError


class RecoveryError(LogError):
    """A remedy that is refused, and why. Nothing was changed."""
