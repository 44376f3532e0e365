"""The TLS files of one listener: Kafka's prefix takes precedence, and its limits are enforced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.process.properties import ConfigError

BASE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "controller.listener.names": "A,B,KAFKA",
    "listeners": "A://127.0.0.1:9093,B://127.0.0.1:9094,KAFKA://127.0.0.1:9095",
    "listener.security.protocol.map": "A:SSL,B:SSL,KAFKA:SSL",
    "quorate.kafka.listener.name": "KAFKA",
    "log.dirs": "/var/lib/quorate",
}
KEY_STORE, TRUST_STORE = "ssl.keystore.location", "ssl.truststore.location"
KAFKAS = "listener.name.kafka."

Load = Callable[..., ControllerConfig]


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    made = [tmp_path / "all.pem", tmp_path / "kafkas.pem"]
    for path in made:
        path.write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n")
    return list(map(str, made))


@pytest.fixture
def load(tmp_path: Path, stores: list[str]) -> Load:
    both = {KEY_STORE: stores[0], TRUST_STORE: stores[0]}

    def load(
        changes: dict[str, str], environment: dict[str, str] | None = None
    ) -> ControllerConfig:
        path = tmp_path / "controller.properties"
        settings = {**BASE, **both, **changes}
        path.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        return load_config(path, environment or {})

    return load


def test_the_listener_for_kafkas_brokers_has_its_own_files(load: Load, stores: list[str]) -> None:
    config = load({f"{KAFKAS}{KEY_STORE}": stores[1], f"{KAFKAS}ssl.keystore.type": "PEM"})
    assert config.tls is not None
    assert config.kafka_tls is not None
    assert [str(config.tls.certificate), str(config.kafka_tls.certificate)] == stores
    assert [str(config.tls.key), str(config.kafka_tls.key)] == stores
    assert config.kafka_tls.ca == config.tls.ca
    assert config.warnings == ()


def test_a_prefix_precedes_the_name_that_precedes_it_without(load: Load, stores: list[str]) -> None:
    """Of two names without a prefix, Quorate's own applies."""
    own = {"ssl.ca.location": stores[0]}
    config = load({**own, f"{KAFKAS}{TRUST_STORE}": stores[1]})
    assert config.kafka_tls is not None
    assert str(config.kafka_tls.ca) == stores[1]
    config = load({**own, TRUST_STORE: stores[1]})
    assert config.kafka_tls is not None
    assert str(config.kafka_tls.ca) == stores[0]


def test_the_environment_has_the_prefix_too(load: Load, stores: list[str]) -> None:
    config = load({}, {"QUORATE_LISTENER_NAME_KAFKA_SSL_TRUSTSTORE_LOCATION": stores[1]})
    assert config.kafka_tls is not None
    assert str(config.kafka_tls.ca) == stores[1]


def test_only_kafkas_listener_is_encrypted(load: Load, stores: list[str]) -> None:
    changes = {
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,KAFKA:SSL",
        f"{KAFKAS}{KEY_STORE}": stores[1],
        "listener.name.a.ssl.keystore.location": "/gone",
    }
    config = load(changes)
    assert config.tls == config.kafka_tls
    (warning,) = config.warnings
    assert "listener.name.a.ssl.keystore.location has no effect" in warning


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"listener.name.b.{TRUST_STORE}": "kafkas.pem"}, "A and B have different TLS files"),
        ({f"{KAFKAS}{KEY_STORE}": "gone.pem"}, f"{KAFKAS}{KEY_STORE}"),
        ({f"{KAFKAS}ssl.keystore.type": "JKS"}, "accepted: PEM"),
        ({f"{KAFKAS}ssl.key.password": "secret"}, "an encrypted private key is not supported"),
        ({f"{KAFKAS}ssl.keystore.key": "secret"}, "write the key to a file"),
        ({f"{KAFKAS}ssl.truststore.certificates": "x"}, "write them to a file"),
    ],
)
def test_files_that_cannot_be_used(
    load: Load, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    named = {k: str(tmp_path / v) if v.endswith(".pem") else v for k, v in changes.items()}
    with pytest.raises(ConfigError) as caught:
        load(named)
    text = str(caught.value)
    assert said in text
    assert "secret" not in text
    assert "\n" not in text
