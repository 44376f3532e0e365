"""A release of the chart in a namespace of its own, on the cluster that KUBECONFIG names.

Everything goes through kubectl and helm, as a person would do it. `Writer` is a pod that appends
all the time (`writer.py`).
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.cluster import figures

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
TOOLS = Path(os.environ.get("KUBE_BIN", Path.home() / ".cache" / "kube-lab" / "bin"))
KEY = "/etc/quorate/key/tls.key"
"""A pod's own private key."""
DATA = "/var/lib/quorate/metadata"
"""Where a pod has its replica's files."""
CHART = Path(os.environ.get("QUORATE_TEST_CHART", ROOT / "charts" / "quorate"))
WRITERS = "quorate.dev/client=true"
WAIT_S = 400.0
"""The scheduler may miss that a new volume claim of an old name is bound; it tries such a pod again
after 5 minutes.
"""
POLL_S = 0.3
Object = dict[str, Any]


def run(*command: str, check: bool = True, text: str | None = None) -> str:
    """Run a command; what it printed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def helm_program() -> str | None:
    """helm: the variable HELM, what the path has, or the lab's."""
    given = os.environ.get("HELM") or shutil.which("helm")
    return given or (str(TOOLS / "helm") if (TOOLS / "helm").exists() else None)


class Images(NamedTuple):
    """References of images that the cluster has."""

    controller: str
    operator: str

    @property
    def values(self) -> tuple[str, ...]:
        """For helm."""
        found = []
        for prefix, image in (("", self.controller), ("operator.", self.operator)):
            repository, _, tag = image.rpartition(":")
            found += [f"{prefix}image.repository={repository}", f"{prefix}image.tag={tag}"]
        return tuple(found)


class Lab:
    """One release, one Quorum of the same name, one namespace."""

    poll_s = POLL_S

    def __init__(self, namespace: str, images: Images, name: str = "meta") -> None:
        self.namespace = namespace
        self.images = images
        self.name = name

    # --- commands ---------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, check: bool = True, text: str | None = None) -> str:
        return run("kubectl", "-n", self.namespace, *arguments, check=check, text=text)

    def helm(self, *arguments: str) -> str:
        program = helm_program()
        assert program is not None
        return run(program, "-n", self.namespace, *arguments)

    def paste(
        self,
        commands: str,
        names: Mapping[str, str] | None = None,
        *,
        folder: Path = ROOT,
        check: bool = True,
    ) -> str:
        """Run commands of the documents in a shell, in this namespace; what they printed.

        names: what stands for something else. The chart is given this lab's images and sizes.
        """
        program = helm_program()
        assert program is not None
        values = " ".join(f"--set={value}" for value in (*self.images.values, *SMALL))
        replaced = {"charts/quorate": f"{CHART} {values}", **(names or {})}
        pattern = "|".join(map(re.escape, sorted(replaced, key=len, reverse=True)))
        text = re.sub(pattern, lambda found: replaced[found[0]], commands)
        with TemporaryDirectory() as place:
            config = Path(place) / "config"
            config.write_text(run("kubectl", "config", "view", "--raw", "--flatten"))
            context = ("config", "set-context", "--current", f"--namespace={self.namespace}")
            run("kubectl", "--kubeconfig", str(config), *context)
            own_programs = (str(Path(each).parent) for each in (program, sys.executable))
            path = os.pathsep.join((*own_programs, os.environ["PATH"]))
            own = {"KUBECONFIG": str(config), "HELM_NAMESPACE": self.namespace, "PATH": path}
            done = subprocess.run(
                ["sh", "-ec", text],
                cwd=folder,
                env=os.environ | own,
                capture_output=True,
                text=True,
                timeout=300,
            )
        assert not check or done.returncode == 0, (text, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def kubectl_exec(self, ordinal: int, *command: str) -> str:
        """Run a command in a controller's pod, once the pod is ready: the Quorum's status may be
        older than the deletion of a pod.
        """
        pod = f"{self.name}-{ordinal}"
        self.until(f"pod {pod} is ready", lambda: self.is_ready(pod))
        return self.kubectl("exec", pod, "--", *command)

    def is_ready(self, pod: str) -> bool:
        found = self.kubectl("get", "pod", pod, "--ignore-not-found", "-o", "json")
        if not found:
            return False
        item: Object = json.loads(found)
        conditions = item["status"].get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        return ready and "deletionTimestamp" not in item["metadata"]

    def get(self, *what: str) -> Object:
        found: Object = json.loads(self.kubectl("get", *what, "-o", "json"))
        return found

    def install(self, *values: str) -> None:
        sets = [f"--set={value}" for value in (*self.images.values, *SMALL, *values)]
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
        conditions = (self.status if status is None else status).get("conditions") or ()
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

    def exists(self, *what: str) -> bool:
        return bool(self.kubectl("get", *what, "--ignore-not-found", "-o", "name").strip())

    def secret(self, name: str) -> dict[str, str]:
        """The data of a Secret, as text; nothing if it does not exist."""
        if not self.exists("secret", name):
            return {}
        data = self.get("secret", name).get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def starts(self) -> dict[str, list[int]]:
        """How often the containers of each controller's pod were started again."""
        selector = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=controller"
        items = self.get("pods", "-l", selector)["items"]
        return {
            f"{i['metadata']['name']} {i['metadata']['uid']}": [
                c["restartCount"] for c in i["status"].get("containerStatuses", ())
            ]
            for i in items
        }

    # --- waiting ----------------------------------------------------------------------------------

    def until(self, what: str, condition: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (found := condition()):
            if time.monotonic() > deadline:
                print(self.kubectl("get", "quorum", self.name, "-o", "yaml", check=False))
                print(self.kubectl("get", "pods,pvc,events", check=False))
                operator = f"deployment/{self.name}-operator"
                print(self.kubectl("logs", operator, "--tail=80", check=False))
                print(self.kubectl("logs", "-l", WRITERS, "--prefix", "--tail=60", check=False))
                print(self.kubectl("describe", "pods", "-l", WRITERS, check=False))
                raise AssertionError(f"not within {timeout_s} s: {what}")
            time.sleep(self.poll_s)
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

    def until_new_pods(self, before: Mapping[str, str], *, timeout_s: float = WAIT_S) -> None:
        """Wait until other pods have the names of nodes 0 to 2. before: UIDs of pods by name."""
        names = [f"{self.name}-{ordinal}" for ordinal in range(3)]

        def are_new() -> bool:
            uids = self.uids("pods")
            return all(uids.get(name, before[name]) != before[name] for name in names)

        self.until("all pods are new", are_new, timeout_s)

    def lead_from(self, ordinal: int) -> None:
        """Let a node lead, asked from inside the cluster."""
        if self.leader == ordinal:
            return
        directory = self.directories()[ordinal]
        code = (
            "import asyncio\n"
            "from pathlib import Path\n"
            "from quorate.raft.types import ReplicaKey\n"
            "from quorate.rpc.client.quorum_client import QuorumClient\n"
            "from quorate.rpc.errors import ClientError\n"
            "from quorate.rpc.tls import TlsConfig\n"
            "async def main():\n"
            "    root = Path('/etc/quorate/tls')\n"
            f"    tls = TlsConfig(root / 'node-0.crt', Path('{KEY}'), root / 'ca.crt')\n"
            f"    server = '{self.name}-0.{self.namespace}.svc:9093'\n"
            "    async with QuorumClient([server], tls=tls) as client:\n"
            "        try:\n"
            f"            await client.transfer_leadership(ReplicaKey({ordinal}, '{directory}'))\n"
            "        except ClientError as error:\n"
            "            print(error)\n"
            "asyncio.run(main())\n"
        )

        def succeeds() -> bool:
            refused = self.kubectl_exec(0, "python", "-c", code)
            print(refused, end="")
            return not refused

        # The node may stall while it is asked to catch up, or another one may win.
        self.until(f"leadership is transferred to node {ordinal}", succeeds)
        self.until(f"node {ordinal} leads", lambda: self.leader == ordinal)

    # --- faults -----------------------------------------------------------------------------------

    def lose_disk(self, ordinal: int) -> None:
        """Its volume and its pod are deleted; both come back, the volume empty."""
        claim, pod = f"data-{self.name}-{ordinal}", f"{self.name}-{ordinal}"
        self.kubectl("delete", "pvc", claim, "--wait=false", "--ignore-not-found")
        how = ("--force", "--grace-period=0", "--ignore-not-found")
        self.kubectl("delete", "pod", pod, *how)

    def refresh_files(self) -> None:
        """Have the kubelet bring changed Secrets to the pods now, instead of within a minute: it
        looks when a pod changes.
        """
        now = f"quorate.dev/looked-at={time.time()}"
        self.kubectl("annotate", "pods", "--all", "--overwrite", now)

    def kill_operator(self) -> None:
        selector = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=operator"
        self.kubectl("delete", "pod", "-l", selector, "--force", "--grace-period=0", "--wait=false")


SMALL = (
    "quorum.storage.size=128Mi",
    "quorum.podTemplate.resources.requests.cpu=20m",
    "quorum.podTemplate.resources.requests.memory=96Mi",
)


class Writer:
    """A pod that appends all the time, from `start` to `stop`.

    pause_s: of each of its four callers, between two appends.
    """

    def __init__(self, lab: Lab, name: str, *, pause_s: float = 0.01) -> None:
        self._lab = lab
        self._name = name
        self._pause_s = pause_s

    def start(self) -> None:
        lab = self._lab
        spec = lab.quorum["spec"]
        hosts = [f"{lab.name}-{n}.{lab.namespace}.svc:9093" for n in range(3)]
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
                        "image": lab.images.controller,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python", "-c", code],
                        "env": [
                            {"name": "BOOTSTRAP", "value": ",".join(hosts)},
                            {"name": "PAUSE_S", "value": str(self._pause_s)},
                        ],
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

    def lines(self) -> list[Object]:
        """What it told so far: see `writer.py`."""
        text = self._lab.kubectl("logs", self._name, check=False)
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def _tail(self) -> str:
        """The end of its log, with the stacks of what has not ended."""
        text = self._lab.kubectl("logs", self._name, "--tail=80", check=False)
        lines = [line for line in text.splitlines() if not line.startswith("{")]
        return "\n".join([*lines[-60:], *text.splitlines()[-2:]])

    def _acknowledged(self) -> int:
        lines = self.lines()
        return int(lines[-1].get("acknowledged", 0)) if lines else 0

    def mark(self) -> None:
        """`longest_gap_ms` begins here."""
        self._lab.kubectl("exec", self._name, "--", "sh", "-c", "kill -USR1 1")
        time.sleep(0.6)

    def longest_gap_ms(self) -> int:
        """The longest time without an acknowledgement since `mark`."""
        time.sleep(0.6)
        return int(self.lines()[-1]["gap_ms"])

    def failed(self) -> int:
        """Appends that were refused, or whose outcome is unknown, so far."""
        last = self.lines()[-1]
        return int(last["refused"]) + int(last["unknown"])

    def is_writing(self) -> bool:
        before = self._acknowledged()
        time.sleep(2.5)
        return self._acknowledged() > before

    def stop(self) -> Object:
        """End the writing; what its own check of the whole log says."""
        self._lab.kubectl("exec", self._name, "--", "sh", "-c", "kill -TERM 1")

        def last() -> Object | None:
            lines = self.lines()
            if lines and "violations" in lines[-1]:
                return lines[-1]
            phase = self._lab.kubectl("get", "pod", self._name, "-o", "jsonpath={.status.phase}")
            if "violations" in self.lines()[-1]:
                return self.lines()[-1]
            assert phase == "Running", f"the writer is {phase}:\n{self._tail()}"
            return None

        try:
            found: Object = self._lab.until("the writer's check", last)
        except AssertionError as error:
            error.add_note(self._tail())
            raise
        figures.verified(found["acknowledged"], len(found["violations"] or ()))
        self.delete()
        return found

    def finish(self) -> Object:
        """Stop writing: nothing that was acknowledged is missing, nothing is there twice."""
        said = self.stop()
        assert said["violations"] == [], said
        print(f"lost 0 of {said['acknowledged']} acknowledged ({said['unknown']} unknown)")
        return said

    def delete(self) -> None:
        how = ("--force", "--grace-period=0", "--ignore-not-found", "--wait=false")
        self._lab.kubectl("delete", "pod", self._name, *how, check=False)
