"""The settings of the listener for Kafka's brokers: protocols, SASL, certificates, secrets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quorate.bridge.authentication.sasl_config import OAuthConfig
from quorate.common.endpoints import Endpoint
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.controller.kafka import security
from quorate.controller.kafka.jaas import parse_jaas
from quorate.controller.security import node_authorizer
from quorate.process.properties import ConfigError
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.errors import TlsError

from tests.certificates import make_authority, make_certificate, needs_openssl

BASE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER,KAFKA",
    "listeners": "CONTROLLER://127.0.0.1:9093,KAFKA://127.0.0.1:9094",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SASL_PLAINTEXT",
    "quorate.kafka.listener.name": "KAFKA",
    "log.dirs": "/var/lib/quorate",
}
SECRET = "the users' secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="x" password="y" user_alice="{SECRET}";'
ENABLED = "listener.name.kafka.sasl.enabled.mechanisms"
PLAIN_JAAS = "listener.name.kafka.plain.sasl.jaas.config"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"

Load = Callable[..., ControllerConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(
        changes: dict[str, str | None], environment: dict[str, str] | None = None
    ) -> ControllerConfig:
        path = tmp_path / "controller.properties"
        settings = {**BASE, **changes}
        path.write_text("".join(f"{k}={v}\n" for k, v in settings.items() if v is not None))
        return load_config(path, environment or {})

    return load


def refusal(load: Load, changes: dict[str, str | None]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(changes)
    text = str(caught.value)
    assert "\n" not in text
    assert SECRET not in text
    return text


CLEAR: dict[str, str | None] = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:PLAINTEXT"
}
PEER_PROTOCOL = "quorate.peer.protocol"


def test_controllers_talk_over_grpc_unless_told_otherwise(load: Load) -> None:
    config = load(CLEAR)
    assert not config.kafka.serves_voters
    assert [each.name for each in config.bootstrap_endpoints] == ["CONTROLLER"]
    config = load({**CLEAR, PEER_PROTOCOL: "kafka"})
    assert config.kafka.serves_voters
    assert [each.name for each in config.bootstrap_endpoints] == ["KAFKA"]
    assert config.warnings == ()
    key, endpoint = ReplicaKey(2, "B" * 21 + "A"), Endpoint("KAFKA", "two", 9094)
    kafkas = VoterSet((Voter(key, (endpoint,)),))
    assert not len(config.without_grpc_endpoint(kafkas))
    assert len(load(CLEAR).without_grpc_endpoint(kafkas)) == 1


def test_controllers_need_a_listener_without_sasl_for_kafkas_protocol(load: Load) -> None:
    lacking = {PEER_PROTOCOL: "kafka", "quorate.kafka.listener.name": None}
    text = refusal(load, {**CLEAR, **lacking})
    assert "kafka requires quorate.kafka.listener.name" in text
    text = refusal(load, {ENABLED: "SCRAM-SHA-256", PEER_PROTOCOL: "kafka"})
    assert "controllers do not authenticate to each other with SASL: map KAFKA to SSL" in text
    assert "grpc, kafka" in refusal(load, {**CLEAR, PEER_PROTOCOL: "http"})


@needs_openssl
@pytest.mark.parametrize(
    ("protocol", "client_auth"), [("PLAINTEXT", None), ("SSL", "requested"), ("SSL", "none")]
)
def test_controllers_authenticate_to_each_other_over_kafkas_protocol_too(
    load: Load, tmp_path: Path, protocol: str, client_auth: str | None
) -> None:
    authority = make_authority(tmp_path, "authority")
    certificate, key = make_certificate(tmp_path, "controllers", authority)
    changes: dict[str, str | None] = {
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.ca.location": str(authority[0]),
        PEER_PROTOCOL: "kafka",
    }
    mapped = {"listener.security.protocol.map": f"CONTROLLER:SSL,KAFKA:{protocol}"}
    own = {"listener.name.kafka.ssl.client.auth": client_auth}
    text = refusal(load, {**changes, **mapped, **own})
    assert "controllers would not authenticate to each other: map KAFKA to SSL" in text
    encrypted = {"listener.security.protocol.map": "CONTROLLER:SSL,KAFKA:SSL"}
    assert load({**changes, **encrypted}).kafka.serves_voters
    assert not load({**changes, **mapped, **own, PEER_PROTOCOL: "grpc"}).kafka.serves_voters


@needs_openssl
def test_the_certificate_that_peers_see_over_kafkas_protocol_must_name_the_node(
    load: Load, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path, "authority")
    own = make_certificate(tmp_path, "own", authority, names=("node-1",))
    foreign = make_certificate(tmp_path, "foreign", authority, names=("node-2",))
    changes: dict[str, str | None] = {
        "listener.security.protocol.map": "CONTROLLER:SSL,KAFKA:SSL",
        "ssl.certificate.location": str(own[0]),
        "ssl.key.location": str(own[1]),
        "ssl.ca.location": str(authority[0]),
    }
    other = {
        "listener.name.kafka.ssl.certificate.location": str(foreign[0]),
        "listener.name.kafka.ssl.key.location": str(foreign[1]),
    }
    assert node_authorizer(load({**changes, PEER_PROTOCOL: "kafka"})) is not None
    assert node_authorizer(load({**changes, **other})) is not None
    with pytest.raises(TlsError, match=r"foreign.* does not name node 1"):
        node_authorizer(load({**changes, **other, PEER_PROTOCOL: "kafka"}))


def test_settings_of_other_processes_listeners_are_only_warned_of(load: Load) -> None:
    password, store = "ssl.key.password", "ssl.keystore.type"
    others = {f"listener.name.internal.{password}": "x", f"listener.name.internal.{store}": "JKS"}
    found = load({**CLEAR, **others}).warnings
    assert len(found) == 2
    assert all("listener.name.internal.ssl.key" in each for each in found)
    assert "is not supported" in refusal(load, {**CLEAR, f"listener.name.kafka.{password}": "x"})


def test_plain_with_kafkas_jaas_line(load: Load) -> None:
    config = load({ENABLED: "PLAIN, SCRAM-SHA-256", PLAIN_JAAS: JAAS})
    sasl = config.kafka.security.sasl
    assert sasl is not None
    assert sasl.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert sasl.users == {"alice": SECRET}
    assert (sasl.receive_bytes_max, sasl.failure_delay_ms) == (524_288, 100)
    assert dict(sasl.reauth_ms) == {"PLAIN": 0, "SCRAM-SHA-256": 0}
    assert config.kafka_listener_authenticates
    assert config.warnings == ()
    assert [each.sasl for each in config.listeners] == [False, True]


def test_secrets_are_nowhere(load: Load) -> None:
    changes = {ENABLED: "PLAIN", PLAIN_JAAS: JAAS, "delegation.token.secret.key": SECRET}
    config = load(changes)
    assert config.metadata.token_secret_key == SECRET
    assert SECRET not in repr(config)
    assert SECRET not in repr(parse_jaas(JAAS))


def test_the_most_specific_name_applies(load: Load) -> None:
    config = load(
        {
            "sasl.enabled.mechanisms": "GSSAPI",
            ENABLED: "SCRAM-SHA-512,SCRAM-SHA-256",
            "connections.max.reauth.ms": "1",
            "listener.name.kafka.connections.max.reauth.ms": "2",
            "listener.name.kafka.scram-sha-512.connections.max.reauth.ms": "3",
            "listener.name.other.connections.max.reauth.ms": "4",
            "sasl.server.max.receive.size": "1000",
            "connection.failed.authentication.delay.ms": "7",
        }
    )
    sasl = config.kafka.security.sasl
    assert sasl is not None
    assert dict(sasl.reauth_ms) == {"SCRAM-SHA-512": 3, "SCRAM-SHA-256": 2}
    assert (sasl.receive_bytes_max, sasl.failure_delay_ms) == (1_000, 7)
    (warning,) = config.warnings
    assert "listener.name.other.connections.max.reauth.ms has no effect" in warning


def test_the_environment_overrides_the_file(load: Load) -> None:
    config = load(
        {ENABLED: "SCRAM-SHA-256"},
        {
            "QUORATE_LISTENER_NAME_KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-512",
            "QUORATE_LISTENER_NAME_KAFKA_PLAIN_SASL_JAAS_CONFIG": JAAS,
            "QUORATE_LISTENER_NAME_KAFKA_SCRAM_SHA_512_CONNECTIONS_MAX_REAUTH_MS": "5",
        },
    )
    sasl = config.kafka.security.sasl
    assert sasl is not None
    assert sasl.users == {"alice": SECRET}
    assert dict(sasl.reauth_ms) == {"PLAIN": 0, "SCRAM-SHA-512": 5}


def test_oauthbearer(load: Load) -> None:
    prefix = "listener.name.kafka.oauthbearer.sasl.oauthbearer."
    config = load(
        {
            ENABLED: "OAUTHBEARER",
            JWKS: "https://general/keys",
            f"{prefix}jwks.endpoint.url": "https://idp/keys",
            f"{prefix}expected.audience": "a,b",
            f"{prefix}expected.issuer": "https://idp",
            "sasl.oauthbearer.clock.skew.seconds": "5",
            "sasl.oauthbearer.sub.claim.name": "name",
        }
    )
    sasl = config.kafka.security.sasl
    assert sasl is not None
    assert sasl.oauth == OAuthConfig(
        "https://idp/keys",
        audiences=("a", "b"),
        issuer="https://idp",
        clock_skew_s=5,
        subject_claim="name",
    )


def test_a_missing_extra_is_one_line(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security.importlib.util, "find_spec", lambda _name: None)
    said = refusal(load, {ENABLED: "OAUTHBEARER", JWKS: "https://idp/keys"})
    assert "OAUTHBEARER needs the extra oauth" in said


BAD: list[tuple[dict[str, str | None], str]] = [
    ({}, "needs SASL mechanisms; supported: PLAIN"),
    ({ENABLED: ""}, "needs SASL mechanisms"),
    ({ENABLED: "GSSAPI"}, "GSSAPI is not supported; supported: PLAIN"),
    ({ENABLED: "plain"}, "plain is not supported"),
    ({ENABLED: "PLAIN"}, f"PLAIN on the listener KAFKA needs {PLAIN_JAAS}"),
    ({ENABLED: "PLAIN", "sasl.jaas.config": JAAS}, f"needs {PLAIN_JAAS}"),
    ({ENABLED: "PLAIN", PLAIN_JAAS: f"{MODULE} required;"}, "it names no user"),
    ({ENABLED: "PLAIN", PLAIN_JAAS: JAAS[:-1]}, f"{PLAIN_JAAS}=[hidden]: not `LoginModule"),
    ({ENABLED: "PLAIN", PLAIN_JAAS: JAAS.replace("Plain", "Scram")}, "the login module is not"),
    ({ENABLED: "PLAIN", PLAIN_JAAS: JAAS.replace(SECRET, "")}, "no name or no password"),
    ({ENABLED: "PLAIN", PLAIN_JAAS: JAAS.replace('"y"', '"y')}, "[hidden]"),
    ({ENABLED: "PLAIN", PLAIN_JAAS: JAAS.replace("required", "mandatory")}, "control flags"),
    ({ENABLED: "OAUTHBEARER"}, f"{JWKS} is not set, and OAUTHBEARER is enabled"),
    ({ENABLED: "OAUTHBEARER", JWKS: "ftp://x/y"}, "not an https:, http: or file: URL"),
    ({ENABLED: "OAUTHBEARER", JWKS: "file://other/y"}, "not an https:, http: or file: URL"),
    ({ENABLED: "PLAIN", "sasl.server.callback.handler.class": "com.example.Mine"}, "accepted"),
    ({ENABLED: "PLAIN", "delegation.token.max.lifetime.ms": "0"}, "too small"),
    (
        {"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,KAFKA:PLAINTEXT"},
        "CONTROLLER:SASL_PLAINTEXT: only PLAINTEXT and SSL are supported, except on listeners",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), BAD)
def test_what_is_refused(load: Load, changes: dict[str, str | None], reason: str) -> None:
    assert reason in refusal(load, changes)


# --- certificates ---------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str | None]:
    pem = tmp_path / "all.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n")
    names = ("ssl.certificate.location", "ssl.key.location", "ssl.ca.location")
    return dict.fromkeys(names, str(pem))


@pytest.mark.parametrize(
    ("protocol", "changes", "expected"),
    [
        ("SSL", {}, "required"),
        ("SSL", {"ssl.client.auth": "none"}, "none"),
        ("SSL", {"ssl.client.auth": "none", "listener.name.kafka.ssl.client.auth": "requested"},
         "requested"),
        ("SASL_SSL", {}, "none"),
        ("SASL_SSL", {"ssl.client.auth": "required"}, "none"),
        ("SASL_SSL", {"listener.name.kafka.ssl.client.auth": "required"}, "required"),
    ],
)  # fmt: skip
def test_client_certificates_as_kafka_defines(
    load: Load, files: dict[str, Any], protocol: str, changes: dict[str, Any], expected: str
) -> None:
    mapped = f"CONTROLLER:PLAINTEXT,KAFKA:{protocol}"
    sasl = {ENABLED: "SCRAM-SHA-256"} if protocol == "SASL_SSL" else {}
    config = load({**files, "listener.security.protocol.map": mapped, **sasl, **changes})
    assert config.kafka.security.client_auth == expected
    authenticates = protocol == "SASL_SSL" or expected == "required"
    assert config.kafka_listener_authenticates is authenticates


def test_grpc_always_requires_client_certificates(load: Load, files: dict[str, Any]) -> None:
    mapped = {"listener.security.protocol.map": "CONTROLLER:SSL,KAFKA:SSL"}
    said = refusal(load, {**files, **mapped, "ssl.client.auth": "requested"})
    assert "the listener CONTROLLER requires client certificates" in said
    config = load({**files, **mapped, "listener.name.kafka.ssl.client.auth": "requested"})
    assert config.kafka.security.client_auth == "requested"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a required;", {}),
        ("a REQUIRED b=c;", {"b": "c"}),
        ("a required b = 'c d';", {"b": "c d"}),
        (r'a required b="c\"d\\e\n";', {"b": 'c"d\\e\n'}),
        ('a required /* x */ b="c" // y\n;', {"b": "c"}),
        ('a required b="=;";', {"b": "=;"}),
        (r'a required b="\101";', {"b": "A"}),
    ],
)
def test_jaas(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.options) == ("a", options)


@pytest.mark.parametrize(
    "text",
    ["", ";", "a;", "a required", "a required; b required;", "a required b;", "a required b=;",
     'a required b"="c;', "a required b=c d;", 'a required b="c;', "a x b=c;",
     "a required ;;"],
)  # fmt: skip
def test_what_is_no_login_module(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(not|the word|an option|a quotation)"):
        parse_jaas(text)
