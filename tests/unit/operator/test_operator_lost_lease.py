"""The process `quorate-operator` when another one has taken its lease."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from quorate_operator import naming
from quorate_operator.kube.api import Kube, KubeError, path
from quorate_operator.main import LEASE_NAME

from tests.processes import Process, until
from tests.unit.operator.fake_api import Store, api_server, created

pytestmark = pytest.mark.slow

NAMESPACE = "lab"
LEASE = path("Lease", NAMESPACE, LEASE_NAME)
SERVICE = path("Service", NAMESPACE, naming.service("q"))
HERE, ELSEWHERE = "here", "elsewhere"


class OperatorProcess(Process):
    """An operator of the namespace. kubeconfig: names the API server."""

    def __init__(self, log_file: Path, kubeconfig: Path) -> None:
        options = ("--namespace", NAMESPACE, "--identity", HERE, "--no-apply-crd")
        module = (sys.executable, "-m", "quorate_operator.main")
        super().__init__("the operator", log_file, *module, *options)
        self._kubeconfig = kubeconfig

    @property
    def variables(self) -> Mapping[str, str]:
        return {"KUBECONFIG": str(self._kubeconfig)}


def kubeconfig(url: str) -> str:
    """A file for kubectl and the like, without credentials."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


def holders(store: Store) -> list[str]:
    """Who has held the lease, one after the other."""
    found = [
        event["object"]["spec"]["holderIdentity"]
        for _, event in store.history
        if event["path"] == LEASE
    ]
    return [each for each, before in zip(found, ["", *found], strict=False) if each != before]


def take(kube: Kube) -> bool:
    """Take the lease, unless its holder renews it at the same time."""
    lease = kube.get("Lease", NAMESPACE, LEASE_NAME)
    assert lease is not None
    lease["spec"] |= {"holderIdentity": ELSEWHERE, "leaseDurationSeconds": 2}
    try:
        return bool(kube.replace("Lease", NAMESPACE, lease))
    except KubeError as error:
        if not error.is_conflict:
            raise
        return False


def test_it_starts_again_in_place_and_waits_for_the_lease(tmp_path: Path) -> None:
    """The kubelet would restart a process that ends, but after minutes if it ends often."""
    with api_server() as (store, kube):
        (tmp_path / "config").write_text(kubeconfig(store.url))
        with OperatorProcess(tmp_path / "log", tmp_path / "config") as operator:
            operator.start()
            operator.wait_until("it holds the lease", lambda: holders(store) == [HERE])
            until("the lease is taken", lambda: take(kube))
            created(kube, replicas=1, tls={"enabled": False})
            operator.wait_said("this process no longer holds the lease: starting again")
            operator.wait_until("it reconciles", lambda: SERVICE in store.objects)
            assert holders(store) == [HERE, ELSEWHERE, HERE]
            paths = [event["path"] for _, event in store.history]
            last = max(at for at, each in enumerate(paths[: paths.index(SERVICE)]) if each == LEASE)
            assert store.history[last][1]["object"]["spec"]["holderIdentity"] == HERE
            assert operator.said().count("acquired the lease") == 2
            assert operator.stop() == 0
