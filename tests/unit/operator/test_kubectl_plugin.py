"""The kubectl plugin, with an API server that answers, refuses, or is not there."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from quorate_operator import kubectl, naming
from quorate_operator.kube.api import Kube, path

from tests.processes import free_ports
from tests.tools.documents import documents
from tests.unit.operator.fake_api import RefusedError, Store, created

Run = Callable[..., tuple[int, str, str]]
FORBIDDEN = (
    'quorums.quorate.dev "q" is forbidden: User "ann" cannot patch resource "quorums" in API group '
    '"quorate.dev" in the namespace "lab"'
)


def kubeconfig(folder: Path, server: str, namespace: str | None = "lab") -> str:
    context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "here", "context": context}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(made))
    return str(file)


@pytest.fixture
def run(api: tuple[Store, Kube], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the plugin with a kubeconfig of the API server; its status, stdout and stderr."""
    file = kubeconfig(tmp_path, api[1]._api.configuration.host)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = kubectl.main(["--kubeconfig", file, *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def quorum_of(kube: Kube) -> dict[str, Any]:
    found = kube.get("Quorum", "lab", "q")
    assert found is not None
    return found


def fenced(kube: Kube) -> str | None:
    annotations = quorum_of(kube)["metadata"].get("annotations") or {}
    found: str | None = annotations.get(naming.FENCED_ANNOTATION)
    return found


STATUS = {
    "observedGeneration": 1,
    "voters": 3,
    "leader": {"id": 3001, "epoch": 7},
    "clusterId": "yFPgY5iXQYqr5sMxfdxu0Q",
    "currentAction": "",
    "operator": "ops/quorate-operator",
    "updateRevision": "q-2",
    "members": [
        {"nodeId": 3000, "role": "voter", "lag": 0, "version": "0.1.0"},
        {"nodeId": 3001, "role": "leader", "lag": 0, "version": "0.1.0"},
        {"nodeId": 3002, "role": "unknown"},
    ],
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "PodFailing", "message": "node 3002: a\nb"},
        {"type": "Degraded", "status": "True", "reason": "PodFailing", "message": "node 3002"},
        {"type": "Paused", "status": "False", "reason": "NotPaused", "message": ""},
    ],
}


def fill(kube: Kube) -> None:
    """A Quorum of which one pod does not start and one volume grows."""
    made = created(kube, firstNodeId=3000)
    kube.merge("Quorum", "lab", "q", {"status": STATUS}, "status")
    for ordinal, size in enumerate(("10Gi", "20Gi", "20Gi")):
        claim = {
            "metadata": {"name": naming.claim("q", ordinal), "labels": naming.labels("q")},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "20Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": size}},
        }
        kube.create("PersistentVolumeClaim", "lab", claim, "test")
        ready = {"type": "Ready", "status": "True"}
        container: dict[str, Any] = {"name": "controller", "restartCount": ordinal}
        status: dict[str, Any] = {"phase": "Running", "conditions": [ready]}
        if ordinal == 2:
            container["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}
            status = {"phase": "Pending"}
        pod = {
            "metadata": {"name": naming.pod("q", ordinal), "labels": naming.labels("q")},
            "spec": {"nodeName": f"machine-{ordinal}"},
            "status": {**status, "containerStatuses": [container]},
        }
        kube.create("Pod", "lab", pod, "test")
    for number, uid in ((1, made.uid), (2, made.uid), (3, "of a Quorum that was deleted")):
        event = {
            "metadata": {"generateName": "q-"},
            "involvedObject": {"kind": "Quorum", "name": "q", "uid": uid},
            "lastTimestamp": f"2026-11-26T12:00:0{number}Z",
            "type": "Normal",
            "reason": f"Reason{number}",
            "message": f"text {number}",
            "count": number,
        }
        kube.create("Event", "lab", event, "test")


def test_status_shows_members_with_pods_and_volumes(api: tuple[Store, Kube], run: Run) -> None:
    fill(api[1])
    code, out, err = run("status", "q")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "  Leader   node 3001 in epoch 7" in lines
    assert "  Operator ops/quorate-operator" in lines
    rows = {line.split()[0]: re.split(r"\s{2,}", line) for line in lines if line.startswith("q-")}
    assert rows["q-1"][1:6] == ["3001", "leader", "0", "0.1.0", "1"]
    assert rows["q-1"][6:] == ["machine-1", "20Gi", "fast", "Ready"]
    assert rows["q-0"][7] == "10Gi of 20Gi"
    assert rows["q-2"][-1] == "container controller: ImagePullBackOff: no image"
    assert "node 3002: a b" in out
    assert "Degraded" in out
    assert "Paused" not in out
    assert "text 2 (2 times)" in out
    assert "text 3" not in out


def test_status_as_json_has_the_same(api: tuple[Store, Kube], run: Run) -> None:
    fill(api[1])
    found = json.loads(run("status", "q", "--json")[1])
    assert found["voters"] == 3
    assert [each["nodeId"] for each in found["members"]] == [3000, 3001, 3002]
    assert found["members"][0]["volume"] == {
        "claim": "data-q-0",
        "phase": "Bound",
        "size": "10Gi",
        "requested": "20Gi",
        "storageClassName": "fast",
    }
    assert found["members"][2]["lag"] is None
    assert len(found["conditions"]) == 3
    assert [each["reason"] for each in found["events"]] == ["Reason1", "Reason2"]


def test_status_of_a_quorum_that_no_operator_has_seen(api: tuple[Store, Kube], run: Run) -> None:
    created(api[1])
    code, out, _ = run("status", "q")
    assert code == 0
    assert "has not observed the last change" in out
    assert "EVENT: none" in out


def test_members_are_fenced_by_pod_or_node_id(api: tuple[Store, Kube], run: Run) -> None:
    kube = api[1]
    created(kube, firstNodeId=3000)
    assert run("fence", "q", "q-2")[0] == 0
    assert fenced(kube) == "q-2"
    assert "already" in run("fence", "q", "3002")[1]
    assert run("fence", "q", "3000")[0] == 0
    assert fenced(kube) == "q-2,q-0"
    assert run("unfence", "q", "q-2")[0] == 0
    assert fenced(kube) == "q-0"
    assert "is not fenced" in run("unfence", "q", "q-2")[1]
    assert run("unfence", "q", "q-0")[0] == 0
    assert fenced(kube) is None
    for wrong in ("q-9", "9", "other-1", "q", "3009"):
        code, _, err = run("fence", "q", wrong)
        assert code == 1
        assert f"{wrong} is not a member of Quorum q: expected a pod such as q-0" in err
    assert fenced(kube) is None


def test_a_request_of_somebody_else_is_not_lost(api: tuple[Store, Kube], run: Run) -> None:
    store, kube = api
    created(kube)
    where = path("Quorum", "lab", "q")

    def first(method: str, at: str, _body: dict[str, Any]) -> None:
        if method == "PATCH" and at == where:
            store.objects[where]["metadata"]["resourceVersion"] = "another"

    store.reject = first
    code, _, err = run("fence", "q", "q-1")
    assert (code, err) == (1, "error: the object has been modified\n")
    assert fenced(kube) is None


def test_restart_approve_and_hibernate(api: tuple[Store, Kube], run: Run) -> None:
    kube = api[1]
    fill(kube)
    kube.merge("Quorum", "lab", "q", {"spec": {"podTemplate": {"annotations": {"a": "b"}}}})
    assert run("restart", "q")[0] == 0
    annotations = quorum_of(kube)["spec"]["podTemplate"]["annotations"]
    assert annotations["a"] == "b"
    assert re.fullmatch(r"[-0-9T:]+Z", annotations["quorate.dev/restarted-at"])
    kube.merge("Quorum", "lab", "q", {"spec": {"rollout": {"approval": "Manual"}}})
    assert "kubectl quorate approve q" in run("restart", "q")[1]
    assert run("approve", "q")[0] == 0
    assert quorum_of(kube)["metadata"]["annotations"][naming.APPROVED_ANNOTATION] == "q-2"
    assert run("hibernate", "on", "q")[0] == 0
    assert quorum_of(kube)["spec"]["hibernated"] is True
    assert run("hibernate", "off", "q")[0] == 0
    assert quorum_of(kube)["spec"]["hibernated"] is False


def test_errors_are_one_line(
    api: tuple[Store, Kube],
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Another test's handler of the root logger would print what urllib3 logs.
    caplog.set_level(logging.ERROR, "urllib3")
    store, kube = api
    created(kube)
    cases = [
        (("status", "other"), "error: no Quorum other in namespace lab"),
        (("status", "q", "-n", "elsewhere"), "error: no Quorum q in namespace elsewhere"),
        (("approve", "q"), "error: Quorum q reports no status.updateRevision"),
        (("--context", "nowhere", "status", "q"), "error: no cluster: the kubeconfig has no"),
    ]

    def forbid(method: str, _path: str, _body: dict[str, Any]) -> None:
        if method == "PATCH":
            raise RefusedError(403, FORBIDDEN)

    store.reject = forbid
    cases += [(("hibernate", "on", "q"), f"error: {FORBIDDEN}")]
    for arguments, said in cases:
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), arguments
        assert err.startswith(said)
    (port,) = free_ports(1)
    gone = kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
    missing = str(tmp_path / "missing")
    (tmp_path / "empty").write_text("")
    for file, said in (
        (gone, "error: the API server does not answer: "),
        (missing, "error: no cluster: "),
        (str(tmp_path / "empty"), "error: no cluster: "),
    ):
        assert kubectl.main(["--kubeconfig", file, "status", "q"]) == 1
        err = capsys.readouterr().err
        assert err.startswith(said), err
        assert err.count("\n") == 1


def test_the_commands_in_documents_exist() -> None:
    lines = [line for document in documents() for line in document.read_text().splitlines()]
    found = [line.split()[2:] for line in lines if line.startswith("kubectl quorate ")]
    assert {kubectl.parser().parse_args(words).command for words in found} == {
        *("status", "fence", "unfence", "restart", "approve", "hibernate")
    }
