"""The clients of controllers and brokers. `QuorumClient` is loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.rpc.client.quorum_client import QuorumClient

__all__ = ["QuorumClient"]


def __getattr__(name: str) -> Any:
    if name != "QuorumClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quorate.rpc.client.quorum_client import QuorumClient  # noqa: PLC0415 - see above

    return QuorumClient
