"""The part of docs/access.md about `quorate.v1.Partition` of brokers: by method and caller.

The rows are `rpc.wire.methods.PARTITION_METHODS`, the answers those of `broker.authorizer`, asked
as the servicer does. `tests/integration/test_access_broker.py` makes the same calls to a real
broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quorate.broker.authorizer import BrokerAuthorizer
from quorate.common.error_codes import ErrorCode
from quorate.rpc.wire.methods import FOLLOWER_FETCH, PARTITION_METHODS, Callers, RpcMethod

from tests.tools.callers import COLUMNS, PRODUCER, TOPIC, TOPIC_ID, Column, broker_gate

CALLERS: Sequence[Column] = (*COLUMNS, PRODUCER)
FOLLOWERS, READERS = "Fetch of a follower", "Fetch of a reader"


def methods() -> Mapping[str, RpcMethod]:
    """By what the page calls them: a Fetch is a follower's or a reader's."""
    named = {READERS if name == "Fetch" else name: rpc for name, rpc in PARTITION_METHODS.items()}
    return named | {FOLLOWERS: FOLLOWER_FETCH}


def is_allowed(authorizer: BrokerAuthorizer, column: Column, rpc: RpcMethod) -> bool:
    """Whether the call comes to its handler, for the topic of the page."""
    caller = column.caller
    if (
        caller is None
        or authorizer.partition_refusal(caller, PARTITION_METHODS[rpc.name]) is not None
    ):
        return False
    if rpc is FOLLOWER_FETCH:
        return authorizer.follower_refusal(caller, column.node) is None
    if rpc.name == "Locate":
        return authorizer.may_describe(caller, TOPIC)
    if rpc.name == "InitProducerId":
        return True
    return authorizer.refused_topic(caller, rpc.operation, TOPIC_ID) is ErrorCode.NONE


def rows() -> list[tuple[str, RpcMethod, list[bool]]]:
    """Each method, and for each of CALLERS whether it is allowed."""
    authorizer = broker_gate()
    return [
        (title, rpc, [is_allowed(authorizer, column, rpc) for column in CALLERS])
        for title, rpc in methods().items()
    ]


def _size(count: int) -> str:
    return f"{count // 1024} KiB" if count < 1024 * 1024 else f"{count // (1024 * 1024)} MiB"


def table() -> str:
    head = ("method", "needs", "besides", "at most", *(column.title for column in CALLERS))
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for title, rpc, decided in rows():
        needs = f"{rpc.operation.name} on {rpc.resources[0].name.lower()}"
        besides = "" if rpc.callers is Callers.ANYBODY else f"{rpc.callers} only"
        cells = [title, needs, besides, _size(rpc.bytes_max)]
        lines.append("| " + " | ".join([*cells, *("yes" if x else "no" for x in decided)]) + " |")
    return "\n".join(lines)
