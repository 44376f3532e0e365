"""Results of admin clients as text that can be compared."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Any, Final

from quorate.common.identifiers import uuid_from_bytes

TIMEOUT_S: Final = 60
FAILED: Final = "fails with"
CHANGING: Final = frozenset(
    {"throttle_time_ms", "cluster_id", "finalized_epoch", "leader_epoch", "timestamp"}
)
"""Fields that differ between any two clusters."""


def plain(call: Callable[[], Any]) -> str:
    """The result of a call, or its error: each error is the value of a key FAILED."""
    return json.dumps(_outcome(call), indent=1, sort_keys=True)


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return _value(call())
    except Exception as error:
        return _error(error)


def _error(error: Any) -> Any:
    """The kind and the text of an error. confluent-kafka's error is in that of the exception."""
    found = error.args[0] if getattr(error, "args", ()) else error
    if hasattr(found, "code") and hasattr(found, "str"):
        return {FAILED: f"{found.name()}: {found.str()}"}
    return {FAILED: f"{type(error).__name__}: {error}"}


def _value(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value.name if isinstance(value, Enum) else value
        case Enum():
            return value.name
        case bytes():
            return value.hex()
        case uuid.UUID():
            return uuid_from_bytes(value.bytes)
        case Future():
            return _outcome(lambda: value.result(TIMEOUT_S))
        case BaseException():
            return _error(value)
        case type():
            return value.__name__
        case Mapping():
            return {_key(key): _value(each) for key, each in value.items() if key not in CHANGING}
        case set() | frozenset():
            return sorted(map(_value, value), key=json.dumps)
        case Sequence():
            found = [_value(each) for each in value]
            # The order of replicas matters; that of ACLs, topics and configs does not.
            if all(isinstance(each, int) for each in found):
                return found
            return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))
    if hasattr(value, "code") and hasattr(value, "str"):
        return _error(value)
    fields = {**getattr(value, "__dict__", {})}
    if not fields:
        return str(value)
    return {
        name: _value(each)
        for name, each in fields.items()
        if not name.startswith("_") and name not in CHANGING
    }


def _key(key: Any) -> str:
    found = _value(key)
    return found if isinstance(found, str) else json.dumps(found, sort_keys=True)
