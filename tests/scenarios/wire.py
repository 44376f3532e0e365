"""What carries the messages of a transcript: by default nothing, the values themselves arrive."""

from __future__ import annotations

from typing import Any

from quorate.raft.types import VoterSet


class Wire:
    """Carries values as they are."""

    def request(self, request: Any, *, is_peers: bool) -> Any:
        """A request as its receiver reads it. is_peers: whether a replica sent it."""
        return request

    def response(self, request: Any, response: Any, voters: VoterSet, *, is_peers: bool) -> Any:
        """A response as the sender of the request reads it. voters: those that it knows."""
        return response
