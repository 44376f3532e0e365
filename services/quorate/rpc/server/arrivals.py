"""Tracks how many bytes of incomplete messages connections have sent.

gRPC for Python receives whole messages, so a client that sends all but the last byte of one makes
the server hold it, and gRPC does not report how much that is. The kernel reports how many bytes
arrived on a connection, and the servicers report the messages that they received: the difference is
unfinished.

Rules:
1. Headers, pings and the framing of HTTP/2 and TLS arrive too. Each message therefore accounts for
   `MESSAGE_BYTES` and one byte per `FRAMING_SHARE` beyond its size, each `ACKED_BYTES` of
   acknowledged responses for one byte, and `DECAY_BYTES` are forgotten each second.
2. While all connections together have sent more than `UNFINISHED_BYTES_MAX` of unfinished bytes,
   the one with the most is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quorate.rpc.principals import host_of
from quorate.rpc.wire.limits import MESSAGE_BYTES_MAX

UNFINISHED_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
MESSAGE_BYTES = 256
FRAMING_SHARE = 256
"""TLS records and HTTP/2 frames of 16 KiB have headers of 31 bytes together."""
ACKED_BYTES = 256
"""For this many bytes of responses the peer sends one byte of window updates."""
DECAY_BYTES = 4 * 1024

Address = tuple[str, int]


class Flow(NamedTuple):
    """The kernel's counters of the connection from `address`, in bytes."""

    address: Address
    received: int
    acked: int


class Arrivals:
    """The accounts of one server. Servicers add messages; the connection guard calls `look`.

    It does so in a thread.
    """

    def __init__(self, bytes_max: int = UNFINISHED_BYTES_MAX) -> None:
        self._max = bytes_max
        self._taken: dict[str, int] = {}
        self._addresses: dict[str, Address] = {}
        self._last: dict[Address, tuple[int, int]] = {}
        """The bytes that had arrived at the last look, and how many of them were accounted for."""
        self.unfinished: dict[Address, int] = {}

    def add(self, peer: str, size: int) -> None:
        """Record a message of `size` bytes from the peer with this gRPC name."""
        tracked = size + size // FRAMING_SHARE + MESSAGE_BYTES
        self._taken[peer] = self._taken.get(peer, 0) + tracked

    def look(self, flows: Iterable[Flow], seconds: float) -> int:
        """Account for the bytes since the last look, `seconds` ago; returns how many arrived."""
        taken: dict[Address, int] = {}
        for peer, size in self._taken.copy().items():
            taken[self._address(peer)] = size
        arrived = 0
        last, unfinished = self._last, self.unfinished
        self._last, self.unfinished = {}, {}
        for flow in flows:
            accounted = taken.get(flow.address, 0) + flow.acked // ACKED_BYTES
            received_before, accounted_before = last.get(flow.address, (0, 0))
            if flow.received < received_before:
                received_before = accounted_before = 0  # another connection from the same port
            new = flow.received - received_before
            arrived += new
            left = unfinished.get(flow.address, 0) + new - (accounted - accounted_before)
            left -= int(DECAY_BYTES * seconds)
            self._last[flow.address] = flow.received, accounted
            if left > 0:
                self.unfinished[flow.address] = left
        self._forget()
        return arrived

    def excess(self) -> Iterator[tuple[Address, int]]:
        """The connections to close, and how many bytes are unfinished (rule 2)."""
        total = sum(self.unfinished.values())
        for address, size in sorted(self.unfinished.items(), key=lambda each: -each[1]):
            if total <= self._max:
                return
            total -= size
            yield address, size

    def _address(self, peer: str) -> Address:
        found = self._addresses.get(peer)
        if found is None:
            found = self._addresses[peer] = host_of(peer), int(peer.rpartition(":")[2])
        return found

    def _forget(self) -> None:
        """Drop the state of closed connections."""
        for peer, address in list(self._addresses.items()):
            if address not in self._last:
                del self._addresses[peer]
                self._taken.pop(peer, None)
