"""Fencing a member: its controller stops, its pod keeps the volume, and nothing heals it away."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from quorate.raft.types import ReplicaKey
from quorate_operator import naming
from quorate_operator.kube.api import path
from quorate_operator.objects import manifests
from quorate_operator.objects.made import as_made, fenced_by
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.planning import plan as p
from quorate_operator.planning.values import ActionFailure
from quorate_operator.pod import PodError, is_fenced

from tests.processes import free_ports
from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import KEY, Lab, rejecting
from tests.unit.operator.test_operator_plan import HEALTHY, key, node, quorum, silent
from tests.unit.operator.test_operator_plan import without_leader as leaderless

FENCE_2 = p.Desired(3, fenced=frozenset({2}))
ARMED = replace(HEALTHY, fenced=frozenset({2}))
"""The template fences pod 2, which still runs."""
ASLEEP = silent(2, is_fenced=True, problem="it is fenced")
FENCED = replace(quorum(node(0), node(1), ASLEEP), fenced=frozenset({2}))


def texts(planned: p.OperatorPlan, reason: p.Reason) -> list[str]:
    return [each.text for each in planned.refusals if each.reason is reason]


# --- the plan -------------------------------------------------------------------------------------


def test_a_member_is_fenced_and_returns() -> None:
    assert p.plan(FENCE_2, HEALTHY).action == p.SetFenced((2,))
    assert p.plan(FENCE_2, ARMED).action == p.RestartPod(2, "uid-2")
    # The template that its controller has not observed yet would start the pod unfenced.
    assert p.plan(FENCE_2, replace(ARMED, is_template_pending=True)).action is None
    leaving = replace(ARMED, nodes=(*HEALTHY.nodes[:2], node(2, terminating=True)))
    assert p.plan(FENCE_2, leaving).action is None
    stays = p.plan(FENCE_2, FENCED)
    assert stays.action is None
    assert [each.reason for each in stays.refusals] == [p.Reason.FENCED]
    assert p.plan(p.Desired(3), FENCED).action == p.SetFenced(())
    over = replace(FENCED, fenced=frozenset())
    assert p.plan(p.Desired(3), replace(over, is_template_pending=True)).action is None
    assert p.plan(p.Desired(3), over).action == p.RestartPod(2, "uid-2")
    assert p.plan(p.Desired(3), HEALTHY).is_done


def test_the_leader_is_fenced_after_a_transfer() -> None:
    led = quorum(node(0), node(1), node(2), leader=2)
    assert p.plan(FENCE_2, led).action == p.TransferLeadership(key(0))
    both = p.Desired(5, fenced=frozenset({0, 4}))
    five = quorum(*(node(n) for n in range(5)), voters=5, leader=4)
    assert p.plan(both, five).action == p.SetFenced((0,))
    next_one = replace(
        quorum(silent(0, is_fenced=True), *(node(n) for n in range(1, 5)), voters=5, leader=4),
        fenced=frozenset({0}),
    )
    assert p.plan(both, next_one).action == p.TransferLeadership(key(1))


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (
            quorum(node(0), silent(1), node(2)),
            "cannot fence node 3002: 1 of 3 voters would be alive, but 2 are needed",
        ),
        (
            quorum(node(0), node(1, terminating=True), node(2)),
            "cannot fence node 3002: 1 of 3 voters would be alive, but 2 are needed",
        ),
        (quorum(node(0), node(1), size=2, voters=2), "cannot fence node 3002: it has no pod"),
    ],
)
def test_a_member_is_not_fenced_at_the_cost_of_the_majority(
    observed: p.Observed, said: str
) -> None:
    planned = p.plan(FENCE_2, observed)
    assert not isinstance(planned.action, p.SetFenced | p.RestartPod)
    assert said in texts(planned, p.Reason.FENCING_REFUSED)


def test_the_only_voters_are_never_fenced() -> None:
    for count in (1, 2):
        nodes = [node(n) for n in range(count)]
        desired = p.Desired(count, fenced=frozenset({0}))
        planned = p.plan(desired, quorum(*nodes, voters=count))
        assert planned.action is None
        assert planned.refuses(p.Reason.FENCING_REFUSED)
    # Two of three, one of which is dead already: fencing the dead one costs nothing.
    dead = quorum(node(0), node(1), silent(2))
    assert p.plan(FENCE_2, dead).action == p.SetFenced((2,))
    two = p.Desired(3, fenced=frozenset({1, 2}))
    planned = p.plan(two, FENCED)
    assert planned.action is None
    assert texts(planned, p.Reason.FENCING_REFUSED) == [
        "cannot fence node 3001: 1 of 3 voters would be alive, but 2 are needed"
    ]


def test_a_voter_that_dies_in_between_cancels_the_fence() -> None:
    """Otherwise the pod would start fenced the next time that it is evicted."""
    died = replace(quorum(node(0), silent(1), node(2)), fenced=frozenset({2}))
    assert p.plan(FENCE_2, died).action == p.SetFenced(())
    assert p.plan(FENCE_2, leaderless(ARMED)).action == p.SetFenced(())
    # The controller has stopped: this one is not unfenced by itself.
    stopped = leaderless(replace(FENCED, nodes=(node(0), silent(1), ASLEEP)))
    assert p.plan(FENCE_2, stopped).action is None


def test_a_member_returns_although_there_is_no_leader() -> None:
    stopped = leaderless(replace(FENCED, nodes=(node(0), silent(1), ASLEEP)))
    assert p.plan(p.Desired(3), stopped).action == p.SetFenced(())
    over = replace(stopped, fenced=frozenset())
    assert p.plan(p.Desired(3), over).action == p.RestartPod(2, "uid-2")
    # Not without the leader's word that the others have a majority.
    assert p.plan(FENCE_2, leaderless(HEALTHY)).action is None


def test_a_fenced_member_is_not_healed_away() -> None:
    # Surplus and dead, it would be removed, and its pod deleted.
    five = quorum(*(node(n) for n in range(4)), silent(4, is_fenced=True), voters=5)
    five = replace(five, fenced=frozenset({4}))
    desired = p.Desired(3, fenced=frozenset({4}))
    planned = p.plan(desired, five)
    assert planned.action == p.RemoveVoter(key(3))
    assert p.plan(replace(desired, fenced=frozenset()), five).action == p.SetFenced(())
    observer = replace(
        quorum(*(node(n) for n in range(3)), silent(3, is_fenced=True)), fenced=frozenset({3})
    )
    assert p.plan(p.Desired(3, fenced=frozenset({3})), observer).action is None
    # A newer template neither restarts it nor, meanwhile, the others; dead pods restart.
    nodes = [node(0, outdated=True), node(1, outdated=True), replace(ASLEEP, outdated=True)]
    assert p.plan(FENCE_2, replace(FENCED, nodes=tuple(nodes))).action is None
    dead = replace(FENCED, nodes=(nodes[0], silent(1, outdated=True), nodes[2]))
    assert p.plan(FENCE_2, dead).action == p.RestartPod(1, "uid-1")
    without = leaderless(replace(FENCED, nodes=(node(0), silent(1), nodes[2])))
    assert p.plan(FENCE_2, without).action is None
    # Someone else's lost disk is replaced if there is a majority without it.
    lost = quorum(*(node(n) for n in range(3)), node(3, None), silent(4, is_fenced=True), voters=5)
    lost = replace(lost, fenced=frozenset({4}))
    assert p.plan(p.Desired(5, fenced=frozenset({4})), lost).action == p.RemoveVoter(key(3))


def test_an_invalid_template_is_not_applied_to_fence() -> None:
    broken = replace(HEALTHY, invalid_config="x=1: unknown")
    planned = p.plan(FENCE_2, broken)
    assert planned.action is None
    assert "cannot fence node 3002: the template is invalid" in texts(
        planned, p.Reason.FENCING_REFUSED
    )
    planned = p.plan(p.Desired(3), replace(FENCED, invalid_config="x=1: unknown"))
    assert planned.action is None
    assert "cannot unfence node 3002: the template is invalid" in texts(
        planned, p.Reason.FENCING_REFUSED
    )


def test_an_image_that_ignores_fences_is_reported() -> None:
    running = replace(FENCED, nodes=(node(0), node(1), node(2, is_fenced=True)))
    planned = p.plan(FENCE_2, running)
    assert planned.action is None
    assert not planned.refuses(p.Reason.FENCED)
    assert "its image ignores fences" in texts(planned, p.Reason.FENCING_REFUSED)[0]


def test_what_fails_holds_up_nothing_else() -> None:
    lost = quorum(*(node(n) for n in range(4)), node(4, None), voters=5)
    failures = (ActionFailure("SetFenced", "denied"),)
    desired = p.Desired(5, fenced=frozenset({3}))
    assert p.plan(desired, lost).action == p.SetFenced((3,))
    planned = p.plan(desired, replace(lost, failures=failures))
    assert planned.action == p.RemoveVoter(key(4))
    assert planned.refuses(p.Reason.ACTION_FAILED)
    planned = p.plan(p.Desired(3), replace(FENCED, failures=failures))
    assert planned.action is None
    assert planned.refuses(p.Reason.ACTION_FAILED)


def test_the_directory_of_a_dead_member_need_not_be_known() -> None:
    assert silent(2).key == ReplicaKey(3002, None)
    planned = p.plan(FENCE_2, quorum(node(0), silent(1), silent(2)))
    assert planned.refuses(p.Reason.FENCING_REFUSED)


# --- the request and the template -----------------------------------------------------------------


def resource(to_fence: str = "", **spec: object) -> QuorumResource:
    annotations = {naming.FENCED_ANNOTATION: to_fence}
    return QuorumResource("q", "lab", uid="u", spec={"image": "x", **spec}, annotations=annotations)


def test_the_annotation_names_pods() -> None:
    desired = resource(" q-2,q-0 ,q-9, meta-1,2, q-01").desired
    assert desired.fenced == {0, 2}
    assert desired.unknown_members == ("q-9", "meta-1", "2", "q-01")
    assert resource().desired.fenced == frozenset()
    planned = p.plan(replace(p.Desired(3), unknown_members=("q-9",)), HEALTHY)
    assert texts(planned, p.Reason.FENCING_REFUSED) == ["cannot fence q-9: no pod has this name"]


def test_only_the_plan_changes_the_template() -> None:
    """A request does not, and what is fenced stays so when the spec changes."""
    before = manifests.objects(resource())["StatefulSet/q"]
    asked = manifests.objects(as_made(resource("q-2"), before))["StatefulSet/q"]
    assert asked == before
    fencing = replace(as_made(resource("q-2"), before), fenced=frozenset({2}))
    made = manifests.objects(fencing)["StatefulSet/q"]
    assert fenced_by(made, "q") == {2}
    assert manifests.stamp_of(made) != manifests.stamp_of(before)
    newer = manifests.objects(as_made(resource(config={"x": "1"}), made))["StatefulSet/q"]
    assert fenced_by(newer, "q") == {2}
    # Pods that ran all the time are not outdated afterwards.
    after = replace(as_made(resource(), made), fenced=frozenset())
    assert manifests.objects(after)["StatefulSet/q"] == before


# --- the pod --------------------------------------------------------------------------------------


def test_the_entry_point_looks_for_its_own_name() -> None:
    def runs(name: str, fenced: str) -> bool:
        variables = {"QUORATE_POD_NAME": name, "QUORATE_POD_NAMESPACE": "lab"}
        return not is_fenced({**variables, naming.FENCED_VARIABLE: fenced})

    assert not runs("q-2", "q-0,q-2")
    assert runs("q-1", "q-0,q-2")
    assert runs("q-2", "")
    assert runs("q-2", "other-2,q-22")
    with pytest.raises(PodError):
        is_fenced({})


def test_a_fenced_pod_is_alive_not_ready_and_ends_at_once() -> None:
    (port,) = free_ports(1)
    code = f"import sys; from quorate_operator import fence; sys.exit(fence.serve({port}))"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "fenced" in process.stderr.readline()
        answers = {}
        for page in ("/healthz", "/readyz", "/metrics"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", page)
            answers[page] = connection.getresponse().status
            connection.close()
        assert answers == {"/healthz": 200, "/readyz": 503, "/metrics": 503}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


# --- with an API server ---------------------------------------------------------------------------


def ask(lab: Lab, names: str | None) -> None:
    annotations = {naming.FENCED_ANNOTATION: names}
    lab.kube.merge("Quorum", "lab", "q", {"metadata": {"annotations": annotations}})
    lab.worker.is_changed = True


def start_pod(lab: Lab, nodes: FakeNodes, ordinal: int) -> None:
    """The StatefulSet's controller makes the pod from the template."""
    pods, name = path("Pod", "lab"), naming.pod("q", ordinal)
    lab.store.objects.pop(f"{pods}/{name}", None)
    template = lab.store.objects[path("StatefulSet", "lab", "q")]["spec"]["template"]
    labels = naming.labels("q") | {"controller-revision-hash": "1"}
    is_asleep = ordinal in fenced_by({"spec": {"template": template}}, "q")
    ready = {"type": "Ready", "status": str(not is_asleep)}
    status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [ready]}
    body = {"metadata": {"name": name, "labels": labels}, "spec": template["spec"]}
    lab.store.handle("POST", pods, {**body, "status": status})
    (nodes.silent.add if is_asleep else nodes.silent.discard)(ordinal)
    lab.worker.is_changed = True


async def test_the_operator_fences_reports_and_returns_a_member(lab: Lab, nodes: FakeNodes) -> None:
    before = lab.store.objects[path("StatefulSet", "lab", "q")]["spec"]["template"]
    ask(lab, "q-2")
    assert "PATCH q" in await lab.step()
    assert "DELETE q-2" in await lab.step()
    start_pod(lab, nodes, 2)
    # A node that does not run answers nothing.
    nodes.ports[2] = free_ports(1)[0]
    await lab.settle()
    assert lab.condition("Fenced")[:2] == ("True", "Fenced"), lab.quorum["status"]
    assert lab.condition("Quorate")[0] == "True", lab.quorum["status"]
    assert lab.condition("Ready")[:2] == ("False", "Fenced")
    members = {each["nodeId"]: each["role"] for each in lab.quorum["status"]["members"]}
    assert members[2] == "fenced"
    assert lab.events("Fenced")
    assert not lab.events("FencingRefused")
    # A second one would cost the majority, and is refused.
    ask(lab, "q-2,q-1")
    await lab.settle()
    assert lab.condition("Fenced")[1] == "FencingRefused"
    (event,) = lab.events("FencingRefused")
    assert (event["type"], "cannot fence node 1" in event["message"]) == ("Warning", True)
    ask(lab, None)
    assert "PATCH q" in await lab.step()
    assert lab.store.objects[path("StatefulSet", "lab", "q")]["spec"]["template"] == before
    assert "DELETE q-2" in await lab.step()


async def test_a_request_wakes_the_loop_and_a_rejected_template_is_reported(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.operator._workers[KEY] = lab.worker
    lab.operator._changed("Quorum", "q", lab.quorum)
    lab.worker.is_changed = False
    lab.store.reject = rejecting(("statefulsets/q", 403, "denied by policy"))
    annotations = {naming.FENCED_ANNOTATION: "q-1"}
    lab.kube.merge("Quorum", "lab", "q", {"metadata": {"annotations": annotations}})
    lab.operator._changed("Quorum", "q", lab.quorum)
    assert lab.worker.is_changed
    assert lab.worker.task is not None
    lab.worker.task.cancel()
    await lab.settle()
    assert "denied by policy" in lab.condition("Ready")[2]
    assert lab.condition("Fenced")[:2] == ("False", "Pending")
