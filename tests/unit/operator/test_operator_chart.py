"""The chart, as helm renders it: lint, what its switches make, what its schema refuses.

helm is looked for in HELM, the path and the lab's tools; without it these are left out, but not in
CI on a machine where the lab was built.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from quorate_operator import certificates, crd, naming

from tests.cluster.lab import CHART, TOOLS, helm_program

Object = dict[str, Any]
KUBE = ("--kube-version", "1.34.0")  # without a cluster helm assumes an old one
MIGRATION = (
    "quorum.firstNodeId=3000",
    "quorum.clusterId=-osK_z-yS4WP9LBCencUOA",
    "quorum.migration.zookeeperConnect=zk:2181/kafka",
)
ISSUER = ("quorum.tls.certManager.enabled=true", "quorum.tls.certManager.issuerRef.name=ours")


@pytest.fixture(scope="module")
def helm() -> str:
    found = helm_program()
    if found is None:
        text = "helm is in none of HELM, the path and the lab's tools (shared/kube/build makes it)"
        if os.environ.get("CI") and (TOOLS / "kube").exists():
            pytest.fail(text)
        pytest.skip(text)
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def sets(values: Iterable[str]) -> list[str]:
    return [f"--set-json={v}" if "=[" in v or "={" in v else f"--set={v}" for v in values]


def rendered(helm: str, *values: str) -> dict[str, Object]:
    """The objects of a release "x" in the namespace "lab", by Kind/name."""
    done = run(helm, "template", "x", str(CHART), "--namespace", "lab", *KUBE, *sets(values))
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    names = [f"{each['kind']}/{each['metadata']['name']}" for each in made]
    assert len(set(names)) == len(names), names
    return dict(zip(names, made, strict=True))


def secret_files(spec: Object, volume: str) -> dict[str, tuple[str, str]]:
    """The files in a projected volume: the Secret and its key, by path."""
    found = next(each for each in spec["volumes"] if each["name"] == volume)
    return {
        item["path"]: (source["secret"]["name"], item["key"])
        for source in found["projected"]["sources"]
        for item in source["secret"]["items"]
    }


def test_lint_finds_nothing(helm: str) -> None:
    done = run(helm, "lint", "--strict", str(CHART), *sets(ISSUER))
    assert done.returncode == 0, done.stdout


def test_one_release_has_operator_and_quorum(helm: str) -> None:
    made = rendered(helm)
    assert {"Deployment/x-operator", "Quorum/x", "ServiceAccount/x-operator"} <= set(made)
    spec = made["Quorum/x"]["spec"]
    assert spec["replicas"] == 3
    assert spec["tls"]["enabled"] is True
    assert spec["tls"]["certManager"] == {"enabled": False}
    assert not any(each.startswith("Certificate/") for each in made)


def test_the_quorum_satisfies_its_own_schema(helm: str) -> None:
    """What the chart writes is known to the CRD, field by field."""
    values = (
        'quorum.networkPolicy.metricsFrom=[{"podSelector":{}}]',
        'quorum.networkPolicy.brokersFrom=[{"podSelector":{}}]',
        "quorum.migration.tls.secretName=zk",
        "quorum.config.x=1",
        'quorum.clients=[{"name":"app","superUser":true}]',
    )
    spec = rendered(helm, *values, *ISSUER, *MIGRATION)["Quorum/x"]["spec"]
    version = crd.definition()["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    _check(spec, schema, "spec")


def _check(value: Any, schema: Object, where: str) -> None:
    if "enum" in schema:
        assert value in schema["enum"], where
    if not isinstance(value, dict) or "properties" not in schema:
        return
    for name, inner in value.items():
        assert name in schema["properties"], f"{where}.{name}"
        _check(inner, schema["properties"][name], f"{where}.{name}")


def test_the_operator_alone(helm: str) -> None:
    made = rendered(helm, "quorum.enabled=false")
    assert "Quorum/x" not in made
    assert "Deployment/x-operator" in made


def rules(made: dict[str, Object]) -> Iterable[tuple[str, Object]]:
    for name, each in made.items():
        if each["kind"] in ("Role", "ClusterRole"):
            for rule in each["rules"]:
                yield name, rule


@pytest.mark.parametrize("is_wide", [False, True])
def test_rights_name_what_they_are_for(helm: str, is_wide: bool) -> None:
    """No wildcards, and no Secrets of the whole cluster."""
    made = rendered(helm, f"operator.clusterWide={str(is_wide).lower()}")
    for name, rule in rules(made):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], name
        if "secrets" in rule["resources"]:
            assert name.startswith("Role/"), name
    kinds = {each["kind"] for each in made.values() if each["metadata"]["name"] == "lab-x-operator"}
    assert kinds == ({"ClusterRole", "ClusterRoleBinding"} if is_wide else {"Role", "RoleBinding"})


def test_the_operators_pod_is_restricted(helm: str) -> None:
    spec = rendered(helm)["Deployment/x-operator"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    inside = spec["containers"][0]["securityContext"]
    assert inside["readOnlyRootFilesystem"] is True
    assert inside["capabilities"] == {"drop": ["ALL"]}


def test_cert_manager_issues_what_the_operator_would(helm: str) -> None:
    """The same names in Secrets that the pods' template mounts."""
    made = rendered(helm, *ISSUER, "quorum.tls.certificateDays=30")
    assert made["Quorum/x"]["spec"]["tls"]["certManager"] == {"enabled": True}
    found = {
        each["spec"]["secretName"]: each["spec"]
        for each in made.values()
        if each["kind"] == "Certificate"
    }
    nodes = [naming.given_node_secret("x", ordinal) for ordinal in range(naming.NODES_MAX)]
    assert set(found) == {*nodes, naming.client_secret("x"), naming.operator_secret("x")}
    for ordinal, name in enumerate(nodes):
        hosts = {f"node-{ordinal}", *certificates.node_hosts("x", "lab", ordinal)}
        assert set(found[name]["dnsNames"]) == hosts
    for spec in found.values():
        assert spec["issuerRef"] == {
            "name": "ours",
            "kind": "Issuer",
            "group": "cert-manager.io",
        }
        assert spec["privateKey"]["rotationPolicy"] == "Never"
        assert {"server auth", "client auth"} <= set(spec["usages"])
        assert spec["secretTemplate"] == {"labels": {naming.USABLE_LABEL: "x"}}
        assert (spec["duration"], spec["renewBefore"]) == ("720h", "240h")


def test_images_are_limited_to_the_charts_own_by_default(helm: str) -> None:
    def allowed(*values: str) -> str:
        spec = rendered(helm, *values)["Deployment/x-operator"]["spec"]["template"]["spec"]
        found = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
        return str(found["QUORATE_OPERATOR_ALLOWED_IMAGES"])

    assert allowed() == "quorate"
    more = 'operator.allowedImages=["ghcr.io/x/","quorate"]'
    assert allowed("image.repository=quorate", more) == "quorate,ghcr.io/x/"


def test_values_of_an_earlier_chart_do_not_have_the_new_ones(helm: str) -> None:
    """`helm upgrade --reuse-values`."""
    gone = ("quorum.authorization=null", "quorum.clients=null", "operator.allowedImages=null")
    made = rendered(helm, *gone)
    assert made["Quorum/x"]["spec"]["authorization"] == {}
    assert "Deployment/x-operator" in made


@pytest.mark.parametrize(
    ("values", "listener"),
    [
        ((), {"enabled": True, "protocol": "SSL"}),
        (("quorum.kafkaListener=null",), {"enabled": True, "protocol": "SSL"}),
        (("quorum.tls.enabled=false",), {"enabled": True}),
        (("quorum.kafkaListener.protocol=PLAINTEXT",), {"enabled": True, "protocol": "PLAINTEXT"}),
        # What earlier releases had as values.
        (("quorum.kafkaListener.enabled=false",), {"enabled": False}),
        (("quorum.kafkaListener.enabled=true",), {"enabled": True}),
        (MIGRATION, {"enabled": False}),
    ],
)
def test_a_new_quorum_has_the_kafka_listener(
    helm: str, values: tuple[str, ...], listener: dict[str, object]
) -> None:
    assert rendered(helm, *values)["Quorum/x"]["spec"]["kafkaListener"] == listener


def test_a_migration_is_made_of_the_values(helm: str) -> None:
    assert "migration" not in rendered(helm)["Quorum/x"]["spec"]
    spec = rendered(helm, *MIGRATION)["Quorum/x"]["spec"]
    assert (spec["firstNodeId"], spec["clusterId"]) == (3000, "-osK_z-yS4WP9LBCencUOA")
    assert spec["migration"] == {"zookeeperConnect": "zk:2181/kafka", "enabled": True}
    over = rendered(helm, *MIGRATION, "quorum.migration.enabled=false")["Quorum/x"]["spec"]
    assert over["migration"]["enabled"] is False
    gone = ("quorum.migration.zookeeperConnect=", "quorum.kafkaListener.enabled=true")
    spec = rendered(helm, *MIGRATION, *gone)["Quorum/x"]["spec"]
    assert "migration" not in spec
    assert spec["kafkaListener"] == {"enabled": True}
    many = rendered(helm, "quorum.firstNodeId=1000000000")["Quorum/x"]["spec"]
    assert many["firstNodeId"] == 1_000_000_000


def test_cert_manager_certifies_nodes_by_their_ids(helm: str) -> None:
    made = rendered(helm, *ISSUER, *MIGRATION)
    names = [naming.given_node_secret("x", 3000 + ordinal) for ordinal in range(naming.NODES_MAX)]
    assert {f"Certificate/{name}" for name in names} <= set(made)
    hosts = made["Certificate/x-node-3002-tls"]["spec"]["dnsNames"]
    assert set(hosts) == {"node-3002", *certificates.node_hosts("x", "lab", 2)}


def test_brokers_are_made_with_what_they_need(helm: str) -> None:
    made = rendered(helm, "brokers.enabled=true", "brokers.replicas=4", "brokers.config.a\\.b=7")
    assert made["Quorum/x"]["spec"]["tls"]["brokerCertificates"] == 4
    template = made["StatefulSet/x-broker"]["spec"]["template"]
    spec = template["spec"]
    container = spec["containers"][0]
    environment = {each["name"]: each for each in container["env"]}
    assert environment["QUORATE_A_B"]["value"] == "7"
    reference = environment["QUORATE_POD_CLUSTER_ID"]["valueFrom"]["configMapKeyRef"]
    assert reference == {"name": naming.record("x"), "key": "clusterId"}
    found = {volume: secret_files(spec, volume) for volume in ("tls", "keys")}
    assert {secret for files in found.values() for secret, _ in files.values()} == {
        naming.broker_secret("x")
    }
    assert set(found["tls"]) == {"ca.crt", *(f"broker-{n}.crt" for n in range(4))}
    assert found["keys"]["x-broker-3.key"] == (naming.broker_secret("x"), "broker-3.key")
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] == "keys"]
    assert [(m["mountPath"], m["subPathExpr"]) for m in mounts] == [
        (naming.KEY_PATH, "$(QUORATE_POD_NAME).key")
    ]
    assert template["metadata"]["labels"]["quorate.dev/client"] == "true"
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    # Where the certificate says that it is.
    host = naming.broker_host("x", "lab", 0)
    assert host == f"x-broker-0.{made['Service/x-brokers']['metadata']['name']}.lab.svc"


def test_cert_manager_certifies_brokers_too(helm: str) -> None:
    made = rendered(helm, *ISSUER, "brokers.enabled=true", "brokers.replicas=2")
    names = made["Certificate/x-broker-1-tls"]["spec"]["dnsNames"]
    assert {"broker-1", "node-1001", naming.broker_host("x", "lab", 1)} <= set(names)
    spec = made["StatefulSet/x-broker"]["spec"]["template"]["spec"]
    assert set(secret_files(spec, "tls")) == {"ca.crt", "broker-0.crt", "broker-1.crt"}
    assert secret_files(spec, "keys")["x-broker-1.key"] == ("x-broker-1-tls", "tls.key")


@pytest.mark.parametrize("tls", [True, False])
def test_the_pipeline_is_scheduled_with_what_it_needs_to_connect(helm: str, tls: bool) -> None:
    values = ("pipeline.enabled=true", f"quorum.tls.enabled={str(tls).lower()}")
    made = rendered(helm, *values, "pipeline.claim=tables")["CronJob/x-pipeline"]["spec"]
    pod = made["jobTemplate"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    assert container["args"][:2] == ["pipeline", "run"]
    assert pod["metadata"]["labels"]["quorate.dev/client"] == "true"
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["tables"]["persistentVolumeClaim"] == {"claimName": "tables"}
    assert ("tls" in volumes) == tls
    options = [arg.split("=")[0] for arg in container["args"] if arg.startswith("--tls")]
    assert options == (["--tls-ca", "--tls-certificate", "--tls-key"] if tls else [])
    if tls:
        assert volumes["tls"]["secret"]["secretName"] == naming.client_secret("x")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["quorum.replicas=0"], "minimum"),
        (["quorum.replicas=10"], "maximum"),
        (["quorum.replicas=three"], "want integer"),
        (["quorum.replica=3"], "'replica' not allowed"),
        (["quorum.name=Meta"], "does not match pattern"),
        (["quorum.storage.size=lots"], "does not match pattern"),
        (["quorum.storage.retention.whenDeleted=Keep"], "'Retain', 'Delete'"),
        (["quorum.diskReplacement=Never"], "'Automatic', 'Manual'"),
        (["quorum.firstNodeId=1005"], "'not' failed"),
        (["quorum.firstNodeId=995"], "'not' failed"),
        (["quorum.clusterId=mine"], "does not match pattern"),
        (["quorum.firstNodeId=0", *MIGRATION[1:]], "minimum: got 0, want 1"),
        (["quorum.clusterId=", MIGRATION[0], MIGRATION[2]], "minLength"),
        (["quorum.tls.certificateDays=0"], "minimum"),
        (["quorum.tls.certManager.enabled=true"], "/quorum/tls/certManager/issuerRef/name"),
        (["operator.clusterWide=yes-please"], "want boolean"),
        (["image.repository="], "minLength"),
        (["operators.enabled=true"], "'operators' not allowed"),
    ],
)
def test_nonsense_is_refused_with_its_place(helm: str, values: list[str], said: str) -> None:
    done = run(helm, "template", "x", str(CHART), *KUBE, *sets(values))
    assert done.returncode != 0, done.stdout[:500]
    assert said in done.stderr, done.stderr
    place = values[0].partition("=")[0].replace(".", "/").rpartition("/")[0]
    assert f"/{place}" in done.stderr or "not allowed" in done.stderr
