"""A key-value store whose keys have versions."""

from __future__ import annotations

from quorate.raft.errors import MisuseError
from quorate.recipes.key_view import NO_VERSION, Entry, KeyView
from quorate.rpc.client.quorum_client import QuorumClient


class KeyValue:
    """A key-value store in the log. Every operation is linearizable.

    prefix: precedes the keys in the log, and separates this store from others. The version of a key
    is the offset of its record in the log, -1 without a value; it grows with every change.

    All methods raise as `Client.append` and `Client.read`. OutcomeUnknownError: the change may have
    been made, and may still be.

    Example:
        store = quorate.recipes.KeyValue(client, prefix=b"settings/")
        version = await store.put(b"colour", b"blue")
        await store.compare_and_set(b"colour", b"green", version)
        print(await store.get(b"colour"))
    """

    def __init__(self, client: QuorumClient, prefix: bytes = b"") -> None:
        self._client = client
        self._prefix = prefix
        self._view = KeyView(client, prefix)

    async def get(self, key: bytes) -> bytes | None:
        """The value of a key, None without one."""
        return (await self.entry(key)).value

    async def entry(self, key: bytes) -> Entry:
        """The value of a key and its version."""
        full = self._full(key)
        await self._view.refresh()
        return self._view.get(full)

    async def items(self) -> dict[bytes, bytes]:
        """All keys and their values."""
        await self._view.refresh()
        size = len(self._prefix)
        found = self._view.entries.items()
        return {key[size:]: entry.value for key, entry in found if entry.value is not None}

    async def put(self, key: bytes, value: bytes) -> int:
        """Set the value of a key, and return its version."""
        result = await self._client.append([(self._full(key), value)])
        return result.base_offset

    async def delete(self, key: bytes) -> None:
        """Delete a key, if there is one."""
        await self._client.append([(self._full(key), None)])

    async def compare_and_set(self, key: bytes, value: bytes | None, version: int) -> int:
        """Set the value of a key, or delete it with None, if the key has that version.

        Returns the new version. ConditionFailedError: the key has another version.
        """
        full = self._full(key)
        result = await self._client.append([(full, value)], if_key_offsets={full: version})
        return NO_VERSION if value is None else result.base_offset

    def _full(self, key: bytes) -> bytes:
        if not self._prefix and not key:
            raise MisuseError("the empty key has no versions: use a prefix, or another key")
        return self._prefix + key
