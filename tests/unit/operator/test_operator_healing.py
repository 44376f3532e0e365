"""Healing and status while something is rejected, fails or cannot be observed."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from quorate_operator import naming
from quorate_operator.control import loop
from quorate_operator.control.act import ActionFailedError
from quorate_operator.objects import authority as a
from quorate_operator.objects import certificates, manifests
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status
from quorate_operator.observation.observe import Snapshot
from quorate_operator.planning import plan as p
from quorate_operator.planning.values import ActionFailure

from tests.unit.operator.fake_api import Object, RefusedError, created
from tests.unit.operator.fake_nodes import CLUSTER, FakeNodes
from tests.unit.operator.stepping import KEY, Lab, rejecting
from tests.unit.operator.test_operator_plan import CLUSTER as PLANNED
from tests.unit.operator.test_operator_plan import HEALTHY, node, quorum, silent

REJECTED = (
    'StatefulSet.apps "q" is invalid: spec.template.spec.tolerations[0].operator: Unsupported '
    'value: "Maybe": supported values: "Equal", "Exists"'
)
QUOTA = 'services "q-7" is forbidden: exceeded quota: few, requested: services=1, used: services=9'
DENIED = 'admission webhook "policy.example" denied the request: no budgets here'


LOST = quorum(node(0), node(1), node(2, None))


# --- rejected objects -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (("statefulsets/q", 422, REJECTED), {"podTemplate": {"tolerations": [{"operator": "M"}]}}),
        (("statefulsets/q", 403, DENIED), {"image": "quorate:2"}),
        (("services/q-7", 403, QUOTA), {"kafkaListener": {"enabled": True}}),
        (("networkpolicies/q", 500, DENIED), {"networkPolicy": {"metricsFrom": [{}]}}),
    ],
)
async def test_a_lost_disk_is_healed_while_an_object_is_rejected(
    lab: Lab, nodes: FakeNodes, rule: tuple[str, int, str], change: dict[str, Any]
) -> None:
    """The conditions show both."""
    text = rule[2]
    lab.store.reject = rejecting(rule)
    lab.patch(**change)
    for _ in range(4):
        await lab.step()
    held, reason, message = lab.condition("SpecApplied")
    assert (held, reason) == ("False", "ApplyRejected")
    assert text in message
    nodes.disks[2] = None
    await lab.step()
    assert nodes.removals == [2]
    assert lab.condition("SpecApplied")[1] == "ApplyRejected"
    assert lab.condition("Degraded")[0] == "True"
    assert lab.condition("Ready")[1] == "ApplyRejected"


async def test_an_object_that_is_rejected_does_not_keep_the_others_from_being_applied(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.store.reject = rejecting(("services/q-0", 403, QUOTA), ("statefulsets/q", 422, REJECTED))
    lab.patch(kafkaListener={"enabled": True})
    await lab.step()
    for name in ("q-1", "q-8", "q-controllers"):
        found = lab.kube.get("Service", "lab", name)
        assert found is not None
        assert [port["name"] for port in found["spec"]["ports"]][:2] == ["controller", "kafka"]
    targets = [each.target for each in lab.worker.backoff.failures]
    assert targets == ["Service/q-0", "StatefulSet/q"]


async def test_a_rejected_object_is_not_applied_again_before_its_time(
    lab: Lab, nodes: FakeNodes
) -> None:
    """Later passes neither write the status nor create Events, and the delay grows."""
    lab.store.reject = rejecting(("statefulsets/q", 422, REJECTED))
    lab.patch(image="quorate:2")
    first = await lab.step()
    assert first.count("PATCH q") == 1
    events = len(lab.events())
    delays = []
    for _ in range(6):
        for _ in range(3):
            lab.worker.is_changed = True  # something else changes
            assert await lab.step() == []
        due_s = lab.worker.backoff.due_in_s
        assert due_s is not None
        delays.append(due_s)
        lab.now += due_s + 0.1
        assert await lab.step() == ["PATCH q"]
    assert delays[-1] > 8 * delays[0]
    assert len(lab.events()) == events
    assert len(lab.events("ApplyRejected")) == 1
    assert REJECTED in lab.condition("Ready")[2]
    # A corrected spec is applied at once.
    lab.store.reject = lambda *_: None
    lab.patch(image="quorate:3")
    await lab.step()
    found = lab.kube.get("StatefulSet", "lab", "q")
    assert found is not None
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "quorate:3"


async def test_a_new_quorum_waits_for_all_of_its_objects(lab: Lab) -> None:
    created(lab.kube, tls={"enabled": False})
    lab.store.reject = rejecting(("networkpolicies", 403, DENIED))
    for _ in range(3):
        await lab.step()
    assert lab.kube.get("StatefulSet", "lab", "q") is None
    assert lab.kube.get("Service", "lab", "q-8") is not None
    assert lab.condition("SpecApplied")[1] == "ApplyRejected"


async def test_certificates_are_renewed_while_the_template_is_rejected(lab: Lab) -> None:
    created(lab.kube)
    await lab.settle()
    lab.store.reject = rejecting(("statefulsets/q", 422, REJECTED))
    lab.patch(image="quorate:2")
    await lab.step()
    lab.kube.merge("Secret", "lab", "q-node-tls", {"data": {"node-1.crt": ""}})
    lab.worker.is_changed = True
    await lab.step()
    files = a.secret_files(lab.kube.get("Secret", "lab", "q-node-tls"))
    assert "BEGIN CERTIFICATE" in files["node-1.crt"]


def test_an_invalid_template_and_a_forbidden_image_stop_no_healing() -> None:
    for desired, lost in (
        (p.Desired(3, invalid_template="config contains x"), LOST),
        (p.Desired(3), replace(LOST, forbidden=("spec.image evil is not allowed",))),
        (p.Desired(3), replace(LOST, unusable_authority="Secret/q-ca: broken")),
    ):
        stale = replace(lost, stale=("Secret/q-node-tls", "StatefulSet/q"))
        planned = p.plan(desired, stale)
        if not lost.unusable_authority:
            assert planned.action == p.ApplyObjects(("Secret/q-node-tls",))
        planned = p.plan(desired, replace(lost, stale=("StatefulSet/q",)[: len(lost.forbidden)]))
        assert isinstance(planned.action, p.RemoveVoter)
        assert planned.refusals
        fresh = replace(p.Observed(), forbidden=lost.forbidden)
        fresh = replace(fresh, unusable_authority=lost.unusable_authority)
        assert p.plan(desired, fresh).action is None


def test_what_fails_for_one_node_is_done_for_the_others() -> None:
    empty = quorum(node(0), node(1), node(2), node(3, None), node(4, None))
    failed = p.plan(p.Desired(5), empty).action
    assert failed == p.FormatNode(3, "uid-3", PLANNED)
    failure = ActionFailure("FormatNode 3", "timed out")
    planned = p.plan(p.Desired(5), replace(empty, failures=(failure,)))
    assert planned.action == p.FormatNode(4, "uid-4", PLANNED)
    assert planned.refuses(p.Reason.ACTION_FAILED)
    outdated = quorum(*(node(n, outdated=n == 0) for n in range(3)))
    (first,) = [p.plan(p.Desired(3), outdated).action]
    assert isinstance(first, p.TransferLeadership)
    failure = ActionFailure(f"TransferLeadership {first.target}", "it cannot lead")
    second = p.plan(p.Desired(3), replace(outdated, failures=(failure,))).action
    assert isinstance(second, p.TransferLeadership)
    assert second.target != first.target
    joining = quorum(node(0), node(1), node(2), *(node(n, outdated=True) for n in (3, 4)))
    assert p.plan(p.Desired(5), joining).action == p.AddVoter(joining.nodes[3].key)
    joining = replace(joining, view=replace(joining.view, caught_up=frozenset()))
    assert p.plan(p.Desired(5), joining).action == p.RestartPod(3, "uid-3")
    failure = ActionFailure("RestartPod 3", "a webhook denied the request")
    planned = p.plan(p.Desired(5), replace(joining, failures=(failure,)))
    assert planned.action == p.RestartPod(4, "uid-4")
    stuck = quorum(*(silent(n, outdated=True) for n in range(3)))
    stuck = replace(stuck, view=None, failures=(ActionFailure("RestartPod 0", "a webhook"),))
    assert p.plan(p.Desired(3), stuck).action == p.RestartPod(1, "uid-1")


async def test_a_pod_that_was_replaced_in_the_meantime_is_neither_formatted_nor_deleted(
    lab: Lab, nodes: FakeNodes
) -> None:
    """Nor is one deleted whose state has changed: it may have become ready."""
    quorum, seen = await lab.operator._observe(lab.worker)
    uid = seen.pods[1]["metadata"]["uid"]
    lab.kube.merge("Pod", "lab", "q-1", {"status": {"phase": "Failed"}})
    for action, text in (
        (p.RestartPod(1, uid), "Precondition failed"),
        (p.FormatNode(1, "another", CLUSTER), "replaced in the meantime"),
    ):
        with pytest.raises(ActionFailedError, match=text):
            await lab.operator.actor("lab").act(action, quorum, seen, None)
    assert lab.kube.get("Pod", "lab", "q-1") is not None


# --- requests, watches and Events -----------------------------------------------------------------


async def test_an_idle_quorum_asks_the_api_server_nothing(lab: Lab, nodes: FakeNodes) -> None:
    began = len(lab.store.log)
    for _ in range(20):
        await lab.step()
    assert lab.requests(began) == 0
    # What the nodes report leads to reads before anything is changed.
    nodes.disks[2] = None
    await lab.step()
    assert nodes.removals == [2]
    methods = [method for method, path in lab.store.log[began:] if "/leases/" not in path]
    changes = [n for n, method in enumerate(methods) if method != "GET"]
    assert min(changes) >= 8, "the objects are read before the first change"


async def test_objects_are_read_again_after_a_while(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets are not watched, and an event may be lost."""
    created(lab.kube)
    await lab.settle()
    lab.store.remove("/api/v1/namespaces/lab/secrets/q-client-tls")
    await lab.step()
    assert lab.kube.get("Secret", "lab", "q-client-tls") is None
    monkeypatch.setattr(loop, "READ_S", 0.0)
    await lab.step()
    assert lab.kube.get("Secret", "lab", "q-client-tls") is not None


async def test_the_operators_own_status_wakes_nothing(lab: Lab) -> None:
    created(lab.kube)
    operator = lab.operator
    operator._changed("Quorum", "q", lab.quorum)
    worker = operator._workers[KEY]
    worker.is_changed = False
    lab.kube.merge("Quorum", "lab", "q", {"status": {"voters": 3}}, "status")
    operator._changed("Quorum", "q", lab.quorum)
    assert not worker.is_changed
    lab.kube.merge("Quorum", "lab", "q", {"metadata": {"generation": 2}})
    operator._changed("Quorum", "q", lab.quorum)
    assert worker.is_changed
    worker.is_changed = False
    operator._changed("Quorum", "q", lab.quorum, is_deleted=True)
    assert worker.is_changed
    assert worker.task is not None
    worker.task.cancel()


# --- what cannot be observed ----------------------------------------------------------------------


async def test_a_failed_observation_makes_the_conditions_unknown(
    lab: Lab, nodes: FakeNodes
) -> None:
    assert lab.condition("Ready")[0] == "True"
    text = 'pods is forbidden: User "operator" cannot list resource "pods"'

    def reject(method: str, path: str, _: Object) -> None:
        if path.endswith("/pods"):
            raise RefusedError(403, text)

    lab.store.reject = reject
    lab.worker.is_changed = True
    for _ in range(3):
        await lab.step()
    for name in ("Ready", "Quorate", "Degraded", "DataLossRisk", "Progressing"):
        assert lab.condition(name) == ("Unknown", "ObservationFailed", text)
    assert lab.quorum["status"].get("leader") is None
    assert lab.quorum["status"]["voters"] == 3
    assert [event["type"] for event in lab.events("ObservationFailed")] == ["Warning"]
    lab.store.reject = lambda *_: None
    await lab.step()
    assert lab.condition("Ready")[0] == "True"


async def test_an_error_that_passes_at_once_leaves_the_conditions(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.worker.is_changed = True
    lab.store.fail = 1
    await lab.step()
    assert lab.condition("Ready")[0] == "True"
    await lab.step()
    assert lab.condition("Ready")[0] == "True"


async def test_a_failure_that_nobody_expected_makes_the_conditions_unknown(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.store.objects["/apis/apps/v1/namespaces/lab/statefulsets/q"]["spec"]["replicas"] = "three"
    lab.worker.is_changed = True
    task = asyncio.create_task(lab.operator._work(KEY, lab.worker))
    async with asyncio.timeout(30):
        while (await asyncio.to_thread(lab.condition, "Ready"))[0] == "True":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    task.cancel()
    assert lab.condition("Ready")[:2] == ("Unknown", "ObservationFailed")


# --- authorities ----------------------------------------------------------------------------------

PAST = dt.datetime.now(dt.UTC) - dt.timedelta(days=40)


def encoded(**files: str) -> dict[str, str]:
    return {
        name.replace("_", "."): base64.b64encode(text.encode()).decode()
        for name, text in files.items()
    }


@pytest.mark.parametrize("phase", ["Stable", "Preparing", "Switching"])
async def test_an_expired_authority_is_replaced(lab: Lab, phase: str) -> None:
    """Its operator was away for long. The successor takes its place if there is one."""
    created(lab.kube)
    await lab.settle()
    expired = certificates.new_authority("q", days=30, now=PAST)
    data = encoded(tls_crt=expired.certificate, tls_key=expired.key)
    successor = certificates.new_authority("q")
    if phase == "Preparing":
        data |= encoded(next_crt=successor.certificate, next_key=successor.key)
    if phase == "Switching":
        data |= encoded(previous_crt=successor.certificate)
    lab.kube.merge("Secret", "lab", "q-ca", {"data": data})
    lab.worker.is_changed = True
    await lab.settle()
    found = a.authority_of(lab.kube.get("Secret", "lab", "q-ca"))
    assert found is not None
    assert found.phase is a.Phase.STABLE
    assert not found.is_expired()
    assert (found.signer == successor) == (phase == "Preparing")
    for name in ("q-node-tls", "q-client-tls"):
        files = a.secret_files(lab.kube.get("Secret", "lab", name))
        assert files["ca.crt"] == found.trusted
        certificate = files.get("node-8.crt") or files["tls.crt"]
        assert not certificates.is_due(found.signer, certificate)


def foreign_authority() -> dict[str, str]:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Corporate Root CA")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.not_valid_before(now).not_valid_after(now + dt.timedelta(days=9))
    made = builder.public_key(key.public_key()).sign(key, hashes.SHA256())
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    text = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain).decode()
    return encoded(tls_crt=made.public_bytes(encoding).decode(), tls_key=text)


async def test_an_authority_that_cannot_sign_is_reported_and_kept(lab: Lab) -> None:
    created(lab.kube)
    await lab.settle()
    lab.kube.merge("Secret", "lab", "q-ca", {"data": foreign_authority()})
    before = lab.kube.get("Secret", "lab", "q-ca")
    lab.worker.is_changed = True
    for _ in range(3):
        await lab.step()
    assert lab.kube.get("Secret", "lab", "q-ca") == before
    held, reason, text = lab.condition("SpecApplied")
    assert (held, reason) == ("False", "AuthorityUnusable")
    assert "Secret/q-ca: the authority's key is not an elliptic curve key" in text
    assert lab.events("AuthorityUnusable")


async def test_an_operator_that_cannot_connect_claims_nothing(lab: Lab) -> None:
    created(lab.kube)
    data = foreign_authority()
    body = manifests.secret(
        QuorumResource.parse(lab.quorum), naming.authority_secret("q"), {}, "kubernetes.io/tls"
    )
    lab.kube.create("Secret", "lab", {**body, "data": data}, "test")
    await lab.step()
    assert lab.condition("Quorate")[:2] == ("Unknown", "NoCertificate")
    assert lab.condition("Ready")[:2] == ("False", "AuthorityUnusable")
    assert lab.kube.get("StatefulSet", "lab", "q") is None


async def test_pods_with_keys_of_a_lost_secret_are_outdated(lab: Lab) -> None:
    """They keep their keys, for which the new Secret has no certificates."""
    created(lab.kube)
    await lab.settle()
    FakeNodes(3).pods(lab.store)

    async def outdated() -> list[int]:
        quorum = QuorumResource.parse(lab.quorum)
        seen = await lab.operator._observer.observe(quorum, None)
        return [each.ordinal for each in seen.observed.nodes if each.outdated]

    assert await outdated() == []
    secret = "/api/v1/namespaces/lab/secrets/q-node-tls"
    lab.store.remove(secret)
    assert await outdated() == []
    lab.worker.is_changed = True
    await lab.settle()
    lab.store.objects[secret]["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    assert await outdated() == [0, 1, 2]
    restarted = lab.store.objects["/api/v1/namespaces/lab/pods/q-2"]
    restarted["metadata"]["creationTimestamp"] = "2026-01-02T00:00:07Z"
    assert await outdated() == [0, 1]


# --- pods that do not start -----------------------------------------------------------------------


async def test_a_stuck_rollout_shows_the_container_and_its_message(
    lab: Lab, nodes: FakeNodes
) -> None:
    for text in ('Back-off pulling image "quorate:9"', "another message"):
        waiting = {"reason": "ImagePullBackOff", "message": text}
        nodes.break_pod(lab.store, 2, waiting)
        for ordinal in (0, 1):
            pod = lab.store.objects[f"/api/v1/namespaces/lab/pods/q-{ordinal}"]
            pod["metadata"]["labels"]["controller-revision-hash"] = "0"
        for _ in range(3):
            lab.worker.is_changed = True
            await lab.step()
        shown = f"pod q-2: container controller: ImagePullBackOff: {text}"
        for name in ("Ready", "Progressing", "Degraded"):
            assert lab.condition(name)[1] == "PodFailing"
            assert shown in lab.condition(name)[2]
        assert shown in lab.quorum["status"]["currentAction"]
    events = [event["message"] for event in lab.events("PodFailing")]
    assert len(events) == 2
    assert shown in events[1]


def test_the_only_two_voters_are_warned_about() -> None:
    two = QuorumResource("q", "lab", spec={"image": "x", "replicas": 2})
    three = QuorumResource("q", "lab", spec={"image": "x", "replicas": 3})
    seen = Snapshot(quorum(node(0), node(1), voters=2))
    for resource, is_risk in ((two, True), (three, False)):
        planned = p.plan(resource.desired, seen.observed)
        made = status.build(resource, seen, planned)
        found = {each["type"]: each for each in made["conditions"]}
        assert (found["DataLossRisk"]["status"] == "True") == is_risk
        assert bool(status.warnings(resource, seen)) == is_risk
    assert found["Ready"]["status"] == "False"


def test_a_template_that_its_controller_has_not_observed_is_not_ready() -> None:
    pending = replace(HEALTHY, is_template_pending=True)
    planned = p.plan(p.Desired(3), pending)
    assert planned.refuses(p.Reason.WAITING_FOR_PODS)
    assert planned.action is None
