"""How long a dead voter or a stuck AddVoter holds up a quorum, on three real controllers.

    python -m tests.attacks.membership_pauses [--runs 3]

transfer: a follower is killed (kill -9) and leadership is transferred to it at once; printed is the
longest time between two acknowledged appends. removal: an AddVoter whose voter never answers is
pending; printed is how long a RemoveVoter takes. Traffic is on loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from quorate.common.endpoints import Endpoint
from quorate.controller.formatting import random_uuid
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import AdminError, QuorumClient

from tests.integration.support import CLUSTER, HOST, Node, free_ports, succeed

IDS = (1, 2, 3)
TIMEOUT_MS = 15_000
"""What the administrator waits for at most."""
WRITES_S = 1.0
"""How long is written before and after."""


class Quorum:
    """Three controllers, one directory each."""

    def __init__(self, folder: Path) -> None:
        *ports, self.closed_port = free_ports(len(IDS) + 1)
        self.addresses = [f"{HOST}:{port}" for port in ports]
        servers = ",".join(self.addresses)
        self.nodes = {
            i: Node(folder, i, port, **{"controller.quorum.bootstrap.servers": servers})
            for i, port in zip(IDS, ports, strict=True)
        }
        voters = ",".join(
            f"{i}-{random_uuid()}@{address}" for i, address in zip(IDS, self.addresses, strict=True)
        )
        for node in self.nodes.values():
            line = ("storage", "format", "-t", CLUSTER, "-c", node.properties)
            succeed(*line, "--initial-controllers", voters)
            node.start()

    async def settled(self, client: QuorumClient) -> tuple[int, list[ReplicaKey]]:
        """The leader's id and the other voters, once all of them hold what is committed."""
        while True:
            with contextlib.suppress(Exception):
                found = (await client.describe_quorum()).response
                ends = {status.log_end_offset for status in found.voters}
                if len(found.voters) == len(IDS) and len(ends) == 1 and found.leader.id is not None:
                    keys = [status.replica for status in found.voters]
                    return found.leader.id, [key for key in keys if key.id != found.leader.id]
            await asyncio.sleep(0.2)


class Writer:
    """Appends one record after the other. longest_s: the longest time between two answers."""

    def __init__(self, client: QuorumClient) -> None:
        self._client = client
        self.longest_s = 0.0
        self.count = 0

    async def run(self) -> None:
        last = time.monotonic()
        while True:
            await self._client.append_value(b"x" * 100, b"k")
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - last)
            self.count += 1
            last = now


async def transfer_to_the_dead(quorum: Quorum) -> str:
    async with QuorumClient(quorum.addresses, request_timeout_ms=60_000) as client:
        _, others = await quorum.settled(client)
        writer = Writer(client)
        task = asyncio.create_task(writer.run())
        await asyncio.sleep(WRITES_S)
        before_s, writer.longest_s = writer.longest_s, 0.0
        quorum.nodes[others[0].id].kill()
        began = time.monotonic()
        try:
            await client.transfer_leadership(others[0], timeout_ms=TIMEOUT_MS)
            answer = "done"
        except AdminError as error:
            answer = str(error)
        took_s = time.monotonic() - began
        await asyncio.sleep(WRITES_S)
        task.cancel()
        return (
            f"longest write pause {writer.longest_s * 1000:.0f} ms ({before_s * 1000:.0f} ms "
            f"before), answered after {took_s * 1000:.0f} ms: {answer}"
        )


async def removal_behind_a_stuck_add(quorum: Quorum) -> str:
    async with QuorumClient(quorum.addresses, request_timeout_ms=60_000) as client:
        _, others = await quorum.settled(client)
        absent = ReplicaKey(9, random_uuid())
        endpoint = Endpoint("CONTROLLER", HOST, quorum.closed_port)
        adding = asyncio.create_task(client.add_voter(absent, [endpoint], timeout_ms=TIMEOUT_MS))
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await client.remove_voter(others[0])
        took_s = time.monotonic() - began
        is_pending = not adding.done()
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        state = "still pending" if is_pending else "over"
        return f"RemoveVoter took {took_s * 1000:.0f} ms; the AddVoter was {state}"


async def measured(runs: int) -> None:
    for name, measure in (
        ("transfer", transfer_to_the_dead),
        ("removal", removal_behind_a_stuck_add),
    ):
        for number in range(runs):
            with tempfile.TemporaryDirectory(prefix="quorate-pauses-") as folder:
                quorum = Quorum(Path(folder))
                try:
                    text = await measure(quorum)
                finally:
                    for node in quorum.nodes.values():
                        node.kill()
            print(f"{name} {number + 1}: {text}")
            sys.stdout.flush()


def main(runs: Annotated[int, typer.Option(min=1)] = 3) -> None:
    """Print a line for each run."""
    asyncio.run(measured(runs))


if __name__ == "__main__":
    typer.run(main)
