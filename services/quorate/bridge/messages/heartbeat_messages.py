"""BrokerHeartbeat as bytes, versions 0 to 2, without kio's objects.

Each broker sends one every two seconds, so a thousand brokers send most of what a controller reads.
The rules of `isr_messages` hold.

Source: Kafka's BrokerHeartbeatRequest.json and BrokerHeartbeatResponse.json; KIP-631, KIP-858,
KIP-1066.
"""

from __future__ import annotations

import struct
from typing import Final

from quorate.bridge.messages.bounds import Walk
from quorate.metadata import requests as r

OFFLINE_TAG: Final = 0
OFFLINE_SINCE: Final = 1
CORDONED_TAG: Final = 1
CORDONED_SINCE: Final = 2

_REQUEST: Final = struct.Struct(">iqq??")
"""Broker, broker epoch, metadata offset, whether it wants to be fenced and to shut down."""
_RESPONSE: Final = struct.Struct(">ih???B")
"""Throttle time in ms, error, whether it is caught up, is fenced, may stop; no tagged fields."""


def read_heartbeat(found: Walk, version: int) -> r.BrokerHeartbeat:
    """Decode a request from the walk's position on. Raises ValueError."""
    broker_id, epoch, offset, fence, shut_down = _REQUEST.unpack(found.take(_REQUEST.size))
    offline: tuple[str, ...] = ()
    cordoned: tuple[str, ...] | None = None
    for tag, size in found.tagged():
        if tag == OFFLINE_TAG and version >= OFFLINE_SINCE:
            offline = _directories(found, found.length())
        elif tag == CORDONED_TAG and version >= CORDONED_SINCE:
            count = found.count(found.varint() - 1)
            cordoned = None if count < 0 else _directories(found, count)
        else:
            found.skip(size)
    return r.BrokerHeartbeat(broker_id, epoch, offset, fence, shut_down, offline, cordoned)


def _directories(found: Walk, count: int) -> tuple[str, ...]:
    return tuple([found.uuid() for _ in range(count)])


def write_heartbeat_answer(response: r.BrokerHeartbeatResponse) -> bytes:
    """Encode a response. Its throttle time is always 0."""
    return _RESPONSE.pack(
        0, response.error, response.caught_up, response.is_fenced, response.should_shut_down, 0
    )
