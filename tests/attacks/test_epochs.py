"""Vote, BeginQuorumEpoch and EndQuorumEpoch by anybody, with epochs as high as the wire takes them,
and real Votes without end: three real controllers keep their leader, their epoch and their writers.

Plaintext: a sender can claim to be any replica. With certificates it is limited to its own name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import random_uuid
from quorate.raft.epochs import BUDGET_EPOCHS, EPOCH_MAX
from quorate.rpc.client.quorum_client import ClientError, QuorumClient
from quorate.rpc.fields import directory_to_wire
from quorate.v1 import common_pb2, raft_pb2

from tests.integration.support import CLUSTER, HOST, Node, free_ports, succeed

IDS = (1, 2, 3)
INT32_MAX = 2**31 - 1
CALL_TIMEOUT_S = 10.0
WAIT_S = 60.0
VOTES_S = 6.0


class Attacked:
    """Three voters, and messages to them in any name."""

    def __init__(self, folder: Path) -> None:
        ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        self.addresses = [f"{HOST}:{port}" for port in ports.values()]
        directories = {node_id: random_uuid() for node_id in IDS}
        servers = ",".join(self.addresses)
        voters = ",".join(f"{i}-{directories[i]}@{HOST}:{ports[i]}" for i in IDS)
        self.nodes = {}
        for node_id in IDS:
            node = Node(
                folder,
                node_id,
                ports[node_id],
                **{"controller.quorum.bootstrap.servers": servers},
            )
            how = ("--initial-controllers", voters)
            succeed("storage", "format", "-t", CLUSTER, "-c", node.properties, *how)
            self.nodes[node_id] = node
        self.keys = {i: _key(i, directories[i]) for i in IDS}

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def persisted(self) -> dict[int, int]:
        """The epoch in each replica's quorum-state."""
        paths = {i: next(node.data.rglob("quorum-state")) for i, node in self.nodes.items()}
        return {i: json.loads(path.read_text())["leaderEpoch"] for i, path in paths.items()}

    async def leader(self) -> tuple[int, int]:
        """The id and the epoch of the leader, when there is one."""
        deadline = time.monotonic() + WAIT_S
        async with QuorumClient(self.addresses) as client:
            while True:
                try:
                    described = await client.describe_quorum()
                except Exception as error:
                    reason = str(error)
                else:
                    known = described.response.leader
                    if described.is_leaders_view and known.id is not None:
                        return known.id, known.epoch
                    reason = "nobody leads"
                assert time.monotonic() < deadline, reason
                await asyncio.sleep(0.1)

    async def append(self, value: bytes) -> None:
        async with QuorumClient(self.addresses, request_timeout_ms=int(WAIT_S * 1000)) as client:
            await client.append_value(value)

    @asynccontextmanager
    async def stub(self, node_id: int) -> AsyncIterator[Raft]:
        async with grpc.aio.insecure_channel(self.nodes[node_id].address) as channel:
            yield Raft(channel)


class Raft:
    """Raw calls to one controller."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def vote(self, request: raft_pb2.VoteRequest) -> raft_pb2.VoteResponse:
        return await self._call("Vote", request, raft_pb2.VoteResponse)

    async def begin(
        self, request: raft_pb2.BeginQuorumEpochRequest
    ) -> raft_pb2.BeginQuorumEpochResponse:
        return await self._call("BeginQuorumEpoch", request, raft_pb2.BeginQuorumEpochResponse)

    async def end(self, request: raft_pb2.EndQuorumEpochRequest) -> raft_pb2.EndQuorumEpochResponse:
        return await self._call("EndQuorumEpoch", request, raft_pb2.EndQuorumEpochResponse)

    async def _call(self, name, request, response):  # type: ignore[no-untyped-def]
        call = self._channel.unary_unary(
            f"/quorate.v1.Raft/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return await call(request, timeout=CALL_TIMEOUT_S, wait_for_ready=True)


def _key(node_id: int, directory_id: str) -> common_pb2.ReplicaKey:
    return common_pb2.ReplicaKey(id=node_id, directory_id=directory_to_wire(directory_id))


def _vote(
    epoch: int, candidate: common_pb2.ReplicaKey, voter: common_pb2.ReplicaKey
) -> raft_pb2.VoteRequest:
    return raft_pb2.VoteRequest(
        cluster_id=CLUSTER,
        epoch=epoch,
        candidate=candidate,
        voter=voter,
        last_epoch=0,
        last_offset=0,
    )


def stranger(attacked: Attacked, receiver: int) -> common_pb2.ReplicaKey:
    return _key(4242, random_uuid())


def another_voter(attacked: Attacked, receiver: int) -> common_pb2.ReplicaKey:
    return attacked.keys[receiver % len(IDS) + 1]


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Attacked]:
    attacked = Attacked(tmp_path)
    attacked.start()
    yield attacked
    attacked.kill()


Sender = Callable[[Attacked, int], common_pb2.ReplicaKey]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sender", [stranger, another_voter])
async def test_no_message_uses_up_the_epochs(attacked: Attacked, sender: Sender) -> None:
    _, epoch = await attacked.leader()
    await attacked.append(b"before")
    for too_high in (INT32_MAX, INT32_MAX - 1, EPOCH_MAX, epoch + BUDGET_EPOCHS + 1_000):
        for node_id in IDS:
            key, receiver = sender(attacked, node_id), attacked.keys[node_id]
            where = [common_pb2.Endpoint(name="CONTROLLER", host=HOST, port=1)]
            async with attacked.stub(node_id) as raft:
                voted = await raft.vote(_vote(too_high, key, receiver))
                begun = await raft.begin(
                    raft_pb2.BeginQuorumEpochRequest(
                        cluster_id=CLUSTER,
                        epoch=too_high,
                        leader=key,
                        leader_endpoints=where,
                        voter=receiver,
                    )
                )
                ended = await raft.end(
                    raft_pb2.EndQuorumEpochRequest(
                        cluster_id=CLUSTER,
                        epoch=too_high,
                        leader=key,
                        leader_endpoints=where,
                        preferred_candidates=[receiver],
                    )
                )
            assert not voted.vote_granted
            assert voted.error_code == ErrorCode.NONE
            assert begun.error_code == ended.error_code == ErrorCode.INVALID_REQUEST
            for answer in (voted, begun, ended):
                assert answer.current_leader.epoch < epoch + 100
    await attacked.append(b"after")
    assert max(attacked.persisted().values()) < epoch + 100

    attacked.kill()
    attacked.start()
    _, after = await attacked.leader()
    await attacked.append(b"after a restart")
    assert after < epoch + 100
    said = "".join(node.said() for node in attacked.nodes.values())
    assert "refused epoch 2147483647 of replica" in said
    assert "Traceback" not in said
    assert "was never retrieved" not in said


@pytest.mark.timeout(300)
async def test_a_message_for_another_replica_raises_no_epoch(attacked: Attacked) -> None:
    _, epoch = await attacked.leader()
    for node_id in IDS:
        other = _key(node_id, random_uuid())
        async with attacked.stub(node_id) as raft:
            answer = await raft.vote(_vote(epoch + 5, stranger(attacked, node_id), other))
        assert answer.error_code == ErrorCode.INVALID_VOTER_KEY
        assert answer.current_leader.epoch < epoch + 5
    assert max(attacked.persisted().values()) < epoch + 5


@pytest.mark.timeout(300)
async def test_real_votes_of_one_follower_do_not_stop_commits(attacked: Attacked) -> None:
    leader, epoch = await attacked.leader()
    await attacked.append(b"before")
    bad = next(i for i in IDS if i != leader)
    receivers = [i for i in IDS if i != bad]
    committed, ignored, end = 0, 0, time.monotonic() + VOTES_S

    async def write() -> None:
        nonlocal committed
        async with QuorumClient(attacked.addresses, request_timeout_ms=20_000) as client:
            while time.monotonic() < end:
                # A machine that stalls may cause an election, and the outcome of one append is
                # unknown then.
                with contextlib.suppress(ClientError):
                    await client.append_value(b"w")
                    committed += 1

    async def stand() -> None:
        nonlocal ignored
        later = epoch
        while time.monotonic() < end:
            later += 5
            for node_id in receivers:
                async with attacked.stub(node_id) as raft:
                    request = _vote(later, attacked.keys[bad], attacked.keys[node_id])
                    answer = await raft.vote(request)
                assert not answer.vote_granted
                ignored += "is ignored" in answer.error_message
            await asyncio.sleep(0.02)

    await asyncio.gather(write(), stand())
    print(f"\n{committed} appends committed, {ignored} votes ignored in {VOTES_S:.0f} s")
    assert committed > 20
    assert ignored > 20
    _, now = await attacked.leader()
    assert now < epoch + 5, "the epoch of a forged vote was adopted"
