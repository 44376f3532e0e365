"""What a controller can do whose pod somebody has taken over: with a voter's own certificate.

Real controllers with TLS, an authorizer and `quorate.controller.principals`. Raft trusts its
voters, so such a voter can win an election. It cannot take over an epoch in which another one
leads, and whatever it answers as a leader, a follower keeps what it knows to be committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from quorate.raft.messages import DescribeQuorumResponse
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import ClientError
from quorate.rpc.tls import TlsConfig
from quorate.v1 import common_pb2, raft_pb2

from tests.attacks.test_controller_principals import PRINCIPALS, REFUSED, Lab
from tests.certificates import needs_openssl
from tests.integration.support import CLUSTER, HOST, until

pytestmark = [needs_openssl, pytest.mark.timeout(120)]

FAR = 2**62
EPOCH_MAX = 2**31 - 1
STOPS = "below the high watermark"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, 3, **{PRINCIPALS: ";".join(f"User:CN=node-{i}" for i in (1, 2, 3))})
    for i in made.nodes:
        made.files[f"node-{i}"] = (tmp_path / f"node-{i}.pem", tmp_path / f"node-{i}.key")
    try:
        yield made
    finally:
        made.stop()


def endpoint(port: int = 1) -> common_pb2.Endpoint:
    return common_pb2.Endpoint(name="CONTROLLER", host=HOST, port=port)


async def append(lab: Lab, value: bytes) -> None:
    async with QuorumClient(lab.addresses, tls=lab.tls("admin")) as client:
        await client.append_value(value)


async def values(lab: Lab) -> list[bytes | None]:
    async with QuorumClient(lab.addresses, tls=lab.tls("admin")) as client:
        return [each.value async for each in client.read(0)]


async def leader_of(lab: Lab) -> tuple[int, int]:
    known = (await lab.described()).leader
    assert known.id is not None
    return known.id, known.epoch


async def replicated(lab: Lab) -> DescribeQuorumResponse:
    """The quorum, once every voter has all of the leader's log."""
    async with asyncio.timeout(20):
        while True:
            found = await lab.described()
            ends = {status.log_end_offset for status in found.voters}
            if ends == {found.high_watermark}:
                return found
            await asyncio.sleep(0.1)


async def test_a_voter_does_not_take_over_an_epoch_that_another_one_leads(lab: Lab) -> None:
    await append(lab, b"before")
    leader, epoch = await leader_of(lab)
    traitor, victim = (i for i in lab.nodes if i != leader)
    who = f"node-{traitor}"
    me, at = lab.key(traitor), {"cluster_id": CLUSTER, "epoch": epoch}
    for receiver in (leader, victim):
        for request in (
            raft_pb2.BeginQuorumEpochRequest(
                **at, leader=me, leader_endpoints=[endpoint()], voter=lab.key(receiver)
            ),
            raft_pb2.EndQuorumEpochRequest(
                **at, leader=me, preferred_candidates=[me], leader_endpoints=[endpoint()]
            ),
            raft_pb2.EndQuorumEpochRequest(
                cluster_id=CLUSTER, epoch=epoch - 1, leader=me, preferred_candidates=[me]
            ),
            lab.vote(traitor, receiver, epoch, pre_vote=False),
            lab.vote(traitor, receiver, epoch, pre_vote=True),
        ):
            answer = await lab.call(who, receiver, request)
            assert not getattr(answer, "vote_granted", False), (request, answer)
            known = answer.current_leader
            assert (known.id, known.epoch) == (leader, epoch), (request, answer)
    # In the names of others.
    for request in lab.attacks(leader, victim):
        answer = await lab.call(who, victim, request)
        assert answer.error_code == REFUSED, (type(request), answer)
    assert await leader_of(lab) == (leader, epoch)
    await append(lab, b"after")
    assert await values(lab) == [b"before", b"after"]
    assert "Traceback" not in lab.said()


async def test_positions_that_no_log_has_are_answered(lab: Lab) -> None:
    """Fetches and snapshots from anywhere: an error or nothing, and the leader goes on."""
    await append(lab, b"before")
    leader, epoch = await leader_of(lab)
    traitor = next(i for i in lab.nodes if i != leader)
    who = f"node-{traitor}"
    end = (await lab.described()).high_watermark
    for offset, last in ((FAR, epoch), (2**63 - 1, EPOCH_MAX), (end + 1, EPOCH_MAX), (1, 0)):
        answer = await lab.call(
            who,
            leader,
            raft_pb2.FetchRequest(
                cluster_id=CLUSTER,
                epoch=epoch,
                replica=lab.key(traitor),
                offset=offset,
                last_epoch=last,
                high_watermark=FAR,
                max_wait_ms=0,
            ),
        )
        assert not answer.records, answer
        assert answer.error_code or answer.HasField("diverging"), answer
    for position, snapshot in (
        (0, common_pb2.OffsetAndEpoch(offset=FAR, epoch=epoch)),
        (FAR, common_pb2.OffsetAndEpoch(offset=1, epoch=EPOCH_MAX)),
        (2**63 - 1, common_pb2.OffsetAndEpoch(offset=0, epoch=0)),
    ):
        request = raft_pb2.FetchSnapshotRequest(
            cluster_id=CLUSTER,
            epoch=epoch,
            replica=lab.key(traitor),
            snapshot_id=snapshot,
            position=position,
        )
        parts = await streamed(lab, who, leader, request)
        assert [part.error_code != 0 for part in parts] == [True], parts
    for start, stop in ((0, 2**63 - 1), (FAR, FAR + 1), (end, 0)):
        checked = raft_pb2.ChecksumLogRequest(
            cluster_id=CLUSTER,
            replica=lab.key(traitor),
            voter=lab.key(leader),
            start_offset=start,
            end_offset=stop,
        )
        answer = await lab.call(who, leader, checked)
        assert answer.error_code, answer
    # What it claims to have acknowledged did not commit anything, and is still replicated.
    await append(lab, b"after")
    assert await values(lab) == [b"before", b"after"]
    assert await leader_of(lab) == (leader, epoch)
    assert "Traceback" not in lab.said()


async def streamed(lab: Lab, who: str, receiver: int, request: Any) -> list[Any]:
    credentials = lab.tls(who).channel_credentials()
    async with grpc.aio.secure_channel(lab.nodes[receiver].address, credentials) as channel:
        ask = channel.unary_stream(
            "/quorate.v1.Raft/FetchSnapshot",
            request_serializer=type(request).SerializeToString,
            response_deserializer=raft_pb2.FetchSnapshotResponse.FromString,
        )
        return [part async for part in ask(request, timeout=10)]


Answer = Callable[[raft_pb2.FetchRequest], raft_pb2.FetchResponse]


class FalseLeader:
    """Answers fetches as it likes, at the address and with the certificate of a voter.

    fetches: what it was asked.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.fetches: list[raft_pb2.FetchRequest] = []
        self.was_asked = asyncio.Event()

    @asynccontextmanager
    async def served(self, port: int, tls: TlsConfig) -> AsyncIterator[None]:
        server = grpc.aio.server()
        made = {
            "Fetch": grpc.unary_unary_rpc_method_handler(
                self._fetch,
                raft_pb2.FetchRequest.FromString,
                raft_pb2.FetchResponse.SerializeToString,
            ),
            "FetchStream": grpc.stream_stream_rpc_method_handler(
                self._stream,
                raft_pb2.FetchRequest.FromString,
                raft_pb2.FetchResponse.SerializeToString,
            ),
            "FetchSnapshot": grpc.unary_stream_rpc_method_handler(
                self._snapshot,
                raft_pb2.FetchSnapshotRequest.FromString,
                raft_pb2.FetchSnapshotResponse.SerializeToString,
            ),
        }
        generic = grpc.method_handlers_generic_handler("quorate.v1.Raft", made)
        server.add_generic_rpc_handlers((generic,))
        credentials = tls.server_credentials()
        assert server.add_secure_port(f"{HOST}:{port}", credentials) == port
        await server.start()
        try:
            yield
        finally:
            await server.stop(0)

    def _note(self, request: raft_pb2.FetchRequest) -> raft_pb2.FetchResponse:
        self.fetches.append(request)
        self.was_asked.set()
        return self.answer(request)

    async def _fetch(self, request: raft_pb2.FetchRequest, _: Any) -> raft_pb2.FetchResponse:
        return self._note(request)

    async def _stream(
        self, requests: AsyncIterator[raft_pb2.FetchRequest], _: Any
    ) -> AsyncIterator[raft_pb2.FetchResponse]:
        async for request in requests:
            yield self._note(request)

    async def _snapshot(
        self, request: raft_pb2.FetchSnapshotRequest, _: Any
    ) -> AsyncIterator[raft_pb2.FetchSnapshotResponse]:
        yield raft_pb2.FetchSnapshotResponse(
            snapshot_id=request.snapshot_id,
            size=FAR,
            position=request.position,
            data=b"\0" * 4096,
        )


def truncate_to_nothing(request: raft_pb2.FetchRequest) -> raft_pb2.FetchResponse:
    return raft_pb2.FetchResponse(diverging=common_pb2.OffsetAndEpoch(offset=0, epoch=0))


def commit_what_is_not_there(request: raft_pb2.FetchRequest) -> raft_pb2.FetchResponse:
    return raft_pb2.FetchResponse(high_watermark=FAR, records_from=request.offset)


def a_snapshot_from_the_future(request: raft_pb2.FetchRequest) -> raft_pb2.FetchResponse:
    snapshot = common_pb2.OffsetAndEpoch(offset=FAR, epoch=request.epoch)
    return raft_pb2.FetchResponse(snapshot_id=snapshot)


@pytest.mark.parametrize(
    "answer", [truncate_to_nothing, commit_what_is_not_there, a_snapshot_from_the_future]
)
async def test_a_follower_keeps_what_is_committed_whatever_a_leader_answers(
    lab: Lab, answer: Answer
) -> None:
    written = [b"one", b"two", b"three"]
    for value in written:
        await append(lab, value)
    leader, epoch = await leader_of(lab)
    traitor, victim = (i for i in lab.nodes if i != leader)
    end = (await replicated(lab)).high_watermark
    lab.nodes[traitor].kill()
    port = lab.nodes[traitor].port
    tls = lab.tls(f"node-{traitor}")

    def answered(request: raft_pb2.FetchRequest) -> raft_pb2.FetchResponse:
        found = answer(request)
        known = common_pb2.CurrentLeader(
            epoch=request.epoch, id=traitor, endpoints=[endpoint(port)]
        )
        found.current_leader.CopyFrom(known)
        return found

    false = FalseLeader(answered)
    async with false.served(port, tls):
        begin = raft_pb2.BeginQuorumEpochRequest(
            cluster_id=CLUSTER,
            epoch=epoch + 1,
            leader=lab.key(traitor),
            leader_endpoints=[endpoint(port)],
            voter=lab.key(victim),
        )
        await lab.call(f"node-{traitor}", victim, begin)
        async with asyncio.timeout(20):
            await false.was_asked.wait()
        await asyncio.sleep(1.0)
    assert all(fetch.offset >= end for fetch in false.fetches), "it asked for what it had"
    data = lab.nodes[victim].data
    assert sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) < 32 << 20
    if answer is truncate_to_nothing:
        until("it stops, rather than lose records", lambda: STOPS in lab.nodes[victim].said())
        lab.nodes[victim].kill()
        lab.nodes[victim].start()
    else:
        assert STOPS not in lab.said()
    # Nobody believes that more is committed, and the others go on without the traitor.
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ClientError):
                await append(lab, b"after")
                break
    found = await values(lab)
    assert found[:3] == written, found
    assert set(found[3:]) == {b"after"}, found
    assert (await lab.described()).high_watermark < FAR
