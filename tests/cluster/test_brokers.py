"""Brokers beside the controllers, from the chart's switch: they register, and a topic has its
replicas on them.
"""

from __future__ import annotations

import time

import pytest

from tests.cluster import figures
from tests.cluster.lab import KEY, Lab

pytestmark = pytest.mark.timeout(600)

BROKERS = 3
CLIENT = (
    "security.protocol=SSL",
    "ssl.certificate.location=/etc/quorate/tls/node-0.crt",
    f"ssl.key.location={KEY}",
    "ssl.ca.location=/etc/quorate/tls/ca.crt",
)


def topics(lab: Lab, *arguments: str) -> str:
    """`quorate topics` in node 0's pod."""
    lines = "\\n".join(CLIENT)
    servers = f"{lab.name}-controllers.{lab.namespace}.svc:9093"
    command = " ".join(("quorate topics", *arguments))
    options = f"--bootstrap-controller {servers} --command-config /tmp/client.properties"
    script = f"printf '{lines}\\n' > /tmp/client.properties; {command} {options}"
    return lab.kubectl_exec(0, "sh", "-c", script)


def test_brokers_join_and_host_a_topic(lab: Lab) -> None:
    began = time.monotonic()
    lab.install(
        "brokers.enabled=true",
        f"brokers.replicas={BROKERS}",
        "brokers.storage.size=128Mi",
        "brokers.resources.requests.cpu=20m",
        "brokers.resources.requests.memory=96Mi",
    )
    lab.until_ready(3)
    name = f"{lab.name}-broker"
    lab.until(
        "the brokers are ready",
        lambda: lab.get("statefulset", name)["status"].get("readyReplicas") == BROKERS,
    )
    seconds = time.monotonic() - began
    print(topics(lab, "create", "--topic", "t", "--partitions", "3", "--replication-factor", "3"))
    described = topics(lab, "describe", "--topic", "t")
    print(described)
    for ordinal in range(BROKERS):
        assert str(1000 + ordinal) in described
    figures.add(f"helm install with {BROKERS} brokers", seconds)
    # The quorum's own pods are theirs alone: brokers are no part of it.
    assert lab.status["voters"] == 3
    assert sorted(lab.directories()) == [0, 1, 2]
