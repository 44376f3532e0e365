"""The storage of a node: identifies and locks its directories, and opens the metadata log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.log.config import LogConfig
from quorate.log.lock import DirectoryLock
from quorate.log.meta_properties import MetaProperties, ensure_directory_id
from quorate.log.metadata_log import MetadataLog, access_warning
from quorate.process.node_config import NodeConfig
from quorate.process.shutdown import Shutdown

if TYPE_CHECKING:
    from quorate.runtime.driver import RaftDriver

LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class Storage:
    """The storage of a node, valid while the node holds the directory locks."""

    metas: tuple[MetaProperties, ...]
    """The meta.properties of each directory."""
    log: MetadataLog
    driver: RaftDriver | None = None
    """Is notified of durable writes; None until the driver exists."""

    @property
    def meta(self) -> MetaProperties:
        """The meta.properties of the metadata log's directory."""
        return self.metas[0]


@contextmanager
def open_storage(
    config: NodeConfig,
    directories: Sequence[Path],
    log_config: LogConfig,
    shutdown: Shutdown,
    prepare: Callable[[], None],
) -> Iterator[Storage]:
    """Lock the directories, and open the metadata log in the first one.

    `prepare` is called once the directories are locked, before the log is opened. On exit the log
    is closed and the locks are released. Raises LogError if a directory is not formatted, belongs
    to another node, or is in use.
    """
    for directory in directories:
        # Taking the lock creates a file: only a directory of this node may get it.
        _check(config, directory)
    with ExitStack() as opened:
        for directory in directories:
            opened.enter_context(DirectoryLock(directory))
        metas = tuple(_identify(config, directory) for directory in directories)
        prepare()
        storage = _open_log(metas, directories[0], log_config, shutdown)
        opened.enter_context(closing(storage.log))
        if warning := access_warning(directories[0]):
            LOGGER.warning("%s", warning)
        yield storage


def _check(config: NodeConfig, directory: Path) -> MetaProperties:
    """Read the meta.properties of `directory`, and check it against the configuration."""
    meta = MetaProperties.read(directory)
    meta.check(directory, config.node_id, config.cluster_id, config.source)
    return meta


def _identify(config: NodeConfig, directory: Path) -> MetaProperties:
    """Check `directory`, and give it a directory id if it has none. The caller holds its lock."""
    meta = _check(config, directory)
    if meta.directory_id is None:
        meta = ensure_directory_id(directory)
        LOGGER.info("directory %s: assigned the directory id %s", directory, meta.directory_id)
    return meta


def _open_log(
    metas: tuple[MetaProperties, ...], directory: Path, config: LogConfig, shutdown: Shutdown
) -> Storage:
    """Open the log. Its writer thread reports to the event loop."""
    loop = asyncio.get_running_loop()

    def durable(ticket: int) -> None:
        if storage.driver is not None:
            storage.driver.durable(ticket)

    def on_durable(ticket: int) -> None:
        loop.call_soon_threadsafe(durable, ticket)

    def on_failure(error: BaseException) -> None:
        loop.call_soon_threadsafe(shutdown.fail, error)

    log = MetadataLog.open(directory, config, on_durable=on_durable, on_failure=on_failure)
    storage = Storage(metas, log)
    return storage
