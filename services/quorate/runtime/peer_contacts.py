"""How each peer responded to the last request of this replica, for log messages."""

from __future__ import annotations

from dataclasses import dataclass

PEERS_MAX = 64
"""How many peers are remembered: more than a quorum has voters."""


@dataclass(frozen=True, slots=True)
class Contact:
    """The end of the last request to a peer."""

    at_ms: int
    """When the request ended, by the driver's clock."""
    failure: str = ""
    """Why the request has no response, "" if it has one."""


class PeerContacts:
    """The last contact with each peer, by node id."""

    def __init__(self) -> None:
        self._last: dict[int, Contact] = {}

    def note(self, peer_id: int | None, at_ms: int, failure: str = "") -> None:
        """Note the end of a request. peer_id: None if it is unknown who was asked."""
        if peer_id is None:
            return
        self._last.pop(peer_id, None)
        if len(self._last) >= PEERS_MAX:
            del self._last[next(iter(self._last))]
        self._last[peer_id] = Contact(at_ms, failure)

    def since(self, peer_id: int, began_ms: int) -> Contact | None:
        """The last contact with a peer, None if there was none since `began_ms`."""
        last = self._last.get(peer_id)
        return last if last is not None and last.at_ms >= began_ms else None


def plain_reason(failure: str, address: str) -> str:
    """A failure without the peer's address, which the message names once."""
    text = failure.removeprefix(f"{address}: ")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
