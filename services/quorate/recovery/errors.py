"""The exception of this package: its message is one line for the operator."""

from __future__ import annotations

from quorate.log.errors import LogError


class RecoveryError(LogError):
    """A remedy is refused; the message gives the reason. Nothing was changed."""
