"""The settings of the migration: every misconfiguration is refused with the setting's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorate.controller.config import ConfigError
from quorate.controller.migration_settings import MigrationSettings, load_migrating_config

BASE = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "metadata.log.dir": "/tmp/quorate",
}
MIGRATING = BASE | {
    "zookeeper.metadata.migration.enable": "true",
    "zookeeper.connect": "a:2181,b:2181/kafka",
}


def load(
    folder: Path, values: dict[str, str], environment: dict[str, str] | None = None
) -> MigrationSettings:
    file = folder / "controller.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    config, settings = load_migrating_config(file, environment or {})
    assert config.node_id == 3000
    return settings


def test_they_are_read_beside_the_controllers_own(tmp_path: Path) -> None:
    settings = load(tmp_path, MIGRATING | {"zookeeper.session.timeout.ms": "6000"})
    assert settings == MigrationSettings(
        enabled=True, connect="a:2181,b:2181/kafka", session_timeout_ms=6000
    )


def test_without_them_there_is_no_migration(tmp_path: Path) -> None:
    assert load(tmp_path, BASE) == MigrationSettings()


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    environment = {
        "QUORATE_ZOOKEEPER_METADATA_MIGRATION_ENABLE": "true",
        "QUORATE_ZOOKEEPER_CONNECT": "z",
    }
    assert load(tmp_path, BASE, environment) == MigrationSettings(enabled=True, connect="z")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"zookeeper.connect": ""}, ["zookeeper.connect is not set", "migration.enable"]),
        ({"zookeeper.connect": "a:x"}, ["zookeeper.connect=a:x", "not a port"]),
        ({"zookeeper.connect": "/root"}, ["zookeeper.connect=/root", "names no host"]),
        ({"zookeeper.connect": "a:1/"}, ["zookeeper.connect=a:1/", "is no path"]),
        (
            {"zookeeper.metadata.migration.enable": "yes"},
            ["zookeeper.metadata.migration.enable=yes", "true, false"],
        ),
        (
            {"process.roles": "broker,controller"},
            ["zookeeper.metadata.migration.enable=true", "process.roles must be controller"],
        ),
        ({"zookeeper.session.timeout.ms": "0"}, ["zookeeper.session.timeout.ms=0"]),
        ({"zookeeper.ssl.client.enable": "true"}, ["zookeeper.ssl.client.enable=true"]),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, changes: dict[str, str], said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, MIGRATING | changes)
    for text in said:
        assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "controller.properties" in str(caught.value)
