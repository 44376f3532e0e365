"""How many bytes connections have sent that were never a whole message.

gRPC for Python takes a message as a whole, so whoever sends all of it but the last byte makes the
server hold it; how much that is it does not say. The kernel says what has arrived on a connection,
the servicers say which messages they took: the rest is unfinished.

Rules:
1. Headers, pings and what HTTP/2 and TLS add arrive too: each message counts with `MESSAGE_BYTES`
   and one byte in `FRAMING_SHARE` more, each acknowledged byte of an answer with a part of one, and
   `DECAY_BYTES` are forgotten each second.
2. While all connections together have sent more than `UNFINISHED_BYTES_MAX` of unfinished bytes,
   the one with the most is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quorate.rpc.limits import MESSAGE_BYTES_MAX
from quorate.rpc.principals import host_of

UNFINISHED_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
MESSAGE_BYTES = 256
FRAMING_SHARE = 256
"""TLS records and HTTP/2 frames of 16 KiB have headers of 31 bytes together."""
ACKED_BYTES = 256
"""So many bytes of answers make the other side send one, in window updates."""
DECAY_BYTES = 4 * 1024

Address = tuple[str, int]


class Flow(NamedTuple):
    """What the kernel counted on a connection from `address`, in bytes."""

    address: Address
    received: int
    acked: int


class Arrivals:
    """Of one server. The servicers add; the guard of its connections asks, in a thread."""

    def __init__(self, bytes_max: int = UNFINISHED_BYTES_MAX) -> None:
        self._max = bytes_max
        self._taken: dict[str, int] = {}
        self._addresses: dict[str, Address] = {}
        self._last: dict[Address, tuple[int, int]] = {}
        """What had arrived at the last look, and what of it was accounted for."""
        self.unfinished: dict[Address, int] = {}

    def add(self, peer: str, size: int) -> None:
        """A message of `size` bytes was taken from gRPC's name of a peer."""
        counted = size + size // FRAMING_SHARE + MESSAGE_BYTES
        self._taken[peer] = self._taken.get(peer, 0) + counted

    def look(self, flows: Iterable[Flow], seconds: float) -> int:
        """Account for what has arrived since the last look, `seconds` ago. How much that is."""
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
                received_before = accounted_before = 0  # another one from the same port
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
        """Who is to be closed, and how much is unfinished (rule 2)."""
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
        """What is closed."""
        for peer, address in list(self._addresses.items()):
            if address not in self._last:
                del self._addresses[peer]
                self._taken.pop(peer, None)
