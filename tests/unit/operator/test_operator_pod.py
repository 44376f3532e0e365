"""Who a pod is follows from its name, and the controller's own configuration accepts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from quorate.cli.broker_settings import load_broker
from quorate.controller.config_reader import load_config
from quorate_operator import naming, pod
from quorate_operator.objects import manifests
from quorate_operator.objects.certificates import Issuer, new_authority
from quorate_operator.objects.resource import QuorumResource

ENVIRONMENT = {
    "QUORATE_POD_NAME": "my-meta-7",
    "QUORATE_POD_NAMESPACE": "lab",
    "QUORATE_POD_TLS": "false",
    "QUORATE_METADATA_LOG_SEGMENT_BYTES": "16777216",
    "HOME": "/tmp",
}


def test_the_controller_accepts_it() -> None:
    settings = pod.settings(ENVIRONMENT)
    config = load_config(None, settings)
    assert config.node_id == 7
    assert str(config.endpoints[0]) == "CONTROLLER://my-meta-7.lab.svc:9093"
    assert config.listeners[0].host == ""
    assert not config.listeners[0].tls
    assert config.log.segment_bytes_max == 16777216
    assert config.unformatted_wait
    assert config.http_listener is not None
    assert config.http_listener.port == naming.HTTP_PORT
    assert not config.raft.auto_join
    assert config.metadata_log_dir == Path("/var/lib/quorate/metadata")
    assert not config.warnings, config.warnings
    assert [f"{host}:{port}" for host, port in config.bootstrap_servers] == list(
        naming.bootstrap_servers("my-meta", "lab")
    )
    assert settings["HOME"] == "/tmp"
    assert not any(name.startswith("QUORATE_POD_") for name in settings)


MIGRATION: dict[str, Any] = {
    "image": "x",
    "clusterId": "-osK_z-yS4WP9LBCencUOA",
    "firstNodeId": 3000,
    "migration": {"zookeeperConnect": "zk:2181/kafka", "tls": {"secretName": "zk"}},
}


def template(**spec: Any) -> dict[str, str]:
    """The environment of a pod of a Quorum, as its template has it."""
    made = manifests.environment(QuorumResource("my-meta", "lab", spec={**MIGRATION, **spec}))
    return {**ENVIRONMENT, **{each["name"]: each["value"] for each in made if "value" in each}}


def test_the_controller_accepts_a_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the resource to what the controller is told: ids, the second listener, ZooKeeper."""
    monkeypatch.setattr(naming, "ZOOKEEPER_TLS_PATH", str(tmp_path))
    authority = new_authority("zookeeper's")
    (tmp_path / naming.ZOOKEEPER_CA).write_text(authority.certificate)
    environment = template(tls={"enabled": False})
    config = load_config(None, pod.settings(environment))
    assert config.node_id == 3007
    assert [str(each) for each in config.endpoints] == [
        "CONTROLLER://my-meta-7.lab.svc:9093",
        "KAFKA://my-meta-7.lab.svc:9094",
    ]
    assert [listener.name for listener in config.grpc_listeners] == ["CONTROLLER"]
    assert config.migration.enabled
    assert config.migration.connect == "zk:2181/kafka"
    assert config.kafka.name == "KAFKA"
    assert config.migration.tls is not None
    assert config.migration.tls.ca == tmp_path / naming.ZOOKEEPER_CA
    assert config.migration.tls.key_store is None
    assert not config.warnings, config.warnings
    (tmp_path / naming.ZOOKEEPER_PAIR).write_text(authority.key + authority.certificate)
    config = load_config(None, pod.settings(environment))
    assert config.migration.tls is not None
    assert config.migration.tls.key_store == tmp_path / naming.ZOOKEEPER_PAIR


@pytest.mark.parametrize(
    "over",
    [
        {"migration": {**MIGRATION["migration"], "enabled": False}},
        {"migration": None, "kafkaListener": {"enabled": True}},
    ],
)
def test_the_listener_stays_when_the_migration_is_over(over: dict[str, Any]) -> None:
    config = load_config(None, pod.settings(template(tls={"enabled": False}, **over)))
    assert not config.migration.enabled
    assert config.kafka.name == "KAFKA"
    assert [each.name for each in config.endpoints] == ["CONTROLLER", "KAFKA"]
    assert not config.warnings, config.warnings


def test_the_listener_for_brokers_is_encrypted_with_the_nodes_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "TLS_PATH", str(tmp_path))
    monkeypatch.setattr(naming, "KEY_PATH", str(tmp_path / "tls.key"))
    authority = new_authority("x")
    files = Issuer(authority, authority.certificate, 90).node_files("my-meta", "lab")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "tls.key").write_text(files["node-7.key"])
    listener = {"enabled": True, "protocol": "SSL"}
    made = template(migration=None, firstNodeId=0, kafkaListener=listener)
    config = load_config(None, pod.settings(made))
    assert config.kafka_listener_authenticates
    assert config.security.authorizer
    assert config.tls is not None
    assert config.tls.certificate == tmp_path / "node-7.crt"
    assert "KAFKA://my-meta-7.lab.svc:9094" in map(str, config.endpoints)


def test_the_controller_accepts_the_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "TLS_PATH", str(tmp_path))
    authority = new_authority("x")
    issuer = Issuer(authority, authority.certificate, 90)
    for first in (0, 3000):
        files = issuer.node_files("my-meta", "lab", ids=naming.NodeIds(first))
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        variables = {"QUORATE_POD_TLS": "true", "QUORATE_POD_FIRST_NODE_ID": str(first)}
        config = load_config(None, pod.settings({**ENVIRONMENT, **variables}))
        assert config.tls is not None
        assert config.tls.certificate == tmp_path / f"node-{first + 7}.crt"
        assert config.listeners[0].tls


def test_a_pod_uses_its_own_key_where_it_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else that beside the certificates: the template of an operator that is older."""
    monkeypatch.setattr(naming, "KEY_PATH", str(tmp_path / "tls.key"))
    broker = {"QUORATE_POD_NAME": "my-meta-broker-2"}
    for is_there in (False, True):
        for made in (
            pod.settings({**ENVIRONMENT, "QUORATE_POD_TLS": "true"}),
            pod.broker_settings({**ENVIRONMENT, "QUORATE_POD_TLS": "true", **broker}),
        ):
            found = made["QUORATE_SSL_KEY_LOCATION"]
            assert (found == str(tmp_path / "tls.key")) == is_there
            assert found.startswith(naming.TLS_PATH) != is_there
        (tmp_path / "tls.key").write_text("x")


def test_the_broker_accepts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "TLS_PATH", str(tmp_path))
    authority = new_authority("x")
    issuer = Issuer(authority, authority.certificate, 90)
    for name, text in issuer.broker_files("my-meta", "lab", 3).items():
        (tmp_path / name).write_text(text)
    pod_name = {"QUORATE_POD_NAME": "my-meta-broker-2", "QUORATE_POD_TLS": "true"}
    config = load_broker(None, pod.broker_settings({**ENVIRONMENT, **pod_name}))
    assert config.node_id == 1002
    assert str(config.endpoints[0]) == ("BROKER://my-meta-broker-2.my-meta-brokers.lab.svc:9092")
    assert config.controller_listener == naming.LISTENER
    assert config.http_listener == ("", naming.HTTP_PORT)
    assert config.is_encrypted(naming.LISTENER)
    assert config.is_encrypted(naming.BROKER_LISTENER)
    assert config.tls is not None
    assert config.tls.certificate == tmp_path / "broker-2.crt"
    assert [f"{host}:{port}" for host, port in config.bootstrap_servers] == list(
        naming.bootstrap_servers("my-meta", "lab")
    )
    with pytest.raises(pod.PodError, match="NAME-broker-N"):
        pod.broker_settings(ENVIRONMENT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"QUORATE_POD_NAME": ""}, "QUORATE_POD_NAME is not set"),
        ({"QUORATE_POD_NAMESPACE": ""}, "QUORATE_POD_NAMESPACE is not set"),
        ({"QUORATE_POD_NAME": "web"}, "expected a StatefulSet's pod name"),
        ({"QUORATE_POD_FIRST_NODE_ID": "-1"}, "expected a node id"),
        ({"QUORATE_POD_FIRST_NODE_ID": str(2**31 - naming.NODES_MAX + 1)}, "expected a node id"),
    ],
)
def test_a_pod_of_no_quorum_says_so(change: dict[str, str], said: str) -> None:
    with pytest.raises(pod.PodError, match=said):
        pod.settings(ENVIRONMENT | change)


def test_the_settings_of_the_operator_are_those_of_the_resource() -> None:
    """`spec.config` may not name what the pod's entry sets."""
    environment = ENVIRONMENT | template(tls={"enabled": False})
    plain = set(pod.settings(environment)) - set(ENVIRONMENT)
    defaults = (*manifests.TIMEOUTS, "quorate.format.principals")
    plain -= {manifests.variable(name) for name in defaults}
    assert plain <= {manifests.variable(name) for name in naming.OWN_SETTINGS}


def test_config_becomes_variables() -> None:
    made = QuorumResource(
        "q", "ns", spec={"image": "x", "config": {"metadata.log.segment.bytes": "9"}}
    )
    assert {"name": "QUORATE_METADATA_LOG_SEGMENT_BYTES", "value": "9"} in manifests.environment(
        made
    )


def test_it_needs_no_kubernetes() -> None:
    """The controllers' image does not have its client."""
    code = (
        "import sys; import quorate_operator.pod; "
        "sys.exit(any(m.startswith(('kubernetes', 'grpc', 'opentelemetry')) for m in sys.modules))"
    )
    folders = [
        str(Path(module.__file__ or "").parents[1]) for module in (pod, sys.modules["quorate"])
    ]
    path = ":".join(folders)
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path})
    assert done.returncode == 0
