"""The reference pages say what the code declares."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from quorate.broker.config import BrokerConfig
from quorate.cli.broker_settings import BROKER
from quorate.common.setting import Setting, declared_in
from quorate.controller.config import CONTROLLER, ControllerConfig
from quorate.process.node_config import NODE_SETTINGS, NodeConfig

from tests.tools import reference


@pytest.mark.parametrize("path", reference.pages(), ids=lambda path: path.name)
def test_the_page_is_up_to_date(path: Path) -> None:
    assert reference.pages()[path] == path.read_text(), "poe reference"


def test_what_both_roles_have_is_one_declaration() -> None:
    own = {"process.roles"}
    shared = CONTROLLER.settings.keys() & BROKER.settings.keys() - own
    assert shared == {setting.name for setting in NODE_SETTINGS}
    for name in shared:
        assert CONTROLLER.settings[name] is BROKER.settings[name], name


@pytest.mark.parametrize("configuration", [NodeConfig, ControllerConfig, BrokerConfig])
def test_every_setting_is_declared_once(configuration: type) -> None:
    names = [setting.name for setting in declared_in(configuration)]
    assert len(names) == len(set(names))


def test_a_declared_default_is_the_default_of_its_field() -> None:
    for field in dataclasses.fields(BrokerConfig):
        declared = field.metadata.get("setting")
        if isinstance(declared, Setting) and not declared.is_required:
            assert callable(field.default_factory)
            assert field.default_factory() == declared.parse(None), declared.name
