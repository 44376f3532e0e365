"""A broker's settings: what is taken, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorate.broker.formatting import format_broker
from quorate.cli.broker_settings import BROKER, load_broker
from quorate.cli.main import main
from quorate.cli.output import UsageError
from quorate.common.endpoints import Endpoint
from quorate.log.errors import MetaPropertiesError
from quorate.process.node_config import Security
from quorate.process.properties import ConfigError

BASE = {
    "process.roles": "broker",
    "node.id": "101",
    "listeners": "PLAINTEXT://127.0.0.1:19092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093,localhost:9094",
    "log.dirs": "/data/1,/data/2",
}


def write(folder: Path, **changed: str | None) -> Path:
    settings = BASE | {name.replace("_", "."): value for name, value in changed.items()}
    path = folder / "broker.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in settings.items() if v is not None))
    return path


def test_kafkas_defaults_hold_for_what_is_not_set(tmp_path: Path) -> None:
    config = load_broker(write(tmp_path), {})
    assert (config.node_id, config.controller_listener) == (101, "CONTROLLER")
    assert config.bootstrap_servers == (("localhost", 9093), ("localhost", 9094))
    assert config.log_dirs == (Path("/data/1"), Path("/data/2"))
    assert config.metadata_log_dir == Path("/data/1")
    assert (config.heartbeat_interval_ms, config.metadata.session_timeout_ms) == (2_000, 9_000)
    assert (config.lag_time_max_ms, config.min_insync_replicas) == (30_000, 1)
    assert (config.flush_interval_messages, config.flush_before_ack) == (None, False)
    assert config.endpoints == (Endpoint("PLAINTEXT", "127.0.0.1", 19092),)
    assert config.warnings == ()


def test_the_environment_overrides_the_file_and_foreign_settings_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, num_network_threads="3", log_flush_interval_messages="1")
    config = load_broker(path, {"QUORATE_NODE_ID": "7", "QUORATE_BROKER_RACK": "r1"})
    assert (config.node_id, config.rack, config.flush_before_ack) == (7, "r1", True)
    (warning,) = config.warnings
    assert "num.network.threads" in warning


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"process.roles": "controller"}, "process.roles=controller: a broker's role is broker"),
        ({"node.id": None}, "node.id is not set"),
        ({"listeners": "CONTROLLER://:9093"}, "CONTROLLER is in controller.listener.names"),
        ({"controller.quorum.bootstrap.servers": None}, "this broker could not find its quorum"),
        ({"log.dirs": None}, "none of metadata.log.dir, log.dirs and log.dir is set"),
        ({"broker.session.timeout.ms": "2000"}, "longer than broker.heartbeat.interval.ms"),
        ({"replica.lag.time.max.ms": "soon"}, "not an integer"),
        ({"brokr.rack": "r"}, "did you mean broker.rack?"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}, "ssl."),
        (
            {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT", "listeners": "LAN://:9092"},
            "it does not name the listener LAN",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "it does not name the listener CONTROLLER",
        ),
        ({"listeners": "SASL_SSL://:9092"}, "SASL_SSL:SASL_SSL is not supported"),
        ({"ssl.key.password": "x"}, "not supported"),
        ({"zookeeper.metadata.migration.enable": "true"}, "never in ZooKeeper mode"),
        ({"xyzzy": "x"}, "--help-settings"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, changed: dict[str, str | None], said: str
) -> None:
    settings = {**BASE, **changed}
    path = tmp_path / "broker.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in settings.items() if v is not None))
    with pytest.raises(ConfigError) as error:
        load_broker(path, {})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_listener_that_is_named_like_a_protocol_needs_no_entry(tmp_path: Path) -> None:
    protocols = {"listener_security_protocol_map": "CONTROLLER:PLAINTEXT"}
    config = load_broker(write(tmp_path, **protocols), {})
    assert not config.is_encrypted("PLAINTEXT")
    with pytest.raises(ConfigError, match=r"ssl\.certificate\.location is not set"):
        load_broker(write(tmp_path, listeners="SSL://:9092", **protocols), {})


def test_the_authorizer_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert load_broker(write(tmp_path), {}).security == Security()
    asked = {
        "QUORATE_AUTHORIZER_CLASS_NAME": "quorate.authorizer",
        "QUORATE_SUPER_USERS": "User:CN=a;User:CN=b",
        "QUORATE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true",
        "QUORATE_PEER_IDENTITY": "required",
        "QUORATE_SSL_PRINCIPAL_MAPPING_RULES": "RULE:^CN=(.*)$/$1/",
    }
    found = load_broker(write(tmp_path), asked).security
    assert (found.authorizer, found.allow_if_no_acl_found) == (True, True)
    assert found.super_users == ("User:CN=a", "User:CN=b")
    assert found.peer_identity == "required"
    assert found.principal_mapping.name("CN=alice") == "alice"
    ignored = load_broker(write(tmp_path, super_users="User:a"), {})
    assert "super.users has no effect without authorizer.class.name" in ignored.warnings[0]


def test_neither_file_nor_environment_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        load_broker(None, {})


def test_formatting_keeps_what_is_there_and_refuses_what_is_anothers(tmp_path: Path) -> None:
    directories = (tmp_path / "a", tmp_path / "b")
    made = format_broker(5, "yFPgY5iXQYqr5sMxfdxu0Q", directories[0], directories)
    assert len({meta.directory_id for meta in made}) == 2
    assert format_broker(5, "yFPgY5iXQYqr5sMxfdxu0Q", directories[0], directories) == made
    with pytest.raises(MetaPropertiesError, match="belongs to node 5"):
        format_broker(6, "yFPgY5iXQYqr5sMxfdxu0Q", directories[0], directories)


def test_every_setting_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--help-settings"]) == 0
    said = capsys.readouterr().out
    for name, setting in BROKER.settings.items():
        assert f"\n{name}\n" in f"\n{said}"
        assert setting.variable in said
