"""What lives beside a controller's node, as the process sees it: the migration from ZooKeeper.

The process makes it when the node's parts are there, starts it once the node listens, asks it what
requests for metadata are to be refused for now, and stops it before the node ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from quorate.controller.config import ControllerConfig
from quorate.raft.errors import ErrorCode
from quorate.rpc.convert_metadata import MetadataAnswer
from quorate.rpc.gate import Gate
from quorate.rpc.tls import TlsConfig
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.metadata_service import MetadataService
from quorate.runtime.service import NodeService
from quorate.telemetry.samples import Sample


@dataclass(frozen=True, slots=True)
class Parts:
    """What a companion works with. tls: of the listeners and for dialling other controllers.
    on_fatal: ends the process with the error's text as its one line. gate: who may ask what.
    """

    config: ControllerConfig
    cluster_id: str
    raft: RaftDriver
    loader: MetadataLoader
    metadata: MetadataService
    tls: TlsConfig | None
    on_fatal: Callable[[BaseException], None]
    gate: Gate | None = None


class Companion(Protocol):
    """All of it belongs to the event loop's thread."""

    def start(self) -> None:
        """The node listens, and is about to read its log."""

    async def stop(self) -> None:
        """The node serves nobody any more."""

    def refuses(self, request: object) -> str:
        """Why a request for metadata is not taken now, or ""."""

    def samples(self) -> Iterable[Sample]:
        """Its metrics as they are now."""


Accompany = Callable[[Parts], Companion]


class GatedService(NodeService):
    """A node's service that answers what its companion refuses with NOT_CONTROLLER."""

    def __init__(self, companion: Companion, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._refuses = companion.refuses

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        if text := self._refuses(request):
            leader = self._driver.node.current_leader
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader, None, text)
        return await super().metadata(request, timeout_ms)
