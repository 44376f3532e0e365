"""How each peer responded to the last request of this replica, for log messages."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.common.endpoints import Endpoint
from quorate.raft.config import RaftConfig
from quorate.raft.types import Voter
from quorate.rpc.wire.limits import format_address

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
    """The last contact with each peer, by the endpoint to which this replica connects."""

    def __init__(self) -> None:
        self._last: dict[Endpoint, Contact] = {}

    def note(self, peer: Endpoint, at_ms: int, failure: str = "") -> None:
        """Note the end of a request."""
        self._last.pop(peer, None)
        if len(self._last) >= PEERS_MAX:
            del self._last[next(iter(self._last))]
        self._last[peer] = Contact(at_ms, failure)

    def since(self, began_ms: int) -> dict[Endpoint, Contact]:
        """The last contact with each peer, without those before `began_ms`."""
        return {peer: each for peer, each in self._last.items() if each.at_ms >= began_ms}

    def with_voter(self, config: RaftConfig, voter: Voter, began_ms: int) -> Contact | None:
        """The last contact with a voter, None if there was none since `began_ms`."""
        if not voter.endpoints:
            return None
        return self.since(began_ms).get(config.peer_endpoint(voter.endpoints))


def voter_address(config: RaftConfig, voter: Voter) -> str:
    """The address at which this replica connects to a voter; "" if it has none."""
    if not voter.endpoints:
        return ""
    endpoint = config.peer_endpoint(voter.endpoints)
    return format_address(endpoint.host, endpoint.port)


def plain_reason(failure: str, address: str) -> str:
    """A failure without the peer's address, which the message names once."""
    text = failure.removeprefix(f"{address}: ")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
