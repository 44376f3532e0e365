"""One message that holds millions of parts must not keep a controller busy.

Real controllers without TLS: nobody is refused for who they are.
"""

from __future__ import annotations

import asyncio
import time

import grpc.aio
import pytest
from quorate.common.error_codes import ErrorCode
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.wire.limits import MESSAGE_BYTES_MAX
from quorate.rpc.wire.methods import RPC_METHODS, RpcMethod
from quorate.rpc.wire.weighing import MESSAGE_WEIGHT

from tests.attacks.conftest import MakeQuorum

pytestmark = pytest.mark.timeout(120)

PART_BYTES = 2
PARTS_MAX = (MESSAGE_BYTES_MAX - 64) // PART_BYTES
GAP_MAX_S = 10.0
"""Of appends, on a machine that does other things too. Undefended, one such message takes a
minute.
"""
METHODS = ("CreateTopics", "DeleteTopics", "CreatePartitions", "AlterPartition", "Append")


def amplified() -> list[tuple[RpcMethod, int, int]]:
    """The first repeated field of each method, as often as the method takes it, and as often as
    gRPC does. The method, the field's number, and how often.
    """
    found = []
    for rpc in (RPC_METHODS[name] for name in METHODS):
        number = next(field.number for field in rpc.request.DESCRIPTOR.fields if field.is_repeated)
        if rpc.values is not None:
            found.append((rpc, number, rpc.weight_max // MESSAGE_WEIGHT))
        found.append((rpc, number, PARTS_MAX))
    return found


class Writer:
    """Appends all the time; `gap_s` is the longest that one took since it was set to 0."""

    def __init__(self, client: QuorumClient) -> None:
        self._client = client
        self.gap_s = 0.0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await self._client.append_value(b"probe")
            self.gap_s = max(self.gap_s, time.monotonic() - began)
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        assert not self._task.done(), self._task
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_a_message_of_millions_of_parts_stops_nobody(make_quorum: MakeQuorum) -> None:
    # Without shares, which would refuse most of them for what the ones before have cost.
    quorum = await make_quorum(**{"quorate.calls.per.second.max": 0})
    leader, _ = await quorum.leader()
    async with QuorumClient(quorum.addresses) as client:
        writer = Writer(client)
        slow = {}
        async with grpc.aio.insecure_channel(leader.address) as channel:
            for rpc, number, count in amplified():
                call = channel.unary_unary(rpc.path, response_deserializer=rpc.response.FromString)
                writer.gap_s = 0.0
                answer = await call(bytes((number << 3 | 2, 0)) * count, timeout=30)
                await asyncio.sleep(0.02)
                if count == PARTS_MAX:
                    assert answer.error_code == int(ErrorCode.INVALID_REQUEST), (rpc.name, answer)
                if writer.gap_s > GAP_MAX_S:
                    slow[rpc.name, number, count] = writer.gap_s
        await writer.stop()
        assert not slow
    assert "Traceback" not in leader.said()
