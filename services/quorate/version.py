"""The version of Quorate. Its packages import it from here, because `quorate` imports them."""

from __future__ import annotations

__version__ = "0.1.0"
