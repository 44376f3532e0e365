"""The extension points of a node, for a state machine or the migration that runs in its process.

The node calls each `ExtensionFactory` once its components exist, and starts the extensions once it
listens. Extensions decide which metadata requests the node rejects for the time being. They stop
before the node ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from quorate.process.node_config import NodeConfig
from quorate.rpc.tls import TlsConfig
from quorate.runtime.application_service import ApplicationService
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.metadata_service import MetadataService
from quorate.runtime.snapshots import Snapshotter
from quorate.telemetry.samples import Sample

ConfigT = TypeVar("ConfigT", bound=NodeConfig)


@dataclass(frozen=True)
class NodeComponents(Generic[ConfigT]):
    """The components of a node that an extension uses."""

    config: ConfigT
    cluster_id: str
    driver: RaftDriver
    loader: MetadataLoader
    snapshotter: Snapshotter
    metadata: MetadataService
    tls: TlsConfig | None
    """For the listeners, and for connections to other controllers."""
    on_fatal: Callable[[BaseException], None]
    """Stops the node, whose error is one line with the text of this one."""
    authorizer: NodeAuthorizer | None = None
    """Authorizes requests; None if no request needs authorization."""
    applications: ApplicationService | None = None
    """None on nodes that cannot lead."""


class Extension(Protocol):
    """An extension of a node. All methods are called on the event loop's thread."""

    def start(self) -> None:
        """Called when the node listens and is about to read its log."""

    async def stop(self) -> None:
        """Called when the node has stopped serving requests."""

    def refuses(self, request: object) -> str:
        """Why the node must reject this metadata request for the time being, or ""."""

    def samples(self) -> Iterable[Sample]:
        """The current metrics of the extension."""


ExtensionFactory = Callable[[NodeComponents[ConfigT]], Extension]


def refusal_of(extensions: Sequence[Extension], request: object) -> str:
    """Why one of the extensions rejects this metadata request for the time being, or ""."""
    return next((text for each in extensions if (text := each.refuses(request))), "")
