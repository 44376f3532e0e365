"""What the compatibility tests need from outside: Kafka's golden directories, and Kafka's tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kafka import GOLDEN, KAFKA_4_3, fetch, missing, run_java
from tests.wire.metadata_support import golden_ports, held
from tests.wire.takeover_support import PORT_OFFSET

AT_GOLDEN_ENDPOINTS = {
    "test_metadata_listing",
    "test_metadata_roundtrip",
    "test_recovered_directories",
    "test_takeover",
    "test_takeover_golden",
}
"""The files whose tests listen where the golden logs say."""
WITH_SHARED_FIXTURES = {
    "test_admin_through_brokers",
    "test_controller_apis",
    "test_metadata_records",
    "test_partition_changes",
}
"""The files whose tests share processes, or what a tool wrote."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread the tests over processes, but for those that must run one after the other.

    pytest-xdist 3.8 has marks for that, and ignores them with pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0]).stem
            if file in AT_GOLDEN_ENDPOINTS:
                return "golden endpoints"
            return file if file in WITH_SHARED_FIXTURES else nodeid

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def golden() -> Path:
    """`data/kafka-4.3/quorum`: directories that Kafka 4.3 wrote, read-only."""
    if not GOLDEN.exists():
        missing(f"Kafka's golden directories are not in {GOLDEN} (set QUORATE_SHARED)")
    return GOLDEN


@pytest.fixture(scope="session", autouse=True)
def golden_endpoints() -> Iterator[None]:
    """Holds the endpoints that the logs name, and those of a takeover."""
    if not GOLDEN.exists():
        yield
        return
    ports = golden_ports(GOLDEN).values()
    with held([*ports, *(port + PORT_OFFSET for port in ports)]):
        yield


@pytest.fixture(scope="session")
def kafka_tool() -> Callable[..., str]:
    """Runs one of Kafka 4.3's own tools and returns what it printed."""
    fetch(KAFKA_4_3)
    return partial(run_java, KAFKA_4_3)
