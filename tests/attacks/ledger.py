"""What clients were told is committed, and whether the log still holds it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from quorate.rpc.client.quorum_client import ClientError, QuorumClient

from tests.soak.nodes import FaultyNode, FaultyQuorum, NotWithinTimeError

BATCH_RECORDS = 10
VALUE_BYTES = 100
READ_WAIT_S = 30.0


class Ledger:
    """Writes values in batches of ten, one batch after the other."""

    def __init__(self, quorum: FaultyQuorum) -> None:
        self._quorum = quorum
        self._next = 0
        self.acknowledged: dict[bytes, int] = {}
        """Each value with the offset that its append returned."""

    async def write(self, count: int, *, timeout_ms: int = 20_000) -> None:
        """Append so many values. ClientError at the first batch that is not acknowledged."""
        async with QuorumClient(self._quorum.addresses, request_timeout_ms=timeout_ms) as client:
            for _ in range(count // BATCH_RECORDS):
                values = [self._value() for _ in range(BATCH_RECORDS)]
                appended = await client.append([(b"", value) for value in values])
                for number, value in enumerate(values):
                    self.acknowledged[value] = appended.base_offset + number

    def _value(self) -> bytes:
        self._next += 1
        return f"value-{self._next:06}".encode().ljust(VALUE_BYTES, b".")

    async def verify(self) -> None:
        """Everything that was acknowledged is in the log, and nothing is there twice."""
        seen = Counter(await self._read())
        missing = [value for value in self.acknowledged if value not in seen]
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} are lost: {missing[:2]}"
        doubled = [value for value, times in seen.items() if times > 1]
        assert not doubled, doubled[:2]

    async def _read(self) -> list[bytes]:
        deadline = time.monotonic() + READ_WAIT_S
        while True:
            try:
                async with QuorumClient(self._quorum.addresses) as client:
                    return [
                        bytes(record.value)
                        async for record in client.read(0, linearizable=True)
                        if record.key is not None and record.value is not None
                    ]
            except ClientError:
                assert time.monotonic() < deadline, "the log cannot be read"
                await asyncio.sleep(0.2)


async def elects(quorum: FaultyQuorum, within_s: float) -> bool:
    """Whether the nodes that run have a leader within some seconds."""
    try:
        await quorum.until("a leader", lambda _: True, within_s)
    except NotWithinTimeError:
        return False
    return True


async def followers(quorum: FaultyQuorum) -> tuple[FaultyNode, list[FaultyNode]]:
    """The leader, and the others."""
    leader, _ = await quorum.leader()
    return leader, [node for node in quorum.nodes.values() if node is not leader]
