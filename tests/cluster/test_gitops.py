"""The manifests of docs/gitops.md, applied again after `kubectl scale`: no voter is removed."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
import yaml

from tests.cluster.conftest import STEADY
from tests.cluster.lab import CHART, Images, Lab, run
from tests.tools.documents import block, command_lines

pytestmark = pytest.mark.timeout(600)

CREATE, CRDS, ESTABLISHED, RENDER, APPLY, READY = command_lines(
    block("docs/gitops.md", "kubectl create namespace quorate")
)
KUSTOMIZE_CRDS, KUSTOMIZE = command_lines(block("docs/gitops.md", "kubectl kustomize"))
SETTLED_S = 10.0
"""The operator acts on a changed Quorum within seconds."""


def names(lab: Lab) -> dict[str, str]:
    """What stands for the page's namespace and paths."""
    return {
        "charts/quorate/crds": str(CHART / "crds"),
        "namespace quorate": f"namespace {lab.namespace}",
        "helm template": "helm template --kube-version 1.34.0",
    }


def values(images: Images) -> dict[str, object]:
    """The page's values, with the images and sizes of this lab."""
    found: dict[str, object] = yaml.safe_load(block("docs/gitops.md", "applyCrd: false"))
    for name, image in (("image", images.controller), ("operator", images.operator)):
        repository, _, tag = image.rpartition(":")
        made = {"repository": repository, "tag": tag}
        found[name] = made if name == "image" else {**found[name], "image": made}  # type: ignore[dict-item]
    requests = {"cpu": "20m", "memory": "96Mi"}
    setting = STEADY.partition("config.")[2].replace("\\", "").partition("=")
    found["quorum"] = {
        **found["quorum"],  # type: ignore[dict-item]
        "storage": {"size": "128Mi"},
        "podTemplate": {"resources": {"requests": requests}},
        "config": {setting[0]: setting[2]},
    }
    return found


def test_manifests_leave_the_replicas_alone(lab: Lab, images: Images, tmp_path: Path) -> None:
    own = names(lab)
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values(images)))
    assert lab.namespace in own["namespace quorate"]
    assert CREATE.endswith("namespace quorate")  # the fixture has created it
    for command in (CRDS, ESTABLISHED, RENDER, APPLY, READY):
        lab.paste(command, own, folder=tmp_path)
    lab.until_ready(3)
    lab.scale(4)
    lab.until_ready(4)
    pods = lab.uids("pods")

    def stays() -> None:
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            assert lab.quorum["spec"]["replicas"] == 4
            assert lab.status["voters"] == 4
            time.sleep(1)
        assert lab.uids("pods") == pods

    lab.paste(RENDER, own, folder=tmp_path)
    lab.paste(APPLY, own, folder=tmp_path)
    stays()

    shutil.copytree(CHART, tmp_path / "charts" / "quorate")
    manifest = yaml.safe_load(block("docs/gitops.md", "kustomize.config.k8s.io"))
    manifest["namespace"] = manifest["helmCharts"][0]["namespace"] = lab.namespace
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(manifest))
    lab.paste(KUSTOMIZE_CRDS, own, folder=tmp_path)
    lab.paste(KUSTOMIZE, folder=tmp_path)
    stays()


def quorum(name: str, **spec: object) -> str:
    """A manifest of a Quorum that the operator does not touch."""
    spec = {"image": "quorate:none", "paused": True, **spec}
    made = {"apiVersion": "quorate.dev/v1alpha1", "kind": "Quorum", "metadata": {"name": name}}
    return json.dumps({**made, "spec": spec})


@pytest.mark.parametrize("is_owned", [True, False])
def test_a_line_that_leaves_the_manifest_takes_the_replicas_with_it(
    lab: Lab, *, is_owned: bool
) -> None:
    """Unless somebody else owns the field."""
    apply = ("apply", "--server-side", "-f", "-")
    lab.kubectl(*apply, text=quorum("meta", replicas=5))
    if is_owned:
        lab.paste(block("docs/gitops.md", "--field-manager=scaling"))
    lab.kubectl(*apply, text=quorum("meta"))
    found = run("kubectl", "-n", lab.namespace, "get", "quorum", "meta", "-o", "json")
    assert json.loads(found)["spec"]["replicas"] == (5 if is_owned else 3)
