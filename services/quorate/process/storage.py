"""The directories of a node: identified, locked, and the metadata log in the first one opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.log.lock import DirectoryLock
from quorate.log.meta_properties import MetaProperties, ensure_directory_id
from quorate.log.metadata_log import LogConfig, MetadataLog, access_warning
from quorate.process.node_config import NodeConfig
from quorate.process.shutdown import Shutdown

if TYPE_CHECKING:
    from quorate.runtime.driver import RaftDriver

LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class Storage:
    """What a node keeps on disk, as long as it holds the locks."""

    metas: tuple[MetaProperties, ...]
    """The meta.properties of each directory."""
    log: MetadataLog
    driver: RaftDriver | None = None
    """Learns what is durable."""

    @property
    def meta(self) -> MetaProperties:
        """Of the metadata log's directory."""
        return self.metas[0]


@contextmanager
def open_storage(
    config: NodeConfig,
    directories: Sequence[Path],
    log_config: LogConfig,
    shutdown: Shutdown,
    prepare: Callable[[], None],
) -> Iterator[Storage]:
    """Open the directories, of which the first one holds the metadata log; close the log and
    release the locks at the end. `prepare` is called when they are locked, before the log is
    opened.

    LogError where a directory is not formatted, belongs to another node, or is in use.
    """
    metas = tuple(_identify(config, directory) for directory in directories)
    with ExitStack() as locks:
        for directory in directories:
            locks.enter_context(DirectoryLock(directory))
        prepare()
        storage = _open_log(metas, directories[0], log_config, shutdown)
        if warning := access_warning(directories[0]):
            LOGGER.warning("%s", warning)
        try:
            yield storage
        finally:
            storage.log.close()


def _identify(config: NodeConfig, directory: Path) -> MetaProperties:
    """Who the directory says this is; it must agree with the configuration."""
    meta = MetaProperties.read(directory)
    meta.check(directory, config.node_id, config.cluster_id, config.source)
    if meta.directory_id is None:
        meta = ensure_directory_id(directory)
        LOGGER.info("gave the directory %s the id %s", directory, meta.directory_id)
    return meta


def _open_log(
    metas: tuple[MetaProperties, ...], directory: Path, config: LogConfig, shutdown: Shutdown
) -> Storage:
    """The log's writer thread reports to the event loop."""
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
