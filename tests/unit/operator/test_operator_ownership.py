"""What has the name of a Quorum's object and is not its own: never used, changed or deleted."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from quorate_operator import naming
from quorate_operator.control.act import ActionFailedError, Actor
from quorate_operator.kube.api import Kube
from quorate_operator.objects import certificates
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status
from quorate_operator.observation.observe import Observer
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_api import Object, Store, created


def foreign(kube: Kube, kind: str, name: str, **content: Any) -> Object:
    """Another application's object, as the server holds it."""
    body: Object = {"kind": kind, "metadata": {"name": name, "labels": {"app": "shop"}}, **content}
    return kube.create(kind, "lab", body, "shop")


async def step(kube: Kube, quorum: QuorumResource) -> p.OperatorPlan:
    async def confirm() -> bool:
        return True

    seen = await Observer(kube).observe(quorum, None)
    planned = p.plan(quorum.desired, seen.observed)
    if planned.action is not None:
        await Actor(kube, confirm).act(planned.action, quorum, seen, None)
    return planned


def ours(store: Store) -> list[str]:
    """What was made beside the Quorum and the objects of others."""
    return [
        name
        for name, found in store.objects.items()
        if found["metadata"].get("ownerReferences") and found["kind"] != "Quorum"
    ]


def authority_of_others() -> dict[str, str]:
    pair = certificates.new_authority("Corporate Root CA")
    files = {"tls.crt": pair.certificate, "tls.key": pair.key}
    return {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Service", "q-controllers"),
        ("Service", "q-0"),
        ("NetworkPolicy", "q"),
        ("PodDisruptionBudget", "q"),
        ("StatefulSet", "q"),
        ("ConfigMap", "q-bootstrap"),
        ("ConfigMap", "q-bootstrapped"),
        ("Secret", "q-ca"),
        ("Secret", "q-node-tls"),
        ("Secret", "q-client-tls"),
        ("PersistentVolumeClaim", "data-q-1"),
    ],
)
async def test_an_object_of_others_stays_as_it_is(
    api: tuple[Store, Kube], kind: str, name: str
) -> None:
    store, kube = api
    content: Object = {"spec": {"replicas": 1, "selector": {"app": "shop"}}}
    if kind == "Secret":
        content = {"data": authority_of_others()}
    before = json.dumps(foreign(kube, kind, name, **content))
    quorum = created(kube)
    for _ in range(3):
        planned = await step(kube, quorum)
    assert json.dumps(kube.get(kind, "lab", name)) == before
    assert ours(store) == []
    assert planned.action is None
    assert [refusal.reason for refusal in planned.refusals] == [p.Reason.CONFLICT]
    assert planned.refusals[0].text.startswith(f"{kind}/{name} exists and ")
    seen = await Observer(kube).observe(quorum, None)
    told = {c["type"]: c for c in status.build(quorum, seen, planned)["conditions"]}
    assert told["Conflict"]["status"] == "True"
    assert f"{kind}/{name}" in told["Conflict"]["message"]
    assert told["Ready"]["reason"] == "Conflict"
    uid = (kube.get(kind, "lab", name) or {})["metadata"]["uid"]
    kube.delete(kind, "lab", name, uid)
    assert isinstance((await step(kube, quorum)).action, p.ApplyObjects)


async def test_what_an_earlier_quorum_left_is_waited_for(api: tuple[Store, Kube]) -> None:
    """It is collected by its owner's UID; until then its authority signs nothing."""
    store, kube = api
    earlier = created(kube)
    await step(kube, earlier)
    quorum = replace(earlier, uid="another")
    planned = await step(kube, quorum)
    assert planned.refuses(p.Reason.CONFLICT)
    assert "belongs to a deleted Quorum q: wait until it is gone" in planned.refusals[0].text
    for name in [name for name in store.objects if "/quorums/" not in name]:
        del store.objects[name]
    assert isinstance((await step(kube, quorum)).action, p.ApplyObjects)


async def test_claims_that_an_earlier_quorum_left_are_its_own(api: tuple[Store, Kube]) -> None:
    _, kube = api
    labels = naming.labels("q")
    for ordinal in range(2):
        metadata = {"name": naming.claim("q", ordinal), "labels": labels}
        body = {"kind": "PersistentVolumeClaim", "metadata": metadata}
        kube.create("PersistentVolumeClaim", "lab", body, "statefulset-controller")
    seen = await Observer(kube).observe(created(kube), None)
    assert seen.observed.volumes == {0, 1}
    assert not seen.observed.conflicts


async def test_services_of_other_quorums_are_not_read(
    api: tuple[Store, Kube], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace with 100 Quorums has 1,000 Services."""
    _, kube = api
    quorum = created(kube, tls={"enabled": False})
    await step(kube, quorum)
    for ordinal in range(naming.NODES_MAX):
        metadata: Object = {"name": f"other-{ordinal}", "labels": naming.labels("other")}
        kube.create("Service", "lab", {"kind": "Service", "metadata": metadata}, "test")
    read: list[Object] = []
    list_all = kube.list

    def listed(kind: str, *where: str, **how: str) -> list[Object]:
        found = list_all(kind, *where, **how)
        read.extend(found if kind == "Service" else ())
        return found

    monkeypatch.setattr(kube, "list", listed)
    seen = await Observer(kube).observe(quorum, None)
    assert not [name for name in seen.observed.stale if name.startswith("Service/")]
    assert {each["metadata"]["name"] for each in read} == {
        naming.service("q"),
        *(naming.node_service("q", ordinal) for ordinal in range(naming.NODES_MAX)),
    }


async def test_a_foreign_object_is_found_although_it_lacks_the_labels(
    api: tuple[Store, Kube],
) -> None:
    """A Service of the name that a node needs, and a claim that a removed voter would mount."""
    _, kube = api
    quorum = created(kube, tls={"enabled": False})
    foreign(kube, "Service", "q-1")
    foreign(kube, "PersistentVolumeClaim", naming.claim("q", 5))
    seen = await Observer(kube).observe(quorum, None)
    assert [text.partition(" ")[0] for text in seen.observed.conflicts] == [
        "PersistentVolumeClaim/data-q-5",
        "Service/q-1",
    ]
    assert seen.observed.foreign_volumes == {5}
    assert "Service/q-1" not in seen.observed.stale


async def test_a_name_that_is_taken_meanwhile_is_left_alone(api: tuple[Store, Kube]) -> None:
    """Between looking and acting: creating fails, and what was replaced is not changed."""
    _, kube = api
    quorum = created(kube, tls={"enabled": False})

    async def confirm() -> bool:
        return True

    seen = await Observer(kube).observe(quorum, None)
    foreign(kube, "Service", "q-3", spec={"selector": {"app": "shop"}})
    with pytest.raises(ActionFailedError, match="Service/q-3 exists and is not controlled"):
        await Actor(kube, confirm).act(p.ApplyObjects(("Service/q-3",)), quorum, seen, None)
    foreign(kube, "ConfigMap", "q-bootstrap", data={"clusterId": "theirs"})
    with pytest.raises(ActionFailedError, match="ConfigMap/q-bootstrap exists and is not"):
        await Actor(kube, confirm).act(p.CreateRecord(), quorum, seen, None)
    found = kube.get("Service", "lab", "q-3")
    assert found is not None
    assert found["spec"] == {"selector": {"app": "shop"}}


async def test_a_policy_of_others_is_not_deleted(api: tuple[Store, Kube]) -> None:
    _, kube = api
    quorum = created(kube, replicas=1, networkPolicy={"enabled": False})
    foreign(kube, "NetworkPolicy", "q")
    foreign(kube, "PodDisruptionBudget", "q")
    seen = await Observer(kube).observe(quorum, None)
    assert not seen.observed.conflicts
    assert not {"NetworkPolicy/q", "PodDisruptionBudget/q"} & set(seen.observed.stale)


async def test_a_policy_that_gets_another_owner_meanwhile_is_not_deleted(
    api: tuple[Store, Kube],
) -> None:
    """Between looking and deleting."""
    _, kube = api
    quorum = created(kube, networkPolicy={"enabled": False})
    metadata = {"name": "q", "ownerReferences": [quorum.owner]}
    kube.create("NetworkPolicy", "lab", {"kind": "NetworkPolicy", "metadata": metadata}, "test")
    seen = await Observer(kube).observe(quorum, None)
    assert "NetworkPolicy/q" in seen.observed.stale

    async def confirm() -> bool:
        taken = {"metadata": {"ownerReferences": [{**quorum.owner, "uid": "another"}]}}
        kube.merge("NetworkPolicy", "lab", "q", taken)
        return True

    with pytest.raises(ActionFailedError, match="Precondition failed"):
        await Actor(kube, confirm).act(p.ApplyObjects(("NetworkPolicy/q",)), quorum, seen, None)
    assert kube.get("NetworkPolicy", "lab", "q") is not None


async def observed(kube: Kube, quorum: QuorumResource, *images: str) -> p.Observed:
    return (await Observer(kube, images=images).observe(quorum, None)).observed


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("quorate", True),
        ("quorate:1", True),
        ("quorate:1@sha256:00", True),
        ("registry:5000/team/x:1", True),
        ("registry:5000/team", False),
        ("registry:5000/teams/x", False),
        ("quorate-evil:1", False),
        ("evil/quorate:1", False),
        ("quorate/evil:1", False),
        ("localhost:5000/quorate", False),
    ],
)
async def test_an_image_is_of_a_repository_that_is_allowed(
    api: tuple[Store, Kube], image: str, allowed: bool
) -> None:
    store, kube = api
    quorum = created(kube, image=image)
    found = await observed(kube, quorum, "quorate", "registry:5000/team/")
    assert bool(found.forbidden) == (not allowed)
    planned = p.plan(quorum.desired, found)
    assert (planned.action is not None) == allowed
    assert planned.refuses(p.Reason.NOT_ALLOWED) == (not allowed)
    assert not (await observed(kube, quorum)).forbidden, "an operator without a list allows all"
    assert ours(store) == []


async def test_a_secret_is_mounted_only_where_it_says_so(api: tuple[Store, Kube]) -> None:
    """Whoever may create Quorums may not read Secrets by it."""
    store, kube = api
    quorum = created(
        kube,
        clusterId="-osK_z-yS4WP9LBCencUOA",
        firstNodeId=3000,
        migration={"zookeeperConnect": "zk:2182", "tls": {"secretName": "payroll"}},
    )
    assert (await observed(kube, quorum)).forbidden == ("Secret/payroll does not exist",)
    foreign(kube, "Secret", "payroll")
    planned = await step(kube, quorum)
    assert [refusal.reason for refusal in planned.refusals] == [p.Reason.NOT_ALLOWED]
    assert "payroll needs the label quorate.dev/usable-by=q" in planned.refusals[0].text
    assert ours(store) == []
    for name, is_ok in (("r", False), ("q", True)):
        labels = {naming.USABLE_LABEL: name}
        kube.merge("Secret", "lab", "payroll", {"metadata": {"labels": labels}})
        assert (not (await observed(kube, quorum)).forbidden) == is_ok


async def test_certificates_of_others_are_not_taken_by_their_name(api: tuple[Store, Kube]) -> None:
    """A Quorum's name could be chosen after the Secrets of another application."""
    _, kube = api
    quorum = created(kube, tls={"enabled": True, "certManager": {"enabled": True}})
    names = [naming.given_node_secret("q", node) for node in range(naming.NODES_MAX)]
    names += [naming.client_secret("q"), naming.operator_secret("q")]
    for name in names:
        foreign(kube, "Secret", name, data=authority_of_others())
    assert len((await observed(kube, quorum)).forbidden) == len(names)
    assert not (await Observer(kube).observe(quorum, None)).given
    for name in names:
        labels = {naming.USABLE_LABEL: "q"}
        kube.merge("Secret", "lab", name, {"metadata": {"labels": labels}})
    assert not (await observed(kube, quorum)).forbidden


async def test_pods_of_others_are_not_seen(api: tuple[Store, Kube]) -> None:
    """Even with the labels and the name."""
    _, kube = api
    quorum = created(kube, tls={"enabled": False})
    await step(kube, quorum)
    await step(kube, quorum)
    owner = {"kind": "ReplicaSet", "name": "shop", "uid": "x", "controller": True}
    metadata = {"name": "q-0", "labels": naming.labels("q"), "ownerReferences": [owner]}
    kube.create("Pod", "lab", {"kind": "Pod", "metadata": metadata}, "shop")
    seen = await Observer(kube).observe(quorum, None)
    assert seen.observed.size == 3
    assert seen.observed.nodes == ()
