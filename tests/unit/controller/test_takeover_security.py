"""`quorate takeover` of controllers that use TLS or SASL: what is kept, and what would not work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.controller.takeover import configuration, settings
from quorate.controller.takeover.finding import TakeoverCheck

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import CLUSTER, assert_error, here
from tests.unit.controller.test_takeover import failures, kafka, voters

PREFIX = "listener.name.controller."
MAP = "listener.security.protocol.map"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:controller",
}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = "the users' secret"
JAAS = f'{MODULE} required username="controller" password="x" user_broker="{SECRET}";'
SASL = {
    f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": JAAS,
    f"{PREFIX}scram-sha-512.sasl.jaas.config": "org.example.ScramLoginModule required;",
    "sasl.mechanism.controller.protocol": "PLAIN",
}

Changes = dict[str, str | None]
Stores = Callable[..., Changes]


def made(tmp_path: Path, changes: Changes) -> dict[str, str]:
    return settings.quorates_settings(kafka(tmp_path, **changes), voters(), tmp_path)


def checked(
    tmp_path: Path, changes: Changes
) -> tuple[ControllerConfig | None, list[TakeoverCheck]]:
    return configuration.check_configuration(made(tmp_path, changes), None)


def texts(found: list[TakeoverCheck]) -> str:
    return "\n".join(f"{each.state} {each.text}: {each.todo}" for each in found)


def secured(protocol: str, *changes: Changes) -> Changes:
    """Kafka's settings of a listener with this protocol. changes: further ones."""
    found = {MAP: f"CONTROLLER:{protocol}"}
    for each in changes:
        found |= each
    return found


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Makes PEM stores of node 2 at c2, as Kafka's settings with a prefix."""
    folder = tmp_path_factory.mktemp("stores")
    authorities = [make_authority(folder, name) for name in ("ours", "others")]

    def make(
        *names: str, usage: str = "", prefix: str = PREFIX, trusted: int = 0, rules: str = ""
    ) -> Changes:
        files = make_certificate(folder, "controller-2", authorities[0], names, usage)
        store = folder / f"{'-'.join((*names, usage))}.pem"
        store.write_text("".join(each.read_text() for each in files))
        mapping = {f"{prefix}ssl.principal.mapping.rules": rules} if rules else {}
        return mapping | {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(store),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(authorities[trusted][0]),
        }

    return make


MAPPED = "RULE:^CN=controller-[0-9]+$/controller/"


@needs_openssl
def test_sasl_ssl_is_kept_with_its_prefixed_settings(tmp_path: Path, stores: Stores) -> None:
    files = stores("c2", "node-2", rules=MAPPED)
    others = {"ssl.keystore.location": "/other.jks", "sasl.enabled.mechanisms": "GSSAPI"}
    changes = secured("SASL_SSL", SASL, AUTHORIZER, others, files, {"ssl.client.auth": "none"})
    config, found = checked(tmp_path, changes)
    assert config is not None, texts(found)
    assert not failures(found)
    assert config.warnings == ()
    assert [(e.name, e.tls, e.sasl) for e in config.listeners] == [
        ("RAFT", True, False),
        ("CONTROLLER", True, True),
    ]
    sasl = config.kafka.security.sasl
    assert sasl is not None
    assert sasl.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert sasl.users == {"broker": SECRET}
    assert config.tls == config.kafka_tls
    assert config.tls is not None
    assert str(config.tls.key) == files[f"{PREFIX}ssl.keystore.location"]
    assert "RAFT is SSL: controllers know this one as User:controller" in texts(found)
    written = made(tmp_path, changes)
    assert not [name for name in written if "scram" in name or "sasl.mechanism" in name]


def test_sasl_plaintext_leaves_raft_without_authentication(tmp_path: Path) -> None:
    config, found = checked(tmp_path, secured("SASL_PLAINTEXT", SASL))
    assert config is not None, texts(found)
    assert [(e.name, e.tls, e.sasl) for e in config.listeners] == [
        ("RAFT", False, False),
        ("CONTROLLER", False, True),
    ]
    assert not failures(found)
    assert "note RAFT has no authentication and no encryption" in texts(found)


def test_an_authorizer_rejects_controllers_without_authentication(tmp_path: Path) -> None:
    changes = secured("SASL_PLAINTEXT", SASL, AUTHORIZER)
    _, found = checked(tmp_path, changes)
    (wrong,) = failures(found)
    assert "controllers would reject each other's requests on RAFT" in wrong.text
    assert "map RAFT to SSL" in wrong.todo
    _, found = checked(tmp_path, {**changes, "super.users": "User:controller;User:ANONYMOUS"})
    assert not failures(found)


@needs_openssl
@pytest.mark.parametrize(
    ("store", "more", "said"),
    [
        ((["c2", "node-2"], {}), AUTHORIZER, "super.users lacks User:CN=controller-2"),
        ((["elsewhere", "node-2"], {}), {}, "not valid for 'c2'"),
        ((["c2", "node-2"], {"trusted": 1}), {}, "unable to get local issuer"),
        ((["c2", "node-2"], {"usage": "serverAuth"}), {}, "certificate purpose"),
        ((["c2"], {}), {}, "has no DNS name node-2, by which controllers identify"),
    ],
)
def test_certificates_that_other_controllers_reject(
    tmp_path: Path,
    stores: Stores,
    store: tuple[list[str], dict[str, Any]],
    more: Changes,
    said: str,
) -> None:
    config, found = checked(
        tmp_path, secured("SASL_SSL", SASL, stores(*store[0], **store[1]), more)
    )
    assert config is not None, texts(found)
    (wrong,) = failures(found)
    assert said in wrong.text
    assert wrong.todo


@needs_openssl
def test_a_principal_may_stand_for_a_node(tmp_path: Path, stores: Stores) -> None:
    named = {"quorate.controller.principals": "2@User:CN=controller-2"}
    written = made(tmp_path, secured("SASL_SSL", SASL, stores("c2"))) | named
    _, found = configuration.check_configuration(written, None)
    assert not failures(found)


@needs_openssl
@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ({}, "none"),
        ({"ssl.client.auth": "requested"}, "requested"),
        ({"ssl.client.auth": "none", f"{PREFIX}ssl.client.auth": "required"}, "required"),
    ],
)
def test_client_certificates_stay_as_necessary_as_they_were(
    tmp_path: Path, stores: Stores, auth: Changes, expected: str
) -> None:
    """Kafka's default is none, Quorate's is required."""
    changes = secured("SSL", stores("c2", "node-2", prefix=""), auth)
    config, found = checked(tmp_path, changes)
    assert config is not None, texts(found)
    assert config.kafka.security.client_auth == expected
    assert not failures(found)
    listener = settings.check_listener(kafka(tmp_path, **changes), voters())
    assert f"CONTROLLER is SSL, ssl.client.auth={expected}" in texts(list(listener))


def test_a_listener_named_like_a_protocol_needs_no_map(tmp_path: Path) -> None:
    changes = {
        MAP: None,
        "controller.listener.names": "SASL_PLAINTEXT",
        "listeners": "SASL_PLAINTEXT://c2:9093",
    }
    found = kafka(tmp_path, **changes)
    written = settings.quorates_settings(found, voters("SASL_PLAINTEXT"), tmp_path)
    assert written[MAP] == "RAFT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"


def test_prefixed_limits_are_kept_and_those_of_other_listeners_are_not(tmp_path: Path) -> None:
    changes = {
        "max.connections": "100",
        f"{PREFIX}max.connections": "50",
        "listener.name.client.max.connections": "10",
        "listener.name.client.plain.sasl.jaas.config": JAAS,
        "listener.name.client.ssl.key.password": SECRET,
    }
    written = made(tmp_path, changes)
    assert written["max.connections"] == "50"
    assert not [name for name in written if name.startswith("listener.name.")]
    found = list(settings.check_settings(kafka(tmp_path, **changes)))
    assert not failures(found)
    assert "listener.name.client.ssl.key.password" in texts(found)
    assert SECRET not in texts(found)


@pytest.mark.parametrize(
    ("changes", "name", "todo"),
    [
        (
            {"ssl.keystore.type": "JKS", "ssl.keystore.location": "/k.jks"},
            "ssl.keystore.type",
            "keytool -importkeystore -srckeystore /k.jks",
        ),
        (
            {f"{PREFIX}ssl.keystore.location": "/k.jks", "ssl.keystore.location": "/other"},
            f"{PREFIX}ssl.keystore.location",
            "keytool -importkeystore -srckeystore /k.jks",
        ),
        (
            {"ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12"},
            "ssl.truststore.type",
            "keytool -list -rfc -keystore /t.p12",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem",
             f"{PREFIX}ssl.key.password": SECRET},
            f"{PREFIX}ssl.key.password",
            "openssl pkey -in /k.pem",
        ),
        ({f"{PREFIX}ssl.keystore.key": SECRET}, f"{PREFIX}ssl.keystore.key", "ssl.key.location"),
        (
            {f"{PREFIX}plain.sasl.server.callback.handler.class": "org.example.Handler"},
            f"{PREFIX}plain.sasl.server.callback.handler.class",
            "accepted:",
        ),
        (
            {"config.providers": "file", "delegation.token.secret.key": "${file:/secrets:key}"},
            "delegation.token.secret.key",
            "config providers",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_kept(tmp_path: Path, changes: Changes, name: str, todo: str) -> None:
    target = kafka(tmp_path, **secured("SASL_SSL", changes))
    (found,) = failures(settings.check_settings(target))
    assert f"{name} is rejected" in found.text
    assert todo in found.todo
    assert "\n" not in found.todo
    assert SECRET not in texts([found])
    noted = list(settings.check_settings(target, tmp_path / "quorate.properties"))
    assert not failures(noted)
    assert f"{name} cannot be kept" in texts(noted)


def test_the_key_of_a_java_store_is_decrypted_by_its_conversion(tmp_path: Path) -> None:
    changes = {"ssl.keystore.location": "/k.jks", "ssl.key.password": SECRET}
    found = failures(settings.check_settings(kafka(tmp_path, **secured("SSL", changes))))
    assert [each.text.split()[1] for each in found] == [
        "ssl.keystore.location",
        "ssl.key.password",
    ]
    assert "openssl pkey" not in texts(found)


def test_kafkas_client_mechanism_is_explained(tmp_path: Path) -> None:
    target = kafka(tmp_path, **secured("SASL_PLAINTEXT", SASL))
    noted = texts(list(settings.check_listener(target, voters())))
    assert "sasl.mechanism.controller.protocol is for Kafka's controllers only" in noted
    ignored = texts(list(settings.check_settings(target)))
    assert "sasl.mechanism.controller.protocol" not in ignored
    assert f"{PREFIX}scram-sha-512.sasl.jaas.config" in ignored


def test_controllers_with_sasl_are_not_asked(tmp_path: Path) -> None:
    target = kafka(tmp_path, **secured("SASL_PLAINTEXT", SASL))
    ran = here("takeover", "check", "-c", target.path, "--bootstrap-controller", "127.0.0.1:1")
    assert_error(ran, "CONTROLLER is SASL_PLAINTEXT", "leave out --bootstrap-controller", status=2)


def test_a_value_of_several_lines_is_printed_on_one(tmp_path: Path) -> None:
    static = {
        "log.dirs": str(tmp_path / "log"),
        "controller.quorum.bootstrap.servers": None,
        "controller.quorum.voters": "1@c1:9093,2@c2:9093,3@c3:9093",
    }
    how = ("--feature", "kraft.version=0", "-t", CLUSTER, "-c")
    assert here("storage", "format", *how, kafka(tmp_path, **static).path).status == 0
    lines = {f"{PREFIX}plain.sasl.jaas.config": JAAS.replace(" user_", "\\n\\tuser_")}
    target = kafka(tmp_path, **static, **secured("SASL_PLAINTEXT", SASL, lines))
    assert "\n\tuser_" in target.texts[f"{PREFIX}plain.sasl.jaas.config"]
    ran = here("takeover", "config", "--config", target.path)
    assert ran.status == 0, ran
    path = tmp_path / "quorate.properties"
    path.write_text(ran.out)
    sasl = load_config(path, {}).kafka.security.sasl
    assert sasl is not None
    assert sasl.users == {"broker": SECRET}
