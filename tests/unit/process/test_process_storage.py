"""How a node identifies and locks its directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.log.config import LogConfig
from quorate.log.errors import DirectoryLockedError, MetaPropertiesError
from quorate.log.lock import LOCK_FILE, DirectoryLock
from quorate.log.meta_properties import MetaProperties
from quorate.process.shutdown import Shutdown
from quorate.process.storage import open_storage

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


@pytest.fixture
def config(tmp_path: Path, data: Path) -> ControllerConfig:
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\n"
        "node.id=1\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listeners=CONTROLLER://127.0.0.1:9093\n"
        f"log.dirs={data}\n"
    )
    return load_config(path, {})


def prepared_too_early() -> None:
    pytest.fail("the storage was prepared")


async def test_a_directory_without_an_id_gets_one(config: ControllerConfig, data: Path) -> None:
    MetaProperties(CLUSTER, 1, None).write(data)
    with open_storage(config, (data,), LogConfig(), Shutdown(), lambda: None) as storage:
        assert storage.meta.directory_id is not None
        assert storage.meta == MetaProperties.read(data)


async def test_a_directory_that_another_process_uses_keeps_its_properties(
    config: ControllerConfig, data: Path
) -> None:
    MetaProperties(CLUSTER, 1, None).write(data)
    with (
        DirectoryLock(data),
        pytest.raises(DirectoryLockedError),
        open_storage(config, (data,), LogConfig(), Shutdown(), prepared_too_early),
    ):
        pass
    assert MetaProperties.read(data).directory_id is None


@pytest.mark.parametrize(
    ("node_id", "complaint"), [(None, "is not formatted"), (2, "belongs to node 2")]
)
async def test_the_directory_of_another_node_is_not_locked(
    config: ControllerConfig, data: Path, node_id: int | None, complaint: str
) -> None:
    if node_id is not None:
        MetaProperties(CLUSTER, node_id, None).write(data)
    with (
        pytest.raises(MetaPropertiesError, match=complaint),
        open_storage(config, (data,), LogConfig(), Shutdown(), prepared_too_early),
    ):
        pass
    assert not (data / LOCK_FILE).exists()
