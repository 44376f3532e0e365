"""TLS handshakes at the listener for Kafka's brokers: limits of concurrency and rate, and faults.

A handshake costs memory, and CPU time of the event loop for its signatures, before its peer is
authenticated.

Rules:
1. At most `under_way_max` handshakes are under way, and `per_address_max` from one address. A new
   one beyond the address's limit evicts the oldest of that address. Beyond the total it evicts the
   oldest of the address with the most, so that an address with many cannot lock out the others.
2. A token bucket of `burst` and `rate` per second admits handshakes. The others wait and count as
   under way. Waiting addresses are served round-robin, each in order of arrival.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Final

from quorate.bridge.listener.connections import KafkaConnection
from quorate.rpc.errors import TlsError

UNDER_WAY_MAX = 256
PER_ADDRESS_MAX = 64
RATE = 100.0
BURST = 100


class Handshakes:
    """The handshakes of one listener. rate: per second. now_s: a monotonic clock, seconds.
    closed_count: evicted so far.
    """

    def __init__(
        self,
        under_way_max: int = UNDER_WAY_MAX,
        per_address_max: int = PER_ADDRESS_MAX,
        *,
        rate: float = RATE,
        burst: int = BURST,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max = under_way_max
        self._per_address_max = per_address_max
        self._rate = rate
        self._burst = burst
        self._now_s = now_s
        self._turns = float(burst)
        self._counted_at_s = now_s()
        self._under_way: dict[str, dict[KafkaConnection, None]] = {}
        """By address, the oldest first; so is `_waiting`."""
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0
        self.closed_count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, connection: KafkaConnection) -> None:
        """Count a new handshake; may evict another (rule 1)."""
        own = self._under_way.get(connection.host, {})
        if len(own) >= self._per_address_max:
            self._end_oldest(
                connection.host, f"{self._per_address_max} handshakes of its address are under way"
            )
        elif self._count >= self._max:
            most = max(self._under_way, key=lambda host: len(self._under_way[host]))
            self._end_oldest(most, f"{self._max} handshakes are under way, most of its address")
        self._under_way.setdefault(connection.host, {})[connection] = None
        self._count += 1

    def leave(self, connection: KafkaConnection) -> None:
        """The handshake has ended, whatever its outcome. Idempotent."""
        own = self._under_way.get(connection.host, {})
        if connection not in own:
            return
        del own[connection]
        self._count -= 1
        if not own:
            del self._under_way[connection.host]

    def _end_oldest(self, host: str, reason: str) -> None:
        oldest = next(iter(self._under_way[host]))
        self.leave(oldest)
        self.closed_count += 1
        oldest.end(f"{reason}, and this one is the oldest")

    async def turn(self, connection: KafkaConnection) -> None:
        """Wait until the handshake may start (rule 2)."""
        if not self._waiting and self._take():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection.host, {})[turn] = None
        self._wake_later()
        try:
            await turn
        finally:
            self._forget(connection.host, turn)

    def _forget(self, host: str, turn: asyncio.Future[None]) -> None:
        own = self._waiting.get(host, {})
        own.pop(turn, None)
        if not own:
            self._waiting.pop(host, None)

    def _take(self) -> bool:
        """Take a token; False if there is none."""
        now_s = self._now_s()
        gained = (now_s - self._counted_at_s) * self._rate
        self._turns = min(self._burst, self._turns + gained)
        self._counted_at_s = now_s
        if self._turns < 1:
            return False
        self._turns -= 1
        return True

    def _wake_later(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(1 / self._rate, self._wake)

    def _wake(self) -> None:
        self._timer = None
        while self._waiting and self._take():
            host, own = next(iter(self._waiting.items()))
            turn = next(iter(own))
            # Round-robin: move the address to the end.
            del self._waiting[host]
            self._waiting[host] = own
            self._forget(host, turn)
            if not turn.done():
                turn.set_result(None)
        self._wake_later()


_NO_TLS = "the client does not use TLS"
_REJECTED = "the client rejected this node's certificate"
_FAULTS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client presented no certificate",
    "HTTP_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "TLSV1_ALERT_UNKNOWN_CA": f"{_REJECTED}: it does not trust the CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": _REJECTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REJECTED,
}
"""What OpenSSL's reasons mean for the side that accepts connections."""


def handshake_fault(error: Exception) -> str:
    """Why a handshake failed, for the log; "" if the client has only closed the connection."""
    if isinstance(error, TimeoutError):
        return "it was not complete in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate was rejected: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        return _FAULTS.get(reason) or reason.lower().replace("_", " ")
    return str(error) if isinstance(error, TlsError) else ""
