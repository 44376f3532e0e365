"""Settings that a controller would reject are rejected before a pod is restarted for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from quorate_operator import naming
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.settings import problem_of_config
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import Lab
from tests.unit.operator.test_operator_plan import HEALTHY, node, quorum

CERT_MANAGER = {"enabled": True, "certManager": {"enabled": True}}
MIGRATION = {
    "clusterId": "-osK_z-yS4WP9LBCencUOA",
    "firstNodeId": 3000,
    "migration": {"zookeeperConnect": "zk:2181/kafka", "tls": {"secretName": "zk"}},
}


def problem(config: dict[str, str], **spec: Any) -> str:
    body = {"image": "x", "config": config, **spec}
    return problem_of_config(QuorumResource("q", "lab", spec=body))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tls": {"enabled": False}},
        {"tls": CERT_MANAGER},
        {"kafkaListener": {"enabled": True, "protocol": "SSL"}},
        {"kafkaListener": {"enabled": True}},
        {"tls": {"enabled": False}, "kafkaListener": {"enabled": True}},
        {"clients": [{"name": "app", "superUser": True}], "replicas": 1},
        MIGRATION,
        {**MIGRATION, "tls": {"enabled": False}},
    ],
)
def test_what_the_operator_sets_itself_is_valid(spec: dict[str, Any]) -> None:
    config = {
        "metadata.log.segment.bytes": "16777216",
        "super.users": "User:CN=alice",
        "controller.quorum.fetch.timeout.ms": " 900 ",
        "log.cleaner.threads": "2",  # Kafka's, without effect
        "quorate.log.format": "json",
    }
    assert problem({}, **spec) == ""
    assert problem(config, **spec) == ""


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"controller.quorum.fetch.timout.ms": "900"},
            ["fetch.timout.ms is not a setting", "did you mean controller.quorum.fetch.timeout.ms"],
        ),
        ({"banana": "1"}, ["banana is not a setting", "`quorate config-docs` lists them all"]),
        # As a variable, it would be another spelling of quorate.format.principals.
        ({"format.principals": "User:CN=me"}, ["format.principals is not a setting"]),
        (
            {"controller.quorum.election.timeout.ms": "soon"},
            ["controller.quorum.election.timeout.ms=soon", "accepted: ", "1"],
        ),
        ({"metadata.log.segment.bytes": "9"}, ["metadata.log.segment.bytes=9", "8388608"]),
        ({"quorate.log.level": "loud"}, ["quorate.log.level=loud", "debug", "error"]),
        (
            {"quorate.trace.sample.ratio": "0.1"},
            ["quorate.trace.sample.ratio=0.1", "set quorate.otlp.endpoint"],
        ),
        ({"quorate.peer.protocol": "kafka"}, ["requires quorate.kafka.listener.name"]),
    ],
)
def test_what_a_controller_rejects_is_named_with_what_it_accepts(
    config: dict[str, str], said: list[str]
) -> None:
    found = problem(config)
    assert found.startswith("spec.config: ")
    assert [text for text in said if text not in found] == []
    assert "\n" not in found


def test_a_combination_is_judged_with_what_the_operator_sets() -> None:
    principals = {"quorate.controller.principals": "User:CN=node-0"}
    assert problem(principals, tls=CERT_MANAGER) == ""
    assert "no listener is encrypted" in problem(principals, tls={"enabled": False})
    kafka = {"enabled": True, "protocol": "SSL"}
    assert problem({"quorate.peer.protocol": "kafka"}, kafkaListener=kafka) == ""
    plain = problem({"quorate.peer.protocol": "kafka"}, kafkaListener={"enabled": True})
    assert "would not authenticate" in plain


def test_a_secret_value_is_not_shown() -> None:
    found = problem({"quorate.log.level": "-----BEGIN PRIVATE KEY-----"})
    assert "quorate.log.level=[hidden]" in found


def test_a_setting_of_the_operator_is_rejected_with_the_reason() -> None:
    for name, why in naming.OWN_SETTINGS.items():
        assert naming.problem_of_setting(name).endswith(f"sets itself: {why}")
    for name in ("listener.name.kafka.ssl.client.auth", "listener.name.controller.ssl.ca.location"):
        assert "see spec.tls" in naming.problem_of_setting(name)


def test_invalid_settings_hold_up_the_template_only() -> None:
    invalid = "spec.config: banana is not a setting"
    stale = ("Secret/q-node-tls", "StatefulSet/q")
    planned = p.plan(p.Desired(3), p.Observed(ids=HEALTHY.ids, invalid_config=invalid, stale=stale))
    assert planned.action is None
    assert planned.refuses(p.Reason.INVALID_SPEC)
    planned = p.plan(p.Desired(3), replace(HEALTHY, invalid_config=invalid, stale=stale))
    assert planned.action == p.ApplyObjects(stale[:1])
    lost = quorum(node(0), node(1), node(2, None))
    planned = p.plan(p.Desired(3), replace(lost, invalid_config=invalid, stale=stale[1:]))
    assert isinstance(planned.action, p.RemoveVoter)
    assert planned.refuses(p.Reason.INVALID_SPEC)


async def test_no_pod_is_restarted_for_an_invalid_setting(lab: Lab, nodes: FakeNodes) -> None:
    """Healing goes on, the conditions name the setting, and a correction is applied."""
    lab.patch(config={"controller.quorum.fetch.timeout.ms": "-5"})
    for _ in range(3):
        await lab.step()
    assert not _variables(lab) & {"-5"}
    held, reason, text = lab.condition("SpecApplied")
    assert (held, reason) == ("False", "InvalidSpec")
    assert "controller.quorum.fetch.timeout.ms=-5" in text
    assert "accepted: " in text
    assert lab.condition("Ready")[:2] == ("False", "InvalidSpec")
    assert lab.condition("Degraded")[0] == "False"
    (event,) = lab.events("InvalidSpec")
    assert event["type"] == "Warning"
    assert "fetch.timeout.ms=-5" in event["message"]
    nodes.disks[2] = None
    await lab.step()
    assert nodes.removals == [2]
    lab.patch(config={"controller.quorum.fetch.timeout.ms": "1500"})
    await lab.step()
    assert "1500" in _variables(lab)


def _variables(lab: Lab) -> set[str]:
    found = lab.kube.get("StatefulSet", "lab", "q")
    assert found is not None
    container = found["spec"]["template"]["spec"]["containers"][0]
    return {each.get("value", "") for each in container["env"]}
