"""The manifests of docs/gitops.md: what they render, and what their health checks say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from quorate_operator import naming
from quorate_operator.backups.resource import KIND as BACKUP_KIND
from quorate_operator.crd import quorum_schema
from quorate_operator.planning.plan import Reason

from tests.cluster.lab import CHART, helm_program
from tests.tools.documents import ROOT, Block, blocks

Object = dict[str, Any]
PAGE = "docs/gitops.md"
KUBE = "1.34.0"
WANTED = {
    *("ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy", "Quorum", "Role"),
    *("RoleBinding", "ServiceAccount"),
}


def manifests() -> list[Object]:
    """All objects in the page's YAML."""
    found: list[Block] = [each for each in blocks(ROOT / PAGE) if each.language == "yaml"]
    assert len(found) == 6
    return [item for each in found for item in yaml.safe_load_all(each.text)]


def manifest(kind: str, version: str = "") -> Object:
    (found,) = (
        each
        for each in manifests()
        if each.get("kind") == kind and version in each.get("apiVersion", "")
    )
    return found


def values() -> Object:
    (found,) = (each for each in manifests() if "kind" not in each)
    return found


@pytest.fixture(scope="module")
def helm() -> str:
    found = helm_program()
    if found is None:
        pytest.skip("helm is in none of HELM, the path and the lab's tools")
    return found


def render(helm: str, given: Object, folder: Path, *options: str) -> dict[str, Object]:
    """The objects by Kind/name."""
    file = folder / "given.yaml"
    file.write_text(yaml.safe_dump(given))
    command = (helm, "template", "meta", str(CHART), "--namespace", "quorate")
    more = ("--kube-version", KUBE, "--values", str(file), *options)
    return objects(subprocess.run([*command, *more], capture_output=True, text=True))


def objects(done: subprocess.CompletedProcess[str]) -> dict[str, Object]:
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def test_what_is_rendered_has_neither_replicas_nor_the_test(helm: str, tmp_path: Path) -> None:
    made = render(helm, values(), tmp_path, "--skip-tests")
    kinds = {each["kind"] for each in made.values()}
    assert kinds == WANTED - {"ClusterRole", "ClusterRoleBinding"}
    quorum = made["Quorum/meta"]
    assert "replicas" not in quorum["spec"]
    assert quorum["spec"]["rollout"]["approval"] == "Manual"
    assert all(each["metadata"]["namespace"] == "quorate" for each in made.values())
    assert "Pod/meta-test" in render(helm, values(), tmp_path)


def test_each_tool_gets_the_same_values(helm: str, tmp_path: Path) -> None:
    ours = values()
    argo = yaml.safe_load(manifest("Application")["spec"]["source"]["helm"]["values"])
    assert argo == ours
    flux = manifest("HelmRelease")["spec"]["values"]
    assert flux["quorum"] == {"rollout": ours["quorum"]["rollout"]}
    assert flux["operator"] == ours["operator"]
    # In a cluster Helm finds the live number; here there is none.
    quorum = render(helm, flux, tmp_path, "--skip-tests")["Quorum/meta"]
    assert quorum["spec"].pop("replicas") == 3
    assert quorum == render(helm, ours, tmp_path, "--skip-tests")["Quorum/meta"]


def test_kustomize_makes_the_same_objects(helm: str, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    shutil.copytree(CHART, tmp_path / "charts" / "quorate")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values()))
    made = manifest("Kustomization", "kustomize.config")
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(made))
    command = (kubectl, "kustomize", "--enable-helm", "--helm-command", helm, ".")
    found = objects(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True))
    crds = {name for name in found if name.startswith("CustomResourceDefinition/")}
    assert len(crds) == 2
    wanted = render(helm, values(), tmp_path, "--skip-tests")
    assert {name: each for name, each in found.items() if name not in crds} == wanted


def test_the_paths_and_kinds_are_those_of_the_chart() -> None:
    application, release = manifest("Application")["spec"], manifest("HelmRelease")["spec"]
    assert (ROOT / application["source"]["path"]) == CHART
    assert (ROOT / release["chart"]["spec"]["chart"]) == CHART
    (ignored,) = application["ignoreDifferences"]
    assert (ignored["group"], ignored["kind"]) == (naming.GROUP, naming.KIND)
    assert (
        manifest("Application")["metadata"]["name"] != application["source"]["helm"]["releaseName"]
    )
    (drift,) = release["driftDetection"]["ignore"]
    assert (drift["paths"], drift["target"]) == (ignored["jsonPointers"], {"kind": naming.KIND})


# --- health ---------------------------------------------------------------------------------------


def scripts() -> dict[str, str]:
    """Argo CD's health checks, by kind."""
    data = manifest("ConfigMap")["data"]
    prefix = f"resource.customizations.health.{naming.GROUP}_"
    return {key.removeprefix(prefix): text for key, text in data.items() if prefix in key}


def quorum(ready: str, reason: str = "AsWanted", *, seen: int = 2, **others: str) -> Object:
    conditions = {"Ready": ready, "Bootstrapped": "True", "Quorate": "True", **others}
    listed = [
        {"type": name, "status": status, "reason": reason if name == "Ready" else "", "message": ""}
        for name, status in conditions.items()
    ]
    status = {"observedGeneration": seen, "conditions": listed}
    return {"metadata": {"generation": 2}, "status": status}


HEALTH = [
    ({"metadata": {"generation": 1}}, "Progressing"),
    (quorum("True", seen=1), "Progressing"),
    (quorum("True"), "Healthy"),
    (quorum("False", "RestartPod"), "Progressing"),
    (quorum("False", "ApprovalRequired"), "Suspended"),
    (quorum("False", "Hibernated", Hibernated="True", Quorate="False"), "Suspended"),
    (quorum("False", "InvalidSpec"), "Degraded"),
    (quorum("False", "NodesMissing", Quorate="False"), "Degraded"),
    (quorum("False", "NotYet", Quorate="False", Bootstrapped="False"), "Progressing"),
    (quorum("False", "Conflict", Conflict="True"), "Degraded"),
    (quorum("Unknown", "ObservationFailed", Quorate="Unknown"), "Degraded"),
]


@pytest.mark.parametrize(("found", "health"), HEALTH)
def test_argo_cd_sees_the_health_of_a_quorum(found: Object, health: str) -> None:
    assert run_lua(scripts()["Quorum"], found) == health


BACKUPS = [
    (quorum("True", "BackingUp"), "Healthy"),
    (quorum("Unknown", "NoRunYet"), "Healthy"),
    (quorum("Unknown", "NoAnswer"), "Progressing"),
    (quorum("False", "BackupFailing"), "Degraded"),
    (quorum("False", "Suspended"), "Suspended"),
    (quorum("True", "BackingUp", seen=1), "Progressing"),
]


@pytest.mark.parametrize(("found", "health"), BACKUPS)
def test_argo_cd_sees_the_health_of_a_backup(found: Object, health: str) -> None:
    assert run_lua(scripts()["QuorumBackup"], found) == health


def run_lua(script: str, found: Object) -> str:
    """What the script says, in the Lua of Argo CD's version, 5.1."""
    lua = pytest.importorskip("lupa.lua51", reason="needs the extra `test`")
    runtime = lua.LuaRuntime()
    runtime.globals()["obj"] = runtime.table_from(found, recursive=True)
    return str(runtime.execute(script)["status"])


def test_the_health_checks_name_what_the_operator_reports() -> None:
    quorums, backups = scripts()["Quorum"], scripts()["QuorumBackup"]
    assert set(re.findall(r"\bis\.(\w+)", quorums)) <= set(quorum_schema.CONDITIONS)
    assert set(re.findall(r'reason == "(\w+)"', quorums)) <= {each.value for each in Reason}
    assert scripts().keys() == {naming.KIND, BACKUP_KIND}
    source = (ROOT / "operator/quorate_operator/backups/status.py").read_text()
    for reason in re.findall(r'reason == "(\w+)"', backups):
        assert f'"{reason}"' in source, reason


FLUX = [
    (quorum("True", seen=1), "inProgress"),
    (quorum("True"), "current"),
    (quorum("False", "Hibernated", Hibernated="True"), "current"),
    (quorum("False", "RestartPod"), ""),
    (quorum("False", "Conflict", Conflict="True"), "failed"),
]


@pytest.mark.parametrize(("found", "outcome"), FLUX)
def test_flux_sees_the_health_of_a_quorum(found: Object, outcome: str) -> None:
    """The first expression that is true decides, in Flux's order."""
    celpy = pytest.importorskip("celpy", reason="needs cel-python, which no extra has")
    (check,) = manifest("Kustomization", "kustomize.toolkit")["spec"]["healthCheckExprs"]
    environment = celpy.Environment()
    fields = {name: celpy.json_to_cel(json.loads(json.dumps(each))) for name, each in found.items()}
    said = [
        name
        for name in ("inProgress", "failed", "current")
        if environment.program(environment.compile(check[name])).evaluate(fields)
    ]
    assert (said or [""])[0] == outcome
