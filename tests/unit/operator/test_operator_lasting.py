"""Applies that succeed and do not last: nothing else waits for them, and they are bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from quorate_operator import naming
from quorate_operator.control import loop
from quorate_operator.control.backoff import LASTS_S, Backoff
from quorate_operator.kube.api import path
from quorate_operator.kube.ownership import last_manager
from quorate_operator.objects import authority as a
from quorate_operator.planning import plan as p
from quorate_operator.planning.values import ActionFailure

from tests.unit.operator.fake_api import Object, created
from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import Lab
from tests.unit.operator.test_operator_plan import HEALTHY

SET = path("StatefulSet", "lab", "q")


def webhook(method: str, where: str, body: Object) -> None:
    """Drop the operator's annotation from each apply of the StatefulSet."""
    if method == "PATCH" and where == SET:
        body["metadata"].pop("annotations", None)
        body["metadata"]["annotations"] = {naming.HASH_ANNOTATION: None}


def image(lab: Lab) -> str:
    found = lab.kube.get("StatefulSet", "lab", "q")
    assert found is not None
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


class Other:
    """An operator of another version: it writes the StatefulSet as it wants it after each change.

    manager: its name in the managed fields, "" if these are not reported.
    """

    def __init__(self, lab: Lab, manager: str) -> None:
        self.lab, self.manager = lab, manager

    def write(self) -> None:
        found = self.lab.store.objects[SET]
        found["metadata"]["annotations"][naming.HASH_ANNOTATION] = "another"
        if self.manager:
            fields = {"f:metadata": {"f:annotations": {f"f:{naming.HASH_ANNOTATION}": {}}}}
            entry = {"manager": self.manager, "operation": "Update", "fieldsV1": fields}
            found["metadata"]["managedFields"] = [entry]
        self.lab.worker.is_changed = True


async def simulate(
    lab: Lab, seconds: float, between: Callable[[], None] = lambda: None, *, what: str = "PATCH q"
) -> int:
    """Step for a simulated time, as the loop does. Return how often it did `what`."""
    began, count = lab.now, 0
    while lab.now - began < seconds:
        count += (await lab.step()).count(what)
        between()
        is_busy = lab.worker.planned.action is not None
        due_s = lab.worker.backoff.due_in_s or loop.RESYNC_S
        lab.now += loop.ACTED_S if is_busy else min(due_s, loop.RESYNC_S) + 0.01
        lab.worker.is_changed = True
    return count


async def until_delayed(lab: Lab, between: Callable[[], None] = lambda: None) -> None:
    """Step until an attempt is delayed: at other moments, the jitter decides whether it is due."""
    while not lab.worker.backoff.failures:
        lab.now += loop.ACTED_S
        lab.worker.is_changed = True
        await lab.step()
        between()


async def test_a_lost_disk_is_healed_while_a_webhook_changes_an_object(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.store.reject = webhook
    lab.patch(image="quorate:2")
    nodes.disks[2] = None
    for _ in range(4):
        await lab.step()
    assert nodes.removals == [2]
    held, reason, message = lab.condition("SpecApplied")
    assert (held, reason) == ("False", "ApplyUndone")
    assert message.startswith("StatefulSet/q: it was applied, but an admission webhook")
    assert [event["type"] for event in lab.events("ApplyUndone")] == ["Warning"]


async def test_applies_that_do_not_last_are_bounded(lab: Lab, nodes: FakeNodes) -> None:
    lab.store.reject = webhook
    lab.patch(image="quorate:2")
    assert await simulate(lab, 600.0) <= 16
    assert len(lab.events("ApplyUndone")) == 1
    # An edit is applied at once, whatever the delay has grown to.
    lab.patch(image="quorate:3")
    assert "PATCH q" in await lab.step()
    assert image(lab) == "quorate:3"


async def test_it_goes_on_by_itself_when_the_interference_ends(lab: Lab, nodes: FakeNodes) -> None:
    lab.store.reject = webhook
    lab.patch(image="quorate:2")
    await simulate(lab, 30.0)
    await until_delayed(lab)
    assert lab.condition("SpecApplied")[1] == "ApplyUndone"
    lab.store.reject = lambda *_: None
    await simulate(lab, 60.0)
    assert lab.condition("SpecApplied")[0] == "True"
    # What happens once is repaired at once, and long ago does not count.
    lab.now += 2 * LASTS_S
    del lab.store.objects[SET]["metadata"]["annotations"]
    lab.worker.is_changed = True
    assert "PATCH q" in await lab.step()
    await lab.settle()
    assert lab.condition("SpecApplied")[0] == "True"


@pytest.mark.parametrize(
    ("manager", "said"),
    [
        ("policy-controller", 'the field manager "policy-controller" reverts it'),
        ("quorate-operator", "another version of the operator reverts it"),
        ("", "another version of the operator reverts it"),
    ],
)
async def test_the_status_names_who_changes_an_object_back(
    lab: Lab, nodes: FakeNodes, manager: str, said: str
) -> None:
    other = Other(lab, manager)
    lab.patch(image="quorate:2")
    assert await simulate(lab, 60.0, other.write) <= 10
    await until_delayed(lab, other.write)
    assert lab.condition("SpecApplied")[1] == "ApplyUndone"
    assert said in lab.condition("SpecApplied")[2]
    nodes.disks[1] = None
    await simulate(lab, 5.0, other.write)
    assert nodes.removals == [1]


async def test_certificates_are_renewed_while_a_webhook_changes_the_template(lab: Lab) -> None:
    created(lab.kube)
    await lab.settle()
    lab.store.reject = webhook
    lab.patch(image="quorate:2")
    await simulate(lab, 5.0)
    assert lab.condition("SpecApplied")[1] == "ApplyUndone"
    lab.kube.merge("Secret", "lab", "q-node-tls", {"data": {"node-1.crt": ""}})
    await simulate(lab, 1.0)
    files = a.secret_files(lab.kube.get("Secret", "lab", "q-node-tls"))
    assert "BEGIN CERTIFICATE" in files["node-1.crt"]


async def test_a_secret_that_is_emptied_again_and_again_is_issued_with_delays(lab: Lab) -> None:
    created(lab.kube)
    await lab.settle()

    def empty() -> None:
        lab.kube.merge("Secret", "lab", "q-node-tls", {"data": {"node-1.crt": ""}})

    empty()
    assert await simulate(lab, 60.0, empty, what="PATCH q-node-tls") <= 12
    await until_delayed(lab, empty)
    assert "Secret/q-node-tls: it was applied, but" in lab.condition("SpecApplied")[2]


async def test_a_resize_that_another_program_undoes_holds_up_nothing(
    lab: Lab, nodes: FakeNodes
) -> None:
    """Such as by a HorizontalPodAutoscaler of the StatefulSet."""
    lab.patch(replicas=5)

    def undo() -> None:
        lab.store.objects[SET]["spec"]["replicas"] = 3

    assert await simulate(lab, 60.0, undo) <= 12
    await until_delayed(lab, undo)
    assert lab.worker.planned.refuses(p.Reason.ACTION_FAILED)
    nodes.disks[1] = None
    await simulate(lab, 3.0, undo)
    assert nodes.removals == [1]


async def test_a_growth_that_is_undone_delays_no_pod_of_a_voter(lab: Lab, nodes: FakeNodes) -> None:
    lab.patch(replicas=5)

    def undo(size: int) -> None:
        lab.store.objects[SET]["spec"]["replicas"] = size
        lab.worker.is_changed = True

    await simulate(lab, 100.0, lambda: undo(3))
    await until_delayed(lab, lambda: undo(3))
    undo(1)
    assert "PATCH q" in await lab.step()
    assert lab.store.objects[SET]["spec"]["replicas"] == 3


async def test_a_change_of_the_quorum_that_is_undone_is_repeated_soon(
    lab: Lab, nodes: FakeNodes
) -> None:
    """A voter without a pod must not wait for as long as an object of the spec."""

    def undo() -> None:
        lab.store.objects[SET]["spec"]["replicas"] = 2

    seconds = 240.0
    longest = seconds / loop.QUORUM_RETRY_MAX_S
    assert longest <= await simulate(lab, seconds, undo) <= 4 * longest


async def test_objects_after_one_without_an_answer_are_applied_as_soon_as_it_answers(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.patch(kafkaListener={"enabled": True})
    lab.store.reject = lambda method, *_: setattr(lab.store, "fail", 3 * (method == "PATCH"))
    await lab.step()
    lab.store.reject, lab.store.fail = (lambda *_: None), 0
    await lab.settle()
    assert not lab.events("ApplyUndone")


def test_what_is_wanted_otherwise_is_not_delayed() -> None:
    now = 0.0
    known = Backoff(lambda: now)
    for _ in range(3):
        known.succeeded("Service/x", "one")
        if known.is_undone("Service/x", "one"):
            known.undone("Service/x", "text")
    assert [each.is_undone for each in known.failures] == [True]
    assert not known.is_undone("Service/x", "one"), "it is counted once"
    known.supersede("Service/x", "one")
    assert known.failures
    known.supersede("Service/x", "another")
    assert not known.failures
    known.failed("Service/x", "rejected")
    known.supersede("Service/x", "third")
    assert known.failures, "a rejection is delayed whatever is wanted"


def managed(manager: str, at: str, *annotations: str, **more: Any) -> Object:
    fields = {"f:metadata": {"f:annotations": {f"f:{name}": {} for name in annotations}}}
    return {"manager": manager, "time": at, "fieldsV1": fields, **more}


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ([managed("own", "2"), managed("other", "1", "hash")], "other"),
        ([managed("own", "2", "hash"), managed("other", "1")], ""),
        ([managed("own", "2"), managed("other", "3")], "other"),
        ([managed("own", "2"), managed("other", "3", subresource="status")], ""),
        ([], ""),
    ],
)
def test_the_managers_tell_who_changed_an_object_last(entries: list[Object], name: str) -> None:
    found = {"metadata": {"managedFields": entries}}
    assert last_manager(found, "hash", ("own",)) == name


def test_a_failure_is_still_reported_while_another_object_is_applied() -> None:
    """Else its Event would be repeated after each apply."""
    failure = ActionFailure("Service/q", "it was applied, but", is_undone=True)
    late = replace(HEALTHY, stale=("Service/q", "NetworkPolicy/q"), failures=(failure,))
    found = p.plan(p.Desired(3), late)
    assert found.action == p.ApplyObjects(("NetworkPolicy/q",))
    assert [each.reason for each in found.refusals] == [p.Reason.APPLY_UNDONE]
