"""A controller without storage that waits to be formatted over gRPC.

This is for pods: a new volume must not become a replica by itself. The process logs that it waits,
and serves only NodeStatus and Format until a client that knows the quorum (the operator) formats
it. Without quorate.unformatted.wait an unformatted directory is an error.
"""

from __future__ import annotations

import asyncio
import logging
import os

from quorate.common.error_codes import ErrorCode
from quorate.controller.config import ControllerConfig
from quorate.controller.formatting import FormatError, format_directory
from quorate.log.errors import LogError
from quorate.raft.types import VoterSet
from quorate.rpc.wire.values import FormatRequest, FormatResponse, NodeStatus
from quorate.version import __version__

LOGGER = logging.getLogger(__name__)


class UnformattedNode:
    """A `rpc.server.handler.NodeHandler`. `formatted` is set once the directory is formatted."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._guard = asyncio.Lock()
        self.formatted = asyncio.Event()

    async def node_status(self) -> NodeStatus:
        return NodeStatus(
            self._config.node_id, formatted=False, version=__version__, pid=os.getpid()
        )

    async def format(self, request: FormatRequest) -> FormatResponse:
        """Format the directory, once: the second of two concurrent requests finds it formatted."""
        async with self._guard:
            try:
                done = await asyncio.to_thread(
                    format_directory,
                    self._config,
                    request.cluster_id,
                    request.mode,
                    VoterSet.of(request.initial_controllers),
                    directory_id=request.directory_id,
                )
            except (FormatError, LogError, OSError, ValueError) as error:
                return FormatResponse(ErrorCode.INVALID_REQUEST, message=str(error))
        LOGGER.info("formatted: directory %s, cluster %s", done.directory_id, done.cluster_id)
        self.formatted.set()
        return FormatResponse(ErrorCode.NONE, done.cluster_id, done.directory_id)
