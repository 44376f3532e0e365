"""The keys of the log that begin with a prefix, with their values, as of a linearizable read."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from quorate.records.metadata import ApplicationTag, application_record, encode
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import ClientError, ReadBrokenError

NO_VERSION = -1
"""The version of a key without a value."""
UNKNOWN_VERSION = -2
READS_MAX = 3
"""How often to read from the beginning if the connection breaks while a snapshot is read."""

_STATES = tuple(
    encode(application_record(tag, b""), 0)[:-1]
    for tag in (ApplicationTag.INDEX_CHUNK, ApplicationTag.STATE_CHUNK)
)
"""How the records of a snapshot begin that replace records of applications."""
_REPLACED = (
    "the state of a state machine has replaced records of the log: recipes need a quorum whose "
    "nodes have no state machines with snapshots of their own"
)


class Entry(NamedTuple):
    """The value of a key, None without one, and its version: the offset of the record, else -1.

    Example:
        store = quorate.recipes.KeyValue(client)
        await store.put(b"colour", b"blue")
        value, version = await store.entry(b"colour")
        print(value, version)
    """

    value: bytes | None
    version: int


NO_ENTRY = Entry(None, NO_VERSION)


class KeyView:
    """Entries by key. `position` is the offset at which the next read begins."""

    def __init__(self, client: QuorumClient, prefix: bytes) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.position = 0
        self._client = client
        self._prefix = prefix
        self._guard = asyncio.Lock()

    def get(self, key: bytes) -> Entry:
        """The entry of a key as of the last refresh."""
        return self.entries.get(key, NO_ENTRY)

    async def refresh(self) -> None:
        """Include everything that was committed before the call. Raises as `Client.read`.

        ClientError: the state of a state machine has replaced records, perhaps those of the keys.
        """
        async with self._guard:
            if not await self._continue():
                await self._restart()

    async def _continue(self) -> bool:
        """Read what is new; False if a snapshot has replaced it.

        A snapshot lacks the records that have been compacted away, such as deletions.
        """
        position = self.position
        async for record in self._client.read(position):
            if record.key is None and (record.value or b"").startswith(_STATES):
                raise ClientError(_REPLACED)
            if record.offset is None and position > 0:
                return False
            self._apply(record.key, record.value, record.offset)
        return True

    async def _restart(self) -> None:
        for attempt in range(READS_MAX):
            self.entries, self.position = {}, 0
            try:
                await self._continue()
                return
            except ReadBrokenError:
                if attempt + 1 == READS_MAX:
                    raise

    def _apply(self, key: bytes | None, value: bytes | None, offset: int | None) -> None:
        if offset is not None:
            self.position = offset + 1
        if key is None or not key.startswith(self._prefix):
            return
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = Entry(value, UNKNOWN_VERSION if offset is None else offset)
