"""The chart and the operator on a real cluster, under a writer that checks that nothing is lost."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.lab import Lab, Writer

pytestmark = pytest.mark.timeout(900)

StartWriter = Callable[[], Writer]


def finish(writer: Writer) -> dict[str, Any]:
    """Stop writing: nothing that was acknowledged is missing, nothing is there twice."""
    said = writer.stop()
    assert said["violations"] == [], said
    print(f"lost 0 of {said['acknowledged']} acknowledged ({said['unknown']} unknown)")
    return said


def report(what: str, seconds: float, writer: Writer) -> None:
    print(f"{what}: {seconds:.0f} s, longest gap {writer.longest_gap_ms()} ms")


def test_install_scale_lose_disks(lab: Lab, writer: StartWriter) -> None:
    """helm install, 3 to 5, a follower's and the leader's disk, 5 to 3 with the leader among those
    that go, helm upgrade keeps what was scaled, helm test.
    """
    lab.install()
    print(f"\ninstalled, 3 voters: {lab.until_ready(3):.0f} s")
    assert lab.status["clusterId"]
    load = writer()

    load.mark()
    lab.scale(5)
    report("scaled to 5", lab.until_ready(5), load)

    lab.install("quorum.replicas=3")
    assert lab.quorum["spec"]["replicas"] == 5

    for who in ("follower", "leader"):
        leader = lab.leader
        victim = leader if who == "leader" else (leader + 1) % 5
        old = lab.directories()[victim]
        load.mark()
        lab.lose_disk(victim)
        began = time.monotonic()
        lab.until(
            f"node {victim} has a new directory",
            lambda: lab.directories().get(victim) not in ("", None, old),  # noqa: B023
        )
        lab.until_ready(5)
        report(f"lost the disk of the {who}, {victim}", time.monotonic() - began, load)
        assert lab.directories()[victim] != old

    lead_from(lab, 4)
    load.mark()
    lab.scale(3)
    report("scaled to 3, led by node 4", lab.until_ready(3), load)
    assert sorted(lab.directories()) == [0, 1, 2]
    finish(load)
    assert "committed and read" in lab.helm("test", lab.name, "--logs")


def lead_from(lab: Lab, ordinal: int) -> None:
    """Let a node lead, asked from inside the cluster."""
    if lab.leader == ordinal:
        return
    directory = lab.directories()[ordinal]
    code = (
        "import asyncio\n"
        "from pathlib import Path\n"
        "from quorate.raft.types import ReplicaKey\n"
        "from quorate.rpc.client import QuorumClient\n"
        "from quorate.rpc.tls import TlsConfig\n"
        "async def main():\n"
        "    root = Path('/etc/quorate/tls')\n"
        "    tls = TlsConfig(root / 'node-0.crt', root / 'node-0.key', root / 'ca.crt')\n"
        f"    server = '{lab.name}-0.{lab.name}-controllers.{lab.namespace}.svc:9093'\n"
        "    async with QuorumClient([server], tls=tls) as client:\n"
        f"        await client.transfer_leadership(ReplicaKey({ordinal}, '{directory}'))\n"
        "asyncio.run(main())\n"
    )
    lab.kubectl("exec", f"{lab.name}-0", "--", "python", "-c", code)
    lab.until(f"node {ordinal} leads", lambda: lab.leader == ordinal)


def test_a_lost_majority_is_refused(lab: Lab, writer: StartWriter) -> None:
    """Two of three disks: nothing is formatted, nothing deleted, and it is said."""
    lab.install()
    lab.until_ready(3)
    lab.scale(3)
    survivor = 2
    for ordinal in (0, 1):
        lab.lose_disk(ordinal)
    lab.until(
        "the risk is told",
        lambda: lab.condition("DataLossRisk").get("reason") == "MajorityDisksLost",
    )
    assert lab.condition("DataLossRisk")["status"] == "True"
    lab.until("no leader", lambda: not lab.status.get("leader"))
    pods, claims = lab.uids("pods"), lab.uids("pvc")
    lab.scale(5)
    time.sleep(10)
    assert lab.uids("pods") == pods
    assert lab.uids("pvc") == claims
    roles = {member["nodeId"]: member["role"] for member in lab.status["members"]}
    assert roles == {0: "unformatted", 1: "unformatted", survivor: "voter"}
    reasons = {e["reason"] for e in lab.get("events")["items"]}
    assert "MajorityDisksLost" in reasons
    print("\ntwo of three disks lost: refused, nothing changed")


def test_the_operator_is_killed_between_actions(lab: Lab, writer: StartWriter) -> None:
    """Again and again, while it scales up, replaces a disk and scales down."""
    lab.install()
    lab.until_ready(3)
    load = writer()
    kills = 0
    changes: list[tuple[str, Callable[[], None], int]] = [
        ("scaled to 5", lambda: lab.scale(5), 5),
        ("lost the leader's disk", lambda: lab.lose_disk(lab.leader), 5),
        ("scaled to 3", lambda: lab.scale(3), 3),
    ]
    for what, change, voters in changes:
        load.mark()
        began = time.monotonic()
        change()
        for _ in range(4):
            lab.kill_operator()
            kills += 1
            time.sleep(3.5)
        lab.until_ready(voters)
        report(f"{what}, the operator killed 4 times", time.monotonic() - began, load)
    finish(load)


def test_another_operator_takes_over(lab: Lab) -> None:
    """Of two operators the one that leads is deleted, and comes back as the one that waits."""
    lab.install("operator.replicas=2")
    lab.until_ready(3)

    def holder() -> str:
        return str(lab.get("lease", "quorate-operator")["spec"].get("holderIdentity", ""))

    first = holder()
    began = time.monotonic()
    lab.kubectl("delete", "pod", first, "--force", "--grace-period=0")
    lab.scale(1)
    lab.until_ready(1)
    assert holder() != first
    print(
        f"\nthe operator was deleted, another scaled to 1 within {time.monotonic() - began:.0f} s"
    )


def test_a_pod_is_deleted_while_the_operator_is_down(lab: Lab, writer: StartWriter) -> None:
    lab.install()
    lab.until_ready(3)
    load = writer()
    operator = f"deployment/{lab.name}-operator"
    lab.kubectl("scale", operator, "--replicas=0")
    leader = lab.leader
    load.mark()
    lab.kubectl("delete", "pod", f"{lab.name}-{leader}", "--force", "--grace-period=0")
    lab.until("it writes again", load.is_writing)
    report(f"pod of the leader, {leader}, deleted without an operator", 0, load)
    lab.kubectl("scale", operator, "--replicas=1")
    lab.until_ready(3)
    finish(load)


def test_a_rollout_pauses_nothing_for_long(lab: Lab, writer: StartWriter) -> None:
    """A new template: one pod after the other, the leader last."""
    lab.install()
    lab.until_ready(3)
    load = writer()
    before = lab.uids("pods")
    load.mark()
    began = time.monotonic()
    patch = {"spec": {"podTemplate": {"annotations": {"changed": "yes"}}}}
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", "-p", json.dumps(patch))
    names = [f"{lab.name}-{ordinal}" for ordinal in range(3)]
    lab.until(
        "all pods are new",
        lambda: all(lab.uids("pods").get(n, before[n]) != before[n] for n in names),
    )
    lab.until_ready(3)
    report("rolled out to 3 pods", time.monotonic() - began, load)
    finish(load)


def test_certificates_are_renewed_under_load(lab: Lab, writer: StartWriter) -> None:
    """New files for all nodes: they serve with them, none restarts, and commits go on."""
    lab.install()
    lab.until_ready(3)
    load = writer()
    before, pods = served_certificate(lab, 1), lab.uids("pods")
    load.mark()
    began = time.monotonic()
    lab.kubectl("delete", "secret", f"{lab.name}-node-tls")
    # The kubelet brings new files to pods about once a minute.
    lab.until("node 1 serves its new certificate", lambda: served_certificate(lab, 1) != before)
    lab.until_ready(3)
    time.sleep(5)
    report("certificates renewed", time.monotonic() - began, load)
    assert {name: pods[name] for name in pods if name in lab.uids("pods")} == pods
    finish(load)


def served_certificate(lab: Lab, ordinal: int) -> str:
    """What a node shows to node 0 in a handshake."""
    host = f"{lab.name}-{ordinal}.{lab.name}-controllers.{lab.namespace}.svc"
    code = (
        "import socket, ssl, hashlib\n"
        "root = '/etc/quorate/tls/'\n"
        "context = ssl.create_default_context(cafile=root + 'ca.crt')\n"
        "context.load_cert_chain(root + 'node-0.crt', root + 'node-0.key')\n"
        "context.set_alpn_protocols(['h2'])\n"
        f"raw = socket.create_connection(('{host}', 9093), 5)\n"
        f"with context.wrap_socket(raw, server_hostname='{host}') as opened:\n"
        "    print(hashlib.sha256(opened.getpeercert(True)).hexdigest())\n"
    )
    return lab.kubectl("exec", f"{lab.name}-0", "--", "python", "-c", code).strip()


def test_volumes_outlive_the_release(lab: Lab, writer: StartWriter) -> None:
    """helm uninstall and install again: the same cluster, with all that was committed."""
    lab.install()
    lab.until_ready(3)
    cluster_id, directories = lab.status["clusterId"], lab.directories()
    lab.helm("uninstall", lab.name, "--wait")
    lab.until("the pods are gone", lambda: not lab.uids("pods"))
    assert len(lab.uids("pvc")) == 3
    lab.install()
    lab.until_ready(3)
    assert lab.status["clusterId"] == cluster_id
    assert lab.directories() == directories
    print("\nuninstalled and installed: the same cluster, the same disks")


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"replicas": 0}, "replicas"),
        ({"replicas": 10}, "replicas"),
        ({"storage": {"size": "9Gi"}}, "size cannot be changed"),
        ({"storage": None}, "cannot be"),
        ({"tls": {"enabled": False}}, "enabled cannot be changed"),
        ({"config": {"node.id": "7"}}, "the operator decides"),
        ({"config": {"ssl.key.location": "x"}}, "the operator decides"),
    ],
)
def test_what_would_break_it_is_refused(refusing: Lab, patch: dict[str, Any], said: str) -> None:
    done = subprocess.run(
        [
            "kubectl",
            "-n",
            refusing.namespace,
            "patch",
            "quorum",
            refusing.name,
            "--type=merge",
            "-p",
            json.dumps({"spec": patch}),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0, done.stdout
    assert said in done.stderr


def test_scale_is_validated_too(refusing: Lab) -> None:
    done = subprocess.run(
        ["kubectl", "-n", refusing.namespace, "scale", f"quorum/{refusing.name}", "--replicas=10"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0, done.stdout


@pytest.fixture
def refusing(lab: Lab) -> Lab:
    """A Quorum that nobody tends."""
    lab.install("operator.replicas=0")
    return lab
