"""Quorate: a replicated metadata quorum whose members can change while it runs (KIP-853)."""

__version__ = "0.1.0"
