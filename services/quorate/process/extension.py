"""The extension point of a node: what an application, or the migration, runs beside it.

The process calls an `ExtensionFactory` when the components of its node exist, starts the extension
once the node listens, asks it which requests for metadata to refuse for now, and stops it before
the node ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from quorate.process.node_config import NodeConfig
from quorate.rpc.tls import TlsConfig
from quorate.runtime.driver import RaftDriver
from quorate.runtime.gate import NodeGate
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.metadata_service import MetadataService
from quorate.telemetry.samples import Sample

ConfigT = TypeVar("ConfigT", bound=NodeConfig)


@dataclass(frozen=True)
class NodeComponents(Generic[ConfigT]):
    """The components of a node that an extension works with."""

    config: ConfigT
    cluster_id: str
    driver: RaftDriver
    loader: MetadataLoader
    metadata: MetadataService
    tls: TlsConfig | None
    """Of the listeners, and for dialling other controllers."""
    on_fatal: Callable[[BaseException], None]
    """Ends the process with the error's text as its one line."""
    gate: NodeGate | None = None
    """Decides who may call what."""


class Extension(Protocol):
    """All of it belongs to the event loop's thread."""

    def start(self) -> None:
        """The node listens, and is about to read its log."""

    async def stop(self) -> None:
        """The node serves nobody any more."""

    def refuses(self, request: object) -> str:
        """Why a request for metadata is not taken now, or ""."""

    def samples(self) -> Iterable[Sample]:
        """Its metrics as they are now."""


ExtensionFactory = Callable[[NodeComponents[ConfigT]], Extension]
