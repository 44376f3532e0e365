"""What the operator's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from quorate_operator.kube.api import Kube
from quorate_operator.objects import manifests

from tests.unit.operator.fake_api import Store, api_server, created
from tests.unit.operator.fake_nodes import CLUSTER, FakeNodes, serving
from tests.unit.operator.stepping import Lab


@pytest.fixture
def api() -> Iterator[tuple[Store, Kube]]:
    """An API server without objects, and a client of it."""
    with api_server() as found:
        yield found


@pytest.fixture
def lab(api: tuple[Store, Kube]) -> Lab:
    return Lab(*api)


@pytest.fixture
async def nodes(lab: Lab) -> AsyncIterator[FakeNodes]:
    """A quorum of three, without TLS, as desired."""
    async with serving(FakeNodes(3)) as found:
        lab.use(found)
        made = created(lab.kube, tls={"enabled": False})
        await lab.settle()
        for each in (
            manifests.record(made, CLUSTER, adopted=False),
            manifests.marker(made, CLUSTER),
        ):
            lab.kube.create("ConfigMap", "lab", each, "test")
        found.pods(lab.store)
        lab.worker.is_changed = True
        await lab.settle()
        assert lab.condition("Ready")[0] == "True", lab.quorum["status"]
        yield found
