"""Certificates, manifests, the CRD and the chart's copy of it."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from quorate.controller.config import CONTROLLER
from quorate.metadata.authorizer import CLUSTER, AclAuthorizer, Operation
from quorate_operator import naming
from quorate_operator.crd import quorum_schema
from quorate_operator.crd import rules as crd_rules
from quorate_operator.kube.ownership import handed_over
from quorate_operator.objects import certificates as c
from quorate_operator.objects import manifests
from quorate_operator.objects.broker_rights import rights
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CHART = Path(__file__).parents[3] / "charts" / "quorate"


def resource(**spec: Any) -> QuorumResource:
    return QuorumResource("q", "lab", uid="u", spec={"image": "quorate:1", **spec})


def pod_spec(quorum: QuorumResource) -> dict[str, Any]:
    found = manifests.objects(quorum)["StatefulSet/q"]["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def files_of(spec: dict[str, Any], volume: str) -> dict[str, tuple[str, str]]:
    """The files in a projected volume: the Secret and its key, by path."""
    found = next(each for each in spec["volumes"] if each["name"] == volume)
    return {
        item["path"]: (source["secret"]["name"], item["key"])
        for source in found["projected"]["sources"]
        for item in source["secret"]["items"]
    }


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


def test_no_eviction_stops_commits() -> None:
    """Of two voters both are needed. A single one can only be moved by stopping it."""
    assert "PodDisruptionBudget/q" not in manifests.objects(resource(replicas=1))
    allowed = {
        replicas: manifests.objects(resource(replicas=replicas))["PodDisruptionBudget/q"]["spec"][
            "maxUnavailable"
        ]
        for replicas in (2, 3, 4, 5, 9)
    }
    assert allowed == {2: 0, 3: 1, 4: 1, 5: 1, 9: 1}


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


def test_metrics_are_read_by_those_that_are_named() -> None:
    assert [rule["ports"][0]["port"] for rule in policy()] == [naming.PORT]
    assert policy(metricsFrom=None) == policy(metricsFrom=[]) == policy()
    named = [{"namespaceSelector": {"matchLabels": {"x": "monitoring"}}}]
    assert policy(metricsFrom=named)[1] == {
        "from": named,
        "ports": [{"port": naming.HTTP_PORT, "protocol": "TCP"}],
    }


MIGRATION: dict[str, Any] = {
    "clusterId": "-osK_z-yS4WP9LBCencUOA",
    "firstNodeId": 3000,
    "migration": {"zookeeperConnect": "zk:2181/kafka"},
}


def ports(found: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port.get("port") or port["containerPort"] for port in found["ports"]}


def test_kafkas_protocol_has_a_port_wherever_a_node_is_reached() -> None:
    ended = {**MIGRATION, "migration": {"zookeeperConnect": "zk:2181", "enabled": False}}
    for spec in (MIGRATION, ended, {"kafkaListener": {"enabled": True}}):
        made = manifests.objects(resource(**spec))
        for name in ("q-controllers", "q-0", "q-8"):
            assert ports(made[f"Service/{name}"]["spec"])["kafka"] == naming.KAFKA_PORT
        container = made["StatefulSet/q"]["spec"]["template"]["spec"]["containers"][0]
        assert ports(container)["kafka"] == naming.KAFKA_PORT
    made = manifests.objects(resource(kafkaListener={"enabled": False}))
    assert ports(made["Service/q-0"]["spec"]) == {"controller": naming.PORT}


KAFKA_SSL = {"kafkaListener": {"enabled": True, "protocol": "SSL"}}


def test_the_protocol_of_a_listener_without_one_stays_plaintext() -> None:
    """The pods of a Quorum that has the listener are the same as before there was a protocol."""
    known = {"kafkaListener": {"enabled": True}}
    for spec in (known, {**known, "tls": {"enabled": False}}, MIGRATION):
        assert not resource(**spec).kafka_listener_is_encrypted
        assert variables_of(**spec)["QUORATE_POD_KAFKA"] == "true"
    assert resource(**KAFKA_SSL).kafka_listener_is_encrypted
    assert variables_of(**KAFKA_SSL)["QUORATE_POD_KAFKA"] == "SSL"
    assert not resource(**KAFKA_SSL, tls={"enabled": False}).kafka_listener_is_encrypted
    assert not resource(kafkaListener={"protocol": "SSL"}).has_kafka_listener


def test_an_encrypted_listener_has_the_authorizer() -> None:
    clients = [{"name": "app"}, {"name": "kafka-101", "brokerId": 101}]
    quorum = resource(**KAFKA_SSL, clients=clients)
    assert quorum.is_authorizing
    assert manifests.broker_principals(quorum) == ("User:CN=client-kafka-101",)
    made = variables_of(**KAFKA_SSL, clients=clients)
    assert "client-kafka-101" not in made["QUORATE_SUPER_USERS"]
    assert "client-kafka-101" not in made["QUORATE_QUORATE_CONTROLLER_PRINCIPALS"]
    assert made["QUORATE_AUTHORIZER_CLASS_NAME"]


def test_a_kafka_brokers_certificate_names_its_node() -> None:
    quorum = resource(clients=[{"name": "app"}, {"name": "kafka-101", "brokerId": 101}])
    secret = naming.named_client_secret("q", "kafka-101")
    assert quorum.client_hosts(secret) == ("node-101",)
    assert quorum.client_hosts(naming.named_client_secret("q", "app")) == ()
    assert quorum.client_hosts(naming.client_secret("q")) == ()
    signer = issuer(c.new_authority("q authority"))
    files = signer.client_files(None, "client-kafka-101", ("node-101",))
    found = x509.load_pem_x509_certificate(files["tls.crt"].encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["client-kafka-101", "node-101"]
    assert signer.client_files(files, "client-kafka-101", ("node-101",)) == files
    # Another id, or none, is another certificate.
    for hosts in (("node-102",), ()):
        assert c.has_other_names(files["tls.crt"], "client-kafka-101", hosts)
        assert signer.client_files(files, "client-kafka-101", hosts) != files
    assert c.has_other_names("damaged", "client-kafka-101", ())


@pytest.mark.parametrize("first", [0, 3000])
def test_a_broker_may_not_have_a_controllers_id(first: int) -> None:
    def problem(node: int) -> str:
        clients = [{"name": "b", "brokerId": node}]
        return resource(firstNodeId=first, clients=clients).desired.invalid

    for node in (first, first + naming.NODES_MAX - 1):
        assert f"brokerId {node}" in problem(node)
    assert problem(first + naming.NODES_MAX) == ""


def test_the_end_of_a_migration_is_another_template() -> None:
    """So the pods are restarted, one at a time; the listener's variables stay as they are."""
    ended = resource(
        **{**MIGRATION, "migration": {"zookeeperConnect": "zk:2181", "enabled": False}}
    )
    before, after = (
        {each["name"]: each.get("value") for each in manifests.environment(quorum)}
        for quorum in (resource(**MIGRATION), ended)
    )
    gone = {name: value for name, value in before.items() if name not in after}
    assert gone == {
        "QUORATE_ZOOKEEPER_METADATA_MIGRATION_ENABLE": "true",
        "QUORATE_ZOOKEEPER_CONNECT": "zk:2181/kafka",
    }
    assert before.items() >= after.items()
    assert after["QUORATE_POD_FIRST_NODE_ID"] == "3000"
    assert after["QUORATE_POD_KAFKA"] == "true"


def test_zookeepers_secret_is_mounted_while_it_is_needed() -> None:
    given = {"zookeeperConnect": "zk:2182", "tls": {"secretName": "zk"}}
    for enabled in (True, False):
        spec = pod_spec(resource(**{**MIGRATION, "migration": {**given, "enabled": enabled}}))
        volumes = [v["secret"]["secretName"] for v in spec["volumes"] if v["name"] == "zookeeper"]
        mounts = [m["mountPath"] for m in spec["containers"][0]["volumeMounts"]]
        assert volumes == (["zk"] if enabled else [])
        assert (naming.ZOOKEEPER_TLS_PATH in mounts) == enabled


def test_brokers_are_let_in_by_label_or_by_name() -> None:
    def sources(**policies: Any) -> list[Any]:
        made = manifests.objects(resource(**MIGRATION, networkPolicy=policies))
        return [
            rule["from"]
            for rule in made["NetworkPolicy/q"]["spec"]["ingress"]
            if rule["ports"][0]["port"] == naming.KAFKA_PORT
        ]

    labels = {manifests.CLIENT_LABEL: "true"}
    clients = {"namespaceSelector": {}, "podSelector": {"matchLabels": labels}}
    pods = {"podSelector": {"matchLabels": naming.selector("q")}}
    assert sources() == [[pods, clients]]
    named = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    # In a takeover of Kafka's controllers, the pods vote there.
    assert sources(brokersFrom=named) == [[pods, *named]]
    assert sources(brokersFrom=[]) == [[pods]]
    assert all(rule["ports"][0]["port"] != naming.KAFKA_PORT for rule in policy())


def test_the_operator_may_read_how_far_a_migration_is() -> None:
    made = manifests.objects(resource(**MIGRATION, networkPolicy={"metricsFrom": []}))
    rule = made["NetworkPolicy/q"]["spec"]["ingress"][-1]
    assert rule["ports"] == [{"port": naming.HTTP_PORT, "protocol": "TCP"}]
    labels = [each["podSelector"]["matchLabels"] for each in rule["from"]]
    assert [each[naming.COMPONENT_LABEL] for each in labels] == ["operator"]


def test_node_ids_are_translated_both_ways() -> None:
    ids = resource(**MIGRATION).ids
    assert ids.of(2) == 3002
    assert [ids.ordinal(node) for node in (2999, 3000, 3008, 3009, 0)] == [None, 0, 8, None, None]
    assert resource().ids == naming.SAME_IDS


def test_a_nodes_certificate_speaks_for_its_id() -> None:
    files = issuer(c.new_authority("q authority")).node_files("q", "lab", ids=naming.NodeIds(3000))
    found = x509.load_pem_x509_certificate(files["node-3002.crt"].encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = names.get_values_for_type(x509.DNSName)
    assert {"node-3002", "q-2.lab.svc"} <= set(hosts)
    assert "node-2" not in hosts
    spec = pod_spec(resource(**MIGRATION, tls={"enabled": True, "certManager": {"enabled": True}}))
    found_files = files_of(spec, "tls")
    assert found_files["node-3002.crt"] == ("q-node-3002-tls", "tls.crt")
    assert files_of(spec, "keys")["q-2.key"] == ("q-node-3002-tls", "tls.key")


def test_a_migration_without_ids_is_not_obeyed() -> None:
    """By a CRD that is older than these rules it could be written."""
    assert not resource(**MIGRATION).desired.invalid
    for name in ("clusterId", "firstNodeId"):
        spec = {key: value for key, value in MIGRATION.items() if key != name}
        assert name in resource(**spec).desired.invalid


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("node.id", "the operator sets"),
        ("Node.Id", "the operator sets"),
        ("node_id", "the operator sets"),
        ("ssl.key.location", "the operator sets"),
        ("ssl.principal.mapping.rules", "the operator sets"),
        ("Ssl_client_auth", "the operator sets"),
        ("pod.tls", "the operator sets"),
        ("POD_NAME", "the operator sets"),
        ("listener_security_protocol_map", "the operator sets"),
        ("metadata_log_segment_bytes", "lower-case words separated by dots"),
        ("Metadata.log.segment.bytes", "lower-case words separated by dots"),
        ("a=b", "lower-case words separated by dots"),
        ("", "lower-case words separated by dots"),
    ],
)
def test_a_setting_of_the_operators_is_refused_however_it_is_written(name: str, said: str) -> None:
    """As a variable it would take the place of the operator's own."""
    assert said in resource(config={name: "x"}).desired.invalid_template
    assert not resource(config={"metadata.log.segment.bytes": "9"}).desired.invalid_template


def test_every_setting_of_a_controller_can_be_written() -> None:
    for name in CONTROLLER.settings:
        assert "lower-case" not in naming.problem_of_setting(name), name


def test_certificates_from_elsewhere_are_mounted_under_the_same_names() -> None:
    quorum = resource(tls={"enabled": True, "certManager": {"enabled": True}})
    assert quorum.is_tls
    assert not quorum.has_own_authority
    certificates, keys = (files_of(pod_spec(quorum), volume) for volume in ("tls", "keys"))
    assert certificates["ca.crt"] == ("q-client-tls", "ca.crt")
    assert certificates["node-8.crt"] == ("q-node-8-tls", "tls.crt")
    assert keys["q-8.key"] == ("q-node-8-tls", "tls.key")
    assert (len(certificates), len(keys)) == (1 + naming.NODES_MAX, naming.NODES_MAX)


@pytest.mark.parametrize("is_given", [False, True])
def test_a_container_mounts_its_own_key_alone(is_given: bool) -> None:
    spec = pod_spec(resource(tls={"enabled": True, "certManager": {"enabled": is_given}}))
    assert {volume["name"] for volume in spec["volumes"]} == {"tmp", "tls", "keys"}
    assert not [name for name in files_of(spec, "tls") if not name.endswith(".crt")]
    assert set(files_of(spec, "keys")) == {f"q-{ordinal}.key" for ordinal in range(9)}
    mounts = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "keys"]
    assert mounts == [
        {
            "name": "keys",
            "mountPath": naming.KEY_PATH,
            "subPathExpr": "$(QUORATE_POD_NAME).key",
            "readOnly": True,
        }
    ]
    assert len(spec["containers"]) == 1
    assert "initContainers" not in spec


def test_a_node_keeps_its_key_when_its_certificate_is_renewed() -> None:
    """A pod has the key as a file that does not change."""
    old, new = c.new_authority("a"), c.new_authority("b")
    nodes = issuer(old).node_files("q", "lab")
    brokers = issuer(old).broker_files("q", "lab", 2)
    for before, after in (
        (nodes, issuer(new).node_files("q", "lab", nodes)),
        (brokers, issuer(new).broker_files("q", "lab", 2, brokers)),
    ):
        for name in before:
            assert (before[name] == after[name]) == name.endswith(".key"), name
        for name in (name for name in after if name.endswith(".key")):
            text = after[name.replace(".key", ".crt")].encode()
            certified = x509.load_pem_x509_certificate(text).public_key()
            key = serialization.load_pem_private_key(after[name].encode(), None)
            assert key.public_key() == certified
    broken = issuer(old).node_files("q", "lab", {**nodes, "node-0.crt": "", "node-0.key": "x"})
    assert "PRIVATE KEY" in broken["node-0.key"], "a new one, where there is none"


def test_what_the_spec_sets_overrides_the_timeouts() -> None:
    name = "controller.quorum.fetch.timeout.ms"
    by_default = {e["name"]: e.get("value") for e in manifests.environment(resource())}
    chosen = {
        e["name"]: e.get("value") for e in manifests.environment(resource(config={name: "5000"}))
    }
    assert by_default[manifests.variable(name)] == manifests.TIMEOUTS[name]
    assert chosen[manifests.variable(name)] == "5000"


def test_only_the_certificates_of_controllers_vote() -> None:
    name = "QUORATE_QUORATE_CONTROLLER_PRINCIPALS"

    def given(**spec: Any) -> str | None:
        found = {e["name"]: e.get("value") for e in manifests.environment(resource(**spec))}
        return found.get(name)

    listed = given()
    assert listed is not None
    files = issuer(c.new_authority("q authority")).node_files("q", "lab")
    subjects = [
        x509.load_pem_x509_certificate(text.encode()).subject.rfc4514_string()
        for file, text in files.items()
        if file.endswith(".crt") and file != c.CA_FILE
    ]
    assert listed.split(";") == [f"User:{subject}" for subject in subjects]
    assert given(tls={"enabled": False}) is None
    assert given(tls={"certManager": {"enabled": True}}) is None, "its subjects are not ours"
    assert given(config={"quorate.controller.principals": "User:CN=a"}) == "User:CN=a"


def variables_of(**spec: Any) -> dict[str, str]:
    made = manifests.environment(resource(**spec))
    return {each["name"]: each["value"] for each in made if "value" in each}


def test_the_authorizer_is_on_and_knows_who_keeps_the_quorum() -> None:
    made = variables_of(clients=[{"name": "app"}, {"name": "root", "superUser": True}])
    assert made["QUORATE_AUTHORIZER_CLASS_NAME"] == "quorate.authorizer"
    users = made["QUORATE_SUPER_USERS"].split(";")
    signer = c.new_authority("q authority")
    files = [*issuer(signer).node_files("q", "lab").items()]
    files += [("root.crt", issuer(signer).client_files(name="client-root")["tls.crt"])]
    files += [("tls.crt", issuer(signer).client_files()["tls.crt"])]
    subjects = {
        f"User:{x509.load_pem_x509_certificate(text.encode()).subject.rfc4514_string()}"
        for file, text in files
        if file.endswith(".crt") and file != c.CA_FILE
    }
    assert subjects | {"User:CN=operator"} == set(users)
    assert len(users) == len(set(users))


def test_the_spec_adds_super_users_and_takes_none_away() -> None:
    config = {"super.users": "User:CN=me;User:CN=client", "authorizer.class.name": AUTHORIZER}
    made = variables_of(config=config)
    assert made["QUORATE_AUTHORIZER_CLASS_NAME"] == AUTHORIZER
    users = made["QUORATE_SUPER_USERS"].split(";")
    assert {"User:CN=operator", "User:CN=node-8", "User:CN=me"} <= set(users)
    assert users.count("User:CN=client") == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"authorization": {"enabled": False}},
        {"tls": {"enabled": False}},
        {"tls": {"certManager": {"enabled": True}}},
        {"kafkaListener": {"enabled": True}},
        MIGRATION,
    ],
)
def test_without_certificates_that_it_knows_the_operator_sets_no_authorizer(
    spec: dict[str, Any],
) -> None:
    assert not {"QUORATE_AUTHORIZER_CLASS_NAME", "QUORATE_SUPER_USERS"} & set(variables_of(**spec))
    assert variables_of(**spec, config={"super.users": "User:x"})["QUORATE_SUPER_USERS"] == "User:x"
    assert manifests.broker_principals(resource(**spec)) == ()


def test_brokers_are_no_super_users() -> None:
    quorum = resource(tls={"brokerCertificates": 2})
    principals = manifests.broker_principals(quorum)
    files = issuer(c.new_authority("q authority")).broker_files("q", "lab", 2)
    subjects = [
        x509.load_pem_x509_certificate(files[f"broker-{n}.crt"].encode()).subject.rfc4514_string()
        for n in (0, 1)
    ]
    assert list(principals) == [f"User:{subject}" for subject in subjects]
    users = variables_of(tls={"brokerCertificates": 2})["QUORATE_SUPER_USERS"]
    assert not set(users.split(";")) & set(principals)
    granted = AclAuthorizer()
    granted.use(acl for each in principals for acl in rights(each, is_kafka=True))
    allowed = (
        (Operation.CLUSTER_ACTION, True),
        (Operation.ALTER, False),
        (Operation.CREATE, False),
    )
    for operation, is_allowed in allowed:
        assert granted.allows(principals[0], "10.0.0.1", operation, CLUSTER) == is_allowed


def test_a_digest_follows_the_content() -> None:
    one, same, other = (
        manifests.objects(resource(image=image))["StatefulSet/q"] for image in ("a", "a", "b")
    )
    assert manifests.stamp_of(one) == manifests.stamp_of(same) != manifests.stamp_of(other)


# --- who owns what --------------------------------------------------------------------------------


def owner(manager: str, operation: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}


def variables(*names: str) -> dict[str, Any]:
    """The fields of a template with these variables."""
    return {"f:template": {"f:env": {name: {"f:value": {}} for name in names}}}


def test_who_applies_owns_what_was_created_but_for_the_replicas() -> None:
    """So a variable goes when it is left out, and nobody's replicas are changed."""
    controller = owner("controller", "Update", {"f:status": {}}, subresource="status")
    made = {"f:metadata": {"f:labels": {}}, "f:spec": {"f:replicas": {}, **variables("A", "B")}}
    created = owner("creates", "Update", made)
    assert handed_over([created, controller], "creates", "applies") == [
        controller,
        owner("applies", "Apply", {"f:metadata": {"f:labels": {}}, "f:spec": variables("A", "B")}),
        owner("creates", "Update", {"f:spec": {"f:replicas": {}}}),
    ]
    applied = owner("applies", "Apply", {"f:spec": variables("A", "C")})
    found = handed_over([applied, created], "creates", "applies")
    assert found[0]["fieldsV1"]["f:spec"] == variables("A", "C", "B")
    assert handed_over(found, "creates", "applies") is found, "once is enough"
    assert handed_over([applied], "creates", "applies") == [applied]
    resized = owner("creates", "Update", {"f:spec": variables("A")})
    assert handed_over([resized], "creates", "applies") == [
        owner("applies", "Apply", {"f:spec": variables("A")})
    ]


# --- the chart ------------------------------------------------------------------------------------


def test_the_chart_carries_this_definition() -> None:
    """`quorate-operator --print-crd` makes it."""
    found = yaml.safe_load((CHART / "crds" / "quorums.quorate.dev.yaml").read_text())
    assert found == quorum_schema.definition()


def test_storage_says_which_of_its_fields_cannot_change() -> None:
    schema = quorum_schema.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    storage = schema["properties"]["spec"]["properties"]["storage"]
    found = [each["rule"] for each in schema["x-kubernetes-validations"]]
    rules = [rule for rule in found if "spec.storage" in rule]
    for field in storage["properties"]:
        is_fixed = any(f"oldSelf.spec.storage.{field}" in rule for rule in rules)
        assert is_fixed == (field in storage["description"]), field
    # Nothing is fixed before the status shows that the StatefulSet exists.
    assert all(rule.startswith("!has(oldSelf.status) || ") for rule in rules)


@pytest.mark.parametrize(
    ("size", "is_valid"),
    [("10Gi", True), ("1.5Ti", True), ("10G", True), ("1e12", True), ("10737418240", True)]
    + [(text, False) for text in ("10GB", "10 Gi", "Gi", "-1Gi", "10gi", "10Gi ", "1Zi", "")],
)
def test_a_size_that_is_no_quantity_is_rejected_at_once(size: str, is_valid: bool) -> None:
    assert bool(re.search(crd_rules.QUANTITY, size)) == is_valid


def test_every_status_condition_is_described() -> None:
    assert status.__doc__ is not None
    for name in quorum_schema.CONDITIONS:
        assert f"{name}:" in status.__doc__
