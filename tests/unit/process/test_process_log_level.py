"""The log level while a node runs: which config decides, and what is ignored."""

from __future__ import annotations

import logging

import pytest
from quorate.controller.config_reader import load_config
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.process.log_level import LOG_LEVEL, LogLevelConfig
from quorate.records.metadata import ConfigRecord
from quorate.telemetry.logs import LogLevel, NodeContext

BROKER = 4
SETTINGS = {
    "QUORATE_PROCESS_ROLES": "controller",
    "QUORATE_NODE_ID": "1",
    "QUORATE_LISTENERS": "CONTROLLER://localhost:9093",
    "QUORATE_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "QUORATE_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "localhost:9093",
    "QUORATE_METADATA_LOG_DIR": "/nowhere",
    "QUORATE_LOG_LEVEL": "WARNING",
}


class Lab:
    """A node whose metadata changes. levels: those that were set."""

    def __init__(self) -> None:
        context = NodeContext("controller", 1)
        self.levels: list[LogLevel] = []
        context.set_level = self.levels.append
        self.image = MetadataImage()
        self.config = LogLevelConfig(load_config(None, SETTINGS), context)

    def set(self, name: str, value: str | None, config: str = LOG_LEVEL) -> list[LogLevel]:
        """Set a config of a broker, or of all with the empty name: the levels set so far."""
        record = ConfigRecord(BROKER, name, config, value)
        self.config.changed(self.image, self.image.apply_batch([record], 0, 1, 0))
        return self.levels


def test_the_nodes_own_config_precedes_the_default_and_both_precede_the_file() -> None:
    lab = Lab()
    assert lab.set("", "error") == [LogLevel.ERROR]
    assert lab.set("1", "Debug")[1:] == [LogLevel.DEBUG]
    assert lab.set("", "info")[2:] == [], "the node has its own"
    assert lab.set("1", None)[2:] == [LogLevel.INFO]
    assert lab.set("", None)[3:] == [LogLevel.WARNING], "the properties file's"


def test_other_configs_and_other_nodes_change_nothing() -> None:
    lab = Lab()
    assert lab.set("2", "debug") == []
    assert lab.set("1", "10", config="background.threads") == []
    assert lab.set("1", "warning") == [], "it is that already"


def test_a_value_that_is_no_level_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lab = Lab()
    assert lab.set("", "error") == [LogLevel.ERROR]
    assert lab.set("1", "loud\n")[1:] == [], "the default still holds"
    assert caplog.messages[-1] == (
        "quorate.log.level=loud\n is ignored: accepted: debug, info, warning, error"
    )


def test_a_level_that_was_set_before_a_restart_holds_again() -> None:
    lab = Lab()
    lab.image.apply_batch([ConfigRecord(BROKER, "1", LOG_LEVEL, "debug")], 0, 1, 0)
    lab.config.changed(lab.image, lab.image.as_delta())
    assert lab.levels == [LogLevel.DEBUG]
