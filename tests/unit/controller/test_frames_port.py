"""Where a controller takes appends in frames: only if nobody gets in that gRPC would reject."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.unit.controller.test_kafka_security import Load, load

__all__ = ["load"]

CLEAR = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:PLAINTEXT"}
SECURE = {"listener.security.protocol.map": "CONTROLLER:SSL,KAFKA:SSL"}


def test_it_is_the_port_of_the_listener_for_kafkas_brokers(load: Load) -> None:
    assert load(CLEAR).frames_port == 9094


def test_it_is_the_advertised_one(load: Load) -> None:
    advertised = "CONTROLLER://here:1,KAFKA://here:29094"
    assert load({**CLEAR, "advertised.listeners": advertised}).frames_port == 29094


@pytest.mark.parametrize(
    "changes",
    [
        {"quorate.kafka.listener.name": None, "controller.listener.names": "CONTROLLER"},
        {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SASL_PLAINTEXT"},
        {"advertised.listeners": "CONTROLLER://here:1,KAFKA://there:2"},
    ],
    ids=["no listener", "SASL", "another host"],
)
def test_there_is_none(load: Load, changes: dict[str, str | None]) -> None:
    if "quorate.kafka.listener.name" in changes:
        changes = {**changes, "listeners": "CONTROLLER://127.0.0.1:9093"}
    elif "advertised.listeners" in changes:
        changes = {**CLEAR, **changes}
    else:
        changes = {
            **changes,
            "listener.name.kafka.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
    assert load(changes).frames_port == 0


@needs_openssl
def test_with_tls_the_files_are_the_same_and_clients_have_certificates(
    load: Load, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path, "authority")
    certificate, key = make_certificate(tmp_path, "controller", authority)
    other, other_key = make_certificate(tmp_path, "other", authority)
    files = {
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.ca.location": str(authority[0]),
    }
    assert load({**SECURE, **files}).frames_port == 9094
    requested = {"listener.name.kafka.ssl.client.auth": "requested"}
    assert load({**SECURE, **files, **requested}).frames_port == 0
    others = {
        "listener.name.kafka.ssl.certificate.location": str(other),
        "listener.name.kafka.ssl.key.location": str(other_key),
    }
    assert load({**SECURE, **files, **others}).frames_port == 0
    half = {"listener.security.protocol.map": "CONTROLLER:SSL,KAFKA:PLAINTEXT"}
    assert load({**half, **files}).frames_port == 0
