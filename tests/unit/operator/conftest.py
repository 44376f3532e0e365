"""What the operator's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quorate_operator.kube import Kube

from tests.unit.operator.fake_api import Store, api_server


@pytest.fixture
def api() -> Iterator[tuple[Store, Kube]]:
    """An API server without objects, and a client of it."""
    with api_server() as found:
        yield found
