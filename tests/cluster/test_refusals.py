"""What the API server refuses, by the rules of the CRD."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.conftest import namespace
from tests.cluster.lab import Images, Lab

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def refusing(images: Images) -> Iterator[Lab]:
    """A Quorum that nobody tends."""
    with namespace(images) as made:
        made.install("operator.replicas=0")
        yield made


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"replicas": 0}, "replicas"),
        ({"replicas": 10}, "replicas"),
        ({"storage": {"size": "9GB"}}, "size"),
        ({"storage": {"storageClassName": "Another_one"}}, "storageClassName"),
        ({"tls": {"enabled": False}}, "enabled cannot be changed"),
        ({"tls": {"certManager": {"enabled": True}}}, "enabled cannot be changed"),
        ({"config": {"node.id": "7"}}, "the operator sets"),
        ({"config": {"ssl.key.location": "x"}}, "the operator sets"),
        ({"config": {"zookeeper.connect": "x"}}, "the operator sets"),
        ({"config": {"pod.tls": "false"}}, "the operator sets"),
        ({"config": {"node_id": "7"}}, "lower-case words separated by dots"),
        ({"config": {"Ssl.key.location": "x"}}, "lower-case words separated by dots"),
        ({"podTemplate": {"tolerations": [{"operator": "Maybe"}]}}, "Unsupported value"),
        ({"podTemplate": {"resources": {"limits": {"cpu": "much"}}}}, "podTemplate.resources"),
        ({"rollout": {"windows": [{"start": "24:00", "hours": 1}]}}, "rollout.windows"),
        ({"firstNodeId": 3000}, "firstNodeId cannot be changed"),
        ({"clusterId": "-osK_z-yS4WP9LBCencUOA"}, "clusterId cannot be changed"),
        ({"migration": {"zookeeperConnect": "zk"}}, "a migration needs clusterId"),
        ({"migration": {"enabled": True}}, "zookeeperConnect"),
        ({"takeover": {"controllers": [{"id": 1, "address": "c:9093"}]}}, "cannot be added later"),
        ({"kafkaListener": {"name": "CONTROLLER"}}, "name cannot be changed"),
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


TAKEOVER: dict[str, Any] = {
    "image": "quorate:test",
    "clusterId": "-osK_z-yS4WP9LBCencUOA",
    "firstNodeId": 3100,
    "tls": {"enabled": False},
    "kafkaListener": {"enabled": True, "name": "CONTROLLER"},
    "takeover": {"controllers": [{"id": 3000, "address": "c0.kafka:9093"}]},
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"tls": {"enabled": True}, "kafkaListener": {**TAKEOVER["kafkaListener"]}}, "or tls"),
        ({"clusterId": None}, "a takeover needs clusterId"),
        ({"firstNodeId": 0}, "a takeover needs firstNodeId"),
        ({"firstNodeId": 2999}, "takeover.controllers has an id of a pod"),
        ({"kafkaListener": {"enabled": True}}, "kafkaListener.name"),
        ({"kafkaListener": {"enabled": True, "name": "RAFT"}}, "the name RAFT is that of"),
        ({"migration": {"zookeeperConnect": "zk"}}, "exclude each other"),
        ({"hibernated": True}, "cannot hibernate during a takeover"),
        ({"takeover": {"controllers": []}}, "should have at least 1 items"),
        ({"takeover": {"controllers": [{"id": 3000, "address": "c0"}]}}, "address"),
    ],
)
def test_a_takeover_says_what_it_needs(refusing: Lab, change: dict[str, Any], said: str) -> None:
    spec = {name: value for name, value in (TAKEOVER | change).items() if value is not None}
    made = {
        "apiVersion": "quorate.dev/v1alpha1",
        "kind": "Quorum",
        "metadata": {"name": "takeover"},
        "spec": spec,
    }
    command = ("kubectl", "-n", refusing.namespace, "create", "--dry-run=server", "-f", "-")
    done = subprocess.run(command, input=json.dumps(made), capture_output=True, text=True)
    assert (done.returncode == 0) == (not said), done.stderr
    assert said in done.stderr


def test_a_takeover_is_removed_when_it_is_complete_and_leaves_the_listener(refusing: Lab) -> None:
    made = {"apiVersion": "quorate.dev/v1alpha1", "kind": "Quorum", "spec": TAKEOVER}
    made["metadata"] = {"name": "complete"}
    refusing.kubectl("create", "-f", "-", text=json.dumps(made))

    def patched(change: dict[str, Any], *more: str) -> str:
        command = ("kubectl", "-n", refusing.namespace, "patch", "quorum", "complete", *more)
        ending = ("--type=merge", "-p", json.dumps(change))
        return subprocess.run([*command, *ending], capture_output=True, text=True).stderr

    without = {"spec": {"takeover": None}}
    assert "cannot be removed before status.takeover.phase is Complete" in patched(without)
    status = {"status": {"takeover": {"phase": "Complete", "kafkaVoters": []}}}
    assert patched(status, "--subresource=status") == ""
    closed = {"spec": {"takeover": None, "kafkaListener": {"enabled": False}}}
    assert "kafkaListener.enabled must stay when takeover is removed" in patched(closed)
    assert patched(without) == ""
    refusing.kubectl("delete", "quorum", "complete")


@pytest.fixture(scope="module")
def migrating(images: Images) -> Iterator[Lab]:
    """One that a cluster of Kafka moves in to, which nobody tends either."""
    with namespace(images) as made:
        made.install(
            "operator.replicas=0",
            "quorum.firstNodeId=3000",
            "quorum.clusterId=-osK_z-yS4WP9LBCencUOA",
            "quorum.migration.zookeeperConnect=zk:2181",
        )
        yield made


def test_brokers_that_were_migrated_keep_their_listener(migrating: Lab) -> None:
    """The migration cannot be removed without a word about the listener, nor its ids changed."""

    def patched(spec: dict[str, Any]) -> str:
        arguments = ("patch", "quorum", migrating.name, "--type=merge", "-p")
        command = ["kubectl", "-n", migrating.namespace, *arguments, json.dumps({"spec": spec})]
        return subprocess.run(command, capture_output=True, text=True).stderr

    assert "set kafkaListener.enabled to remove migration" in patched({"migration": None})
    assert "firstNodeId cannot be changed" in patched({"firstNodeId": 4000})
    assert "clusterId cannot be changed" in patched({"clusterId": None})
    assert patched({"migration": {"enabled": False}}) == ""
    assert patched({"migration": None, "kafkaListener": {"enabled": True}}) == ""


def test_ids_of_brokers_are_refused(refusing: Lab) -> None:
    spec = refusing.quorum["spec"] | {"firstNodeId": 1001}
    made = {"apiVersion": "quorate.dev/v1alpha1", "kind": "Quorum", "metadata": {"name": "other"}}
    command = ["kubectl", "-n", refusing.namespace, "create", "-f", "-"]
    text = json.dumps({**made, "spec": spec})
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode != 0, done.stdout
    assert "the chart's brokers have the node ids from 1000 on" in done.stderr


def test_scale_is_validated_too(refusing: Lab) -> None:
    done = subprocess.run(
        ["kubectl", "-n", refusing.namespace, "scale", f"quorum/{refusing.name}", "--replicas=10"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0, done.stdout
