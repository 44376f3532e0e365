"""Quorate: a replicated metadata quorum whose members can change while it runs (KIP-853)."""

from __future__ import annotations

from quorate.version import __version__

__all__ = ["__version__"]
