"""A release of the chart in a namespace of its own, on the cluster that KUBECONFIG names.

Everything goes through kubectl and helm, as a person would do it. `Writer` is a pod that appends
all the time (`writer.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "quorate"
WAIT_S = 180.0
POLL_S = 0.5
Object = dict[str, Any]


def run(*command: str, check: bool = True, text: str | None = None) -> str:
    """Run a command; what it printed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def helm_program() -> str | None:
    """helm: the variable HELM, or what the path has."""
    return os.environ.get("HELM") or shutil.which("helm")


class Lab:
    """One release, one Quorum of the same name, one namespace."""

    def __init__(self, namespace: str, name: str = "meta") -> None:
        self.namespace = namespace
        self.name = name

    # --- commands ---------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, check: bool = True, text: str | None = None) -> str:
        return run("kubectl", "-n", self.namespace, *arguments, check=check, text=text)

    def helm(self, *arguments: str) -> str:
        program = helm_program()
        assert program is not None
        return run(program, "-n", self.namespace, *arguments)

    def get(self, *what: str) -> Object:
        found: Object = json.loads(self.kubectl("get", *what, "-o", "json"))
        return found

    def install(self, *values: str) -> None:
        sets = [f"--set={value}" for value in (*IMAGES, *values)]
        self.helm("upgrade", "--install", self.name, str(CHART), *sets)

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", f"quorum/{self.name}", f"--replicas={replicas}")

    # --- what is there ----------------------------------------------------------------------------

    @property
    def quorum(self) -> Object:
        return self.get("quorum", self.name)

    @property
    def status(self) -> Object:
        found: Object = self.quorum.get("status") or {}
        return found

    def condition(self, name: str, status: Object | None = None) -> Object:
        conditions = (status or self.status).get("conditions") or ()
        found: Object = next((c for c in conditions if c["type"] == name), {})
        return found

    @property
    def leader(self) -> int:
        def known() -> list[int]:
            leader = self.status.get("leader") or {}
            return [leader["id"]] if "id" in leader else []

        return int(self.until("a leader", known)[0])

    def uids(self, kind: str) -> dict[str, str]:
        items = self.get(kind, "-l", f"app.kubernetes.io/instance={self.name}")["items"]
        return {i["metadata"]["name"]: i["metadata"]["uid"] for i in items}

    def directories(self) -> dict[int, str]:
        return {m["nodeId"]: m.get("directoryId", "") for m in self.status.get("members") or ()}

    # --- waiting ----------------------------------------------------------------------------------

    def until(self, what: str, condition: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (found := condition()):
            if time.monotonic() > deadline:
                print(self.kubectl("get", "quorum", self.name, "-o", "yaml", check=False))
                print(self.kubectl("get", "pods,pvc,events", check=False))
                operator = f"deployment/{self.name}-operator"
                print(self.kubectl("logs", operator, "--tail=80", check=False))
                raise AssertionError(f"not within {timeout_s} s: {what}")
            time.sleep(POLL_S)
        return found

    def until_ready(self, voters: int, *, timeout_s: float = WAIT_S) -> float:
        """Wait until the quorum is as wanted; how long it took, seconds."""
        began = time.monotonic()

        def is_ready() -> bool:
            found = self.quorum
            status = found.get("status") or {}
            return (
                status.get("voters") == voters
                and status.get("replicas") == voters
                and status.get("observedGeneration") == found["metadata"]["generation"]
                and self.condition("Ready", status).get("status") == "True"
            )

        self.until(f"{voters} voters, ready", is_ready, timeout_s)
        return time.monotonic() - began

    # --- faults -----------------------------------------------------------------------------------

    def lose_disk(self, ordinal: int) -> None:
        """Its volume and its pod are deleted; both come back, the volume empty."""
        self.kubectl("delete", "pvc", f"data-{self.name}-{ordinal}", "--wait=false")
        self.kubectl("delete", "pod", f"{self.name}-{ordinal}", "--force", "--grace-period=0")

    def kill_operator(self) -> None:
        selector = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=operator"
        self.kubectl("delete", "pod", "-l", selector, "--force", "--grace-period=0", "--wait=false")


IMAGES = (
    f"image.repository={os.environ.get('QUORATE_TEST_IMAGE', 'quorate')}",
    f"image.tag={os.environ.get('QUORATE_TEST_TAG', 'dev')}",
    f"operator.image.repository={os.environ.get('QUORATE_TEST_OPERATOR', 'quorate-operator')}",
    f"operator.image.tag={os.environ.get('QUORATE_TEST_TAG', 'dev')}",
    "quorum.storage.size=128Mi",
    "quorum.podTemplate.resources.requests.cpu=20m",
    "quorum.podTemplate.resources.requests.memory=96Mi",
)


class Writer:
    """A pod that appends all the time, from `start` to `stop`."""

    def __init__(self, lab: Lab, name: str) -> None:
        self._lab = lab
        self._name = name

    def start(self) -> None:
        lab = self._lab
        spec = lab.quorum["spec"]
        hosts = [
            f"{lab.name}-{n}.{lab.name}-controllers.{lab.namespace}.svc:9093" for n in range(3)
        ]
        code = Path(__file__).with_name("writer.py").read_text()
        volumes: list[Object] = []
        mounts: list[Object] = []
        if spec["tls"]["enabled"]:
            source = {"secretName": f"{lab.name}-client-tls", "defaultMode": 0o444}
            volumes = [{"name": "tls", "secret": source}]
            mounts = [{"name": "tls", "mountPath": "/tls"}]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self._name, "labels": {"quorate.dev/client": "true"}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 60,
                "automountServiceAccountToken": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "writer",
                        "image": spec["image"],
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python", "-c", code],
                        "env": [{"name": "BOOTSTRAP", "value": ",".join(hosts)}],
                        "volumeMounts": mounts,
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }
                ],
                "volumes": volumes,
            },
        }
        lab.kubectl("apply", "-f", "-", text=json.dumps(pod))
        lab.until("the writer writes", lambda: self._acknowledged() > 0)

    def _lines(self) -> list[Object]:
        text = self._lab.kubectl("logs", self._name, check=False)
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def _acknowledged(self) -> int:
        lines = self._lines()
        return int(lines[-1].get("acknowledged", 0)) if lines else 0

    def mark(self) -> None:
        """`longest_gap_ms` begins here."""
        self._lab.kubectl("exec", self._name, "--", "sh", "-c", "kill -USR1 1")
        time.sleep(0.6)

    def longest_gap_ms(self) -> int:
        """The longest time without an acknowledgement since `mark`."""
        time.sleep(0.6)
        return int(self._lines()[-1]["gap_ms"])

    def is_writing(self) -> bool:
        before = self._acknowledged()
        time.sleep(2.5)
        return self._acknowledged() > before

    def stop(self) -> Object:
        """End the writing; what its own check of the whole log says."""
        self._lab.kubectl("exec", self._name, "--", "sh", "-c", "kill -TERM 1")

        def last() -> Object | None:
            lines = self._lines()
            return lines[-1] if lines and "violations" in lines[-1] else None

        found: Object = self._lab.until("the writer's check", last)
        self._lab.kubectl("delete", "pod", self._name, "--force", "--grace-period=0")
        return found
