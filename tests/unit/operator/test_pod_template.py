"""What `spec.podTemplate` makes of the pods: where they run, their variables and labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from quorate_operator import naming
from quorate_operator.crd import pod_schema
from quorate_operator.objects import manifests, recovery
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.planning import plan as p

from tests.cluster.lab import CHART
from tests.unit.operator.test_operator_plan import key, node, quorum

ZONE, NODE = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Object = dict[str, Any]


def template(**fields: Any) -> Object:
    """The template of the pods."""
    resource = QuorumResource("q", "lab", uid="u", spec={"image": "x", "podTemplate": fields})
    found: Object = manifests.objects(resource)["StatefulSet/q"]["spec"]["template"]
    return found


def constraints(**fields: Any) -> dict[str, Object]:
    """The spread constraints by topology key."""
    found = template(**fields)["spec"]["topologySpreadConstraints"]
    return {each["topologyKey"]: each for each in found}


# --- spread ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [None, {}, {"zones": "Preferred", "nodes": "Preferred"}])
def test_a_preferred_spread_restarts_no_pod_of_a_quorum_without_the_field(
    spread: Object | None,
) -> None:
    fields = {} if spread is None else {"spread": spread}
    assert template(**fields) == template()
    for where, found in constraints(**fields).items():
        assert found == {
            "maxSkew": 1,
            "topologyKey": where,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": naming.selector("q")},
        }


def test_required_zones_are_three_and_differ_by_one_member() -> None:
    found = constraints(spread={"zones": "Required"})
    assert found[ZONE] == {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 3,
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": naming.selector("q")},
    }
    assert found[NODE] == constraints()[NODE]


def test_a_required_node_has_one_member() -> None:
    found = constraints(spread={"nodes": "Required", "zones": "Preferred"})
    assert found[ZONE] == constraints()[ZONE]
    assert found[NODE]["whenUnsatisfiable"] == "DoNotSchedule"
    # With as many domains as there can be members, a node with one is always too full.
    assert found[NODE]["minDomains"] == naming.NODES_MAX
    assert found[NODE]["maxSkew"] == 1


def test_scaling_does_not_change_a_required_spread() -> None:
    """Or all pods would restart for it."""
    spread = {"spread": {"zones": "Required", "nodes": "Required"}}
    made = [
        manifests.objects(
            QuorumResource("q", "lab", spec={"image": "x", "replicas": n, "podTemplate": spread})
        )["StatefulSet/q"]["spec"]["template"]
        for n in (1, 3, 9)
    ]
    assert made[0] == made[1] == made[2]


def test_constraints_of_the_users_own_take_the_place_of_all() -> None:
    own = [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
    assert template(topologySpreadConstraints=own)["spec"]["topologySpreadConstraints"] == own


# --- variables ------------------------------------------------------------------------------------


def test_further_variables_come_after_the_operators() -> None:
    more = [
        {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://$(NODE_IP):4317"},
    ]
    (with_them,), (without,) = (
        template(**fields)["spec"]["containers"] for fields in ({"extraEnv": more}, {})
    )
    assert with_them["env"] == without["env"] + more


def test_no_further_variable_has_the_name_of_an_operators() -> None:
    """Nor can one make a pod, which has a private key, run other code."""
    item = pod_schema.pod_template()["properties"]["extraEnv"]["items"]
    rules = [each["rule"] for each in item["x-kubernetes-validations"]]
    assert f"!self.name.matches('{pod_schema.OWN_VARIABLE}')" in rules
    (container,) = template()["spec"]["containers"]
    names = [each["name"] for each in container["env"]]
    code = ("PYTHONPATH", "PATH", "LD_PRELOAD")
    for name in (*names, naming.FENCED_VARIABLE, *code, "SSLKEYLOGFILE"):
        assert re.match(pod_schema.OWN_VARIABLE, name), name
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "HTTPS_PROXY", "TZ", "GRPC_VERBOSITY"):
        assert not re.match(pod_schema.OWN_VARIABLE, name), name
    assert set(item["properties"]) == {"name", "value", "valueFrom"}
    assert set(item["properties"]["valueFrom"]["properties"]) == {"fieldRef"}, "no Secrets"


def test_the_chart_rejects_the_same_variables() -> None:
    text = (CHART / "values.schema.json").read_text()
    assert f'"not": {{"pattern": "{pod_schema.OWN_VARIABLE}"}}' in text


# --- labels ---------------------------------------------------------------------------------------

TEAM = {"team": "a", "example.com/cost-centre": "7"}


def labelled(**more: Any) -> QuorumResource:
    spec = {"image": "x", "replicas": 3, "commonLabels": TEAM, **more}
    return QuorumResource("q", "lab", uid="u", spec=spec)


def test_common_labels_are_on_all_objects_and_pods_and_in_no_selector() -> None:
    quorum = labelled(external={"type": "LoadBalancer"})
    made = [*manifests.objects(quorum).values()]
    made += [manifests.record(quorum, "c", adopted=False), manifests.marker(quorum, "c")]
    made += [manifests.secret(quorum, "s", {}, "Opaque"), recovery.job(restored(), "c")]
    for each in made:
        assert each["metadata"]["labels"].items() >= TEAM.items(), each["kind"]
    found = manifests.objects(quorum)["StatefulSet/q"]["spec"]
    assert found["template"]["metadata"]["labels"] == TEAM | naming.labels("q")
    job = recovery.job(restored(), "c")["spec"]["template"]["metadata"]["labels"]
    assert job.items() >= TEAM.items()
    without = manifests.objects(replace(quorum, spec={**quorum.spec, "commonLabels": {}}))
    # Neither can be changed, so an API server would reject the StatefulSet.
    for field in ("selector", "volumeClaimTemplates", "serviceName"):
        assert found[field] == without["StatefulSet/q"]["spec"][field]
    assert recovery.claim(restored())["metadata"]["labels"] == naming.labels("q")
    assert not (set(TEAM) & set(selectors(made)))


def restored() -> QuorumResource:
    return labelled(bootstrap={"recovery": {"source": {"s3": {"url": "s3://a/b"}}}})


def selectors(node: Any, inside: bool = False) -> Iterator[str]:
    """The keys of all selectors in objects."""
    if isinstance(node, dict):
        for name, value in node.items():
            if inside:
                yield name
            yield from selectors(value, inside or "elector" in name or name == "matchLabels")
    elif isinstance(node, list):
        for each in node:
            yield from selectors(each, inside)


def test_labels_of_the_pods_win_over_common_ones_and_the_operators_over_both() -> None:
    common = {"team": "a", naming.INSTANCE_LABEL: "other"}
    quorum = labelled(commonLabels=common, podTemplate={"labels": {"team": "b"}})
    found = manifests.objects(quorum)["StatefulSet/q"]
    assert found["spec"]["template"]["metadata"]["labels"] == {"team": "b"} | naming.labels("q")
    assert found["metadata"]["labels"] == {"team": "a"} | naming.labels("q")


@pytest.mark.parametrize(
    ("key", "is_owned"),
    [
        ("app.kubernetes.io/name", True),
        ("kubernetes.io/os", True),
        ("pod-security.kubernetes.io/enforce", True),
        ("app.k8s.io/name", True),
        ("helm.sh/chart", True),
        ("quorate.dev/client", True),
        ("team", False),
        ("notkubernetes.io/a", False),
        ("kubernetes.io.example.com/a", False),
    ],
)
def test_keys_that_others_own_are_rejected(key: str, is_owned: bool) -> None:
    assert bool(re.search(pod_schema.OWNED_LABEL, key)) == is_owned
    rules = [each["rule"] for each in pod_schema.common_labels()["x-kubernetes-validations"]]
    assert f"self.all(key, !key.matches('{pod_schema.OWNED_LABEL}'))" in rules
    names = json.loads((CHART / "values.schema.json").read_text())["properties"]["commonLabels"]
    assert names["propertyNames"]["not"]["pattern"] == pod_schema.OWNED_LABEL


# --- a member moves to another zone ---------------------------------------------------------------


def test_a_member_gets_the_template_of_its_new_zone_before_the_others_restart() -> None:
    """The rollout waits for an approval; only the pod that must be replaced has the template."""

    def planned(observed: p.Observed) -> p.OperatorPlan:
        return p.plan(p.Desired(3, is_supervised=True), replace(observed, revision="q-2"))

    old = [node(n, outdated=True) for n in range(3)]
    waiting = planned(quorum(*old))
    assert waiting.action is None
    assert waiting.refuses(p.Reason.APPROVAL_REQUIRED)
    # Its claim is deleted.
    leaving = quorum(*old[:2], replace(old[2], loses_volume=True))
    assert planned(leaving).action == p.RemoveVoter(key(2))
    assert leaving.view is not None
    voters = leaving.view.voters - {key(2)}
    view = replace(leaving.view, voters=voters, committed=voters, caught_up=voters)
    removed = replace(leaving, view=view)
    assert planned(removed).action == p.RestartPod(2, "uid-2")
    # The StatefulSet makes the pod again, of the new template and with a new claim.
    steps = [
        (node(2, None, answers=False, problem="the pod is Pending"), None),
        (node(2, None), p.FormatNode),
        (node(2, "b"), None),
    ]
    for returned, expected in steps:
        action = planned(replace(removed, nodes=(*old[:2], returned))).action
        assert (type(action) if action is not None else None) is expected, returned
    caught_up = replace(view, caught_up=voters | {key(2, "b")})
    back = replace(removed, nodes=(*old[:2], node(2, "b")), view=caught_up)
    assert planned(back).action == p.AddVoter(key(2, "b"))
    voters |= {key(2, "b")}
    joined = replace(back, view=replace(caught_up, voters=voters, committed=voters))
    done = planned(joined)
    assert done.action is None, "the others keep their pods"
    assert done.refuses(p.Reason.APPROVAL_REQUIRED)
