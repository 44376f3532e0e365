"""Certificates, manifests, the CRD and the chart's copy of it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.values import QuorumDescription
from quorate_operator import certificates as c
from quorate_operator import crd, manifests, naming, observe
from quorate_operator.resource import QuorumResource

CHART = Path(__file__).parents[3] / "charts" / "quorate"


def resource(**spec: Any) -> QuorumResource:
    return QuorumResource("q", "lab", uid="u", spec={"image": "quorate:1", **spec})


def pod_spec(quorum: QuorumResource) -> dict[str, Any]:
    found = manifests.objects(quorum)["StatefulSet/q"]["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


# --- certificates ---------------------------------------------------------------------------------


def issuer(signer: c.Pair, trusted: str = "") -> c.Issuer:
    return c.Issuer(signer, trusted or signer.certificate, 90)


def test_a_node_is_called_by_its_names() -> None:
    authority = c.new_authority("q authority")
    files = issuer(authority).node_files("q", "lab")
    assert set(files) == {"ca.crt"} | {
        f"node-{n}.{kind}" for n in range(naming.NODES_MAX) for kind in ("crt", "key")
    }
    found = x509.load_pem_x509_certificate(files["node-2.crt"].encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) >= {
        "node-2",
        "q-2.lab.svc",
        "q-2.q-controllers.lab.svc",
        "q-controllers.lab.svc",
    }
    assert not issuer(authority).are_due(files)
    assert not issuer(authority).are_due(issuer(authority).client_files())


def test_a_broker_is_called_by_its_node_id_too() -> None:
    authority = c.new_authority("q authority")
    files = issuer(authority).broker_files("q", "lab", 2)
    found = x509.load_pem_x509_certificate(files["broker-1.crt"].encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"broker-1", "node-1001", "q-broker-1.q-brokers.lab.svc"} <= set(
        names.get_values_for_type(x509.DNSName)
    )
    assert not issuer(authority).are_due(files, 2)
    assert issuer(authority).are_due(files, 3)


def test_renewal_is_due_after_two_thirds() -> None:
    authority = c.new_authority("a")
    now = dt.datetime.now(dt.UTC)
    pair = c.issue(authority, "x", (), 90, now=now)
    assert not c.is_due(authority, pair.certificate, now=now + dt.timedelta(days=59))
    assert c.is_due(authority, pair.certificate, now=now + dt.timedelta(days=61))
    assert c.is_due(c.new_authority("a"), pair.certificate)
    assert c.is_due(authority, "nonsense")
    assert issuer(authority).are_due({})
    assert not c.is_old(authority.certificate, now=now + dt.timedelta(days=2000))
    assert c.is_old(authority.certificate, now=now + dt.timedelta(days=2500))


def test_certificates_that_are_not_due_stay() -> None:
    authority, other = c.new_authority("a"), c.new_authority("a")
    files = issuer(authority).node_files("q", "lab")
    bundle = authority.certificate + other.certificate
    more = issuer(authority, bundle).node_files("q", "lab", files)
    assert issuer(authority, bundle).are_due(files)
    assert more["ca.crt"] == bundle
    assert {n: t for n, t in more.items() if n != "ca.crt"} == {
        n: t for n, t in files.items() if n != "ca.crt"
    }
    anew = issuer(other, bundle).node_files("q", "lab", more)
    assert anew["node-0.crt"] != more["node-0.crt"]
    assert not issuer(other, bundle).are_due(anew)


def test_an_authority_that_is_not_one_is_named() -> None:
    one, other = c.new_authority("a"), c.new_authority("b")
    for broken in (c.Pair("nonsense", one.key), c.Pair(one.certificate, other.key)):
        with pytest.raises(c.CertificateError):
            c.issue(broken, "x", (), 1)


# --- manifests ------------------------------------------------------------------------------------


def test_scaling_changes_no_pod() -> None:
    three, five = (manifests.objects(resource(replicas=n))["StatefulSet/q"]["spec"] for n in (3, 5))
    assert three == five
    assert "replicas" not in three


def test_each_node_has_an_address_that_outlives_its_pods() -> None:
    made = manifests.objects(resource())
    for ordinal in range(naming.NODES_MAX):
        spec = made[f"Service/q-{ordinal}"]["spec"]
        assert spec["selector"][naming.POD_LABEL] == f"q-{ordinal}"
        assert spec["publishNotReadyAddresses"] is True
        assert "clusterIP" not in spec  # the API server gives it one
    assert naming.place("q", "lab", 3) == ("q-3.lab.svc", naming.PORT)


def test_one_replica_has_no_disruption_budget() -> None:
    assert "PodDisruptionBudget/q" in manifests.objects(resource(replicas=2))
    assert "PodDisruptionBudget/q" not in manifests.objects(resource(replicas=1))


def test_pods_are_restricted() -> None:
    spec = pod_spec(resource())
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    inside = spec["containers"][0]["securityContext"]
    assert inside["readOnlyRootFilesystem"] is True
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}


def test_probes_need_no_process_of_their_own() -> None:
    for is_tls in (False, True):
        container = pod_spec(resource(tls={"enabled": is_tls}))["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["http"] == naming.HTTP_PORT
        pages = {
            name: container[f"{name}Probe"]["httpGet"]["path"]
            for name in ("startup", "liveness", "readiness")
        }
        assert pages == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
        assert {container[f"{name}Probe"]["httpGet"]["port"] for name in pages} == {"http"}


def policy(**spec: Any) -> list[dict[str, Any]]:
    made = manifests.objects(resource(networkPolicy=spec))["NetworkPolicy/q"]["spec"]["ingress"]
    assert isinstance(made, list)
    return made


def test_metrics_are_read_by_any_pod_or_by_those_that_are_named() -> None:
    assert policy()[1]["from"] == [{"namespaceSelector": {}}]
    assert policy()[1]["ports"] == [{"port": naming.HTTP_PORT, "protocol": "TCP"}]
    named = [{"namespaceSelector": {"matchLabels": {"x": "monitoring"}}}]
    assert policy(metricsFrom=named)[1]["from"] == named
    nobody = policy(metricsFrom=[])
    assert [rule["ports"][0]["port"] for rule in nobody] == [naming.PORT]


def test_certificates_from_elsewhere_are_mounted_under_the_same_names() -> None:
    quorum = resource(tls={"enabled": True, "certManager": {"enabled": True}})
    assert quorum.is_tls
    assert not quorum.has_own_authority
    volume = next(v for v in pod_spec(quorum)["volumes"] if v["name"] == "tls")
    sources = volume["projected"]["sources"]
    paths = {item["path"]: s["secret"]["name"] for s in sources for item in s["secret"]["items"]}
    assert paths["ca.crt"] == "q-client-tls"
    assert paths["node-8.key"] == "q-node-8-tls"
    assert len(paths) == 1 + 2 * naming.NODES_MAX


def test_what_the_spec_sets_overrides_the_timeouts() -> None:
    name = "controller.quorum.fetch.timeout.ms"
    by_default = {e["name"]: e.get("value") for e in manifests.environment(resource())}
    chosen = {
        e["name"]: e.get("value") for e in manifests.environment(resource(config={name: "5000"}))
    }
    assert by_default[manifests.variable(name)] == manifests.TIMEOUTS[name]
    assert chosen[manifests.variable(name)] == "5000"


def test_a_digest_follows_the_content() -> None:
    one, same, other = (
        manifests.objects(resource(image=image))["StatefulSet/q"] for image in ("a", "a", "b")
    )
    assert manifests.stamp_of(one) == manifests.stamp_of(same) != manifests.stamp_of(other)


# --- the leader's view ----------------------------------------------------------------------------


def described(*caught_up_ms: int, error: ErrorCode = ErrorCode.NONE) -> QuorumDescription:
    keys = [ReplicaKey(n, f"d{n}") for n in range(len(caught_up_ms))]
    states = tuple(
        ReplicaStatus(key, 10, 100_000, at) for key, at in zip(keys, caught_up_ms, strict=True)
    )
    voters = VoterSet.of(Voter(key) for key in keys[:3])
    response = DescribeQuorumResponse(
        error, CurrentLeader(7, 0), 10, 1, states[:3], states[3:], voters, voters
    )
    return QuorumDescription("c", "x:1", response)


def test_caught_up_is_measured_by_the_leaders_clock() -> None:
    view = observe.leader_view(described(100_000, 99_000, 90_000, 98_000, -1))
    assert view is not None
    assert view.leader == ReplicaKey(0, "d0")
    assert {key.id for key in view.caught_up} == {0, 1, 3}
    assert {key.id for key in view.voters} == {0, 1, 2}


def test_only_the_leaders_view_counts() -> None:
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert observe.leader_view(described(1, 1, 1, error=code)) is None
    assert observe.leader_view(None) is None


def test_the_last_voters_are_those_of_the_later_epoch() -> None:
    quorum = QuorumResource("q", "lab", status={"voterSet": ["0-x", "1-y"], "leader": {"epoch": 9}})
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    old = described(1, 1, 1, error=code)
    assert {k.id for k in observe._known_voters(quorum, old)} == {0, 1}
    assert observe._known_voters(quorum, None) == {ReplicaKey(0, "x"), ReplicaKey(1, "y")}


# --- the chart ------------------------------------------------------------------------------------


def test_the_chart_carries_this_definition() -> None:
    """`quorate-operator --print-crd` makes it."""
    found = yaml.safe_load((CHART / "crds" / "quorums.quorate.dev.yaml").read_text())
    assert found == crd.definition()


def test_every_status_condition_is_described() -> None:
    from quorate_operator import status

    assert status.__doc__ is not None
    for name in crd.CONDITIONS:
        assert f"{name}:" in status.__doc__
