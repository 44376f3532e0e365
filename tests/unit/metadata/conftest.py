"""Where Kafka's own directories are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))


@pytest.fixture(scope="session")
def golden() -> Path:
    """`data/kafka-4.3/quorum`: directories that Kafka 4.3 wrote, read-only."""
    found = SHARED / "data/kafka-4.3/quorum"
    if not found.exists():
        reason = f"Kafka's golden directories are not in {found} (set QUORATE_SHARED)"
        if os.environ.get("CI") and SHARED.exists():
            pytest.fail(reason)
        pytest.skip(reason)
    return found
