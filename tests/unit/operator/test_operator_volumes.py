"""Volumes that grow: one after the other, with the API server's own words where one cannot."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from quorate_operator import naming
from quorate_operator.kube.api import path
from quorate_operator.objects import manifests
from quorate_operator.objects.claim_state import bytes_of, observed_claim
from quorate_operator.objects.made import as_made
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.planning import plan as p
from quorate_operator.planning.values import ActionFailure, ExpandVolume, ObservedClaim

from tests.unit.operator.fake_api import Object
from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import Lab, rejecting
from tests.unit.operator.test_operator_plan import HEALTHY, key, node, quorum, silent
from tests.unit.operator.test_operator_plan import without_leader as leaderless

GI = 2**30
LARGER = p.Desired(3, volume_size="20Gi", volume_bytes=20 * GI)
CLASS = (
    'persistentvolumeclaims "data-q-0" is forbidden: only dynamically provisioned pvc can be '
    "resized and the storageclass that provisions the pvc must support resize"
)
QUOTA = (
    'persistentvolumeclaims "data-q-0" is forbidden: exceeded quota: few, requested: '
    "requests.storage=10Gi, used: requests.storage=30Gi, limited: requests.storage=30Gi"
)
RIGHTS = (
    'persistentvolumeclaims "data-q-0" is forbidden: User "system:serviceaccount:lab:operator" '
    'cannot patch resource "persistentvolumeclaims" in API group "" in the namespace "lab"'
)


def claim(
    ordinal: int, requested: int = 10, capacity: int | None = None, **more: Any
) -> ObservedClaim:
    """Sizes in GiB. capacity: the same as requested, if it is not given."""
    has = requested if capacity is None else capacity
    return ObservedClaim(ordinal, requested * GI, has * GI, f"{has}Gi", **more)


def having(*claims: ObservedClaim, observed: p.Observed = HEALTHY) -> p.Observed:
    return replace(observed, claims=claims, volumes=frozenset(c.ordinal for c in claims))


# --- the plan -------------------------------------------------------------------------------------


def test_volumes_grow_one_after_the_other() -> None:
    first = p.plan(LARGER, having(claim(0), claim(1), claim(2)))
    assert first.action == ExpandVolume(0, "20Gi")
    assert first.text == "expand the volume of node 3000 from 10Gi to 20Gi"
    growing = p.plan(LARGER, having(claim(0, 20, 10), claim(1), claim(2)))
    assert growing.action is None
    (refusal,) = growing.refusals
    assert refusal == p.PlanRefusal(
        p.Reason.EXPANDING, "the volume of node 3000 grows from 10Gi to 20Gi"
    )
    second = p.plan(LARGER, having(claim(0, 20), claim(1), claim(2)))
    assert second.action == ExpandVolume(1, "20Gi")
    assert p.plan(LARGER, having(*(claim(n, 20) for n in range(3)))).is_done
    # A volume that has more than its claim asks for is large enough.
    assert p.plan(LARGER, having(*(claim(n, 10, 100) for n in range(3)))).is_done


def test_a_driver_that_fails_is_reported_and_holds_up_the_others() -> None:
    failed = claim(0, 20, 10, problem="ControllerResizeError: no space in pool")
    planned = p.plan(LARGER, having(failed, claim(1), claim(2)))
    assert planned.action is None
    assert planned.refusals[0].text.endswith("20Gi: ControllerResizeError: no space in pool")
    # Less than was asked for and more than there is: the API server decides whether that may be.
    less = replace(LARGER, volume_size="15Gi", volume_bytes=15 * GI)
    assert p.plan(less, having(failed, claim(1), claim(2))).action == ExpandVolume(0, "15Gi")


def test_what_is_refused_is_refused_for_one_claim_only() -> None:
    observed = having(claim(0), claim(1), claim(2))
    one = replace(observed, failures=(ActionFailure("ExpandVolume 0", CLASS),))
    planned = p.plan(LARGER, one)
    assert planned.action == ExpandVolume(1, "20Gi")
    assert planned.refuses(p.Reason.EXPANSION_REFUSED)
    all_of_them = tuple(ActionFailure(f"ExpandVolume {n}", CLASS) for n in range(3))
    planned = p.plan(LARGER, replace(observed, failures=all_of_them))
    assert planned.action is None
    assert [each.reason for each in planned.refusals] == [p.Reason.EXPANSION_REFUSED] * 3
    assert all(CLASS in each.text for each in planned.refusals)


def test_a_volume_never_becomes_smaller() -> None:
    smaller = p.Desired(3, volume_size="5Gi", volume_bytes=5 * GI)
    planned = p.plan(smaller, having(claim(0), claim(1), claim(2)))
    assert planned.action is None
    assert planned.refusals[0] == p.PlanRefusal(
        p.Reason.EXPANSION_REFUSED,
        "the volume of node 3000 has 10Gi, and storage.size is 5Gi: a volume cannot become smaller",
    )
    # A volume that was provisioned larger than its claim asks for is as wanted.
    assert p.plan(smaller, having(*(claim(n, 5, 8) for n in range(3)))).is_done


def test_a_full_disk_is_enlarged_although_there_is_no_leader() -> None:
    full = quorum(*(silent(n) for n in range(3)))
    observed = having(claim(0), claim(1), claim(2), observed=leaderless(full))
    planned = p.plan(LARGER, observed)
    assert planned.action == ExpandVolume(0, "20Gi")
    assert planned.refuses(p.Reason.WAITING_FOR_LEADER)


def test_healing_comes_first_and_some_volumes_stay_as_they_are() -> None:
    lost = quorum(node(0), node(1), node(2, None))
    small = (claim(0), claim(1), claim(2))
    assert p.plan(LARGER, having(*small, observed=lost)).action == p.RemoveVoter(key(2))
    assert p.plan(replace(LARGER, paused=True), having(*small)).action is None
    gone = quorum(node(0), node(1, None), node(2, None))
    assert p.plan(LARGER, having(*small, observed=gone)).action is None
    # The volume of a node that was removed, and those of a hibernated quorum.
    kept = having(*(claim(n, 20) for n in range(3)), claim(4))
    assert p.plan(LARGER, kept).is_done
    asleep = having(*small, observed=replace(HEALTHY, size=0, nodes=(), view=None))
    assert p.plan(replace(LARGER, hibernated=True), asleep).action is None


def test_a_restart_for_the_file_system_keeps_the_rules_of_a_rollout() -> None:
    nodes = [node(n, grows_at_restart=n < 2) for n in range(3)]
    growing = (claim(0, 20, 10, needs_restart=True), claim(1, 20), claim(2, 20))
    observed = having(*growing, observed=quorum(*nodes, leader=0))
    first = p.plan(LARGER, observed)
    assert first.action == p.RestartPod(1, "uid-1")
    assert first.text == "restart pod 1: its file system grows at a restart"
    closed = replace(observed, closed_window="pods wait for a maintenance window")
    assert p.plan(LARGER, closed).refuses(p.Reason.WINDOW_CLOSED)
    dead = having(*growing, observed=quorum(*nodes[:2], silent(2), leader=0))
    assert p.plan(LARGER, dead).refuses(p.Reason.ROLLOUT_BLOCKED)
    last = having(*growing, observed=quorum(nodes[0], node(1), node(2), leader=0))
    assert isinstance(p.plan(LARGER, last).action, p.TransferLeadership)
    # A process that its full disk stops is restarted without a leader.
    stopped = quorum(silent(0, grows_at_restart=True), silent(1), node(2))
    without = having(*growing, observed=leaderless(stopped))
    assert p.plan(LARGER, without).action == p.RestartPod(0, "uid-0")


# --- what the driver and the kubelet report -------------------------------------------------------


def made_claim(requested: str, capacity: str = "", *conditions: Object) -> Object:
    status: Object = {"conditions": [*conditions]}
    if capacity:
        status["capacity"] = {"storage": capacity}
    spec = {"resources": {"requests": {"storage": requested}}}
    return {"metadata": {"name": "data-q-0"}, "spec": spec, "status": status}


def ago(seconds: float) -> str:
    at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("pending_s", "started_s", "expected"),
    [(400, 900, True), (100, 900, False), (400, 200, False), (None, 900, False)],
)
def test_a_restart_is_due_when_the_file_system_does_not_grow_by_itself(
    pending_s: float | None, started_s: float, expected: bool
) -> None:
    """Once, and not while the kubelet may still be at it."""
    condition = {"type": "FileSystemResizePending", "status": "True", "message": "Waiting for user"}
    if pending_s is not None:
        condition["lastTransitionTime"] = ago(pending_s)
    pod = {"status": {"startTime": ago(started_s)}}
    found = observed_claim(0, made_claim("20Gi", "10Gi", condition), pod)
    assert found is not None
    assert found.needs_restart is expected
    assert found.problem == "FileSystemResizePending: Waiting for user"
    assert (found.requested, found.capacity, found.size) == (20 * GI, 10 * GI, "10Gi")


def test_a_claim_without_a_volume_is_not_expanded() -> None:
    unbound = observed_claim(0, made_claim("10Gi"), None)
    assert unbound is not None
    assert not unbound.is_bound
    assert p.plan(LARGER, having(unbound, claim(1, 20), claim(2, 20))).is_done
    deleted = made_claim("10Gi", "10Gi")
    deleted["metadata"]["deletionTimestamp"] = ago(1)
    assert observed_claim(0, deleted, None) is None
    past = {"type": "Resizing", "status": "False", "message": "x"}
    found = observed_claim(0, made_claim("10Gi", "10Gi", past), None)
    assert found is not None
    assert found.problem == ""


def test_quantities() -> None:
    assert [bytes_of(text) for text in ("10Gi", "1.5Ki", "1e3", "2G", "lots", "")] == [
        10 * GI,
        1536,
        1000,
        2 * 10**9,
        0,
        0,
    ]


def test_the_manifest_keeps_the_size_that_was_made() -> None:
    """It cannot be changed, and equal quantities are no difference."""

    def resource(size: str) -> QuorumResource:
        return QuorumResource("q", "lab", uid="u", spec={"image": "x", "storage": {"size": size}})

    made = manifests.objects(resource("1024Mi"))["StatefulSet/q"]
    stamp = manifests.stamp_of(made)
    made["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "1Gi"
    assert as_made(resource("1024Mi"), made) == resource("1024Mi")
    assert as_made(resource("2Gi"), None) == resource("2Gi")
    found = manifests.objects(as_made(resource("2Gi"), made))["StatefulSet/q"]
    assert found["spec"]["volumeClaimTemplates"] == made["spec"]["volumeClaimTemplates"]
    assert (
        stamp
        != manifests.stamp_of(found)
        == manifests.stamp_of(manifests.objects(resource("1Gi"))["StatefulSet/q"])
    )


# --- with an API server ---------------------------------------------------------------------------


def claims(lab: Lab) -> list[str]:
    """What the claims request."""
    found = sorted(
        lab.kube.list("PersistentVolumeClaim", "lab"), key=lambda e: e["metadata"]["name"]
    )
    return [each["spec"]["resources"]["requests"]["storage"] for each in found]


def make_claims(lab: Lab) -> None:
    for ordinal in range(3):
        made = made_claim("10Gi", "10Gi")
        made["metadata"] = {"name": naming.claim("q", ordinal), "labels": naming.labels("q")}
        lab.kube.create("PersistentVolumeClaim", "lab", made, "test")


def grow(lab: Lab, ordinal: int) -> None:
    """What the driver and the kubelet do."""
    found = lab.store.objects[path("PersistentVolumeClaim", "lab", naming.claim("q", ordinal))]
    found["status"]["capacity"] = dict(found["spec"]["resources"]["requests"])
    lab.worker.is_changed = True


async def test_a_larger_size_reaches_every_claim_and_restarts_nothing(
    lab: Lab, nodes: FakeNodes
) -> None:
    make_claims(lab)
    lab.patch(storage={"size": "20Gi"})
    assert "PATCH data-q-0" in await lab.step()
    for ordinal in range(3):
        await lab.settle()
        assert claims(lab) == ["20Gi"] * (ordinal + 1) + ["10Gi"] * (2 - ordinal)
        assert lab.condition("Ready")[:2] == ("False", "VolumeExpanding")
        assert lab.condition("SpecApplied")[:2] == ("False", "VolumeExpanding")
        assert lab.condition("Degraded")[0] == "False"
        grow(lab, ordinal)
    await lab.settle()
    assert lab.condition("Ready")[0] == lab.condition("SpecApplied")[0] == "True"
    # The StatefulSet, whose claims cannot be changed, is left alone.
    assert lab.quorum["status"]["storage"]["size"] == "10Gi"
    patched = [each for each in lab.store.log if each == ("PATCH", path("StatefulSet", "lab", "q"))]
    assert not patched
    assert not [each for each in lab.store.log if each[0] == "DELETE"]


@pytest.mark.parametrize("text", [CLASS, QUOTA, RIGHTS])
async def test_the_api_servers_message_is_reported_until_it_lets_it_happen(
    lab: Lab, nodes: FakeNodes, text: str
) -> None:
    make_claims(lab)
    lab.store.reject = rejecting(("persistentvolumeclaims/", 403, text))
    lab.patch(storage={"size": "20Gi"})
    await lab.settle()
    status, reason, message = lab.condition("SpecApplied")
    assert (status, reason) == ("False", "VolumeExpansionRefused")
    assert text in message
    assert lab.condition("Ready")[:2] == ("False", "VolumeExpansionRefused")
    assert lab.condition("Quorate")[0] == "True"
    (event, *_) = lab.events("VolumeExpansionRefused")
    assert event["type"] == "Warning"
    began = len(lab.store.log)
    await lab.step()
    assert not [each for each in lab.store.log[began:] if each[0] == "PATCH"]
    # The smaller size again: all is well, and nothing was changed.
    assert claims(lab) == ["10Gi"] * 3
    lab.patch(storage={"size": "10Gi"})
    await lab.settle()
    assert lab.condition("Ready")[0] == "True"
    lab.store.reject = lambda *_: None
    lab.patch(storage={"size": "20Gi"})
    await lab.settle()
    assert claims(lab) == ["20Gi", "10Gi", "10Gi"]


async def test_a_claim_that_was_replaced_meanwhile_is_not_changed(
    lab: Lab, nodes: FakeNodes
) -> None:
    """A lost disk: the new claim has the name, and another UID."""
    make_claims(lab)
    where = path("PersistentVolumeClaim", "lab", "data-q-0")

    def replaced(method: str, at: str, _body: Object) -> None:
        if method == "PATCH" and at == where:
            lab.store.objects[where]["metadata"]["uid"] = "another"
            lab.store.reject = lambda *_: None

    lab.store.reject = replaced
    lab.patch(storage={"size": "20Gi"})
    await lab.step()
    assert claims(lab) == ["10Gi"] * 3
    # The next one meanwhile, and this one when its attempt is due.
    await lab.settle()
    assert claims(lab) == ["10Gi", "20Gi", "10Gi"]
    grow(lab, 1)
    lab.now += 20
    await lab.settle()
    assert claims(lab)[0] == "20Gi"
