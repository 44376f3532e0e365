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


def test_a_node_is_called_by_its_names() -> None:
    authority = c.new_authority("q authority")
    files = c.node_files(authority, "q", "lab", 90)
    assert set(files) == {"ca.crt"} | {
        f"node-{n}.{kind}" for n in range(naming.NODES_MAX) for kind in ("crt", "key")
    }
    found = x509.load_pem_x509_certificate(files["node-2.crt"].encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) >= {
        "node-2",
        "q-2.q-controllers.lab.svc",
        "q-controllers.lab.svc",
    }
    assert not c.are_due(authority, files)
    assert not c.are_due(authority, c.client_files(authority, 90))


def test_renewal_is_due_after_two_thirds() -> None:
    authority = c.new_authority("a")
    now = dt.datetime.now(dt.UTC)
    pair = c.issue(authority, "x", (), 90, now=now)
    assert not c.is_due(authority, pair.certificate, now=now + dt.timedelta(days=59))
    assert c.is_due(authority, pair.certificate, now=now + dt.timedelta(days=61))
    assert c.is_due(c.new_authority("a"), pair.certificate)
    assert c.is_due(authority, "nonsense")
    assert c.are_due(authority, {})


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


def test_the_kubelet_probes_without_tls_only() -> None:
    probes = [
        pod_spec(resource(tls={"enabled": is_tls}))["containers"][0]["readinessProbe"]
        for is_tls in (False, True)
    ]
    assert "grpc" in probes[0]
    assert probes[1]["exec"]["command"][-1] == "ready"


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
