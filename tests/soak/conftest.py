"""Three voters whose disks and clocks fail on demand."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from quorate.controller.kafka.settings import GRPC

from tests.soak.nodes import FaultyQuorum, build_library, compiler


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        assert not os.environ.get("CI"), "a C compiler is needed: cc or gcc"
        pytest.skip("no C compiler (cc or gcc) to build the faulty disk with")
    return build_library(tmp_path_factory.mktemp("faults"))


@pytest_asyncio.fixture
async def trio(
    tmp_path: Path, library: Path, request: pytest.FixtureRequest
) -> AsyncIterator[FaultyQuorum]:
    """The parameter, if a test has one, is the protocol between them."""
    protocol: str = getattr(request, "param", GRPC)
    quorum = FaultyQuorum(tmp_path, library, (1, 2, 3), peer_protocol=protocol)
    try:
        await quorum.start()
        yield quorum
    finally:
        await quorum.close()
