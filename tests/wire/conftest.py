"""What the compatibility tests need from outside: Kafka's golden directories, and Kafka's tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.kafka import GOLDEN, KAFKA_4_3, fetch, missing, run_java


@pytest.fixture(scope="session")
def golden() -> Path:
    """`data/kafka-4.3/quorum`: directories that Kafka 4.3 wrote, read-only."""
    if not GOLDEN.exists():
        missing(f"Kafka's golden directories are not in {GOLDEN} (set QUORATE_SHARED)")
    return GOLDEN


@pytest.fixture(scope="session")
def kafka_tool() -> Callable[..., str]:
    """Runs one of Kafka 4.3's own tools and returns what it printed."""
    fetch(KAFKA_4_3)
    return partial(run_java, KAFKA_4_3)
