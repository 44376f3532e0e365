"""The chart, as helm renders it: lint, what its switches make, what its schema refuses.

helm is looked for in HELM, the path and the lab's tools; without it these are left out, but not in
CI on a machine where the lab was built.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from quorate_operator import naming
from quorate_operator.crd import quorum_schema
from quorate_operator.metrics import OperatorMetrics
from quorate_operator.objects import certificates
from quorate_operator.objects.resource import QuorumResource

from tests.cluster.lab import CHART, TOOLS, helm_program
from tests.tools import values_schema
from tests.tools.documents import block, command_lines

Object = dict[str, Any]
KUBE = ("--kube-version", "1.34.0")  # without a cluster helm assumes an old one
MIGRATION = (
    "quorum.firstNodeId=3000",
    "quorum.clusterId=-osK_z-yS4WP9LBCencUOA",
    "quorum.migration.zookeeperConnect=zk:2181/kafka",
)
SPREAD = '{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}'
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


def documents(helm: str, *values: str, values_file: Path | None = None) -> list[Object]:
    """The objects of a release "x" in the namespace "lab"."""
    given = sets(values) if values_file is None else [*sets(values), f"--values={values_file}"]
    done = run(helm, "template", "x", str(CHART), "--namespace", "lab", *KUBE, *given)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def rendered(helm: str, *values: str, values_file: Path | None = None) -> dict[str, Object]:
    """The same, by Kind/name."""
    made = documents(helm, *values, values_file=values_file)
    names = [f"{each['kind']}/{each['metadata']['name']}" for each in made]
    assert len(set(names)) == len(names), names
    return dict(zip(names, made, strict=True))


def test_certificates_of_the_documented_issuer(helm: str) -> None:
    (line,) = command_lines(block("charts/quorate/README.md", "certManager"))
    program, install, name, chart, *values = line.split()
    assert (program, install, chart) == ("helm", "install", "charts/quorate")
    done = run(helm, "template", name, str(CHART), *KUBE, *values)
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    issuers = [each["spec"]["issuerRef"] for each in made if each["kind"] == "Certificate"]
    assert issuers
    assert all(each["kind"] == "ClusterIssuer" for each in issuers)


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
        'quorum.networkPolicy.externalFrom=[{"podSelector":{}}]',
        'quorum.external={"type":"NodePort","hosts":["a","b","c"],"nodePorts":[1,2,3]}',
        "quorum.migration.tls.secretName=zk",
        "quorum.config.x=1",
        "quorum.podTemplate.spread.zones=Required",
        "commonLabels.team=a",
        'quorum.clients=[{"name":"app","superUser":true}]',
    )
    spec = rendered(helm, *values, *ISSUER, *MIGRATION)["Quorum/x"]["spec"]
    version = quorum_schema.definition()["spec"]["versions"][0]
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


def test_a_quorum_can_begin_with_a_backup(helm: str) -> None:
    source = "quorum.bootstrap.recovery.source.s3"
    spec = rendered(helm, f"{source}.url=s3://a/b", f"{source}.secretName=keys")["Quorum/x"]["spec"]
    assert spec["bootstrap"] == {
        "recovery": {"source": {"s3": {"url": "s3://a/b", "secretName": "keys"}}}
    }
    assert "bootstrap" not in rendered(helm)["Quorum/x"]["spec"]


def test_the_name_of_a_release_is_not_cut(helm: str) -> None:
    long = "a" * 41

    def template(*values: str) -> subprocess.CompletedProcess[str]:
        return run(helm, "template", long, str(CHART), *KUBE, *sets(values))

    for rest in ((), ("prometheusRules.enabled=true", "brokers.enabled=true")):
        done = template(*rest)
        assert done.returncode
        assert f"{long} is longer than 40 characters: set quorum.name" in done.stderr
        assert template("quorum.name=meta", *rest).returncode == 0
    assert template("quorum.enabled=false", "prometheusRules.enabled=true").returncode == 0
    assert run(helm, "template", long[1:], str(CHART), *KUBE).returncode == 0


def test_the_manifest_may_leave_the_number_of_voters_open(helm: str) -> None:
    """A tool that applies it again does not undo `kubectl scale`. A new Quorum has three."""
    assert "replicas" not in rendered(helm, "quorum.replicas=null")["Quorum/x"]["spec"]
    version = quorum_schema.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = version["properties"]["spec"]
    assert spec["properties"]["replicas"]["default"] == 3
    assert "replicas" not in spec["required"]
    assert QuorumResource("x", "lab", spec={"image": "x"}).desired.replicas == 3


def test_the_operator_alone(helm: str) -> None:
    made = rendered(helm, "quorum.enabled=false")
    assert "Quorum/x" not in made
    assert "Deployment/x-operator" in made


def rules(made: dict[str, Object]) -> Iterable[tuple[str, Object]]:
    for name, each in made.items():
        if each["kind"] in ("Role", "ClusterRole"):
            for rule in each["rules"]:
                yield name, rule


def environment(made: dict[str, Object]) -> dict[str, Any]:
    spec = made["Deployment/x-operator"]["spec"]["template"]["spec"]
    return {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}


def test_the_operators_pod_is_restricted(helm: str) -> None:
    spec = rendered(helm)["Deployment/x-operator"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    inside = spec["containers"][0]["securityContext"]
    assert inside["readOnlyRootFilesystem"] is True
    assert inside["capabilities"] == {"drop": ["ALL"]}


def test_the_operators_pod_has_probes_and_what_is_configured(helm: str) -> None:
    values = (
        "operator.logLevel=debug",
        "operator.logFormat=json",
        "operator.priorityClassName=system-cluster-critical",
        "operator.podLabels.team=a",
        'operator.extraEnv=[{"name":"HTTPS_PROXY","value":"x"}]',
        f"operator.topologySpreadConstraints=[{SPREAD}]",
        'operator.networkPolicy.metricsFrom=[{"podSelector":{}}]',
    )
    made = rendered(helm, *values)
    template = made["Deployment/x-operator"]["spec"]["template"]
    spec, container = template["spec"], template["spec"]["containers"][0]
    port = container["ports"][0]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    variables = environment(made)
    assert variables["QUORATE_OPERATOR_HTTP_LISTENER"] == f":{port['containerPort']}"
    assert variables["QUORATE_OPERATOR_LOG_LEVEL"] == "debug"
    assert variables["QUORATE_OPERATOR_LOG_FORMAT"] == "json"
    assert variables["HTTPS_PROXY"] == "x"
    uid = next(each for each in container["env"] if each["name"] == "QUORATE_OPERATOR_POD_UID")
    assert uid["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"
    assert template["metadata"]["labels"]["team"] == "a"
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert spec["topologySpreadConstraints"][0]["topologyKey"] == "zone"
    (rule,) = made["NetworkPolicy/x-operator"]["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {}}]
    assert "ingress" not in rendered(helm)["NetworkPolicy/x-operator"]["spec"]


def pod_specs(made: dict[str, Object]) -> dict[str, Object]:
    """The specs of pods, by Kind/name of what makes them."""
    found = {}
    for name, each in made.items():
        spec = each.get("spec") or {}
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template or each["kind"] == "Pod":
            found[name] = template["spec"] if template else spec
    return found


SCHEDULING: Object = {
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
}


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ("operator", "Deployment/x-operator"),
        ("brokers", "StatefulSet/x-broker"),
        ("pipeline", "CronJob/x-pipeline"),
    ],
)
def test_users_choose_where_the_pods_of_each_part_run(helm: str, part: str, place: str) -> None:
    parts = ("brokers.enabled=true", "pipeline.enabled=true", "pipeline.executors.count=1")
    made = rendered(helm, *parts, f"{part}={json.dumps(SCHEDULING)}")
    executor = yaml.safe_load(made["ConfigMap/x-pipeline"]["data"]["executor.yaml"])["spec"]
    for name, spec in {**pod_specs(made), "executor": executor}.items():
        has_it = name == place or (part == "pipeline" and name == "executor")
        assert (spec.items() >= SCHEDULING.items()) == has_it, name
        assert has_it or not spec.keys() & SCHEDULING.keys(), name


@pytest.mark.parametrize("is_fixed", [True, False])
def test_the_platform_may_assign_user_ids(helm: str, is_fixed: bool) -> None:
    ids = f"fixedUserIds={str(is_fixed).lower()}"
    made = rendered(helm, ids, "brokers.enabled=true", "pipeline.enabled=true")
    contexts = [spec["securityContext"] for spec in pod_specs(made).values()]
    assert len(contexts) == 4
    for context in contexts:
        assert context["runAsNonRoot"] is True
        assert ("runAsUser" in context) == is_fixed
        assert is_fixed or not {"runAsGroup", "fsGroup"} & set(context)
    template = made["Quorum/x"]["spec"]["podTemplate"]
    assert template.get("fixedUserIds", True) == is_fixed


def test_all_objects_have_the_common_labels(helm: str) -> None:
    more = ("brokers.enabled=true", "pipeline.enabled=true", "prometheusRules.enabled=true")
    more += ("podMonitor.enabled=true", "dashboards.enabled=true", "operator.replicas=2", *ISSUER)
    made = rendered(helm, 'commonLabels={"team":"a"}', *more)
    without = [
        name
        for name, each in made.items()
        if each["metadata"].get("labels", {}).get("team") != "a" and each["kind"] != "Pod"
    ]
    assert without == []
    assert made["Quorum/x"]["spec"]["commonLabels"] == {"team": "a"}
    assert "commonLabels" not in rendered(helm)["Quorum/x"]["spec"]


README = (CHART / "README.md").read_text()


def test_the_operators_alerts_ask_for_its_metrics_and_are_documented(helm: str) -> None:
    made = rendered(helm, "prometheusRules.enabled=true", "podMonitor.enabled=true")
    (group,) = made["PrometheusRule/x-operator"]["spec"]["groups"]
    page = OperatorMetrics()
    page.passed(is_done=True)
    page.watch_quorums(list)
    page.watch_backups(list)
    known = set(re.findall(r"^# TYPE (\w+)", page.render().decode(), re.MULTILINE))
    for rule in group["rules"]:
        assert set(re.findall(r"quorate_\w+", rule["expr"])) <= known
        assert f"| {rule['alert']} ({rule['labels']['severity']}) |" in README
    assert len(group["rules"]) == len(re.findall(r"^\| Quorate\w+ \(", README, re.MULTILINE))
    (endpoint,) = made["PodMonitor/x-operator"]["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    template = made["Deployment/x-operator"]["spec"]["template"]
    selector = made["PodMonitor/x-operator"]["spec"]["selector"]["matchLabels"]
    assert selector.items() <= template["metadata"]["labels"].items()
    assert endpoint["port"] == template["spec"]["containers"][0]["ports"][0]["name"]


def test_the_values_are_as_strict_as_the_custom_resource() -> None:
    for file, names in values_schema.SCHEMAS.items():
        text = file.read_text()
        expected = values_schema.written(text, names)
        assert expected == text, "run: python tests/tools/values_schema.py write"


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


def test_the_access_from_outside_is_made_of_the_values(helm: str) -> None:
    access = 'quorum.external={"type":"NodePort","hosts":["10.0.0.1","b.example.com","::1"]}'
    spec = rendered(helm, access)["Quorum/x"]["spec"]
    assert spec["external"]["hosts"] == ["10.0.0.1", "b.example.com", "::1"]
    assert "external" not in rendered(helm)["Quorum/x"]["spec"]
    made = rendered(helm, access, *ISSUER)
    found = [made[f"Certificate/x-node-{n}-tls"]["spec"] for n in range(naming.NODES_MAX)]
    assert [each.get("ipAddresses") for each in found[:4]] == [["10.0.0.1"], None, ["::1"], None]
    assert ["b.example.com" in each["dnsNames"] for each in found[:3]] == [False, True, False]
    template = 'quorum.external={"type":"LoadBalancer","hostTemplate":"x-{ordinal}.example.com"}'
    made = rendered(helm, template, *ISSUER)
    assert "x-8.example.com" in made["Certificate/x-node-8-tls"]["spec"]["dnsNames"]
    (rule,) = (rule for _, rule in rules(made) if "services" in rule["resources"])
    assert set(rule["verbs"]) == {"get", "list", "watch", "create", "patch", "delete"}


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
    new = ("commonLabels", "fixedUserIds", "quorum.authorization", "quorum.clients")
    new += ("quorum.rollout", "quorum.hibernated", "operator.allowedImages", "operator.extraEnv")
    new += ("operator.logLevel", "operator.logFormat", "operator.watchSecrets")
    new += (
        "operator.backups",
        "operator.externalAccess",
        "operator.podLabels",
        "operator.networkPolicy.metricsFrom",
    )
    made = rendered(helm, *(f"{name}=null" for name in new))
    assert environment(made)["QUORATE_OPERATOR_LOG_LEVEL"] == "info"
    assert made["Quorum/x"]["spec"]["hibernated"] is False
    assert next(iter(pod_specs(made).values()))["securityContext"]["runAsUser"] == 10001
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


def test_large_numbers_in_a_values_file_are_written_in_full(helm: str, tmp_path: Path) -> None:
    # Helm reads numbers of a file as floats, and Go shows large ones with an exponent.
    settings = {"metadata.log.segment.bytes": 1_073_741_824, "a.switch": False}
    values = {
        "quorum": {"config": settings},
        "brokers": {"enabled": True, "config": settings},
        "pipeline": {"enabled": True, "sparkConf": settings},
    }
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    made = rendered(helm, values_file=file)
    written = {"metadata.log.segment.bytes": "1073741824", "a.switch": "false"}
    assert made["Quorum/x"]["spec"]["config"] == written
    (container,) = made["StatefulSet/x-broker"]["spec"]["template"]["spec"]["containers"]
    found = {each["name"]: each.get("value") for each in container["env"]}
    assert found["QUORATE_METADATA_LOG_SEGMENT_BYTES"] == "1073741824"
    spark = made["ConfigMap/x-pipeline"]["data"]["spark-defaults.conf"]
    assert "metadata.log.segment.bytes=1073741824\n" in spark


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
        (["quorum.replicas=three"], "integer"),
        (["quorum.replica=3"], "'replica' not allowed"),
        (["quorum.name=Meta"], "does not match pattern"),
        (["quorum.storage.size=lots"], "does not match pattern"),
        (["quorum.storage.retention.whenDeleted=Keep"], "'Retain', 'Delete'"),
        (["quorum.diskReplacement=Never"], "'Automatic', 'Manual'"),
        (["quorum.firstNodeId=1005"], "'not' failed"),
        (["quorum.firstNodeId=995"], "'not' failed"),
        (["quorum.clusterId=mine"], "does not match pattern"),
        (["quorum.takeover.rollBack=true"], "controllers"),
        (["quorum.kafkaListener.name=CONTROLLER", "brokers.enabled=true"], "'not' failed"),
        (["quorum.firstNodeId=0", *MIGRATION[1:]], "minimum: got 0, want 1"),
        (["quorum.clusterId=", MIGRATION[0], MIGRATION[2]], "minLength"),
        (["quorum.tls.certificateDays=0"], "minimum"),
        (["quorum.tls.certManager.enabled=true"], "/quorum/tls/certManager/issuerRef/name"),
        (["operator.clusterWide=yes-please"], "want boolean"),
        (["image.repository="], "minLength"),
        (["operators.enabled=true"], "'operators' not allowed"),
        (["quorum.podTemplate.hostNetwork=true"], "'hostNetwork' not allowed"),
        (['quorum.podTemplate.tolerations=[{"operator":"Maybe"}]'], "'Exists', 'Equal'"),
        (['quorum.podTemplate.affinity={"nodeAfinity":{}}'], "'nodeAfinity' not allowed"),
        (['quorum.podTemplate.resources={"limits":{"cpu":"much"}}'], "does not match pattern"),
        (['quorum.podTemplate.extraEnv=[{"name":"QUORATE_NODE_ID"}]'], "'not' failed"),
        (
            ['quorum.podTemplate.extraEnv=[{"name":"A","valueFrom":{"secretKeyRef":{}}}]'],
            "not allowed",
        ),
        (['brokers.tolerations=[{"operator":"Maybe"}]'], "'Exists', 'Equal'"),
        (['pipeline.affinity={"nodeAfinity":{}}'], "'nodeAfinity' not allowed"),
        (["quorum.podTemplate.spread.zones=Always"], "'Preferred', 'Required'"),
        (
            [
                f"quorum.podTemplate.topologySpreadConstraints=[{SPREAD}]",
                "quorum.podTemplate.spread.zones=Required",
                "commonLabels.team=a",
            ],
            "maxItems",
        ),
        (['quorum.networkPolicy.metricsFrom=[{"pods":{}}]'], "'pods' not allowed"),
        (["quorum.external.type=ClusterIP"], "'LoadBalancer', 'NodePort'"),
        (["quorum.external.hostTemplate=a"], "missing property 'type'"),
        (['quorum.external={"type":"NodePort","hosts":["a:1"]}'], "does not match pattern"),
        (["operator.logLevel=loud"], "'debug', 'info'"),
        (['operator.extraEnv=[{"name":"QUORATE_OPERATOR_IDENTITY"}]'], "'not' failed"),
        (['commonLabels={"app.kubernetes.io/name":"x"}'], "'not' failed"),
        (['commonLabels={"quorate.dev/client":"true"}'], "'not' failed"),
    ],
)
def test_nonsense_is_refused_with_its_place(helm: str, values: list[str], said: str) -> None:
    done = run(helm, "template", "x", str(CHART), *KUBE, *sets(values))
    assert done.returncode != 0, done.stdout[:500]
    assert said in done.stderr, done.stderr
    place = values[0].partition("=")[0].replace(".", "/").rpartition("/")[0]
    assert f"/{place}" in done.stderr or "not allowed" in done.stderr
