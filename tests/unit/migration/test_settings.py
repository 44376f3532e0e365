"""The settings of the migration: every misconfiguration is refused with the setting's name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.cli.main import main
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.controller.migration.settings import MigrationSettings
from quorate.migration.tls import ZooKeeperTls
from quorate.process.properties import ConfigError

BASE = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "metadata.log.dir": "/nowhere/quorate",
}
MIGRATING = BASE | {
    "zookeeper.metadata.migration.enable": "true",
    "zookeeper.connect": "a:2181,b:2181/kafka",
}
SECURE = MIGRATING | {"zookeeper.ssl.client.enable": "true"}

CERTIFICATE = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"

Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a properties file; FOLDER in a value is where the PEM files are."""
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "store.pem").write_text(KEY + CERTIFICATE)
    (tmp_path / "locked.pem").write_text(KEY.replace("PRIVATE", "ENCRYPTED PRIVATE") + CERTIFICATE)

    def write(values: dict[str, str]) -> Path:
        file = tmp_path / "controller.properties"
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        file.write_text(text.replace("FOLDER", str(tmp_path)))
        return file

    return write


def load(file: Path, environment: dict[str, str] | None = None) -> ControllerConfig:
    config = load_config(file, environment or {})
    assert config.node_id == 3000
    return config


def test_they_are_read_beside_the_controllers_own(write: Write) -> None:
    config = load(write(MIGRATING | {"zookeeper.session.timeout.ms": "6000"}))
    assert config.migration == MigrationSettings(
        enabled=True, connect="a:2181,b:2181/kafka", session_timeout_ms=6000
    )
    assert config.warnings == ()


def test_without_them_there_is_no_migration(write: Write) -> None:
    config = load(write(BASE))
    assert config.migration == MigrationSettings()
    assert config.warnings == ()


def test_what_is_left_of_them_after_a_migration_is_ignored_with_a_warning_each(
    write: Write,
) -> None:
    config = load(
        write(
            MIGRATING
            | {"zookeeper.metadata.migration.enable": "false", "zookeeper.set.acl": "true"}
        )
    )
    assert config.migration == MigrationSettings()
    assert len(config.warnings) == 2
    assert "controller.properties:8: zookeeper.connect has no effect without" in config.warnings[0]


def test_the_environment_overrides_the_file(write: Write) -> None:
    environment = {
        "QUORATE_ZOOKEEPER_METADATA_MIGRATION_ENABLE": "true",
        "QUORATE_ZOOKEEPER_CONNECT": "z",
    }
    assert load(write(BASE), environment).migration == MigrationSettings(enabled=True, connect="z")


def test_tls_takes_pem_files(write: Write, tmp_path: Path) -> None:
    tls = {
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.location": "FOLDER/ca.pem",
    }
    assert load(write(SECURE | tls)).migration.tls == ZooKeeperTls(tmp_path / "ca.pem")
    own = {
        "zookeeper.ssl.keystore.location": "FOLDER/store.pem",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    assert load(write(SECURE | tls | own)).migration.tls == ZooKeeperTls(
        tmp_path / "ca.pem", tmp_path / "store.pem", check_host=False
    )
    # Kafka's settings without a meaning here change nothing.
    told = load(write(SECURE | tls | {"zookeeper.connection.timeout.ms": "1"})).warnings
    assert len(told) == 1
    assert "zookeeper.connection.timeout.ms is Kafka's" in told[0]


ENABLE = "zookeeper.metadata.migration.enable"
LISTENING = {
    "controller.listener.names": "CONTROLLER,KAFKA",
    "listeners": "CONTROLLER://127.0.0.1:9093,KAFKA://127.0.0.1:9094",
    "quorate.kafka.listener.name": "kafka",
}
TLS = {
    "ssl.keystore.location": "FOLDER/store.pem",
    "ssl.truststore.location": "FOLDER/ca.pem",
}
LISTENER = "quorate.kafka.listener.name"
FORWARDED = "quorate.kafka.forwarded.super.users"
MISCONFIGURATIONS: list[tuple[dict[str, str], list[str]]] = [
    # Values.
    ({ENABLE: "yes"}, [f"{ENABLE}=yes", "true, false"]),
    ({"zookeeper.connect": "a:x"}, ["zookeeper.connect=a:x", "not a port"]),
    ({"zookeeper.connect": "/root"}, ["zookeeper.connect=/root", "names no host"]),
    ({"zookeeper.connect": "a:1/"}, ["zookeeper.connect=a:1/", "is not a path"]),
    ({"zookeeper.session.timeout.ms": "0"}, ["zookeeper.session.timeout.ms=0"]),
    ({"zookeeper.metadata.migration.enabled": "true"}, [f"did you mean {ENABLE}?"]),
    # The migration without an ensemble.
    ({"zookeeper.connect": ""}, ["zookeeper.connect is not set", f"{ENABLE} is true"]),
    # The migration in a process that is a broker, too or only.
    (
        {"process.roles": "broker,controller"},
        [f"{ENABLE}=true", "process.roles must be controller"],
    ),
    ({"process.roles": "broker"}, [f"{ENABLE}=true", "process.roles must be controller"]),
    # What would protect less than its owner believes.
    ({"zookeeper.set.acl": "true"}, ["zookeeper.set.acl=true", "must be false"]),
    ({"zookeeper.ssl.keystore.password": "p"}, ["zookeeper.ssl.keystore.password", "decrypt it"]),
    ({"zookeeper.ssl.truststore.password": "p"}, ["zookeeper.ssl.truststore.password", "PEM"]),
    ({"zookeeper.ssl.crl.enable": "true"}, ["zookeeper.ssl.crl.enable is not supported"]),
    ({"zookeeper.ssl.ocsp.enable": "true"}, ["zookeeper.ssl.ocsp.enable is not supported"]),
    # TLS that lacks something.
    (
        {"zookeeper.ssl.client.enable": "true"},
        ["zookeeper.ssl.truststore.location is not set", "zookeeper.ssl.client.enable is true"],
    ),
    ({"zookeeper.ssl.truststore.type": "JKS"}, ["zookeeper.ssl.truststore.type=JKS", "PEM"]),
    ({"zookeeper.ssl.keystore.type": "JKS"}, ["zookeeper.ssl.keystore.type=JKS", "PEM"]),
    (
        {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "FOLDER/gone.pem",
        },
        ["zookeeper.ssl.truststore.location=", "gone.pem: cannot be read"],
    ),
    *(
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "FOLDER/ca.pem",
                "zookeeper.ssl.keystore.location": f"FOLDER/{file}",
            },
            ["zookeeper.ssl.keystore.location=", reason],
        )
        for file, reason in (("ca.pem", "contains no PEM private key"), ("locked.pem", "encrypted"))
    ),
    (
        {"zookeeper.ssl.endpoint.identification.algorithm": "LDAPS"},
        ["zookeeper.ssl.endpoint.identification.algorithm=LDAPS"],
    ),
    ({LISTENER: "KAFKA"}, [f"{LISTENER}=KAFKA", "not in controller.listener.names"]),
    ({LISTENER: "a b"}, [f"{LISTENER}=a b", "not a valid listener name"]),
    (LISTENING | {LISTENER: "CONTROLLER"}, [f"{LISTENER}=CONTROLLER", "the first of"]),
    (
        LISTENING | {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SSL"},
        ["ssl.certificate.location is not set", "the listener KAFKA is encrypted"],
    ),
    (
        LISTENING | {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SASL_SSL"},
        ["ssl.certificate.location is not set", "the listener KAFKA is encrypted"],
    ),
    (
        LISTENING | {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SASL_PLAINTEXT"},
        ["sasl.enabled.mechanisms=", "the listener KAFKA needs SASL mechanisms"],
    ),
    (
        LISTENING | {"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,KAFKA:PLAINTEXT"},
        ["CONTROLLER:SASL_PLAINTEXT: only PLAINTEXT and SSL are supported"],
    ),
    (LISTENING | {"max.connections": "1"}, ["max.connections=1"]),
    (LISTENING | {FORWARDED: "yes"}, [f"{FORWARDED}=yes", "deny, allow"]),
    (
        # Brokers' certificates say nothing about controllers.
        LISTENING
        | TLS
        | {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SSL",
            "quorate.controller.principals": "User:CN=node-1",
        },
        ["quorate.controller.principals=", "no listener is encrypted"],
    ),
]


@pytest.mark.parametrize(
    ("changes", "said"), MISCONFIGURATIONS, ids=lambda value: str(value)[:60].replace("/", ".")
)
def test_each_misconfiguration_ends_the_start_with_one_line_that_names_the_setting(
    write: Write, capsys: pytest.CaptureFixture[str], changes: dict[str, str], said: list[str]
) -> None:
    file = write(MIGRATING | changes)
    with pytest.raises(ConfigError) as caught:
        load(file)
    for text in (*said, "controller.properties"):
        assert text in str(caught.value)
    assert main(["controller", str(file)]) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [f"quorate: error: {caught.value}"]
    assert captured.out == ""


def test_the_extra_that_the_migration_needs_is_named(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    for name in [name for name in sys.modules if name.startswith("kazoo.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("quorate.migration.zk_migration_client", "quorate.migration.zookeeper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main(["controller", str(write(MIGRATING))]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{ENABLE}=true needs the extra 'migration'" in line
    assert "pip install 'quorate[migration]'" in line
    # Who does not migrate does not need it.
    assert main(["controller", str(write(BASE))]) == 1
    assert "/nowhere/quorate" in capsys.readouterr().err


def test_the_listener_for_kafkas_brokers_is_advertised_and_serves_no_grpc(write: Write) -> None:
    for values in (MIGRATING | LISTENING, BASE | LISTENING):
        config = load(write(values))
        assert config.kafka.name == "KAFKA"
        assert [endpoint.name for endpoint in config.endpoints] == ["CONTROLLER", "KAFKA"]
        assert [listener.name for listener in config.grpc_listeners] == ["CONTROLLER"]
        assert not config.warnings, "it goes on after the migration"
    config = load(write(MIGRATING | LISTENING | {"inter.broker.listener.name": "INTERNAL"}))
    assert config.migration.broker_listener == "INTERNAL"
    (warning,) = load(write(BASE | {"inter.broker.listener.name": "INTERNAL"})).warnings
    assert "inter.broker.listener.name has no effect" in warning


def test_the_listener_for_kafkas_brokers_has_limits_of_its_own(write: Write) -> None:
    found = load(write(BASE | LISTENING)).kafka
    assert (found.connections_max, found.connections_per_address_max) == (1_024, 256)
    assert not found.forwards_super_users
    limits = {"max.connections": "9", "max.connections.per.ip": "2147483647", FORWARDED: "allow"}
    config = load(write(BASE | LISTENING | limits))
    assert not config.warnings
    found = config.kafka
    assert (found.connections_max, found.connections_per_address_max) == (9, 2**31 - 1)
    assert found.forwards_super_users
    assert len(load(write(BASE | limits)).warnings) == 3, "nothing is limited without a listener"


def test_the_listener_for_kafkas_brokers_may_be_encrypted_alone(write: Write) -> None:
    protocols = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SSL"}
    config = load(write(BASE | LISTENING | TLS | protocols))
    assert [listener.tls for listener in config.listeners] == [False, True]
    assert config.kafka_listener_authenticates
    assert config.tls is not None
    assert not load(write(BASE | LISTENING)).kafka_listener_authenticates
