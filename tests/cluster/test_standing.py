"""What happens to a quorum that stands: one release for all of these, each under a writer."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import figures
from tests.cluster.conftest import STEADY
from tests.cluster.lab import KEY, Lab, Writer
from tests.tools.documents import block, command_lines

pytestmark = pytest.mark.timeout(600)

StartWriter = Callable[[Lab], Writer]


@pytest.fixture
def load(standing: Lab, start_writer: StartWriter) -> Iterator[Writer]:
    """Writes during the test, and is checked at its end."""
    standing.until_ready(3)
    made = start_writer(standing)
    made.mark()
    yield made
    standing.until_ready(3)
    made.finish()


def test_a_pod_is_deleted_while_the_operator_is_down(standing: Lab, load: Writer) -> None:
    lab = standing
    operator = f"deployment/{lab.name}-operator"
    lab.kubectl("scale", operator, "--replicas=0")
    leader = lab.leader
    load.mark()
    lab.kubectl("delete", "pod", f"{lab.name}-{leader}", "--force", "--grace-period=0")
    lab.until("it writes again", load.is_writing)
    figures.add("leader's pod deleted, no operator, fetch timeout 4 s", 0, load.longest_gap_ms())
    lab.kubectl("scale", operator, "--replicas=1")


def test_a_deleted_leader_hands_over(standing: Lab, load: Writer) -> None:
    """`kubectl delete pod`, as a drain does it: the leader lets another lead before it ends."""
    lab = standing
    leader = lab.leader
    uid = lab.uids("pods")[f"{lab.name}-{leader}"]
    load.mark()
    began = time.monotonic()
    lab.kubectl("delete", "pod", f"{lab.name}-{leader}")
    lab.until("another leads", lambda: lab.leader != leader)
    lab.until_ready(3)
    assert lab.uids("pods")[f"{lab.name}-{leader}"] != uid
    seconds = time.monotonic() - began
    figures.add("leader's pod deleted gracefully", seconds, load.longest_gap_ms())


def patch(lab: Lab, **spec: Any) -> None:
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", "-p", json.dumps({"spec": spec}))


def test_an_approved_rollout_goes_pod_by_pod(standing: Lab, load: Writer) -> None:
    """A new template waits for its approval; then one pod after the other, the leader last."""
    lab = standing
    before = lab.uids("pods")
    _, _, _, _, restart, approve, _ = command_lines(
        block("charts/quorate/README.md", "kubectl quorate fence")
    )
    patch(lab, rollout={"approval": "Manual"})
    assert "once approved" in lab.paste(restart)
    lab.until("it waits", lambda: lab.condition("Ready").get("reason") == "ApprovalRequired")
    assert lab.uids("pods") == before
    load.mark()
    began = time.monotonic()
    assert "is approved" in lab.paste(approve)
    lab.paste(block("charts/quorate/README.md", "approved-rollout"))  # the same by itself
    lab.until_new_pods(before)
    lab.until_ready(3)
    figures.add("rollout to 3 pods", time.monotonic() - began, load.longest_gap_ms())
    patch(lab, rollout=None)


def test_a_kafka_broker_gets_a_certificate(standing: Lab, tmp_path: Path) -> None:
    lab = standing
    lab.until_ready(3)
    grant, *fetch = command_lines(block("charts/quorate/README.md", "kafka-101"))
    lab.paste(grant)
    secret = f"{lab.name}-client-kafka-101-tls"
    lab.until("the certificate is issued", lambda: lab.secret(secret).get("tls.key"))
    lab.paste("\n".join(fetch), folder=tmp_path)
    broker = (tmp_path / "broker.pem").read_text()
    assert broker.index("PRIVATE KEY") < broker.index("BEGIN CERTIFICATE")
    assert "BEGIN CERTIFICATE" in (tmp_path / "ca.crt").read_text()
    lab.install(STEADY)
    lab.until_ready(3)


def test_certificates_are_renewed_under_load(standing: Lab, load: Writer) -> None:
    """New files for all nodes: they serve with them, none restarts, and commits go on."""
    lab = standing
    before, pods = served_certificate(lab, 1), lab.starts()
    load.mark()
    began = time.monotonic()
    secret = f"{lab.name}-node-tls"
    old = lab.secret(secret)
    gone = json.dumps({"data": {"node-1.crt": base64.b64encode(b"unreadable").decode()}})
    lab.kubectl("patch", "secret", secret, "--type=merge", "-p", gone)
    lab.until("it is renewed", lambda: "BEGIN" in lab.secret(secret)["node-1.crt"])
    assert lab.secret(secret)["node-1.key"] == old["node-1.key"]
    assert lab.secret(secret)["node-1.crt"] != old["node-1.crt"]
    lab.refresh_files()
    lab.until("node 1 serves its new certificate", lambda: served_certificate(lab, 1) != before)
    lab.until_ready(3)
    figures.add("certificates renewed", time.monotonic() - began, load.longest_gap_ms())
    assert lab.starts() == pods
    assert load.failed() == 0


def test_lost_keys_are_replaced_under_load(standing: Lab, load: Writer) -> None:
    """The nodes get other keys, so all pods are restarted; meanwhile they reach each other with the
    old ones.
    """
    lab = standing
    before, old = lab.uids("pods"), lab.secret(f"{lab.name}-node-tls")
    load.mark()
    began = time.monotonic()
    lab.kubectl("delete", "secret", f"{lab.name}-node-tls")
    lab.until_new_pods(before)
    lab.until_ready(3)
    figures.add("lost keys replaced", time.monotonic() - began, load.longest_gap_ms())
    new = lab.secret(f"{lab.name}-node-tls")
    for ordinal in range(3):
        assert new[f"node-{ordinal}.key"] != old[f"node-{ordinal}.key"]
        assert lab.kubectl_exec(ordinal, "cat", KEY) == new[f"node-{ordinal}.key"]


def test_the_authority_is_replaced_under_load(standing: Lab, load: Writer) -> None:
    """Trust in both authorities, new certificates, trust in the new one alone: no append fails and
    no pod restarts.
    """
    lab = standing
    old, pods = lab.secret(f"{lab.name}-ca")["tls.crt"], lab.starts()
    load.mark()
    began = time.monotonic()
    patch = {"spec": {"tls": {"authorityRevision": 2, "rotationWaitSeconds": 8}}}
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", "-p", json.dumps(patch))
    seen: list[str] = []

    def is_over() -> bool:
        authority = lab.status.get("authority") or {}
        phase = str(authority.get("phase"))
        if not seen or seen[-1] != phase:
            seen.append(phase)
        lab.refresh_files()
        trusted = lab.secret(f"{lab.name}-node-tls").get("ca.crt", "")
        is_new = lab.secret(f"{lab.name}-ca")["tls.crt"] != old
        return authority.get("revision") == 2 and phase == "Stable" and is_new and old != trusted

    lab.until("the authority is another", is_over)
    lab.until_ready(3)
    new = lab.secret(f"{lab.name}-ca")["tls.crt"]
    lab.until(
        "only the new authority is trusted",
        lambda: lab.secret(f"{lab.name}-node-tls")["ca.crt"].strip() == new.strip(),
    )
    lab.refresh_files()
    figures.add("authority replaced", time.monotonic() - began, load.longest_gap_ms())
    assert seen[-3:] == ["Preparing", "Switching", "Stable"], seen
    assert lab.starts() == pods
    assert load.failed() == 0
    # Whoever connects anew, with the files of now, is let in.
    lab.lead_from((lab.leader + 1) % 3)
    lab.until("it writes", load.is_writing)


def served_certificate(lab: Lab, ordinal: int) -> str:
    """What a node shows to node 0 in a handshake."""
    host = f"{lab.name}-{ordinal}.{lab.namespace}.svc"
    code = (
        "import socket, ssl, hashlib\n"
        "root = '/etc/quorate/tls/'\n"
        "context = ssl.create_default_context(cafile=root + 'ca.crt')\n"
        f"context.load_cert_chain(root + 'node-0.crt', '{KEY}')\n"
        "context.set_alpn_protocols(['h2'])\n"
        f"raw = socket.create_connection(('{host}', 9093), 5)\n"
        f"with context.wrap_socket(raw, server_hostname='{host}') as opened:\n"
        "    print(hashlib.sha256(opened.getpeercert(True)).hexdigest())\n"
    )
    return lab.kubectl_exec(0, "python", "-c", code).strip()


def test_pods_show_metrics_and_health(standing: Lab) -> None:
    """Over HTTP, at the port that probes and a PodMonitor use."""
    lab = standing

    def page(ordinal: int, path: str) -> str:
        where = f"/api/v1/namespaces/{lab.namespace}/pods/{lab.name}-{ordinal}:9464/proxy{path}"
        return lab.kubectl("get", "--raw", where)

    for ordinal in range(3):
        assert page(ordinal, "/readyz").strip() == "ready"
        assert "high_watermark" in page(ordinal, "/metrics")


def test_volumes_outlive_the_release(standing: Lab) -> None:
    """helm uninstall and install again: the same cluster, with all that was committed."""
    lab = standing
    cluster_id, directories = lab.status["clusterId"], lab.directories()
    lab.helm("uninstall", lab.name, "--wait")
    lab.until("the pods are gone", lambda: not lab.uids("pods"))
    assert len(lab.uids("pvc")) == 3
    lab.until("the operator's lease is gone", lambda: not lab.exists("lease", "quorate-operator"))
    began = time.monotonic()
    lab.install(STEADY)
    lab.until_ready(3)
    figures.add("installed again onto its volumes", time.monotonic() - began)
    assert lab.status["clusterId"] == cluster_id
    assert lab.directories() == directories
