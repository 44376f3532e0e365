"""Quorate: a replicated log whose voters can change while it runs (KIP-853).

The names below are what programs use. Each is imported on first use, so that `import quorate` takes
no time. `quorate.sync` has `Node` and `Client` without asyncio, `quorate.recipes` has locks,
elections, counters and key-value stores.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from quorate.version import __version__

if TYPE_CHECKING:
    from quorate import recipes, sync
    from quorate.common.endpoints import Endpoint
    from quorate.common.error_codes import ErrorCode
    from quorate.controller.formatting import FormatError
    from quorate.embedded.node import Node
    from quorate.embedded.state_machine import StateMachine, StateMachineError, StateSnapshot
    from quorate.embedded.storage import format_storage
    from quorate.process.properties import ConfigError
    from quorate.process.shutdown import NodeError
    from quorate.raft.errors import MisuseError
    from quorate.raft.types import ReplicaKey
    from quorate.records.batch import Record
    from quorate.rpc.client.quorum_client import QuorumClient as Client
    from quorate.rpc.errors import (
        AdminError,
        ClientError,
        ConditionFailedError,
        NoLeaderError,
        OffsetCompactedError,
        OutcomeUnknownError,
        ReadBrokenError,
        UnreachableError,
    )
    from quorate.rpc.tls import TlsConfig
    from quorate.rpc.wire.values import AppendResult

__all__ = [
    "AdminError",
    "AppendResult",
    "Client",
    "ClientError",
    "ConditionFailedError",
    "ConfigError",
    "Endpoint",
    "ErrorCode",
    "FormatError",
    "MisuseError",
    "NoLeaderError",
    "Node",
    "NodeError",
    "OffsetCompactedError",
    "OutcomeUnknownError",
    "ReadBrokenError",
    "Record",
    "ReplicaKey",
    "StateMachine",
    "StateMachineError",
    "StateSnapshot",
    "TlsConfig",
    "UnreachableError",
    "__version__",
    "format_storage",
    "recipes",
    "sync",
]

_ERRORS = "quorate.rpc.errors"
_PLACES = {
    "AdminError": _ERRORS,
    "AppendResult": "quorate.rpc.wire.values",
    "Client": "quorate.rpc.client.quorum_client:QuorumClient",
    "ClientError": _ERRORS,
    "ConditionFailedError": _ERRORS,
    "ConfigError": "quorate.process.properties",
    "Endpoint": "quorate.common.endpoints",
    "ErrorCode": "quorate.common.error_codes",
    "FormatError": "quorate.controller.formatting",
    "MisuseError": "quorate.raft.errors",
    "NoLeaderError": _ERRORS,
    "Node": "quorate.embedded.node",
    "NodeError": "quorate.process.shutdown",
    "OffsetCompactedError": _ERRORS,
    "OutcomeUnknownError": _ERRORS,
    "ReadBrokenError": _ERRORS,
    "Record": "quorate.records.batch",
    "ReplicaKey": "quorate.raft.types",
    "StateSnapshot": "quorate.embedded.state_machine",
    "StateMachine": "quorate.embedded.state_machine",
    "StateMachineError": "quorate.embedded.state_machine",
    "TlsConfig": "quorate.rpc.tls",
    "UnreachableError": _ERRORS,
    "format_storage": "quorate.embedded.storage",
}
"""The module of each name, and the name there if it is another one."""


def __getattr__(name: str) -> Any:
    if name in ("recipes", "sync"):
        return importlib.import_module(f"quorate.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, other = _PLACES[name].partition(":")
    found = getattr(importlib.import_module(module), other or name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
