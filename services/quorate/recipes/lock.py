"""A lock with fencing tokens.

The holder is the value of the lock's key. It renews the value before its time to live ends. Whoever
has seen the same record for that time, by its own clock, may replace it: clocks need no common
time, only about the same speed. Each of these changes is conditional on the record that it
replaces, so only one of several clients succeeds.

A lock cannot stop a holder that was paused and does not know that its time is over. The token can:
it is the offset of the record that acquired the lock, so later holders have larger tokens. Pass it
to the protected resource, which must reject a token smaller than the largest it has seen.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from types import TracebackType

from quorate.raft.errors import MisuseError
from quorate.recipes.key_view import NO_VERSION, Entry, KeyView
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import (
    ClientError,
    ConditionFailedError,
    OffsetCompactedError,
    OutcomeUnknownError,
)

RENEWALS = 3
"""How often the holder renews the lock within its time to live."""
RETRY_S = 0.1
"""The delay after a failed attempt to renew."""


class LockLostError(ClientError):
    """The lock was lost while it was held: it was not renewed in time, or somebody removed it.

    Example:
        lock = quorate.recipes.Lock(client, b"printer")
        try:
            async with lock as token:
                print("holding", token, lock.is_lost.is_set())
        except quorate.recipes.LockLostError:
            print("somebody else may have held it meanwhile")
    """


@dataclass(frozen=True, slots=True)
class _Holder:
    """The value of the key."""

    acquisition: str
    """An id of its own for each time that the lock is acquired."""
    owner: str
    ttl_s: float
    token: int | None = None
    """None in the record whose offset it is."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def holder_of(entry: Entry) -> tuple[_Holder, int] | None:
    """The holder and its token, None if there is none. ClientError if the value is another's."""
    if entry.value is None:
        return None
    try:
        fields = json.loads(entry.value)
        holder = _Holder(**fields)
    except (ValueError, TypeError):
        raise ClientError(f"the value is not that of a lock: {entry.value[:100]!r}") from None
    return holder, entry.version if holder.token is None else holder.token


class Lock:
    """A lock under one key of the log: use it with `async with`, or `acquire` and `release`.

    owner: shown to others. ttl_s: how long others wait for a holder that does not renew the lock,
    seconds. One object can hold the lock once at a time. is_lost: set when the lock is lost while
    it is held. Leaving `async with` then raises LockLostError, unless another error leaves it.

    Example:
        lock = quorate.recipes.Lock(client, b"printer", owner="worker-7", ttl_s=10)
        async with lock as token:
            print("holding the lock with fencing token", token)
    """

    def __init__(
        self, client: QuorumClient, key: bytes, *, owner: str = "", ttl_s: float = 10.0
    ) -> None:
        if not key:
            raise MisuseError("a lock needs a key that is not empty")
        self.is_lost = asyncio.Event()
        self._client = client
        self._key = key
        self._owner = owner
        self._ttl_s = ttl_s
        self._view = KeyView(client, key)
        self._held: _Holder | None = None
        self._version = NO_VERSION
        self._valid_until_s = 0.0
        self._renewing: asyncio.Task[None] | None = None

    @property
    def token(self) -> int | None:
        """The fencing token, None while the lock is not held."""
        return None if self._held is None else self._held.token

    async def holder(self) -> tuple[str, int] | None:
        """The owner and the token of the current holder, None without one."""
        await self._view.refresh()
        found = holder_of(self._view.get(self._key))
        return None if found is None else (found[0].owner, found[1])

    async def __aenter__(self) -> int:
        return await self.acquire()

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        was_lost = self.is_lost.is_set()
        await self.release()
        if was_lost and error is None:
            raise LockLostError("the lock was lost while it was held")

    # --- acquiring --------------------------------------------------------------------------------

    async def acquire(self) -> int:
        """Wait until the lock is acquired, and return the token. Raises as `Client.append`.

        To limit the wait, use `asyncio.timeout`.
        """
        if self._held is not None:
            raise MisuseError("this object holds the lock already")
        wanted = _Holder(secrets.token_hex(16), self._owner, self._ttl_s)
        seen, seen_s = NO_VERSION, 0.0
        sent_s: float | None = None
        while True:
            await self._view.refresh()
            entry = self._view.get(self._key)
            found = holder_of(entry)
            if found is not None and found[0].acquisition == wanted.acquisition:
                assert sent_s is not None, "only this object writes its acquisition"
                return self._acquired(wanted, entry.version, sent_s)
            if entry.version != seen:
                seen, seen_s = entry.version, time.monotonic()
            left_s = 0.0 if found is None else seen_s + found[0].ttl_s - time.monotonic()
            if left_s > 0:
                await self._changed(left_s)
                continue
            sent_s = time.monotonic() if sent_s is None else sent_s
            # If the outcome is unknown, the next read shows it, or the next attempt fails.
            with suppress(ConditionFailedError, OutcomeUnknownError):
                version = await self._write(wanted, entry.version)
                return self._acquired(wanted, version, sent_s)

    def _acquired(self, wanted: _Holder, token: int, sent_s: float) -> int:
        self._held = _Holder(wanted.acquisition, wanted.owner, wanted.ttl_s, token)
        self._version = token
        self._valid_until_s = sent_s + self._ttl_s
        self.is_lost.clear()
        self._renewing = asyncio.create_task(self._renew(self._held), name="quorate-lock")
        return token

    async def _write(self, holder: _Holder | None, version: int) -> int:
        """Replace the record at `version`, and return the new one."""
        value = None if holder is None else holder.to_bytes()
        result = await self._client.append(
            [(self._key, value)], if_key_offsets={self._key: version}
        )
        return result.base_offset

    async def _changed(self, timeout_s: float) -> None:
        """Wait for the next record of the key."""
        with suppress(TimeoutError, OffsetCompactedError):
            async with asyncio.timeout(timeout_s):
                reading = self._client.read(self._view.position, follow=True)
                async with aclosing(reading) as records:
                    async for record in records:
                        if record.key == self._key:
                            return

    # --- holding ----------------------------------------------------------------------------------

    async def _renew(self, held: _Holder) -> None:
        """Renew the lock until it is lost, or the task is cancelled."""
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(self._valid_until_s - time.monotonic()):
                    await asyncio.sleep(self._ttl_s / RENEWALS)
                    if not await self._renewed(held):
                        break
        self._held = None
        self.is_lost.set()

    async def _renewed(self, held: _Holder) -> bool:
        """Renew the lock once; False if another record has replaced the holder's."""
        while True:
            sent_s = time.monotonic()
            try:
                self._version = await self._write(held, self._version)
                self._valid_until_s = sent_s + self._ttl_s
                return True
            except ConditionFailedError:
                with suppress(ClientError):
                    if not await self._is_own(held):
                        return False
            except ClientError:
                pass
            await asyncio.sleep(RETRY_S)

    async def _is_own(self, held: _Holder) -> bool:
        """Whether the current record is the holder's own: an earlier attempt may be committed."""
        await self._view.refresh()
        entry = self._view.get(self._key)
        found = holder_of(entry)
        self._version = entry.version
        return found is not None and found[0].acquisition == held.acquisition

    async def release(self) -> None:
        """Release the lock; does nothing if it is not held any more. Raises as `Client.append`.

        If that fails, the lock is free once its time to live is over.
        """
        if self._renewing is None:
            return
        await cancel_tasks(self._renewing)
        self._renewing = None
        held, self._held = self._held, None
        while held is not None:
            try:
                await self._write(None, self._version)
                return
            except ConditionFailedError:
                if not await self._is_own(held):
                    return
