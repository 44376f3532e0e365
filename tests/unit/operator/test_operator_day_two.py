"""Supervised rollouts, maintenance windows, and hibernation."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from quorate_operator import naming
from quorate_operator.kube.pod_state import keeps_volumes
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status
from quorate_operator.observation.observe import Snapshot
from quorate_operator.planning import plan as p
from quorate_operator.planning import windows

from tests.unit.operator.fake_api import Object
from tests.unit.operator.fake_nodes import REVISION, FakeNodes
from tests.unit.operator.stepping import KEY, Lab
from tests.unit.operator.test_operator_plan import HEALTHY, key, node, quorum, silent

# --- supervised rollouts --------------------------------------------------------------------------

OUTDATED = replace(
    quorum(*(node(n, outdated=True) for n in range(3)), leader=2), revision="q-2", size=3
)
SUPERVISED = p.Desired(3, is_supervised=True)


def test_live_pods_wait_for_the_approval_of_this_revision() -> None:
    for approved in ("", "q-1"):
        planned = p.plan(replace(SUPERVISED, approved_rollout=approved), OUTDATED)
        assert planned.action is None
        (refusal,) = planned.refusals
        assert refusal.reason is p.Reason.APPROVAL_REQUIRED
        assert refusal.text.endswith("the annotation quorate.dev/approved-rollout=q-2")
    approved = replace(SUPERVISED, approved_rollout="q-2")
    assert p.plan(approved, OUTDATED).action == p.RestartPod(1, "uid-1")
    assert p.plan(p.Desired(3), OUTDATED).action == p.RestartPod(1, "uid-1")
    assert p.plan(SUPERVISED, HEALTHY).is_done


@pytest.mark.parametrize(
    "held", [{"revision": "q-2"}, {"closed_window": "outdated pods wait for a maintenance window"}]
)
def test_what_holds_up_a_rollout_holds_up_nothing_else(held: dict[str, str]) -> None:
    """Dead pods restart, lost disks are replaced, and the quorum is scaled."""
    desired = SUPERVISED if "revision" in held else p.Desired(3)

    def act(observed: p.Observed, replicas: int = 3) -> p.Action | None:
        return p.plan(replace(desired, replicas=replicas), replace(observed, **held)).action  # type: ignore[arg-type]

    healthy = [node(n, outdated=True) for n in range(3)]
    assert act(quorum(*healthy)) is None
    assert act(quorum(*healthy[:2], silent(2, outdated=True))) == p.RestartPod(2, "uid-2")
    lost = quorum(*healthy[:2], node(2, None, outdated=True))
    assert act(lost) == p.RemoveVoter(key(2))
    assert act(quorum(*healthy), 5) == p.Resize(4, 3)
    assert act(quorum(*healthy), 1) == p.RemoveVoter(key(2))


async def test_an_approval_wakes_the_loop_and_starts_the_rollout(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.patch(rollout={"approval": "Manual"}, image="quorate:2")
    await lab.step()
    for ordinal in range(3):
        pod = lab.store.objects[f"/api/v1/namespaces/lab/pods/q-{ordinal}"]
        pod["metadata"]["labels"]["controller-revision-hash"] = "old"
    lab.worker.is_changed = True
    await lab.step()
    assert lab.condition("Ready")[:2] == ("False", "ApprovalRequired")
    assert lab.quorum["status"]["updateRevision"] == REVISION
    lab.operator._workers[KEY] = lab.worker
    lab.worker.task = asyncio.create_task(asyncio.sleep(60))
    lab.operator._changed("Quorum", "q", lab.quorum)
    lab.worker.is_changed = False
    annotation = {"metadata": {"annotations": {naming.APPROVED_ANNOTATION: REVISION}}}
    lab.kube.merge("Quorum", "lab", "q", annotation)
    lab.operator._changed("Quorum", "q", lab.quorum)
    assert lab.worker.is_changed
    lab.worker.task.cancel()
    assert "DELETE q-2" in await lab.step()


# --- maintenance windows --------------------------------------------------------------------------

SATURDAY = {"days": ["Sat"], "start": "22:30", "hours": 4}
DAILY = {"start": "00:00", "hours": 1}


@pytest.mark.parametrize(
    ("at", "is_open"),
    [
        ("2026-11-28 22:29", False),  # a Saturday
        ("2026-11-28 22:30", True),
        ("2026-11-29 02:29", True),  # it began on Saturday
        ("2026-11-29 02:30", False),
        ("2026-11-29 22:30", False),
        ("2026-11-28 02:00", False),
    ],
)
def test_a_window_is_open_from_its_start_on(at: str, is_open: bool) -> None:
    now = dt.datetime.fromisoformat(at).replace(tzinfo=dt.UTC)
    said = windows.closed([SATURDAY], now)
    assert (said == "") == is_open
    assert is_open or said.endswith("Sat from 22:30 UTC for 4 h")
    midnight = now.replace(hour=0, minute=30)
    assert windows.closed([SATURDAY, DAILY], midnight) == ""
    assert windows.closed([], now) == ""


async def test_outdated_pods_wait_for_the_window(lab: Lab, nodes: FakeNodes) -> None:
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=2)
    day = windows.DAYS[tomorrow.weekday()]
    lab.patch(rollout={"windows": [{"days": [day], "start": "00:00", "hours": 24}]})
    pod = lab.store.objects["/api/v1/namespaces/lab/pods/q-2"]
    pod["metadata"]["labels"]["controller-revision-hash"] = "old"
    for _ in range(2):
        await lab.step()
    assert lab.condition("Ready")[:2] == ("False", "MaintenanceWindowClosed")
    lab.patch(rollout={"windows": [{"start": "00:00", "hours": 24}]})
    assert "DELETE q-2" in await lab.step()


# --- hibernation ----------------------------------------------------------------------------------

SLEEPING = p.Desired(3, hibernated=True)
ASLEEP = replace(HEALTHY, size=0, nodes=(), view=None, volumes=frozenset(range(3)))


def test_a_quorum_hibernates_and_wakes_with_all_of_its_disks() -> None:
    assert p.plan(SLEEPING, HEALTHY).action == p.Resize(0, 3)
    leaving = replace(ASLEEP, nodes=HEALTHY.nodes[:1])
    assert p.plan(SLEEPING, leaving).refuses(p.Reason.WAITING_FOR_PODS)
    planned = p.plan(SLEEPING, ASLEEP)
    assert planned.action is None
    assert [each.reason for each in planned.refusals] == [p.Reason.HIBERNATED]
    assert p.plan(p.Desired(3), ASLEEP).action == p.Resize(3, 0)
    # Scaled in the meantime: whoever may be a voter comes back first.
    five = replace(ASLEEP, volumes=frozenset(range(5)), known_voters=frozenset())
    assert p.plan(p.Desired(1), five).action == p.Resize(5, 0)
    assert p.plan(p.Desired(5), ASLEEP).action == p.Resize(5, 0)
    foreign = replace(ASLEEP, foreign_volumes=frozenset({1}))
    assert p.plan(p.Desired(3), foreign).action is None


def test_a_quorum_does_not_hibernate_at_the_cost_of_its_volumes_or_its_voters() -> None:
    deleting = replace(HEALTHY, keeps_volumes=False)
    assert p.plan(SLEEPING, deleting).refuses(p.Reason.HIBERNATION_BLOCKED)
    assert p.plan(SLEEPING, deleting).action is None
    assert HEALTHY.view is not None
    more = frozenset({*HEALTHY.view.voters, key(3)})
    changing = replace(HEALTHY, view=replace(HEALTHY.view, voters=more))
    assert p.plan(SLEEPING, changing).refuses(p.Reason.CHANGE_UNCOMMITTED)
    # A majority of the disks is gone: nothing is touched.
    lost = quorum(node(0), node(1, None), node(2, None))
    assert p.plan(SLEEPING, lost).refuses(p.Reason.MAJORITY_DISKS_LOST)
    assert p.plan(replace(SLEEPING, paused=True), HEALTHY).action is None
    # A new quorum starts first, so that it has voters.
    fresh = p.Observed(ids=HEALTHY.ids)
    assert p.plan(SLEEPING, fresh).action == p.CreateStatefulSet(3)
    # Without its StatefulSet, no pod is started for a moment.
    assert p.plan(SLEEPING, replace(ASLEEP, size=None)).action == p.CreateStatefulSet(0)


def test_a_disk_that_was_lost_while_it_slept_is_replaced() -> None:
    woken = quorum(node(0), node(1), node(2, None))
    assert p.plan(p.Desired(3), woken).action == p.RemoveVoter(key(2))


@pytest.mark.parametrize(
    ("policy", "pending", "expected"),
    [(None, 0, True), ("Retain", 0, True), ("Delete", 0, False), ("Retain", 1, False)],
)
def test_volumes_are_kept_only_if_the_controller_has_observed_it(
    policy: str | None, pending: int, expected: bool
) -> None:
    spec: Object = {"replicas": 3}
    if policy:
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenScaled": policy}
    made: Object = {"metadata": {"generation": 4}, "spec": spec}
    made["status"] = {"observedGeneration": 4 - pending}
    assert keeps_volumes(made) == expected
    assert not keeps_volumes(None)


def test_the_status_of_a_hibernated_quorum() -> None:
    def conditions(desired: dict[str, Any], observed: p.Observed) -> dict[str, tuple[str, str]]:
        resource = QuorumResource("q", "lab", spec={"image": "x", **desired})
        made = status.build(resource, Snapshot(observed), p.plan(resource.desired, observed))
        assert made["voters"] == 3
        return {each["type"]: (each["status"], each["reason"]) for each in made["conditions"]}

    found = conditions({"hibernated": True}, ASLEEP)
    assert found["Hibernated"] == ("True", "Hibernated")
    assert found["Ready"] == ("False", "Hibernated")
    assert found["Quorate"] == ("False", "Hibernated")
    assert found["DataLossRisk"] == ("Unknown", "Hibernated")
    assert found["Progressing"][0] == found["Degraded"][0] == "False"
    found = conditions({}, ASLEEP)
    assert found["Hibernated"][0] == "False"
    assert found["Progressing"] == ("True", "Resize")
    assert found["Degraded"][0] == "True"


async def test_a_hibernated_quorum_asks_the_api_server_nothing(lab: Lab, nodes: FakeNodes) -> None:
    lab.patch(hibernated=True)
    await lab.step()
    stateful_set = lab.store.objects["/apis/apps/v1/namespaces/lab/statefulsets/q"]
    assert stateful_set["spec"]["replicas"] == 0
    for ordinal in range(3):
        lab.store.remove(f"/api/v1/namespaces/lab/pods/q-{ordinal}")
    lab.worker.is_changed = True
    await lab.settle()
    assert lab.condition("Hibernated")[0] == "True"
    assert len(lab.quorum["status"]["voterSet"]) == 3
    began = len(lab.store.log)
    for _ in range(5):
        await lab.step()
    assert lab.requests(began) == 0
    lab.patch(hibernated=False)
    await lab.step()
    assert lab.store.objects["/apis/apps/v1/namespaces/lab/statefulsets/q"]["spec"]["replicas"] == 3
