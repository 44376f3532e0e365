"""What happens to one Quorum, to the node, and to the API server."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from quorate_operator.objects.certificates import Pair, issue, node_hosts

from tests.cluster.lab import Lab, run

UNANSWERED = re.compile(
    r"was refused|connection refused|Unable to connect|EOF|TLS handshake timeout|i/o timeout"
    r"|ServiceUnavailable|etcdserver|the server is currently unable|connection reset|broken pipe"
    r"|context deadline exceeded|connection lost|GOAWAY|Unauthorized|InternalError|Forbidden"
    r"|have a resource type|no endpoints available|TooManyRequests|Timeout"
)
"""What kubectl says of an API server that does not answer."""
ANSWER_S = 180.0
HEALED_S = 600.0
"""The StatefulSet controller repeats a rejected creation after minutes."""
SIZES = (1, 3, 3, 4, 5, 5)
KUBE_HOME = Path(os.environ.get("KUBE_HOME", "/var/lib/kube-lab"))
API_SERVER = KUBE_HOME / "run" / "apiserver.pid"
NODE = "lab"
EXPIRED = dt.timedelta(days=400)

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few"},
    "spec": {"hard": {"pods": "1"}},
}
INVALID: dict[str, dict[str, Any]] = {
    "a toleration that the API server rejects": {
        "podTemplate": {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]}
    },
    "a request above its limit": {
        "podTemplate": {"resources": {"limits": {"cpu": "10m"}, "requests": {"cpu": "20m"}}}
    },
    "a misspelt setting": {"config": {"controller.quorum.fetch.timout.ms": "900"}},
}


class PatientLab(Lab):
    """Repeats commands while the API server does not answer."""

    poll_s = 1.5

    def kubectl(self, *arguments: str, check: bool = True, text: str | None = None) -> str:
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return super().kubectl(*arguments, check=True, text=text)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                unanswered = isinstance(error, subprocess.TimeoutExpired)
                if not unanswered and not UNANSWERED.search(str(error)):
                    if not check:
                        return ""
                    raise
                if time.monotonic() > deadline:
                    raise
            time.sleep(1)


class Faults:
    """Lets things happen to one Quorum, one after the other, by chance.

    say: reports what happens. is_over: whether the time is up. counts: of what happened, by kind.
    """

    def __init__(
        self,
        lab: Lab,
        chance: random.Random,
        say: Callable[[str], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.lab = lab
        self.counts: Counter[str] = Counter()
        self.spec = lab.quorum["spec"]
        missing = f"{self.spec['image'].rpartition(':')[0]}:none"
        self._invalid = {**INVALID, "an image that does not exist": {"image": missing}}
        self._chance = chance
        self._say = say
        self._is_over = is_over
        self._template = 0

    # --- choosing ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the time is up. Raises AssertionError."""
        kinds: dict[Callable[[], str], int] = {
            self.kill_pod: 5,
            self.kill_leader: 4,
            self.kill_process: 4,
            self.delete_pod: 3,
            self.kill_all_pods: 1,
            self.lose_disk: 5,
            self.kill_operator: 4,
            self.scale: 4,
            self.change_template: 2,
            self.break_spec: 4,
            self.reject_pods: 4,
            self.expire_certificates: 3,
            self.delete_object: 3,
        }
        if not API_SERVER.exists():
            self._say("no process is killed: the node is not this machine")
            del kinds[self.kill_process]
        while not self._is_over():
            ((kind, _),) = self._chance.choices(list(kinds.items()), list(kinds.values()))
            self.counts[kind.__name__.replace("_", " ")] += 1
            kind()
            time.sleep(self._chance.uniform(2, 20))
            if self._chance.random() < 0.4:
                self.settle()

    def settle(self) -> None:
        """Wait until the quorum is as wanted."""
        self.lab.until_ready(self.replicas, timeout_s=HEALED_S)

    def restore(self) -> None:
        """Undo what would keep the quorum from being ready."""
        self.lab.kubectl("delete", "quota", "few", "--ignore-not-found")
        self.lab.kubectl("scale", f"deployment/{self.lab.name}-operator", "--replicas=1")
        self._restore_spec()

    # --- what there is ----------------------------------------------------------------------------

    @property
    def replicas(self) -> int:
        return int(self.lab.quorum["spec"]["replicas"])

    def _pods(self) -> list[str]:
        return sorted(name for name in self.lab.uids("pods") if re.search(r"-\d+$", name))

    def _any_pod(self) -> str:
        return self._chance.choice(self._pods() or [f"{self.lab.name}-0"])

    def _patch(self, spec: dict[str, Any]) -> None:
        text = json.dumps({"spec": spec})
        self.lab.kubectl("patch", "quorum", self.lab.name, "--type=merge", "-p", text)

    def _restore_spec(self) -> None:
        self._patch(
            {
                "image": self.spec["image"],
                "config": {"controller.quorum.fetch.timout.ms": None},
                "podTemplate": {
                    "tolerations": None,
                    "resources": {"limits": None, **self.spec["podTemplate"]["resources"]},
                },
            }
        )

    def _kill(self, *pods: str) -> None:
        if not pods:
            self._say("there is no pod")
            return
        how = ("--force", "--grace-period=0", "--ignore-not-found", "--wait=false")
        self.lab.kubectl("delete", "pod", *pods, *how)

    # --- faults -----------------------------------------------------------------------------------

    def kill_pod(self) -> None:
        pod = self._any_pod()
        self._say(f"kill {pod}")
        self._kill(pod)

    def kill_leader(self) -> None:
        leader = (self.lab.status.get("leader") or {}).get("id", 0)
        self._say(f"kill the leader, {self.lab.name}-{leader}")
        self._kill(f"{self.lab.name}-{leader}")

    def delete_pod(self) -> None:
        pod = self._any_pod()
        self._say(f"delete {pod}")
        self.lab.kubectl("delete", "pod", pod, "--ignore-not-found", "--wait=false")

    def kill_process(self) -> None:
        """SIGKILL to a controller; the kubelet restarts its container."""
        pod = self._any_pod()
        uid = self.lab.uids("pods").get(pod, "")
        pids = [each for each in _processes_of(uid) if uid]
        self._say(f"SIGKILL to the {len(pids)} processes of {pod}")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_all_pods(self) -> None:
        pods = self._pods()
        self._say(f"kill {', '.join(pods)}")
        self._kill(*pods)

    def lose_disk(self) -> None:
        """Of a quorum that can spare one. Waits until the new disk is formatted."""
        if self.replicas < 3:
            self._say("no disk to lose")
            return
        self.settle()
        self._lose(self._chance.randrange(self.replicas))

    def _lose(self, ordinal: int) -> None:
        claim = f"data-{self.lab.name}-{ordinal}"
        old = self.lab.until(
            f"the directory of node {ordinal} is known",
            lambda: self.lab.directories().get(ordinal),
            HEALED_S,
        )
        volume = self.lab.uids("pvc").get(claim)
        self._say(f"lose the disk of {self.lab.name}-{ordinal}")
        self.lab.lose_disk(ordinal)
        began = time.monotonic()
        self.lab.until(
            f"node {ordinal} has a new directory",
            lambda: (
                self.lab.uids("pvc").get(claim) not in (None, volume)
                and self.lab.directories().get(ordinal) not in ("", None, old)
            ),
            HEALED_S,
        )
        self._say(f"the disk of {self.lab.name}-{ordinal} is replaced: {_since(began)}")

    def kill_operator(self) -> None:
        self._say("kill the operator")
        self.lab.kill_operator()

    def scale(self) -> None:
        """A single voter has no copy: the others join it before anything else happens."""
        self.settle()
        size = self._chance.choice([each for each in SIZES if each != self.replicas])
        self._say(f"scale from {self.replicas} to {size}")
        self.lab.scale(size)

    def change_template(self) -> None:
        self._template += 1
        self._say("restart all pods for a new template")
        self._patch({"podTemplate": {"annotations": {"changed": str(self._template)}}})

    def break_spec(self) -> None:
        """Something else fails meanwhile; then the spec is as it was."""
        name = self._chance.choice(list(self._invalid))
        self.settle()
        self._say(f"apply {name}")
        self._patch(self._invalid[name])
        time.sleep(self._chance.uniform(1, 8))
        other = self._chance.choice([self.kill_pod, self.kill_leader, self.kill_operator])
        if self.replicas >= 3 and "image" not in name and self._chance.random() < 0.5:
            self._lose(self._chance.randrange(self.replicas))
        else:
            other()
        time.sleep(self._chance.uniform(2, 20))
        self._say("apply the valid spec again")
        self._restore_spec()

    def reject_pods(self) -> None:
        """A quota rejects new pods while one or several are killed."""
        self._say("set a quota that rejects new pods")
        self.lab.kubectl("apply", "-f", "-", text=json.dumps(QUOTA))
        pods = self._pods()
        killed = self._chance.sample(pods, min(len(pods), self._chance.choice((1, 1, 2, 3))))
        self._say(f"kill {', '.join(killed)}")
        self._kill(*killed)
        time.sleep(self._chance.uniform(5, 50))
        self._say("remove the quota")
        self.lab.kubectl("delete", "quota", "few", "--ignore-not-found")

    def expire_certificates(self) -> None:
        """Those of some nodes; sometimes the operator is away until the nodes use them."""
        is_away = self._chance.random() < 0.5
        operator = f"deployment/{self.lab.name}-operator"
        ordinals = self._chance.sample(range(3), self._chance.choice((1, 2, 3)))
        self._say(f"expire the certificates of nodes {ordinals}{', no operator' * is_away}")
        nodes = self.lab.until(
            "the nodes' certificates",
            lambda: self.lab.secret(f"{self.lab.name}-node-tls"),
            HEALED_S,
        )
        if is_away:
            self.lab.kubectl("scale", operator, "--replicas=0")
            component = "app.kubernetes.io/component=operator"
            how = ("-l", component, "--for=delete", "--timeout=120s")
            self.lab.kubectl("wait", "pods", *how, check=False)
        authority = self.lab.secret(f"{self.lab.name}-ca")
        signer = Pair(authority["tls.crt"], authority["tls.key"])
        past = dt.datetime.now(dt.UTC) - EXPIRED
        expired = {}
        for ordinal in ordinals:
            name = f"node-{ordinal}"
            hosts = node_hosts(self.lab.name, self.lab.namespace, ordinal)
            key = nodes[f"{name}.key"]
            expired[f"{name}.crt"] = issue(signer, name, hosts, 90, key_text=key, now=past)
        text = json.dumps(
            {"stringData": {name: pair.certificate for name, pair in expired.items()}}
        )
        secret = f"{self.lab.name}-node-tls"
        self.lab.kubectl("patch", "secret", secret, "--type=merge", "-p", text)
        if is_away:
            self.lab.refresh_files()
            time.sleep(self._chance.uniform(5, 15))
            self._kill(self._any_pod())
            time.sleep(self._chance.uniform(5, 20))
            self._say("the operator returns")
            self.lab.kubectl("scale", operator, "--replicas=1")

    def delete_object(self) -> None:
        """One that the operator made."""
        name = self.lab.name
        made = (
            ("statefulset", name),
            ("service", f"{name}-controllers"),
            ("service", f"{name}-0"),
            *([("pdb", name)] if self.replicas > 1 else []),
            ("networkpolicy", name),
            ("secret", f"{name}-node-tls"),
            ("secret", f"{name}-client-tls"),
        )
        found = self._chance.choice(made)
        self.lab.until(f"{'/'.join(found)} exists", lambda: self.lab.exists(*found), HEALED_S)
        self._say(f"delete {'/'.join(found)}")
        how = ("--ignore-not-found", "--wait=false", "--cascade=orphan")
        self.lab.kubectl("delete", *found, *how)


class Surroundings:
    """What happens to all Quorums at once. labs: they."""

    def __init__(
        self,
        labs: list[Lab],
        chance: random.Random,
        say: Callable[[str], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.failure = ""
        self._labs = labs
        self._chance = chance
        self._say = say
        self._is_over = is_over

    def run(self) -> None:
        """Until the time is up."""
        try:
            self._run()
        except Exception as error:
            self.failure = first_line(error)
            raise

    def _run(self) -> None:
        kinds = [self.drain]
        if API_SERVER.exists():
            kinds.append(self.kill_api_server)
        else:
            self._say(f"the API server is not killed: there is no {API_SERVER}")
        while not self._is_over():
            self._wait(self._chance.uniform(60, 150))
            if self._is_over():
                return
            kind = self._chance.choice(kinds)
            self.counts[kind.__name__.replace("_", " ")] += 1
            kind()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._is_over():
            time.sleep(1)

    def drain(self) -> None:
        """All controllers' pods are evicted, as far as their budgets allow, and may return."""
        lab = self._labs[0]
        selector = "app.kubernetes.io/component=controller"
        self._say(f"drain the node of {selector}")
        how = ("--delete-emptydir-data", "--ignore-daemonsets", "--force", "--timeout=20s")
        lab.kubectl("drain", NODE, f"--pod-selector={selector}", *how, check=False)
        time.sleep(self._chance.uniform(1, 20))
        self.restore()

    def kill_api_server(self) -> None:
        """Kill it, and start it again with the same command."""
        pid = int(API_SERVER.read_text())
        process = Path(f"/proc/{pid}")
        command = process.joinpath("cmdline").read_bytes().decode().split("\0")[:-1]
        place = process.joinpath("cwd").resolve()
        seconds = self._chance.uniform(2, 40)
        self._say(f"kill the API server, for {seconds:.0f} s")
        assert any("apiserver" in word for word in command), command
        os.kill(pid, signal.SIGKILL)
        time.sleep(seconds)
        with (KUBE_HOME / "log" / "apiserver.log").open("ab") as log:
            started = subprocess.Popen(
                command,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        API_SERVER.write_text(f"{started.pid}\n")
        deadline = time.monotonic() + ANSWER_S
        while not run("kubectl", "get", "--raw", "/readyz", check=False):
            assert time.monotonic() < deadline, "the API server does not answer again"
            time.sleep(0.5)
        self._say("the API server answers again")

    def restore(self) -> None:
        """The node takes pods again."""
        self._say("the node takes pods again")
        self._labs[0].kubectl("uncordon", NODE)


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:600]


def _processes_of(uid: str) -> list[int]:
    """The controllers among this machine's processes that belong to a pod."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_controller = b"quorate" in process.joinpath("cmdline").read_bytes()
            if is_controller and uid in process.joinpath("cgroup").read_text():
                found.append(int(process.name))
    return found


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s"
