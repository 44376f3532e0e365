"""Access from outside the cluster: Services, certificates, the status, and what it never does."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from quorate_operator import naming
from quorate_operator.crd import external, quorum_schema
from quorate_operator.kube.api import path
from quorate_operator.objects import certificates as c
from quorate_operator.objects import manifests
from quorate_operator.objects.authority import secret_files
from quorate_operator.objects.made import as_made
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.planning import plan as p
from quorate_operator.planning.values import ActionFailure

from tests.processes import free_ports
from tests.unit.operator.fake_api import Object, created
from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import Lab
from tests.unit.operator.test_operator_objects import issuer, pod_spec, resource
from tests.unit.operator.test_operator_plan import HEALTHY, act, node, refusals

BALANCED: Object = {"type": "LoadBalancer"}
PORTS: Object = {"type": "NodePort", "hostTemplate": "machines.example.com"}
REPLICAS = 3


def services(quorum: QuorumResource) -> dict[str, Object]:
    """The Services for outside, by name."""
    made = manifests.objects(quorum)
    return {each["metadata"]["name"]: each for key, each in made.items() if "external" in key}


def names_in(certificate: str) -> set[str]:
    found = x509.load_pem_x509_certificate(certificate.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(each.value) for each in names}


# --- manifests ------------------------------------------------------------------------------------


def test_each_node_has_a_service_for_outside() -> None:
    access = BALANCED | {
        "annotations": {"dns": "x", naming.HASH_ANNOTATION: "forged"},
        "loadBalancerSourceRanges": ["192.0.2.0/24"],
    }
    made = services(resource(external=access, kafkaListener={"enabled": True, "protocol": "SSL"}))
    assert list(made) == ["q-0-external", "q-1-external", "q-2-external"]
    service = made["q-1-external"]
    assert service["metadata"]["ownerReferences"] == [resource().owner]
    assert service["metadata"]["labels"] == naming.labels("q")
    assert service["metadata"]["annotations"]["dns"] == "x"
    assert manifests.stamp_of(service) != "forged"
    spec = service["spec"]
    assert spec["type"] == "LoadBalancer"
    assert spec["selector"][naming.POD_LABEL] == "q-1"
    assert spec["loadBalancerSourceRanges"] == ["192.0.2.0/24"]
    # Kafka's brokers follow the addresses that the leader advertises.
    assert [each["port"] for each in spec["ports"]] == [naming.PORT]
    assert "nodePort" not in spec["ports"][0]


def test_node_ports_are_chosen_by_ordinal() -> None:
    made = services(resource(external=PORTS | {"nodePorts": [30001, 30002]}, replicas=3))
    found = [each["spec"]["ports"][0].get("nodePort") for each in made.values()]
    assert found == [30001, 30002, None]


def test_no_pod_depends_on_the_access_from_outside() -> None:
    """So neither it nor a new address of a load balancer restarts anything."""
    access = BALANCED | {"hosts": ["a.example.com", "b.example.com", "c.example.com"]}
    without, with_it = resource(), resource(external=access)
    assert pod_spec(without) == pod_spec(with_it)
    one, other = (manifests.objects(each) for each in (without, with_it))
    changed = {key for key in other if one.get(key) != other[key]}
    assert changed == {*(f"Service/{name}" for name in services(with_it)), "NetworkPolicy/q"}


def test_without_certificates_there_is_no_access() -> None:
    quorum = resource(external=BALANCED, tls={"enabled": False})
    assert quorum.external is None
    assert services(quorum) == {}


def test_a_surplus_node_is_reached_until_its_pod_is_deleted() -> None:
    quorum = resource(external=BALANCED, replicas=3)
    for size, expected in ((5, 5), (3, 3), (0, 3)):
        found = as_made(quorum, {"spec": {"replicas": size}})
        assert len(services(found)) == expected
        assert len(manifests.optional(quorum)) == 2 + naming.NODES_MAX


def test_the_network_policy_lets_clients_from_outside_in() -> None:
    def outside(**policy: Any) -> list[Object]:
        made = manifests.objects(resource(external=BALANCED, networkPolicy=policy))
        return list(made["NetworkPolicy/q"]["spec"]["ingress"][1:])

    ports = [{"port": naming.PORT, "protocol": "TCP"}]
    assert outside() == [{"ports": ports}]
    named = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    assert outside(externalFrom=named) == [{"from": named, "ports": ports}]
    assert outside(externalFrom=[]) == []
    assert outside(enabled=True) == [{"ports": ports}]


# --- addresses ------------------------------------------------------------------------------------


def service(*ingress: Object, node_port: int | None = None) -> Object:
    port = {"port": naming.PORT} | ({"nodePort": node_port} if node_port else {})
    return {"spec": {"ports": [port]}, "status": {"loadBalancer": {"ingress": [*ingress]}}}


def address(access: Object, found: Object | None, ordinal: int = 1) -> external.ExternalAddress:
    return external.external_address(external.ExternalAccess.parse(access), ordinal, found)


@pytest.mark.parametrize(
    ("access", "found", "expected", "names"),
    [
        (BALANCED, service({"ip": "192.0.2.7"}), "192.0.2.7:9093", ("192.0.2.7",)),
        (BALANCED, service({"ip": "2001:db8::7"}), "[2001:db8::7]:9093", ("2001:db8::7",)),
        (BALANCED, service({"hostname": "lb.example.com"}), "lb.example.com:9093", None),
        (
            BALANCED | {"hostTemplate": "meta-{ordinal}.example.com"},
            service({"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}),
            "meta-1.example.com:9093",
            ("meta-1.example.com", "192.0.2.7", "192.0.2.8"),
        ),
        (PORTS, service(node_port=30001), "machines.example.com:30001", None),
        (
            PORTS | {"hostTemplate": "", "hosts": ["192.0.2.1", "192.0.2.2"]},
            service(node_port=30001),
            "192.0.2.2:30001",
            ("192.0.2.2",),
        ),
        # The names of other nodes, and what is no name at all, are in no certificate.
        (BALANCED, service({"hostname": "node-2"}), "node-2:9093", ()),
        (BALANCED, service({"hostname": "é.example.com"}), "é.example.com:9093", ()),
    ],
)
def test_the_address_of_a_node(
    access: Object, found: Object, expected: str, names: tuple[str, ...] | None
) -> None:
    made = address(access, found)
    assert made.address == expected
    assert made.names == ((expected.rpartition(":")[0],) if names is None else names)
    assert not made.is_pending


def test_an_address_that_is_not_known_yet() -> None:
    named = BALANCED | {"hostTemplate": "meta-{ordinal}.example.com"}
    expected = external.ExternalAddress("", ("meta-1.example.com",), is_pending=True)
    assert address(named, service()) == expected
    assert address(BALANCED, {"spec": {}}) == external.ExternalAddress(is_pending=True)
    assert address(BALANCED, None) == external.ExternalAddress()
    assert address(PORTS, service()).address == ""
    short = {"type": "NodePort", "hosts": ["192.0.2.1"]}
    assert address(short, service(node_port=30001)) == external.ExternalAddress()


# --- certificates ---------------------------------------------------------------------------------


def test_a_certificate_names_the_outside_address() -> None:
    signer = issuer(c.new_authority("q authority"))
    before = signer.node_files("q", "lab")
    wanted = {1: ("meta-1.example.com", "192.0.2.7")}
    assert c.lack_names(before, wanted)
    after = signer.node_files("q", "lab", before, external=wanted)
    assert not c.lack_names(after, wanted)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"node-1.crt"}, "the key stays: pods have mounted it"
    assert {"node-1", "q-1.lab.svc", *wanted[1]} <= names_in(after["node-1.crt"])
    found = x509.load_pem_x509_certificate(after["node-1.crt"].encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("192.0.2.7")]
    # An address that is gone, maybe for a moment, stays until the next renewal.
    assert signer.node_files("q", "lab", after, external={}) == after
    assert c.lack_names({}, wanted)


# --- the schema -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_valid"),
    [("a.example.com", True), ("10.0.0.1", True), ("2001:db8::1", True), ("::1", True)]
    + [(each, False) for each in ("a.example.com:9093", "a b", "", "-a", "https://a", "a_b")],
)
def test_a_host_has_no_port(host: str, is_valid: bool) -> None:
    assert bool(re.search(external.HOST_PATTERN, host)) == is_valid


@pytest.mark.parametrize(
    ("template", "is_valid"),
    [("meta-{ordinal}.example.com", True), ("{ordinal}.a", True), ("10.0.0.1", True)]
    + [(each, False) for each in ("meta-{nodeId}.a", "a-%s", "a:{ordinal}", "", "{ordinal")],
)
def test_a_template_has_one_placeholder(template: str, is_valid: bool) -> None:
    assert bool(re.search(external.TEMPLATE_PATTERN, template)) == is_valid


def test_the_schema_has_the_fields_that_are_read() -> None:
    schema = quorum_schema.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    fields = spec["properties"]["external"]
    assert fields["required"] == ["type"]
    assert set(fields["properties"]) == {
        *("type", "annotations", "hosts", "hostTemplate"),
        *("loadBalancerSourceRanges", "nodePorts"),
    }
    rules = [each["rule"] for each in spec["x-kubernetes-validations"]]
    assert {each["rule"] for each in external.rules_of_spec()} <= set(rules)


# --- with an API server ---------------------------------------------------------------------------


def balance(lab: Lab, ordinal: int, *ingress: Object) -> None:
    """What the cloud provider's controller writes."""
    found = lab.store.objects[path("Service", "lab", naming.external_service("q", ordinal))]
    found["status"] = {"loadBalancer": {"ingress": [*ingress]}}
    lab.worker.is_changed = True


def files(lab: Lab) -> dict[str, str]:
    return secret_files(lab.kube.get("Secret", "lab", naming.node_secret("q")))


@pytest.fixture
async def secured(lab: Lab) -> Lab:
    """A Quorum of three with certificates and pods, whose nodes do not answer."""
    nodes = FakeNodes(REPLICAS)
    nodes.ports = free_ports(REPLICAS)
    lab.use(nodes)
    created(lab.kube)
    await lab.settle()
    nodes.pods(lab.store)
    lab.worker.is_changed = True
    await lab.settle()
    return lab


async def test_certificates_follow_the_addresses_and_nothing_restarts(secured: Lab) -> None:
    lab = secured
    lab.patch(external=BALANCED)
    began = len(lab.store.log)
    await lab.settle()
    status, reason, message = lab.condition("SpecApplied")
    assert (status, reason) == ("False", "LoadBalancerPending")
    assert message.count("has no address yet") == REPLICAS
    assert "externalBootstrapServers" not in lab.quorum["status"]
    event, *_ = lab.events("LoadBalancerPending")
    assert event["type"] == "Normal"
    for ordinal in range(REPLICAS):
        balance(lab, ordinal, {"ip": f"192.0.2.{ordinal}"})
    await lab.settle()
    assert lab.condition("SpecApplied")[0] == "True"
    servers = "192.0.2.0:9093,192.0.2.1:9093,192.0.2.2:9093"
    assert lab.quorum["status"]["externalBootstrapServers"] == servers
    found = files(lab)
    assert all(f"192.0.2.{n}" in names_in(found[f"node-{n}.crt"]) for n in range(REPLICAS))
    # Another address is another certificate, once; a lost one is none.
    balance(lab, 1, {"ip": "198.51.100.1"})
    await lab.settle()
    moved = files(lab)
    assert "198.51.100.1" in names_in(moved["node-1.crt"])
    assert moved["node-1.key"] == found["node-1.key"]
    assert moved["node-0.crt"] == found["node-0.crt"]
    balance(lab, 1)
    await lab.settle()
    assert files(lab) == moved
    assert lab.condition("SpecApplied")[1] == "LoadBalancerPending"
    changed = {where for method, where in lab.store.log[began:] if method != "GET"}
    assert not [each for each in changed if "/statefulsets" in each or "/pods" in each]
    members = lab.quorum["status"]["members"]
    assert members[0]["externalEndpoint"] == "192.0.2.0:9093"
    assert "externalEndpoint" not in members[1]


async def test_services_that_are_not_wanted_are_deleted_once(secured: Lab) -> None:
    lab = secured
    lab.patch(external=PORTS)
    await lab.settle()
    assert "Service/q-0-external" not in lab.condition("SpecApplied")[2]
    foreign = {"metadata": {"name": "q-7-external"}, "spec": {}}
    lab.kube.create("Service", "lab", {"apiVersion": "v1", "kind": "Service", **foreign}, "test")
    # The deletion of a load balancer takes a while.
    leaving = lab.store.objects[path("Service", "lab", "q-1-external")]
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    lab.patch(external=None)
    changes = await lab.step()
    deleted = [each for each in changes if each.startswith("DELETE")]
    assert deleted == ["DELETE q-0-external", "DELETE q-2-external"]
    await lab.settle()
    assert path("Service", "lab", "q-7-external") in lab.store.objects
    assert lab.condition("Conflict")[0] == "False"


async def test_surplus_nodes_keep_their_services_while_they_have_pods(secured: Lab) -> None:
    lab = secured
    stateful_set = lab.store.objects[path("StatefulSet", "lab", "q")]
    stateful_set["spec"]["replicas"] = 5
    lab.patch(external=PORTS)
    await lab.settle()
    assert path("Service", "lab", "q-4-external") in lab.store.objects
    stateful_set["spec"]["replicas"] = REPLICAS
    lab.worker.is_changed = True
    changes = await lab.step()
    deleted = [each for each in changes if each.startswith("DELETE")]
    assert deleted == ["DELETE q-3-external", "DELETE q-4-external"]


async def test_a_service_that_is_lost_or_foreign(secured: Lab) -> None:
    lab = secured
    lab.patch(external=PORTS)
    await lab.settle()
    where = path("Service", "lab", "q-1-external")
    lab.store.remove(where)
    lab.worker.is_changed = True
    await lab.settle()
    assert where in lab.store.objects
    lab.store.objects[where]["metadata"]["ownerReferences"] = []
    lab.worker.is_changed = True
    await lab.settle()
    assert lab.condition("Conflict")[0] == "True"
    assert "Service/q-1-external" in lab.condition("Conflict")[2]


# --- the plan -------------------------------------------------------------------------------------


def test_a_load_balancer_without_an_address_holds_up_nothing() -> None:
    name = "q-0-external"
    pending = replace(HEALTHY, pending_balancers=(name,))
    (refusal,) = p.plan(p.Desired(REPLICAS), pending).refusals
    assert refusal.reason is p.Reason.LOAD_BALANCER_PENDING
    assert name in refusal.text
    # One that the API server rejects does not, either.
    failure = ActionFailure(f"Service/{name}", "exceeded quota")
    rejected = replace(HEALTHY, stale=(f"Service/{name}",), failures=(failure,))
    assert refusals(rejected) == [p.Reason.APPLY_REJECTED]
    lost = (node(0), node(1, disk="new"), node(2))
    for observed in (pending, rejected):
        assert isinstance(act(replace(observed, nodes=lost)), p.RemoveVoter)
        assert act(observed, 5) == p.Resize(4, 3)
