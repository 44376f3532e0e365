"""Who is connected to the listener for Kafka's brokers, and who gives way to others.

Rules:
1. At most `connections_max` connections, and `per_address_max` of one address. One more takes the
   place of the one that has been idle for longest, of the same address where that has too many.
2. Neither a connection whose request is being answered gives way, nor one on which a broker has
   registered or sent a heartbeat within `BROKER_S` without an error. Where all are such, the new
   one is refused.
3. A connection is idle from its beginning, and from its last answer.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from quorate.rpc.principals import Caller

CONNECTIONS_MAX = 1_024
PER_ADDRESS_MAX = 256
BROKER_S = 60.0


@dataclass(slots=True, eq=False)
class Connection:
    """One connection. caller: who authenticated. told: the high watermark that it heard last, -1
    for none. end: closes it, and says why in the log. idle_since_s, broker_at_s: times of
    `Connections.now_s`; the latter of the last success of a broker here.
    """

    host: str
    caller: Caller = field(default_factory=Caller)
    told: int = -1
    end: Callable[[str], None] = lambda _reason: None
    is_busy: bool = False
    idle_since_s: float = 0.0
    broker_at_s: float = -math.inf


class Connections:
    """Those that are open. now_s: seconds that never decrease. closed_count: how many were refused
    or gave way to others.
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
        self._open: dict[Connection, None] = {}
        self._addresses: Counter[str] = Counter()
        self.closed_count = 0

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, new: Connection) -> str:
        """Take a connection, or say why not (rule 1)."""
        if self._addresses[new.host] >= self._per_address_max:
            same = [each for each in self._open if each.host == new.host]
            if not self._end_idlest(same):
                self.closed_count += 1
                return f"it has {self._per_address_max} connections (max.connections.per.ip)"
        if len(self._open) >= self._max and not self._end_idlest(self._open):
            self.closed_count += 1
            return f"there are {self._max} connections (max.connections)"
        new.idle_since_s = self.now_s()
        self._open[new] = None
        self._addresses[new.host] += 1
        return ""

    def leave(self, connection: Connection) -> None:
        """It is closed, or about to be."""
        if connection not in self._open:
            return
        del self._open[connection]
        self._addresses[connection.host] -= 1
        if not self._addresses[connection.host]:
            del self._addresses[connection.host]

    def note_broker(self, connection: Connection, error: int) -> None:
        """A broker was told on this connection what came of its registration or heartbeat."""
        if error == 0:
            connection.broker_at_s = self.now_s()

    def make_room(self) -> None:
        """End one, if one gives way."""
        self._end_idlest(self._open)

    def _end_idlest(self, among: Iterable[Connection]) -> bool:
        found = min(
            (each for each in among if self._gives_way(each)),
            key=lambda each: each.idle_since_s,
            default=None,
        )
        if found is None:
            return False
        self.leave(found)
        self.closed_count += 1
        found.end("others need its place, and it has been idle for longest")
        return True

    def _gives_way(self, connection: Connection) -> bool:
        """Rule 2."""
        is_broker = self.now_s() - connection.broker_at_s < BROKER_S
        return not connection.is_busy and not is_broker
