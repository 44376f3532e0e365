"""The cluster that KUBECONFIG names, and a release of the chart in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.lab import Lab, Writer, helm_program, run

HINT = (
    "build the images (`docker build --target controller -t quorate:dev .`, `docker build --target "
    "operator -t quorate-operator:dev .`) and set KUBECONFIG to a cluster's that has them (on this "
    "machine: `kind create cluster`, `kind load docker-image quorate:dev quorate-operator:dev`)"
)


@pytest.fixture(scope="session", autouse=True)
def cluster() -> None:
    """Skip with a hint where there is no cluster."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip(f"no cluster: {HINT}")
    for name, found in (("kubectl", shutil.which("kubectl")), ("helm", helm_program())):
        if found is None:
            pytest.skip(f"{name} is not installed; {HINT}")
    if subprocess.run(["kubectl", "version"], capture_output=True).returncode != 0:
        pytest.fail(f"the cluster of KUBECONFIG does not answer; {HINT}")


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """An empty namespace for the test, which must satisfy the restricted Pod Security Standard."""
    namespace = f"quorate-{uuid.uuid4().hex[:6]}"
    run("kubectl", "create", "namespace", namespace)
    run(
        "kubectl",
        "label",
        "namespace",
        namespace,
        "pod-security.kubernetes.io/enforce=restricted",
    )
    lab = Lab(namespace)
    try:
        yield lab
    finally:
        if not os.environ.get("QUORATE_TEST_KEEP"):
            run("kubectl", "delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def writer(lab: Lab) -> Callable[[], Writer]:
    """Starts writers."""
    count = 0

    def start() -> Writer:
        nonlocal count
        count += 1
        made = Writer(lab, f"writer-{count}")
        made.start()
        return made

    return start
