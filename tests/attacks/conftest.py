"""Quorums of real processes that end with the test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.soak.nodes import FaultyQuorum, build_library, compiler

MakeQuorum = Callable[..., Awaitable[FaultyQuorum]]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that lets disks fail."""
    if compiler() is None:
        assert not os.environ.get("CI"), "a C compiler is needed: cc or gcc"
        pytest.skip("no C compiler (cc or gcc) to build the faulty disk with")
    return build_library(tmp_path_factory.mktemp("faults"))


@pytest_asyncio.fixture
async def make_quorum(tmp_path: Path) -> AsyncIterator[MakeQuorum]:
    """Makes and starts quorums of voters 1, 2 and 3, or others."""
    made: list[FaultyQuorum] = []

    async def make(
        ids: tuple[int, ...] = (1, 2, 3), library: Path | None = None, **settings: object
    ) -> FaultyQuorum:
        quorum = FaultyQuorum(tmp_path / f"quorum-{len(made)}", library, ids, **settings)
        made.append(quorum)
        await quorum.start()
        return quorum

    yield make
    for quorum in made:
        await quorum.close()
