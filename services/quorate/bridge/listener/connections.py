"""The connections of the listener for Kafka's brokers: limits and eviction.

Rules:
1. There are at most `connections_max` connections, and `per_address_max` from one address. A new
   one beyond a limit evicts the connection that has been idle longest; beyond the address's limit,
   one of the same address.
2. A connection is not evicted while its request is being processed, nor for `BROKER_S` after a
   broker's successful registration or heartbeat on it. If none can be evicted, the new connection
   is rejected.
3. A connection is idle from when it is accepted, and after each response. Connections are kept in
   this order, so that an eviction does not search all of them. With SASL it is idle from when it is
   accepted until it has authenticated, whatever it sends.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from quorate.bridge.authentication.sasl import Session
from quorate.raft.messages import FetchRequest
from quorate.raft.types import ReplicaKey
from quorate.rpc.framing.frame_stream import IDLE_S
from quorate.rpc.principals import Caller
from quorate.rpc.server.response_memory import MemoryReservation, ResponseMemory

CONNECTIONS_MAX = 1_024
PER_ADDRESS_MAX = 256
BROKER_S = 60.0

_UNBOUNDED = ResponseMemory()


@dataclass(slots=True, eq=False)
class KafkaConnection:
    """One connection."""

    host: str
    caller: Caller = field(default_factory=Caller)
    """The authenticated principal and host."""
    last_sent: int = -1
    """The high watermark that was sent last, -1 for none."""
    last_round: tuple[ReplicaKey, int, int] | None = None
    """The replica, epoch and read round of the last response to a Fetch."""
    replica: ReplicaKey | None = None
    """The replica that fetches the metadata log over this connection."""
    end: Callable[[str], None] = lambda _reason: None
    """Closes the connection and logs the reason."""
    is_busy: bool = False
    """Whether a request of this connection is being processed."""
    broker_at_s: float = -math.inf
    """The time of a broker's last successful registration or heartbeat, by `Connections.now_s`."""
    session: Session | None = None
    """The completed SASL authentication, None without SASL."""
    throttled_s: float = 0.0
    """How long not to read from the connection after the next response (KIP-219)."""
    idle_s: float = IDLE_S
    """How long the connection may be idle."""
    room: MemoryReservation = field(default_factory=lambda: _UNBOUNDED.hold(""))
    """The memory that is reserved for the response."""

    def seen_round(self, request: FetchRequest) -> int:
        """The read round that the sender of this Fetch has seen; 0 for none."""
        if self.last_round is None or self.last_round[:2] != (request.replica, request.epoch):
            return 0
        return self.last_round[2]


_Ordered = OrderedDict[KafkaConnection, None]
"""The connection that has been idle longest comes first."""


class Connections:
    """The open connections. now_s: a monotonic clock, seconds. closed_count: connections rejected
    or evicted so far.
    """

    def __init__(
        self,
        connections_max: int = CONNECTIONS_MAX,
        per_address_max: int = PER_ADDRESS_MAX,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max = connections_max
        self._per_address_max = per_address_max
        self.now_s = now_s
        self._open: _Ordered = OrderedDict()
        self._addresses: dict[str, _Ordered] = {}
        self.closed_count = 0

    def __len__(self) -> int:
        return len(self._open)

    def replicas(self) -> set[ReplicaKey]:
        """The replicas that fetch the metadata log over these connections."""
        return {each.replica for each in self._open if each.replica is not None}

    def admit(self, new: KafkaConnection) -> str:
        """Add a connection; returns the reason if it is rejected, or "" (rule 1)."""
        same = self._addresses.get(new.host, OrderedDict())
        if len(same) >= self._per_address_max and not self._end_idlest(same):
            self.closed_count += 1
            return f"its address has {self._per_address_max} connections (max.connections.per.ip)"
        if len(self._open) >= self._max and not self._end_idlest(self._open):
            self.closed_count += 1
            return f"there are {self._max} connections (max.connections)"
        self._open[new] = None
        self._addresses.setdefault(new.host, OrderedDict())[new] = None
        return ""

    def leave(self, connection: KafkaConnection) -> None:
        """Remove a connection that is closed or about to be. Idempotent."""
        if connection not in self._open:
            return
        del self._open[connection]
        same = self._addresses[connection.host]
        del same[connection]
        if not same:
            del self._addresses[connection.host]

    def rest(self, connection: KafkaConnection) -> None:
        """Its request has been answered: it is idle from now on."""
        connection.is_busy = False
        if connection in self._open:
            self._open.move_to_end(connection)
            self._addresses[connection.host].move_to_end(connection)

    def note_broker(self, connection: KafkaConnection, error: int) -> None:
        """Record the result of a broker's registration or heartbeat. error: Kafka's error code."""
        if error == 0:
            connection.broker_at_s = self.now_s()

    def make_room(self) -> None:
        """Evict the connection that has been idle longest, if any can be evicted."""
        self._end_idlest(self._open)

    def _end_idlest(self, among: _Ordered) -> bool:
        found = next((each for each in among if self._gives_way(each)), None)
        if found is None:
            return False
        self.leave(found)
        self.closed_count += 1
        found.end("a new connection needs its place, and it has been idle longest")
        return True

    def _gives_way(self, connection: KafkaConnection) -> bool:
        """Whether a connection may be evicted (rule 2)."""
        return not connection.is_busy and self.now_s() - connection.broker_at_s >= BROKER_S
