"""A counter that any number of clients increase."""

from __future__ import annotations

from quorate.recipes.key_value import KeyValue
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import ConditionFailedError


class Counter:
    """An integer under one key of the log, 0 at first.

    The methods raise as `Client.append` and `Client.read`. OutcomeUnknownError: the amount may have
    been added, once.

    Example:
        counter = quorate.recipes.Counter(client, b"visits")
        await counter.add(2)
        print(await counter.value())
    """

    def __init__(self, client: QuorumClient, key: bytes) -> None:
        self._store = KeyValue(client, key)

    async def value(self) -> int:
        """The current value."""
        return int(await self._store.get(b"") or b"0")

    async def add(self, amount: int = 1) -> int:
        """Add an amount, which may be negative, and return the new value."""
        while True:
            value, version = await self._store.entry(b"")
            total = int(value or b"0") + amount
            try:
                await self._store.compare_and_set(b"", b"%d" % total, version)
            except ConditionFailedError:
                continue
            return total
