"""The browser of each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def browser() -> Iterator[Any]:
    from tests.console.chrome import chromium

    with chromium() as found:
        yield found
