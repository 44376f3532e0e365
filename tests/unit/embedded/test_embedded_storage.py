"""The settings of an embedded node, as a program writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from quorate.embedded.storage import read_config
from quorate.process.properties import ConfigError

SETTINGS: dict[str, object] = {
    "node.id": 1,
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.quorum.bootstrap.servers": ["127.0.0.1:9093"],
    "metadata.log.dir": "relative",
}


@pytest.mark.parametrize("value", [None, b"cluster", {"a": 1}, {"a"}, ["a", None]])
def test_values_of_other_types_are_refused(value: object) -> None:
    """`str` of them is valid text for some settings: None would be the cluster "None"."""
    with pytest.raises(ConfigError, match=r"cluster\.id=.* is not text, a number, a path"):
        read_config(SETTINGS | {"cluster.id": value})


def test_names_are_texts() -> None:
    with pytest.raises(ConfigError, match="the name 1 is not text"):
        read_config(cast(Any, SETTINGS | {1: "a"}))


@pytest.mark.parametrize("in_file", [False, True])
def test_directories_do_not_depend_on_the_current_one_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = SETTINGS | {"log.dirs": ["relative", "other"]}
    file = tmp_path / "controller.properties"
    file.write_text(
        "process.roles=controller\ncontroller.listener.names=CONTROLLER\nnode.id=1\n"
        "listeners=CONTROLLER://127.0.0.1:9093\nmetadata.log.dir=relative\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs=relative,other\n"
    )
    config = read_config(file.name if in_file else settings)
    assert config.metadata_log_dir == tmp_path / "relative"
    assert config.log_dirs == (tmp_path / "relative", tmp_path / "other")
