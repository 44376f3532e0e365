"""Members that move to new volumes, and StatefulSets that are created again for their claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from quorate.raft.types import ReplicaKey
from quorate_operator import naming
from quorate_operator.kube.api import path
from quorate_operator.kube.writer import ActionFailedError
from quorate_operator.objects import manifests
from quorate_operator.objects.claim_state import observed_claim
from quorate_operator.objects.made import as_made
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.planning import plan as p
from quorate_operator.planning.values import ActionFailure, ObservedClaim

from tests.unit.operator.fake_api import Object, RefusedError
from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import Lab, rejecting
from tests.unit.operator.test_operator_plan import (
    CLUSTER,
    HEALTHY,
    act,
    key,
    node,
    quorum,
    silent,
    without_leader,
)

GI = 2**30
FAST = p.Desired(3, volume_class="fast")
LARGER = p.Desired(3, volume_size="2Gi", volume_bytes=2 * GI)
HASH_LABEL = "controller-revision-hash"
STATEFUL_SET = path("StatefulSet", "lab", "q")


def leaving(ordinal: int, **more: Any) -> p.ObservedNode:
    """A node whose volume claim is being deleted."""
    return node(ordinal, loses_volume=True, **more)


def refused(observed: p.Observed, reason: p.Reason, **desired: Any) -> str:
    """Why the plan does nothing."""
    planned = p.plan(p.Desired(**{"replicas": 3, **desired}), observed)
    assert planned.action is None
    (text,) = (each.text for each in planned.refusals if each.reason is reason)
    return text


# --- members --------------------------------------------------------------------------------------


def test_a_member_is_removed_before_its_volume_goes_and_joins_again() -> None:
    begun = quorum(leaving(0), node(1), leaving(2))
    assert act(begun) == p.RemoveVoter(key(2))
    assert begun.view is not None
    voters = begun.view.voters - {key(2)}
    view = replace(begun.view, voters=voters, committed=voters)
    removed = replace(begun, view=view)
    assert act(removed) == p.RestartPod(2, "uid-2")
    terminating = replace(removed, nodes=(leaving(0), node(1), leaving(2, terminating=True)))
    text = refused(terminating, p.Reason.VOLUMES_MOVING)
    assert text == "the next member moves to a new volume once these are live voters: 3002"
    empty = replace(removed, nodes=(leaving(0), node(1), node(2, None)))
    assert isinstance(act(empty), p.FormatNode)
    back = replace(removed, nodes=(leaving(0), node(1), node(2, "b")))
    assert refused(back, p.Reason.CATCHING_UP)
    caught_up = replace(back, view=replace(view, caught_up=view.caught_up | {key(2, "b")}))
    assert act(caught_up) == p.AddVoter(key(2, "b"))


def test_the_leader_moves_last_and_hands_over_to_one_that_has_moved() -> None:
    assert act(quorum(leaving(0), leaving(1), leaving(2))) == p.RemoveVoter(key(2))
    assert act(quorum(leaving(0), leaving(1), node(2))) == p.RemoveVoter(key(1))
    last = quorum(leaving(0), node(1), node(2))
    assert act(last) == p.TransferLeadership(key(1))
    # Another leader must not be the one that moves next.
    assert act(quorum(leaving(0), leaving(1), node(2), leader=1)) == p.RemoveVoter(key(0))


def test_an_empty_node_whose_claim_is_deleted_as_well_is_not_formatted() -> None:
    gone = quorum(node(0), node(1), leaving(2, disk=None))
    assert act(gone) == p.RemoveVoter(key(2))
    assert gone.view is not None
    voters = gone.view.voters - {key(2)}
    removed = replace(gone, view=replace(gone.view, voters=voters, committed=voters))
    assert act(removed) == p.RestartPod(2, "uid-2")


@pytest.mark.parametrize("count", [1, 2])
def test_with_fewer_than_three_voters_nobody_moves(count: int) -> None:
    nodes = [leaving(n) for n in range(count)]
    observed = quorum(*nodes, voters=count)
    planned = p.plan(p.Desired(count), observed)
    assert planned.action is None
    assert planned.refuses(p.Reason.VOLUME_MOVE_BLOCKED)
    assert "scale to 3 or more first" in planned.refusals[0].text


def test_a_dead_member_moves_at_once_if_the_others_can_commit() -> None:
    dead = quorum(leaving(0), node(1), silent(2, loses_volume=True))
    assert act(dead) == p.RemoveVoter(key(2))
    # A live one waits until the dead one is back.
    other = quorum(leaving(0), node(1), silent(2), leader=1)
    assert "3002" in refused(other, p.Reason.VOLUMES_MOVING)
    nodes = (node(0), node(1), node(2), silent(3), silent(4, loses_volume=True))
    observed = quorum(*nodes, voters=5)
    assert act(observed, 5) == p.RemoveVoter(key(4))
    assert act(without_leader(observed), 5) is None


def test_a_member_that_misses_one_answer_is_not_dead() -> None:
    """Two voters are left while the third one joins again: nobody else moves meanwhile."""
    joining = quorum(leaving(0), leaving(1), node(2, "b"))
    assert joining.view is not None
    voters = joining.view.voters - {key(2)}
    view = replace(joining.view, voters=voters, committed=voters, caught_up=voters)
    silent_once = leaving(1, answers=False, directory_id=None, ready=True)
    for nodes, caught_up in (
        ((leaving(0), silent_once, node(2, "b")), voters),
        ((leaving(0), leaving(1), node(2, "b")), voters - {key(1)}),
        ((leaving(0), silent(1, loses_volume=True), node(2, "b")), voters),
    ):
        observed = replace(joining, nodes=nodes, view=replace(view, caught_up=caught_up))
        action = act(observed)
        assert not isinstance(action, p.RemoveVoter | p.RestartPod), nodes


def test_a_member_that_lags_moves_all_the_same() -> None:
    """Its slow disk may be the reason to move."""
    observed = quorum(node(0), node(1), leaving(2))
    assert observed.view is not None
    view = replace(observed.view, caught_up=observed.view.caught_up - {key(2)})
    assert act(replace(observed, view=view)) == p.RemoveVoter(key(2))


def test_a_pod_that_cannot_be_deleted_is_reported() -> None:
    observed = quorum(node(0), node(1), leaving(2))
    assert observed.view is not None
    rest = observed.view.voters - {key(2)}
    view = replace(observed.view, voters=rest, committed=rest)
    failures = (ActionFailure("RestartPod 2", "denied"),)
    text = refused(replace(observed, view=view, failures=failures), p.Reason.ACTION_FAILED)
    assert text == "delete pod 2: its volume claim is being deleted: denied"


def test_a_fenced_member_keeps_its_volume() -> None:
    fenced = replace(
        quorum(node(0), node(1), silent(2, is_fenced=True, loses_volume=True)),
        fenced=frozenset({2}),
    )
    text = refused(fenced, p.Reason.VOLUME_MOVE_BLOCKED, fenced=frozenset({2}))
    assert "unfence it first" in text
    assert fenced.view is not None
    rest = fenced.view.voters - {key(2)}
    no_voter = replace(fenced, view=replace(fenced.view, voters=rest, committed=rest))
    assert act(no_voter, fenced=frozenset({2})) is None
    # Unfenced, it moves like any dead member; without a leader, it is said why it does not return.
    unfenced = replace(fenced, fenced=frozenset())
    assert act(unfenced) == p.RemoveVoter(key(2))
    text = refused(without_leader(unfenced), p.Reason.FENCING_REFUSED)
    assert text == "node 3002 stays fenced: its volume claim is being deleted"
    others = [silent(n, is_fenced=True, loses_volume=n == 0) for n in (0, 1)]
    both = replace(without_leader(quorum(*others, node(2))), fenced=frozenset())
    planned = p.plan(p.Desired(3), both)
    assert planned.action == p.RestartPod(1, "uid-1")
    assert planned.refuses(p.Reason.FENCING_REFUSED)


def test_during_a_takeover_only_empty_volumes_are_replaced() -> None:
    kafkas = frozenset(ReplicaKey(each, "kafka") for each in (1, 2, 3))
    found = quorum(leaving(0), leaving(1), node(2))
    assert found.view is not None
    takeover = {"is_takeover": True, "cluster_id": CLUSTER}

    def taken_over(*caught_up: int, voters: frozenset[ReplicaKey] = kafkas) -> p.Observed:
        known = frozenset(map(key, caught_up)) | kafkas
        view = p.LeaderView(min(kafkas), 5, voters, voters, known)
        return replace(found, view=view, kafka_ids=frozenset({1, 2, 3}))

    # A node that is no voter gets its new volume before it becomes one.
    assert act(taken_over(0, 1, 2), **takeover) == p.AddVoter(key(2))
    assert act(taken_over(0, 1), **takeover) == p.RestartPod(0, "uid-0")
    # A voter stays until all are taken over.
    mixed = taken_over(0, 1, 2, voters=frozenset({*sorted(kafkas)[:2], key(0), key(1)}))
    planned = p.plan(p.Desired(3, **takeover), replace(mixed, nodes=found.nodes[:2]))
    assert not isinstance(planned.action, p.RestartPod)
    assert planned.action not in {p.RemoveVoter(key(0)), p.RemoveVoter(key(1))}
    empty = without_leader(replace(found, nodes=(leaving(0, disk=None),), size=1))
    empty = replace(empty, known_voters=kafkas)
    assert act(empty, 1, **takeover) == p.RestartPod(0, "uid-0")


def test_an_empty_seed_gets_its_new_volume_first() -> None:
    fresh = replace(without_leader(quorum(leaving(0, disk=None))), is_marked=False)
    fresh = replace(fresh, known_voters=frozenset())
    assert act(fresh, 1) == p.RestartPod(0, "uid-0")


def test_manual_replacement_and_windows_hold_a_move_up() -> None:
    observed = quorum(node(0), node(1), leaving(2))
    text = refused(observed, p.Reason.DISK_REPLACEMENT_MANUAL, replace_disks=False)
    assert "remove that voter to move it" in text
    closed = replace(observed, closed_window="pods wait for a maintenance window")
    assert refused(closed, p.Reason.WINDOW_CLOSED)
    assert act(replace(closed, closed_window="")) == p.RemoveVoter(key(2))


def test_until_its_turn_nothing_deletes_the_pod_of_a_deleted_claim() -> None:
    """The volume would go with it, while it may be needed for a majority."""
    outdated = quorum(node(0), leaving(1, outdated=True), leaving(2, outdated=True))
    closed = replace(outdated, closed_window="closed")
    assert act(closed) is None
    stopped = [silent(n, loses_volume=True, outdated=True) for n in range(3)]
    assert act(without_leader(quorum(*stopped))) is None
    to_fence = {"fenced": frozenset({2}), "replace_disks": False}
    text = refused(quorum(node(0), node(1), leaving(2)), p.Reason.FENCING_REFUSED, **to_fence)
    assert "it would lose its volume" in text
    fenced = quorum(node(0), node(1), silent(2, is_fenced=True, loses_volume=True))
    assert act(fenced, replace_disks=False) is None
    # To hibernate would delete it, so the member moves first.
    asleep = quorum(node(0), node(1), leaving(2))
    planned = p.plan(p.Desired(3, hibernated=True), asleep)
    assert planned.action == p.RemoveVoter(key(2))
    assert planned.refuses(p.Reason.HIBERNATION_BLOCKED)
    ending = [silent(n, terminating=True, loses_volume=n == 2) for n in range(3)]
    ending_set = replace(without_leader(quorum(*ending)), size=0)
    assert act(ending_set, hibernated=True) is None
    alone = replace(quorum(leaving(0), voters=1), size=1)
    assert refused(alone, p.Reason.HIBERNATION_BLOCKED, replicas=1, hibernated=True)


def test_surplus_nodes_do_not_move() -> None:
    observed = quorum(node(0), node(1), node(2), leaving(3), voters=4)
    assert act(observed) == p.RemoveVoter(key(3))
    assert observed.view is not None
    voters = observed.view.voters - {key(3)}
    removed = replace(observed, view=replace(observed.view, voters=voters, committed=voters))
    assert act(removed) == p.Resize(3, 4)


# --- the StatefulSet ------------------------------------------------------------------------------


def claims(storage_class: str) -> tuple[ObservedClaim, ...]:
    names = [naming.claim("q", ordinal) for ordinal in range(4)]
    return tuple(
        ObservedClaim(n, GI, GI, "1Gi", name=name, storage_class=storage_class)
        for n, name in enumerate(names)
    )


def test_the_statefulset_is_created_again_for_another_storage_class() -> None:
    slow = replace(HEALTHY, made_class="slow", claims=claims("slow"))
    planned = p.plan(FAST, slow)
    assert planned.action == p.RecreateStatefulSet()
    assert planned.text == "create the StatefulSet again for StorageClass fast, keeping its pods"
    made = p.plan(FAST, replace(slow, made_class="fast"))
    assert made.action is None
    (refusal,) = made.refusals
    # The volume of node 3 belongs to no wanted node.
    assert refusal == p.PlanRefusal(
        p.Reason.VOLUMES_DIFFER,
        "volumes of nodes 3000, 3001, 3002 do not have StorageClass fast; "
        "to move node 3002, delete PersistentVolumeClaim/data-q-2",
    )
    assert p.plan(FAST, replace(HEALTHY, made_class="fast", claims=claims("fast"))).is_done
    default = p.plan(p.Desired(3), slow)
    assert default.action == p.RecreateStatefulSet()
    assert "for the default StorageClass" in default.text
    assert p.plan(p.Desired(3), replace(slow, made_class="")).is_done


def test_no_claim_is_named_whose_deletion_would_lose_records() -> None:
    slow = replace(HEALTHY, made_class="fast", claims=claims("slow"))

    def said(observed: p.Observed, wanted: p.Desired = FAST) -> str:
        refusals = p.plan(wanted, observed).refusals
        (text,) = (each.text for each in refusals if each.reason is p.Reason.VOLUMES_DIFFER)
        return text

    for observed, wanted in (
        (without_leader(slow), FAST),
        (replace(slow, nodes=(node(0), node(1), silent(2))), FAST),
        (replace(slow, nodes=(node(0), node(1), leaving(2))), replace(FAST, replace_disks=False)),
        (slow, replace(FAST, replace_disks=False)),
        (replace(quorum(node(0), voters=1), made_class="fast", claims=claims("slow")[:1]), FAST),
    ):
        few = replace(wanted, replicas=min(3, len(observed.nodes)))
        assert "delete" not in said(observed, few), observed
    asleep = replace(slow, nodes=(), size=0, view=None)
    assert said(asleep, replace(FAST, hibernated=True)).endswith("wake the quorum first")
    # Nothing is on a volume that does not exist.
    unbound = replace(claims("slow")[2], capacity=0, is_bound=False)
    observed = replace(slow, claims=(*claims("fast")[:2], unbound))
    assert said(observed) == (
        "PersistentVolumeClaim/data-q-2 has no volume, and does not ask for StorageClass fast: "
        "delete it"
    )
    before = replace(observed, made_class="slow", outlives_set=False)
    assert not p.plan(FAST, before).refuses(p.Reason.VOLUMES_DIFFER)
    # A claim of a certain volume may hold records, although its capacity is not known yet.
    restored = {"metadata": {"name": "data-q-2"}, "spec": {"volumeName": "pv-7"}}
    found = observed_claim(2, restored, None)
    assert found is not None
    assert found.is_bound
    assert p.plan(LARGER, replace(HEALTHY, claims=(found,))).is_done


def test_members_move_only_to_volumes_of_the_wanted_class() -> None:
    slow = replace(quorum(node(0), node(1), leaving(2)), made_class="slow", outlives_set=False)
    planned = p.plan(FAST, slow)
    assert planned.action is None
    assert planned.refuses(p.Reason.VOLUME_MOVE_BLOCKED)
    assert planned.refuses(p.Reason.STORAGE_CLASS_REFUSED)
    recreated = p.plan(FAST, replace(slow, outlives_set=True))
    assert recreated.action == p.RecreateStatefulSet()


def test_a_class_that_was_mistyped_at_the_installation_is_corrected() -> None:
    pending = [silent(n) for n in range(3)]
    fresh = replace(without_leader(quorum(*pending)), is_marked=False, made_class="fats")
    assert p.plan(FAST, fresh).action == p.RecreateStatefulSet()


def test_voters_are_maintained_without_a_statefulset() -> None:
    """It was deleted, and the API server rejects the new one."""
    failure = ActionFailure("CreateStatefulSet", "denied by a webhook")
    lost = replace(quorum(node(0), node(1), node(2, None)), size=None, failures=(failure,))
    planned = p.plan(p.Desired(3), lost)
    assert planned.action == p.RemoveVoter(key(2))
    assert planned.refuses(p.Reason.APPLY_REJECTED)
    outdated = replace(HEALTHY, nodes=tuple(node(n, outdated=True) for n in range(3)), size=None)
    planned = p.plan(p.Desired(3), replace(outdated, failures=(failure,)))
    assert planned.action is None, "a pod that is deleted does not come back"
    assert "denied by a webhook" in planned.refusals[0].text
    # Neither a fence nor a move keeps the lost disk from being handled, or removes a voter.
    to_fence = replace(lost, fenced=frozenset({1}))
    assert act(to_fence, fenced=frozenset({0})) == p.RemoveVoter(key(2))
    moving = replace(quorum(node(0), node(1), leaving(2)), size=None, failures=(failure,))
    assert act(moving) is None
    held = replace(lost, failures=(), conflicts=("StatefulSet/q exists",))
    assert act(held) == p.RemoveVoter(key(2))
    assert act(replace(lost, failures=()), hibernated=True) == p.CreateStatefulSet(3)
    due = p.plan(p.Desired(3), replace(outdated, volumes=frozenset(range(5))))
    # With a leader, the voters are known: the volumes of removed nodes need no pods.
    assert due.action == p.CreateStatefulSet(3)
    lost_record = replace(outdated, volumes=frozenset(range(5)), record=None)
    assert act(lost_record) == p.CreateStatefulSet(5)


def test_it_is_not_deleted_if_anything_could_go_with_it_or_not_come_back() -> None:
    slow = replace(HEALTHY, made_class="slow")
    planned = p.plan(FAST, replace(slow, outlives_set=False))
    assert planned.action is None
    assert planned.refuses(p.Reason.STORAGE_CLASS_REFUSED)
    assert "whenDeleted must be Retain" in planned.refusals[0].text
    for change in (
        {"conflicts": ("Service/q",)},
        {"forbidden": ("spec.image",)},
        {"invalid_config": "x"},
        {"is_template_pending": True},
    ):
        assert p.plan(FAST, replace(slow, **change)).action is None, change
    assert p.plan(replace(FAST, invalid_template="x"), slow).action is None
    assert p.plan(FAST, replace(slow, stale=("Service/q",))).action == p.ApplyObjects(
        ("Service/q",)
    )
    # Healing comes first.
    lost = replace(quorum(node(0), node(1), node(2, None)), made_class="slow")
    assert p.plan(FAST, lost).action == p.RemoveVoter(key(2))


def test_a_deletion_that_is_refused_is_reported() -> None:
    failure = ActionFailure("RecreateStatefulSet", "cannot delete resource")
    planned = p.plan(FAST, replace(HEALTHY, made_class="slow", failures=(failure,)))
    assert planned.action is None
    assert planned.refusals == (
        p.PlanRefusal(
            p.Reason.STORAGE_CLASS_REFUSED,
            "cannot create the StatefulSet again for StorageClass fast, keeping its pods: "
            "cannot delete resource",
        ),
    )


def test_the_manifest_keeps_the_class_that_was_made() -> None:
    def resource(**storage: str) -> QuorumResource:
        return QuorumResource("q", "lab", uid="u", spec={"image": "x", "storage": storage})

    made = manifests.objects(resource(storageClassName="slow"))["StatefulSet/q"]
    for other in (resource(storageClassName="fast"), resource()):
        found = manifests.objects(as_made(other, made))["StatefulSet/q"]
        assert found["spec"]["volumeClaimTemplates"] == made["spec"]["volumeClaimTemplates"]
    without = manifests.objects(resource())["StatefulSet/q"]
    found = manifests.objects(as_made(resource(storageClassName="fast"), without))["StatefulSet/q"]
    assert "storageClassName" not in found["spec"]["volumeClaimTemplates"][0]["spec"]


# --- with an API server ---------------------------------------------------------------------------


def storage_class(lab: Lab) -> str | None:
    template = lab.store.objects[STATEFUL_SET]["spec"]["volumeClaimTemplates"][0]
    found: str | None = template["spec"].get("storageClassName")
    return found


def bind_claims(lab: Lab, storage_class_name: str) -> None:
    for ordinal in range(3):
        name = naming.claim("q", ordinal)
        spec = {
            "storageClassName": storage_class_name,
            "resources": {"requests": {"storage": "10Gi"}},
        }
        made = {
            "metadata": {"name": name, "labels": naming.labels("q")},
            "spec": spec,
            "status": {"capacity": {"storage": "10Gi"}},
        }
        lab.kube.create("PersistentVolumeClaim", "lab", made, "test")
        found = observed_claim(ordinal, made, None)
        assert found is not None
        assert (found.name, found.storage_class) == (name, storage_class_name)


def noting(deleted: list[Object]) -> Callable[[str, str, Object], None]:
    def note(method: str, _path: str, body: Object) -> None:
        if method == "DELETE":
            deleted.append(body)

    return note


async def test_pods_outlive_the_statefulset(lab: Lab, nodes: FakeNodes) -> None:
    bind_claims(lab, "standard")
    deleted: list[Object] = []
    lab.store.reject = noting(deleted)
    before, status = (lab.store.objects[STATEFUL_SET][each] for each in ("metadata", "status"))
    lab.patch(storage={"storageClassName": "fast"})
    changed = await lab.step()
    assert changed.index("DELETE q") + 1 == changed.index("POST statefulsets")
    (options,) = deleted
    assert options["propagationPolicy"] == "Orphan"
    preconditions = {name: before[name] for name in ("uid", "resourceVersion")}
    assert options["preconditions"] == preconditions
    assert lab.store.objects[STATEFUL_SET]["spec"]["replicas"] == 3
    assert storage_class(lab) == "fast"
    lab.store.objects[STATEFUL_SET]["status"] = status
    lab.worker.is_changed = True
    await lab.settle()
    assert lab.quorum["status"]["storage"]["storageClassName"] == "fast"
    assert lab.condition("SpecApplied")[:2] == ("False", "VolumesDiffer")
    assert "delete PersistentVolumeClaim/data-q-2" in lab.condition("SpecApplied")[2]
    assert lab.condition("Quorate")[0] == "True"
    assert lab.condition("Degraded")[0] == lab.condition("Progressing")[0] == "False"
    assert lab.condition("Ready")[0] == "True", "old volumes may stay as they are"
    assert len(deleted) == 1
    # Back to the default class, which the status then does not name.
    lab.patch(storage={"storageClassName": None})
    assert "DELETE q" in await lab.step()
    lab.store.objects[STATEFUL_SET]["status"] = status
    lab.worker.is_changed = True
    await lab.settle()
    assert lab.quorum["status"]["storage"].get("storageClassName") is None
    lab.worker.is_changed = True
    assert await lab.step() == []


async def test_without_the_permission_the_statefulset_stays(lab: Lab, nodes: FakeNodes) -> None:
    text = 'statefulsets.apps "q" is forbidden: User "operator" cannot delete resource'
    lab.store.reject = rejecting(("statefulsets/q", 403, text))
    lab.patch(storage={"storageClassName": "fast"})
    await lab.settle()
    assert lab.condition("SpecApplied")[:2] == ("False", "StorageClassRefused")
    assert text in lab.condition("SpecApplied")[2]
    assert storage_class(lab) is None
    lab.patch(storage={"storageClassName": None})
    await lab.settle()
    assert lab.condition("Ready")[0] == "True"


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_statefulset_that_is_not_admitted_is_not_deleted(
    lab: Lab, nodes: FakeNodes, is_changed: bool
) -> None:
    """A webhook rejects the new one, or changes its class."""

    def admit(method: str, where: str, body: Object) -> None:
        if method == "POST" and where.endswith("/statefulsets"):
            if not is_changed:
                raise RefusedError(403, "denied by a webhook")
            body["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = "another"

    lab.store.reject = admit
    lab.patch(storage={"storageClassName": "fast"})
    await lab.settle()
    assert not [each for each in lab.store.log if each[0] == "DELETE"]
    assert lab.condition("SpecApplied")[:2] == ("False", "StorageClassRefused")
    expected = "'fast' to 'another'" if is_changed else "denied by a webhook"
    assert expected in lab.condition("SpecApplied")[2]


async def test_a_claim_that_is_deleted_meanwhile_keeps_its_pod(lab: Lab, nodes: FakeNodes) -> None:
    """Between the plan and the deletion of the pod."""
    bind_claims(lab, "standard")
    where = path("PersistentVolumeClaim", "lab", "data-q-2")
    lab.kube.merge("Pod", "lab", "q-2", {"metadata": {"labels": {HASH_LABEL: "old"}}})
    lab.worker.is_changed = True
    now = QuorumResource.parse(lab.quorum)
    seen = await lab.operator._observer.observe(now, None)
    planned = p.plan(p.Desired(3), seen.observed)
    assert isinstance(planned.action, p.RestartPod)
    found = lab.store.objects[where]
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(ActionFailedError, match="data-q-2 has been deleted meanwhile"):
        await lab.operator.actor("lab").act(planned.action, now, seen, None)
    assert path("Pod", "lab", "q-2") in lab.store.objects


async def test_an_operator_that_is_killed_in_between_creates_it_again(
    lab: Lab, nodes: FakeNodes
) -> None:
    lab.patch(storage={"storageClassName": "fast"})
    lab.store.remove(STATEFUL_SET)
    lab.worker.is_changed = True
    assert "POST statefulsets" in await lab.step()
    assert storage_class(lab) == "fast"
    assert lab.store.objects[STATEFUL_SET]["spec"]["replicas"] == 3
