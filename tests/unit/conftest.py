"""Hypothesis has no deadlines here: on a busy machine, any example may take longer."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without-deadlines", settings(), deadline=None)
settings.load_profile("without-deadlines")
