"""What the operator notices and reports of a quorum that stands, and what it does not do."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.cluster.lab import Lab
from tests.tools.documents import block, command_lines

pytestmark = pytest.mark.timeout(300)

STATUS, STATUS_JSON, FENCE, UNFENCE, _, _, HIBERNATE = command_lines(
    block("charts/quorate/README.md", "kubectl quorate fence")
)
NOTICED_S = 15.0
"""Far less than the operator's next read of all objects."""


def patch(lab: Lab, **spec: Any) -> None:
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", "-p", json.dumps({"spec": spec}))


def test_an_invalid_setting_restarts_no_pod(standing: Lab) -> None:
    lab = standing
    lab.until_ready(3)
    pods = lab.uids("pods")
    patch(lab, config={"controller.quorum.fetch.timout.ms": "900"})
    lab.until("it is reported", lambda: lab.condition("SpecApplied").get("reason") == "InvalidSpec")
    assert "did you mean" in lab.condition("SpecApplied")["message"]
    time.sleep(2)
    assert lab.uids("pods") == pods
    patch(lab, config={"controller.quorum.fetch.timout.ms": None})
    lab.until_ready(3)
    assert lab.uids("pods") == pods


def test_a_lost_secret_is_issued_again_within_seconds(standing: Lab) -> None:
    """Watches of Secrets are answered with their metadata only."""
    lab = standing
    lab.until_ready(3)
    secret = f"{lab.name}-client-tls"
    lab.kubectl("delete", "secret", secret)
    lab.until("the Secret is there again", lambda: lab.secret(secret).get("tls.key"), NOTICED_S)


def test_a_pod_that_a_quota_rejects_is_reported(standing: Lab) -> None:
    lab = standing
    lab.until_ready(3)
    lab.kubectl("create", "quota", "few", "--hard=pods=1")
    try:
        lab.kubectl("delete", "pod", f"{lab.name}-2", "--wait=false")
        lab.until(
            "the quota's message is in the condition",
            lambda: "exceeded quota: few" in lab.condition("Degraded").get("message", ""),
        )
        assert lab.condition("Degraded")["reason"] == "PodFailing"
    finally:
        lab.kubectl("delete", "quota", "few")
    lab.until_ready(3, timeout_s=120)


def test_a_quorum_hibernates_and_wakes(standing: Lab) -> None:
    lab = standing
    lab.until_ready(3)
    directories = lab.directories()
    hibernate, wake = command_lines(block("charts/quorate/README.md", "hibernated"))
    assert "will have no pods" in lab.paste(HIBERNATE)
    lab.paste(hibernate)  # the same by itself
    lab.until("it hibernates", lambda: lab.condition("Hibernated").get("status") == "True")
    assert len(lab.uids("pvc")) == 3
    lab.paste(wake)
    lab.until_ready(3)
    assert lab.directories() == directories


def test_a_volume_that_cannot_grow_is_reported(standing: Lab) -> None:
    """The operator may not change claims here, and the API server says so."""
    lab = standing
    lab.until_ready(3)
    pods = lab.uids("pods")
    lab.paste(block("charts/quorate/README.md", "storage.size=20Gi"))
    lab.until(
        "it is reported",
        lambda: lab.condition("SpecApplied").get("reason") == "VolumeExpansionRefused",
    )
    assert "persistentvolumeclaims" in lab.condition("SpecApplied")["message"]
    assert lab.condition("Quorate")["status"] == "True"
    patch(lab, storage={"size": "128Mi"})
    lab.until_ready(3)
    assert lab.uids("pods") == pods


def test_a_member_is_fenced_and_returns(standing: Lab) -> None:
    """The leader: another one leads, its disk can be examined, and a second one is not fenced."""
    lab = standing
    lab.until_ready(3)
    directories, leader, pods = lab.directories(), lab.leader, lab.uids("pods")
    pod, other = f"{lab.name}-{leader}", f"{lab.name}-{(leader + 1) % 3}"

    fence, inspect, unfence = command_lines(
        block("charts/quorate/README.md", "fenced-members=meta-2")
    )
    first, second = {"meta-2": pod}, {"meta-2": other}

    lab.paste(fence, first)
    lab.until("it is fenced", lambda: lab.condition("Fenced").get("status") == "True")
    assert lab.leader != leader
    said = lab.until(
        "its disk can be read", lambda: lab.paste(f"{inspect} --json", first, check=False)
    )
    (found,) = json.loads(said)["directories"]
    assert (found["nodeId"], found["damage"], found["isInUse"]) == (leader, "", False)
    lab.paste(FENCE, second)
    lab.until(
        "the second is refused",
        lambda: lab.condition("Fenced").get("reason") == "FencingRefused",
    )
    assert lab.is_ready(other)
    assert pod in lab.paste(STATUS)
    assert json.loads(lab.paste(STATUS_JSON))["name"] == lab.name
    lab.paste(UNFENCE, second)
    lab.paste(unfence)
    lab.until_ready(3)
    assert lab.directories() == directories
    # The template is what it was before, so no other pod was restarted for it.
    after = lab.uids("pods")
    changed = {name for name in pods if after.get(name) != pods[name]}
    assert changed == {pod}
