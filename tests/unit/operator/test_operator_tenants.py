"""What somebody can do who may create Quorums in a namespace, and nothing else there."""

from __future__ import annotations

from typing import Any

import pytest
from quorate_operator import naming
from quorate_operator.control.act import Actor
from quorate_operator.kube.api import Kube
from quorate_operator.objects import manifests
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status
from quorate_operator.observation.observe import Observer, Snapshot
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_api import Object, Store, created
from tests.unit.operator.test_operator_objects import resource

UNCONFINED = (
    ("container.apparmor.security.beta.kubernetes.io/controller", "unconfined"),
    ("container.apparmor.security.beta.kubernetes.io/controller", ""),
    ("container.seccomp.security.alpha.kubernetes.io/controller", "unconfined"),
    ("seccomp.security.alpha.kubernetes.io/pod", "unconfined"),
)
APPARMOR = UNCONFINED[0][0]


@pytest.mark.parametrize(("name", "value"), UNCONFINED)
def test_no_annotation_takes_the_confinement_from_a_pod(name: str, value: str) -> None:
    quorum = resource(podTemplate={"annotations": {name: value}})
    assert "podTemplate.annotations contains" in quorum.desired.invalid_template
    planned = p.plan(quorum.desired, p.Observed())
    assert [refusal.reason for refusal in planned.refusals] == [p.Reason.INVALID_SPEC]


@pytest.mark.parametrize("value", ["runtime/default", "localhost/strict"])
def test_annotations_that_confine_a_pod_and_others_are_kept(value: str) -> None:
    annotations = {APPARMOR: value, "prometheus.io/scrape": "true"}
    quorum = resource(podTemplate={"annotations": annotations})
    assert not quorum.desired.invalid_template
    template = manifests.objects(quorum)["StatefulSet/q"]["spec"]["template"]
    assert template["metadata"]["annotations"] == annotations


def test_no_label_makes_a_controllers_pod_another_one() -> None:
    """Such as the operator's, which every NetworkPolicy lets in, or another Quorum's."""
    wanted = {
        naming.NAME_LABEL: "shop",
        naming.INSTANCE_LABEL: "other",
        naming.COMPONENT_LABEL: "operator",
        naming.MANAGED_LABEL: "Helm",
    }
    quorum = resource(podTemplate={"labels": wanted})
    found = manifests.objects(quorum)["StatefulSet/q"]["spec"]
    assert found["template"]["metadata"]["labels"] == naming.labels("q")
    assert found["selector"]["matchLabels"].items() <= naming.labels("q").items()


@pytest.mark.parametrize(
    "text",
    ["x\nQUORATE_NODE_ID=9", "$(QUORATE_POD_NAME)", "a;b", '"', "\r\nsuper.users=User:ANONYMOUS"],
)
def test_a_value_is_one_variable_whatever_it_contains(text: str) -> None:
    """The pod's key is the file that its name selects: no value may become that name."""
    quorum = resource(config={"quorate.example": text}, tls={"enabled": True})
    (container,) = manifests.objects(quorum)["StatefulSet/q"]["spec"]["template"]["spec"][
        "containers"
    ]
    found = [each for each in container["env"] if text in str(each.get("value"))]
    assert found == [{"name": "QUORATE_QUORATE_EXAMPLE", "value": text}]
    names = [each["name"] for each in container["env"]]
    assert len(set(names)) == len(names)
    assert container["command"] == ["python", "-m", "quorate_operator.pod"]
    (name,) = [each for each in container["env"] if each["name"] == "QUORATE_POD_NAME"]
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def named(kube: Kube, name: str, **spec: Any) -> QuorumResource:
    body = {
        "apiVersion": naming.API_VERSION,
        "kind": naming.KIND,
        "metadata": {"name": name, "generation": 1},
        "spec": {"image": "quorate:1", "replicas": 1, **spec},
    }
    return QuorumResource.parse(kube.create(naming.KIND, "lab", body, "tenant"))


async def step(kube: Kube, quorum: QuorumResource) -> tuple[p.OperatorPlan, Snapshot]:
    async def confirm() -> bool:
        return True

    seen = await Observer(kube).observe(quorum, None)
    planned = p.plan(quorum.desired, seen.observed)
    if planned.action is not None:
        await Actor(kube, confirm).act(planned.action, quorum, seen, None)
    return planned, seen


async def test_a_quorum_whose_name_continues_anothers_does_not_get_its_secrets(
    api: tuple[Store, Kube],
) -> None:
    """q's client x-node and the nodes of q-client-x have Secrets of the same name."""
    _, kube = api
    secret = "q-client-x-node-tls"
    assert naming.named_client_secret("q", "x-node") == naming.node_secret("q-client-x") == secret
    quorum = created(kube, clients=[{"name": "x-node", "superUser": True}])
    await step(kube, quorum)
    before = kube.get("Secret", "lab", secret)
    assert before is not None
    tenant = named(kube, "q-client-x")
    for _ in range(3):
        planned, seen = await step(kube, tenant)
    assert kube.get("Secret", "lab", secret) == before
    assert planned.refuses(p.Reason.CONFLICT)
    told = {c["type"]: c for c in status.build(tenant, seen, planned)["conditions"]}
    assert f"Secret/{secret}" in told["Conflict"]["message"]
    # What q has already is not disturbed by a Quorum that came later.
    planned, _ = await step(kube, quorum)
    assert not planned.refuses(p.Reason.CONFLICT)


def forged(owner: Object) -> Object:
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "q-bootstrap", "ownerReferences": [owner]},
        "data": {"clusterId": "AAAAAAAAAAAAAAAAAAAAAA", "adopted": "true"},
    }


@pytest.mark.parametrize(
    "change",
    [{"uid": "another"}, {"uid": ""}, {"controller": False}, {"controller": None}],
    ids=str,
)
async def test_an_owner_reference_that_only_looks_right_gives_nothing_to_the_operator(
    api: tuple[Store, Kube], change: Object
) -> None:
    """A bootstrap record of others would decide the cluster id, and that disks are adopted."""
    _, kube = api
    quorum = created(kube)
    kube.create("ConfigMap", "lab", forged({**quorum.owner, **change}), "tenant")
    for _ in range(3):
        planned, seen = await step(kube, quorum)
    assert seen.observed.record is None
    assert planned.action is None
    assert planned.refuses(p.Reason.CONFLICT)


def test_an_empty_uid_owns_nothing() -> None:
    """As of a resource that was never read from the server."""
    from quorate_operator.kube.ownership import is_controlled_by

    found = forged({"kind": "Quorum", "name": "q", "uid": "", "controller": True})
    assert not is_controlled_by(found, "")
