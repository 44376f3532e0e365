"""An election of one leader among programs."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from quorate.recipes.lock import Lock
from quorate.rpc.client.quorum_client import QuorumClient


class Leadership(NamedTuple):
    """A leader's name and its term, which grows with every election.

    Example:
        election = quorate.recipes.Election(client, b"scheduler", "worker-7")
        await election.campaign()
        leader = await election.leader()
        print(leader.name, leader.term)
        await election.resign()
    """

    name: str
    term: int


class Election:
    """Elects one of the programs that campaign under one key of the log.

    name: of this candidate. ttl_s: how long a leader may be silent before another one is elected,
    seconds. As with `Lock`, a leader that was paused may not know that its time is over: let what
    it commands reject terms smaller than the largest seen.

    Example:
        election = quorate.recipes.Election(client, b"scheduler", "worker-7", ttl_s=10)
        term = await election.campaign()
        print("elected for term", term, "until", election.is_over)
        await election.resign()
    """

    def __init__(self, client: QuorumClient, key: bytes, name: str, *, ttl_s: float = 10.0) -> None:
        self._lock = Lock(client, key, owner=name, ttl_s=ttl_s)

    @property
    def is_over(self) -> asyncio.Event:
        """Set when this candidate loses the leadership without having resigned."""
        return self._lock.is_lost

    async def campaign(self) -> int:
        """Wait until this candidate is elected, and return its term. Raises as `Lock.acquire`."""
        return await self._lock.acquire()

    async def leader(self) -> Leadership | None:
        """The current leader, None without one. Raises as `Client.read`."""
        found = await self._lock.holder()
        return None if found is None else Leadership(*found)

    async def resign(self) -> None:
        """End the leadership, if this candidate has it. Raises as `Lock.release`."""
        await self._lock.release()
