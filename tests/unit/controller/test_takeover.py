"""`quorate takeover`: what is found in Kafka's settings and metadata, and what it comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.controller.takeover import configuration, metadata, settings
from quorate.controller.takeover.finding import CheckState, TakeoverCheck
from quorate.controller.takeover.kafka_settings import KafkaSettings
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.process.properties import ConfigError
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records import metadata as rec

from tests.integration.support import CLUSTER, here

KAFKAS = {
    "process.roles": "controller",
    "node.id": "2",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://c2:9093",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.quorum.bootstrap.servers": "c1:9093,c2:9093,c3:9093",
    "log.dirs": "/var/lib/kafka",
    "num.network.threads": "3",
}


def voters(listener: str = "CONTROLLER") -> VoterSet:
    return VoterSet.of(
        Voter(ReplicaKey(i, f"{'A' * 20}{i}A"), (Endpoint(listener, f"c{i}", 9093),))
        for i in (1, 2, 3)
    )


def kafka(tmp_path: Path, **changes: str | None) -> KafkaSettings:
    """With changes to KAFKAS, whose names have `_` for `.`; None removes a setting."""
    texts = KAFKAS | {name.replace("_", "."): text for name, text in changes.items()}
    path = tmp_path / "kafka.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in texts.items() if v is not None))
    return KafkaSettings.read(path)


def configured(
    tmp_path: Path, **changes: str | None
) -> tuple[ControllerConfig, list[TakeoverCheck]]:
    found = kafka(tmp_path, **changes)
    made = settings.quorates_settings(found, voters(), Path("/var/lib/kafka"))
    config, findings = configuration.check_configuration(made, None)
    assert config is not None, findings
    return config, findings


def failures(found: Any) -> list[TakeoverCheck]:
    return [each for each in found if each.state is CheckState.FAILED]


def test_quorates_settings_keep_what_brokers_dial(tmp_path: Path) -> None:
    config, found = configured(tmp_path)
    assert not failures(found)
    assert list(map(str, config.endpoints)) == ["RAFT://c2:9193", "CONTROLLER://c2:9093"]
    assert config.kafka.name == "CONTROLLER"
    assert list(map(str, config.bootstrap_servers)) == ["c1:9193", "c2:9193", "c3:9193"]
    assert config.metadata_log_dir == Path("/var/lib/kafka")
    assert not failures(configuration.check_match(config, voters(), 2))
    assert not config.warnings


def test_advertised_addresses_and_auto_join_are_kept(tmp_path: Path) -> None:
    config, _ = configured(
        tmp_path,
        listeners="CONTROLLER://:9093",
        advertised_listeners="CONTROLLER://c2:9093",
        controller_quorum_auto_join_enable="true",
    )
    assert list(map(str, config.endpoints)) == ["RAFT://c2:9193", "CONTROLLER://c2:9093"]
    assert [listener.port for listener in config.listeners] == [9193, 9093]
    assert config.raft.auto_join


def test_the_printed_file_is_accepted_as_it_is(tmp_path: Path) -> None:
    """Backslashes, too, are printed as a properties file has them."""
    target = kafka(
        tmp_path,
        controller_quorum_bootstrap_servers=None,
        controller_quorum_voters="1@c1:9093,2@c2:9093,3@c3:9093",
        log_dirs=str(tmp_path),
        ssl_principal_mapping_rules="RULE:^CN=(.*)\\\\.x$/$1/",
    )
    assert (
        here(
            "storage", "format", "--feature", "kraft.version=0", "-t", CLUSTER, "-c", target.path
        ).status
        == 0
    )
    ran = here("takeover", "config", "--config", target.path)
    assert ran.status == 0, ran
    path = tmp_path / "quorate.properties"
    path.write_text(ran.out)
    config = load_config(path, {})
    assert config.endpoints == configured(tmp_path)[0].endpoints
    assert (
        KafkaSettings.read(path).texts["ssl.principal.mapping.rules"]
        == (target.texts["ssl.principal.mapping.rules"])
    )


def test_a_port_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    found = kafka(tmp_path, listeners="CONTROLLER://c2:65500")
    with pytest.raises(ConfigError, match="--port-offset"):
        settings.quorates_settings(found, voters(), tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"process_roles": "broker,controller"}, "also a broker"),
        ({"ssl_key_password": "secret"}, "ssl.key.password"),
        ({"broker_session_timeout_ms": "soon"}, "broker.session.timeout.ms"),
        ({"nonsense_setting": "1"}, "nonsense.setting"),
    ],
)
def test_settings_that_prevent_the_takeover(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    (found,) = failures(settings.check_settings(kafka(tmp_path, **changes)))
    assert said in found.text
    assert found.todo
    assert "secret" not in found.text + found.todo


def test_ignored_settings_are_noted(tmp_path: Path) -> None:
    found = list(settings.check_settings(kafka(tmp_path)))
    assert not failures(found)
    assert [each.text for each in found if each.state is CheckState.NOTE] == [
        "num.network.threads: without effect on Quorate"
    ]


def test_settings_that_protect_kafka_are_noted_apart(tmp_path: Path) -> None:
    found = kafka(tmp_path, ssl_enabled_protocols="TLSv1.3", principal_builder_class="P")
    security, _ = (each for each in settings.check_settings(found) if each.state is CheckState.NOTE)
    assert security.check == "security"
    assert security.text.startswith("principal.builder.class, ssl.enabled.protocols: without")


def test_references_to_config_providers_are_not_kept(tmp_path: Path) -> None:
    name, key = "delegation.token.secret.key", "${file:/secrets:key}"
    found = kafka(tmp_path, delegation_token_secret_key=key, config_providers="file")
    assert name not in settings.quorates_settings(found, voters(), tmp_path)
    (wrong,) = failures(settings.check_settings(found))
    assert name in wrong.text
    kept = kafka(tmp_path, delegation_token_secret_key=key)
    assert settings.quorates_settings(kept, voters(), tmp_path)[name] == key


def test_an_address_that_brokers_do_not_dial(tmp_path: Path) -> None:
    assert not failures(settings.check_listener(kafka(tmp_path), voters()))
    moved = kafka(tmp_path, listeners="CONTROLLER://c2:9099")
    (found,) = failures(settings.check_listener(moved, voters()))
    assert "CONTROLLER://c2:9093" in found.text
    (found,) = failures(settings.check_listener(kafka(tmp_path, listeners="X://c2:1"), voters()))
    assert "controller.listener.names" in found.text
    (found,) = failures(metadata.check_voters(voters("OTHER"), "CONTROLLER"))
    assert "1, 2, 3" in found.text
    assert failures(metadata.check_voters(VoterSet(), "CONTROLLER"))
    assert not failures(metadata.check_voters(voters(), None))


def test_a_listener_that_authenticates_nobody_with_an_authorizer(tmp_path: Path) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    _, found = configured(tmp_path, authorizer_class_name=authorizer, super_users="User:ANONYMOUS")
    (wrong,) = failures(found)
    assert "does not authenticate all callers" in wrong.text


def test_a_configuration_that_does_not_match(tmp_path: Path) -> None:
    config, _ = configured(tmp_path)
    assert failures(configuration.check_match(config, voters(), 2)) == []
    wrong = failures(configuration.check_match(config, voters(), 3))
    assert [each.text.split()[0] for each in wrong] == ["node.id", "CONTROLLER://c2:9093"]
    more = VoterSet.of(
        [*voters(), Voter(ReplicaKey(4, "x"), (Endpoint("CONTROLLER", "c4", 9093),))]
    )
    (lacking,) = failures(configuration.check_match(config, more, 2))
    assert "controller.quorum.voters lacks 4" in lacking.text


def test_voters_of_kafkas_log_are_dialled_by_grpc(tmp_path: Path) -> None:
    config, _ = configured(tmp_path)
    assert config.grpc_endpoint(Endpoint("CONTROLLER", "c1", 9093), voters()) == Endpoint(
        "RAFT", "c1", 9193
    )
    # The log's own entry counts once there is one, and strangers are not invented.
    for endpoint in (Endpoint("RAFT", "elsewhere", 1), Endpoint("CONTROLLER", "c9", 9093)):
        assert config.grpc_endpoint(endpoint, voters()) == endpoint
    assert len(config.without_grpc_endpoint(voters())) == 0
    assert len(config.without_grpc_endpoint(voters("OTHER"))) == 0


def test_feature_levels() -> None:
    good = {"metadata.version": 29, "share.version": 1}
    assert not failures(metadata.check_features(good, 29, 1))
    for levels, kraft_version, check in (
        ({}, 1, "metadata.version"),
        ({"metadata.version": 30}, 1, "metadata.version"),
        ({**good, "share.version": 2}, 1, "share.version"),
        ({**good, "new.version": 1}, 0, "new.version"),
        (good, 2, "kraft.version"),
    ):
        (found,) = failures(metadata.check_features(levels, 29, kraft_version))
        assert found.check == check
        assert found.todo


def test_records() -> None:
    image = MetadataImage()
    assert not failures(metadata.check_image(image))
    image.apply(rec.BeginTransactionRecord("x", version=0), 0)
    (noted,) = (each for each in metadata.check_image(image) if each.state is CheckState.NOTE)
    assert noted.check == "transactions"
    image = MetadataImage()
    image.apply(rec.UnknownRecord(99, 0, b""), 0)
    (found,) = failures(metadata.check_image(image))
    assert found.check == "records"
    image = MetadataImage()
    image.apply(rec.ZkMigrationStateRecord(rec.ZkMigrationState.MIGRATION, version=0), 0)
    (found,) = failures(metadata.check_image(image))
    assert found.check == "migration"
