"""The process of a controller that takes part in the migration from ZooKeeper (see `migrating`).

It is the controller's own, with two differences: metadata requests go through a gate until the copy
is committed, and the migration lives beside the node from the moment it listens.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quorate.controller.config import ControllerConfig
from quorate.controller.main import ENDINGS, Controller
from quorate.controller.migrating import Migration
from quorate.controller.migration_settings import MigrationSettings
from quorate.controller.telemetry import ControllerTelemetry
from quorate.raft.errors import ErrorCode
from quorate.rpc.convert_metadata import MetadataAnswer
from quorate.rpc.handler import NodeHandler
from quorate.rpc.tls import TlsConfig
from quorate.runtime.service import NodeService
from quorate.telemetry import logs
from quorate.telemetry.idle import MeasuredLoop


class GatedService(NodeService):
    """A node's service that refuses requests for metadata while the migration has not begun."""

    def __init__(self, served: NodeService, refuses: Callable[[object], str]) -> None:
        vars(self).update(vars(served))
        self._refuses = refuses

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        if text := self._refuses(request):
            leader = self._driver.node.current_leader
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader, None, text)
        return await super().metadata(request, timeout_ms)


class MigratingController(Controller):
    """A controller with its part in the migration."""

    def __init__(self, settings: MigrationSettings, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._settings = settings
        self.migration: Migration | None = None

    async def _listen(self, handler: NodeHandler, tls: TlsConfig | None) -> None:
        if isinstance(handler, NodeService) and self._driver is not None:
            metadata = handler._metadata
            assert metadata is not None, "a controller serves metadata"
            self.migration = Migration(
                self._settings, self._config, self._driver, metadata._loader, metadata, tls=tls
            )
            handler = GatedService(handler, self.migration.refuses)
        await super()._listen(handler, tls)
        if self.migration is not None:
            self.migration.start()

    async def _live(self) -> int:
        try:
            return await super()._live()
        finally:
            if self.migration is not None:
                await self.migration.stop()


def run_migrating_controller(
    config: ControllerConfig,
    settings: MigrationSettings,
    prepare: Callable[[Path], str] | None = None,
) -> int:
    """As `run_controller`, with the migration."""
    context = logs.configure(config.node_id, config.log_format)
    loop = MeasuredLoop if ControllerTelemetry.is_wanted(config) else None
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(MigratingController(settings, config, context, prepare).run())
    except ENDINGS as error:
        print(f"quorate: error: {error}", file=sys.stderr)
        return 1
