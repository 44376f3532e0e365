"""Broker sessions: each broker's last contact, and how far it has replayed the metadata log.

Sessions are soft state of the active controller: a new controller gives every unfenced broker a
full session. They are in the order of the last contact, so the first entry expires first.

Source: KIP-631 "Broker heartbeats"; Kafka's BrokerHeartbeatManager.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_OFFSET = -1


@dataclass(slots=True)
class BrokerSession:
    """The session of one broker."""

    broker_epoch: int
    contact_ms: int
    metadata_offset: int = NO_OFFSET
    """The last offset that the broker has replayed."""
    shutdown_offset: int = NO_OFFSET
    """The log's last offset when the broker's controlled shutdown was written, -1 if it is not
    shutting down.
    """


class BrokerSessions:
    """The sessions by broker id. Times must not decrease from call to call."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._sessions: dict[int, BrokerSession] = {}
        self._silent: set[int] = set()

    def begin(self, broker_id: int, broker_epoch: int, now_ms: int) -> BrokerSession:
        """Start a new session, replacing any previous one."""
        self._silent.discard(broker_id)
        self._sessions.pop(broker_id, None)
        session = self._sessions[broker_id] = BrokerSession(broker_epoch, now_ms)
        return session

    def expire(self, broker_id: int) -> None:
        """End a session that `expired` returned."""
        self.end(broker_id)
        self._silent.add(broker_id)

    def is_silent(self, broker_id: int) -> bool:
        """Whether the broker's session expired, and it has not been heard from since."""
        return broker_id in self._silent

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def registered(self, broker_id: int, broker_epoch: int) -> None:
        """A broker has registered: a session of another process ends."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch != broker_epoch:
            del self._sessions[broker_id]

    def get(self, broker_id: int) -> BrokerSession | None:
        return self._sessions.get(broker_id)

    def touch(
        self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int
    ) -> BrokerSession:
        """Record a heartbeat of the broker."""
        self._silent.discard(broker_id)
        session = self._sessions.pop(broker_id, None)
        if session is None or session.broker_epoch != broker_epoch:
            session = BrokerSession(broker_epoch, now_ms)
        session.contact_ms = now_ms
        session.metadata_offset = metadata_offset
        self._sessions[broker_id] = session
        return session

    def is_live(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether the process with that epoch was in contact within the timeout."""
        session = self._sessions.get(broker_id)
        return (
            session is not None
            and session.broker_epoch == broker_epoch
            and now_ms - session.contact_ms < self.timeout_ms
        )

    def expired(self, now_ms: int) -> int | None:
        """The broker whose session expired first, None if none has expired."""
        for broker_id, session in self._sessions.items():
            return broker_id if now_ms - session.contact_ms >= self.timeout_ms else None
        return None

    def next_expiry_ms(self) -> int | None:
        for session in self._sessions.values():
            return session.contact_ms + self.timeout_ms
        return None
