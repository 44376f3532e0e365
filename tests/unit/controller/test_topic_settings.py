"""The settings of the listener for Kafka's producers and consumers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import config_of
from quorate.controller.topic.listener import warn_of_callers
from quorate.process.properties import ConfigError

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.tools.documents import find_block

BASE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER,KAFKA,TOPIC",
    "listeners": "CONTROLLER://127.0.0.1:9093,KAFKA://127.0.0.1:9094,TOPIC://127.0.0.1:9095",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:PLAINTEXT,TOPIC:PLAINTEXT",
    "quorate.kafka.listener.name": "KAFKA",
    "quorate.topic.listener.name": "TOPIC",
    "log.dirs": "/var/lib/quorate",
}


def load(**changes: str | None) -> ControllerConfig:
    """Underscores in the names stand for dots."""
    named = {name.replace("_", "."): value for name, value in changes.items()}
    texts = {name: value for name, value in (BASE | named).items() if value is not None}
    return config_of(texts, "the test")


def refusal(**changes: str | None) -> str:
    with pytest.raises(ConfigError) as error:
        load(**changes)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_listener_speaks_no_grpc() -> None:
    config = load()
    assert (config.topic.listener, config.topic.name) == ("TOPIC", "records")
    assert [each.name for each in config.grpc_listeners] == ["CONTROLLER"]
    assert [each.name for each in config.endpoints] == ["CONTROLLER", "KAFKA", "TOPIC"]


def test_the_example_of_the_page() -> None:
    lines = find_block("docs/kafka-clients.md", "quorate.topic.listener.name").text.splitlines()
    shown = dict(line.split("=", 1) for line in lines)
    advertised = {"advertised.listeners": "CONTROLLER://a:9093,TOPIC://a:9095"}
    own = {name: BASE[name] for name in BASE if "kafka" not in name}
    config = config_of(own | shown | advertised, "the test")
    assert config.topic.listener == "TOPIC"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"quorate_topic_listener_name": "OTHER"}, "not in controller.listener.names"),
        ({"quorate_topic_listener_name": "CONTROLLER"}, "is for the controllers"),
        ({"quorate_topic_listener_name": "KAFKA"}, "serves Kafka's brokers"),
        ({"quorate_topic_name": "a/b"}, "quorate.topic.name"),
        ({"quorate_topic_producer_expiration_ms": "999"}, "too small"),
        (
            {
                "controller_quorum_voters": "1@127.0.0.1:9093",
                "controller_quorum_bootstrap_servers": None,
            },
            "static voters",
        ),
    ],
)
def test_what_is_rejected(changes: Mapping[str, str | None], said: str) -> None:
    assert said in refusal(**changes)


def test_settings_without_a_listener_have_no_effect() -> None:
    names = {"controller_listener_names": "CONTROLLER,KAFKA", "quorate_topic_listener_name": None}
    listeners = "CONTROLLER://127.0.0.1:9093,KAFKA://127.0.0.1:9094"
    config = load(**names, listeners=listeners, quorate_topic_name="mine")
    (warning,) = (each for each in config.warnings if "quorate.topic.name" in each)
    assert "has no effect without quorate.topic.listener.name" in warning


@needs_openssl
def test_each_listener_has_its_own_files_and_mechanisms(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    files = {}
    for name in ("node", "topic"):
        certificate, key = make_certificate(tmp_path, name, authority)
        prefix = "listener.name.topic." if name == "topic" else ""
        files |= {
            f"{prefix}ssl.certificate.location": str(certificate),
            f"{prefix}ssl.key.location": str(key),
            f"{prefix}ssl.ca.location": str(authority[0]),
        }
    protocols = "CONTROLLER:SSL,KAFKA:SSL,TOPIC:SASL_SSL"
    enabled = {"listener.name.topic.sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    config = load(listener_security_protocol_map=protocols, **files, **enabled)
    assert config.tls is not None
    assert config.topic_tls is not None
    assert config.kafka_tls == config.tls != config.topic_tls
    assert config.topic.security.sasl is not None
    assert config.topic.security.sasl.mechanisms == ("SCRAM-SHA-256",)
    assert config.kafka.security.sasl is None
    assert not [each for each in config.warnings if "mechanisms" in each]


@needs_openssl
def test_callers_without_authentication_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    authority = make_authority(tmp_path, "authority")
    certificate, key = make_certificate(tmp_path, "node", authority)
    files = {
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.ca.location": str(authority[0]),
    }
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:CN=admin",
    }
    protocols = "CONTROLLER:SSL,KAFKA:SSL,TOPIC:{}"

    def warned(protocol: str, more: Mapping[str, str]) -> str:
        caplog.clear()
        mapped = protocols.format(protocol)
        warn_of_callers(load(listener_security_protocol_map=mapped, **files, **more))
        return caplog.text

    assert "whoever can connect may append and read" in warned("PLAINTEXT", {})
    assert "rejects callers without a principal" in warned("PLAINTEXT", authorizer)
    assert warned("SSL", authorizer) == ""
