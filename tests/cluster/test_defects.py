"""What once stopped the operator, misled its users, or made operators work against each other.

The names are those of a review of release 0.1.0, whose images and chart `QUORATE_TEST_IMAGES` and
`QUORATE_TEST_CHART` can name.
"""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from quorate_operator.objects.certificates import issue, new_authority, node_hosts

from tests.cluster import figures
from tests.cluster.conftest import STEADY, namespace
from tests.cluster.lab import Images, Lab, Object, run
from tests.tools.documents import block, command_lines

pytestmark = pytest.mark.timeout(600)

HEALED_S = 30.0
"""How long a lost disk may take while a part of the spec cannot be applied."""
WATCHED_S = 20.0
REJECTED = {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]}
"""The schema allows it, the API server does not."""


@pytest.fixture(scope="module")
def watched(images: Images) -> Iterator[Lab]:
    """A release of three voters that the tests of this module share."""
    with namespace(images) as made:
        made.install(STEADY)
        made.until_ready(3)
        yield made


def patch(lab: Lab, **spec: Any) -> None:
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", "-p", json.dumps({"spec": spec}))


def replaced(lab: Lab, ordinal: int, before: dict[int, str]) -> bool:
    """Whether another disk of the node is a live voter's."""
    status = lab.status
    found = {m["nodeId"]: m.get("directoryId", "") for m in status.get("members") or ()}
    quorate = lab.condition("Quorate", status).get("status") == "True"
    is_new = found.get(ordinal) not in (None, "", before[ordinal])
    voters = [voter.partition("-")[2] for voter in status.get("voterSet") or ()]
    return quorate and is_new and found[ordinal] in voters and len(voters) == 3


def events(lab: Lab) -> int:
    """How often Events about the Quorum were recorded."""
    found = lab.get("events", "--field-selector=involvedObject.kind=Quorum")["items"]
    return sum(int(each.get("count") or 1) for each in found)


def test_d1_d2_a_disk_is_healed_while_the_template_is_rejected(watched: Lab) -> None:
    lab = watched
    lab.until_ready(3)
    patch(lab, podTemplate=REJECTED)
    try:
        lab.until("it is reported", lambda: lab.condition("SpecApplied").get("status") == "False")
        before = lab.directories()
        lab.lose_disk(2)
        began_s = time.monotonic()
        lab.until("the disk is replaced", lambda: replaced(lab, 2, before), HEALED_S)
        figures.add("a lost disk, while the template is rejected", time.monotonic() - began_s)
        status = lab.status
        applied = lab.condition("SpecApplied", status)
        assert (applied["status"], applied["reason"]) == ("False", "ApplyRejected")
        assert "tolerations" in applied["message"]
        assert lab.condition("Quorate", status)["status"] == "True"
        # Nothing is repeated without a pause (D2).
        version, count = lab.quorum["metadata"]["resourceVersion"], events(lab)
        changes = 0
        for _ in range(int(WATCHED_S)):
            time.sleep(1)
            found = lab.quorum["metadata"]["resourceVersion"]
            changes += found != version
            version = found
        assert changes <= 5, f"the status changed in {changes} of {WATCHED_S:g} seconds"
        assert events(lab) - count <= 5
    finally:
        patch(lab, podTemplate={"tolerations": None})
    lab.until_ready(3)


def expire(lab: Lab) -> None:
    """Replace the authority and all that it has signed by ones that ended long ago."""
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=800)
    authority = new_authority("expired", days=90, now=past)
    name = f"{lab.name}-ca"
    data = {"tls.crt": authority.certificate, "tls.key": authority.key}
    lab.kubectl("patch", "secret", name, "--type=merge", "-p", json.dumps({"stringData": data}))
    nodes = lab.secret(f"{lab.name}-node-tls")
    expired: dict[str, str] = {}
    for ordinal in range(3):
        node = f"node-{ordinal}"
        hosts = node_hosts(lab.name, lab.namespace, ordinal)
        made = issue(authority, node, hosts, 30, key_text=nodes[f"{node}.key"], now=past)
        expired[f"{node}.crt"] = made.certificate
    expired["ca.crt"] = authority.certificate
    text = json.dumps({"stringData": expired})
    lab.kubectl("patch", "secret", f"{lab.name}-node-tls", "--type=merge", "-p", text)


@pytest.mark.defects
def test_d3_an_expired_authority_is_replaced(lab: Lab) -> None:
    lab.install(STEADY)
    lab.until_ready(3)
    operator = f"deployment/{lab.name}-operator"
    lab.kubectl("scale", operator, "--replicas=0")
    component = "app.kubernetes.io/component=operator"
    lab.kubectl("wait", "pods", "-l", component, "--for=delete", "--timeout=120s", check=False)
    expire(lab)
    pods = [f"pod/{lab.name}-{ordinal}" for ordinal in range(3)]
    lab.kubectl("delete", *pods, "--wait=false")
    time.sleep(10)
    lab.kubectl("scale", operator, "--replicas=1")
    began_s = time.monotonic()
    is_told = False
    while time.monotonic() - began_s < 120:
        condition = lab.condition("Ready")
        names = " ".join(pods).replace("pod/", "").split()
        if condition.get("status") == "True" and all(lab.is_ready(name) for name in names):
            break
        is_told = is_told or condition.get("status") in ("False", "Unknown")
        time.sleep(1)
    lab.until_ready(3, timeout_s=60)
    assert is_told, "while no pod was ready, the status said Ready"
    figures.add("an expired authority, from the operator's return", time.monotonic() - began_s)


def test_d4_a_pod_that_cannot_start_is_named(watched: Lab) -> None:
    lab = watched
    lab.until_ready(3)
    image = lab.quorum["spec"]["image"]
    repository = image.rpartition(":")[0]
    patch(lab, image=f"{repository}:none")
    try:

        def is_named() -> bool:
            said = " ".join(each.get("message", "") for each in lab.status.get("conditions") or ())
            return "Image" in said and f"{lab.name}-" in said and "none" in said

        lab.until("the condition names the pod and the image", is_named, 90)
    finally:
        patch(lab, image=image)
    lab.until_ready(3)


@pytest.mark.defects
def test_d8_a_namespace_of_the_list_is_tended(images: Images) -> None:
    """As the page says it."""
    with namespace(images) as ops, namespace(images) as team:
        shown = block("charts/quorate/README.md", "operator.namespaces={team-a}")
        *install, lease = command_lines(shown)
        names = {"team-a": team.namespace}
        for line in install:
            ops.paste(line, names)
        team.until_ready(3)
        assert f"{ops.namespace}/quorate-operator" in ops.paste(lease, names)


CRD = "quorums.quorate.dev"


def test_d9_a_newer_definition_stays(watched: Lab) -> None:
    lab = watched
    lab.until_ready(3)
    before: Object = json.loads(run("kubectl", "get", "crd", CRD, "-o", "json"))
    annotation = "quorate.dev/schema-revision"
    revision = before["metadata"]["annotations"].get(annotation, "0")
    field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fromTheFuture"
    changes = [{"op": "add", "path": field, "value": {"type": "string"}}]
    try:
        run("kubectl", "patch", "crd", CRD, "--type=json", "-p", json.dumps(changes))
        run("kubectl", "annotate", "crd", CRD, "--overwrite", f"{annotation}=999")
        lab.kill_operator()
        patch(lab, fromTheFuture="kept")
        lab.until_ready(3)
        lab.kubectl("wait", f"deployment/{lab.name}-operator", "--for=condition=Available")
        lab.scale(4)
        lab.until_ready(4)
        assert lab.quorum["spec"].get("fromTheFuture") == "kept"
    finally:
        run("kubectl", "annotate", "crd", CRD, "--overwrite", f"{annotation}={revision}")
        patch(lab, fromTheFuture=None)
        removal = json.dumps([{"op": "remove", "path": field}])
        run("kubectl", "patch", "crd", CRD, "--type=json", "-p", removal, check=False)
    lab.scale(3)
    lab.until_ready(3)


@pytest.mark.defects
def test_d10_one_of_two_operators_acts(images: Images) -> None:
    """One of the namespace, and one of the cluster."""
    with namespace(images) as team, namespace(images) as ops:
        team.install()
        team.until_ready(3)
        generation = stateful_set(team)["metadata"]["generation"]
        pods = team.uids("pods")
        ops.install(
            "quorum.enabled=false",
            "operator.clusterWide=true",
            f"operator.namespaces={{{team.namespace}}}",
        )
        operator = f"deployment/{ops.name}-operator"
        ops.kubectl("wait", operator, "--for=condition=Available", "--timeout=120s")
        waiting = "waiting for the lease quorate-operator"
        ops.until("the other one waits", lambda: waiting in ops.kubectl("logs", operator), 60)
        team.scale(4)
        team.until_ready(4)
        team.kubectl("annotate", "quorum", team.name, f"test={uuid.uuid4().hex}")
        time.sleep(WATCHED_S)
        assert stateful_set(team)["metadata"]["generation"] == generation + 1, "scaled once"
        after = team.uids("pods")
        assert {name: after.get(name) for name in pods} == pods
        acted = [line for line in ops.kubectl("logs", operator).splitlines() if "mutation:" in line]
        assert not [line for line in acted if team.name in line], acted
        # It takes over once the namespace's own operator has gone.
        team.kubectl("scale", f"deployment/{team.name}-operator", "--replicas=0")
        held = lambda: "acquired the lease" in ops.kubectl("logs", operator)  # noqa: E731
        ops.until("the namespace is taken over", held, 180)


def stateful_set(lab: Lab) -> Object:
    return lab.get("statefulset", lab.name)


@pytest.mark.parametrize(
    ("voters", "unavailable"),
    [
        pytest.param(1, None, marks=pytest.mark.defects),
        (2, 0),
        pytest.param(3, 1, marks=pytest.mark.defects),
    ],
)
def test_d13_a_disruption_budget_keeps_a_majority(
    images: Images, voters: int, unavailable: int | None
) -> None:
    with namespace(images) as lab:
        lab.install(f"quorum.replicas={voters}")
        lab.until_ready(voters)
        budget = lab.exists("pdb", lab.name)
        assert budget == (unavailable is not None)
        if budget:
            assert lab.get("pdb", lab.name)["spec"]["maxUnavailable"] == unavailable
        warned = lab.condition("DataLossRisk")
        assert (warned["reason"] == "TwoVoters") == (voters == 2), warned
