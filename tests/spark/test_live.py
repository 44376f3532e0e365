"""Reading a running quorum: what is committed, from whoever leads; without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import grpc
import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch
from quorate.records.metadata import ConfigRecord, encode
from quorate.rpc.client.batch_reader import QuorumConnection
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.wire.values import ReadChunk
from quorate.spark.decoding import framing
from quorate.spark.decoding.columns import LEDGER, ChunkOrigin, rows
from quorate.spark.errors import CompactedError, QuorumUnreachableError, lost
from quorate.spark.live import live_reader
from quorate.spark.options import OFFSET_MAX

from tests.integration.support import Node, free_ports
from tests.spark.read_server import read_server

COUNT = 300


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A controller, the only voter of its quorum, with configs in its log."""
    node = Node(tmp_path_factory.mktemp("live"), 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("leads epoch 1")
        asyncio.run(append(node.address))
        yield node
    finally:
        node.kill()


async def append(address: str) -> None:
    async with QuorumClient([address]) as client:
        for number in range(0, COUNT, 10):
            values = [encode(ConfigRecord(4, "1", f"n{number + i}", "v")) for i in range(10)]
            await client.append([(None, value) for value in values])


def test_everything_committed_is_read_and_nothing_beyond(node: Node) -> None:
    with live_reader(QuorumConnection((node.address,))) as reader:
        extent = reader.extent()
        assert extent.start == 0
        assert extent.end >= COUNT
        found: list[dict[str, object]] = []
        for data in reader.batches(0, extent.end):
            batch = rows(LEDGER, framing.whole(data), ChunkOrigin("leader", ""), 0, OFFSET_MAX)
            found += batch.to_pylist()
    assert [row["offset"] for row in found] == list(range(extent.end))
    assert found[0]["type"] == "LEADER_CHANGE"
    configs = [row for row in found if row["type"] == "CONFIG_RECORD"]
    assert len(configs) == COUNT


def test_a_part_is_read_from_any_address_of_the_list(node: Node) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    with live_reader(QuorumConnection((dead, node.address))) as reader:
        pieces = list(reader.batches(100, 150))
    offsets = [
        offset
        for data in pieces
        for offset in rows(LEDGER, framing.whole(data), ChunkOrigin("", ""), 100, 150)
        .column("offset")
        .to_pylist()
    ]
    assert offsets == list(range(100, 150))


def test_nobody_answers() -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        pytest.raises(QuorumUnreachableError) as told,
        live_reader(QuorumConnection((dead,), timeout_s=1)) as reader,
    ):
        reader.extent()
    assert dead in told.value.reason
    assert "\n" not in told.value.reason


SNAPSHOT = OffsetAndEpoch(320, 7)


def piece(records: bytes) -> ReadChunk:
    return ReadChunk(ErrorCode.NONE, CurrentLeader(7), 400, 400, 320, SNAPSHOT, records)


END = ReadChunk(ErrorCode.NONE, CurrentLeader(7), 400, 400, 320, last=True)
COMPACTED = ReadChunk(ErrorCode.OFFSET_OUT_OF_RANGE, CurrentLeader(7), last=True)


def serving(*reads: list[ReadChunk]) -> AbstractContextManager[str]:
    """The address of a node: it answers each read by the next list, later ones by the last list.

    A list without a final chunk ends in a broken stream.
    """
    left = list(reads)

    def answer(_: bytes, context: grpc.ServicerContext) -> Iterator[ReadChunk]:
        chunks = left.pop(0) if len(left) > 1 else left[0]
        yield from chunks
        if not chunks[-1].last:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the node stops")

    return read_server(answer)


@pytest.mark.parametrize("broken", [[piece(b"a")], [piece(b"a"), COMPACTED]])
def test_a_snapshot_whose_stream_breaks_is_read_again(broken: list[ReadChunk]) -> None:
    whole = [piece(b"a"), piece(b"b"), END]
    with serving(broken, whole) as address, live_reader(QuorumConnection((address,))) as reader:
        assert reader.snapshot() == (320, [b"a", b"b"])


def test_a_snapshot_whose_stream_always_breaks_is_an_error() -> None:
    with (
        serving([piece(b"a")]) as address,
        pytest.raises(QuorumUnreachableError) as told,
        live_reader(QuorumConnection((address,), timeout_s=1)) as reader,
    ):
        reader.snapshot()
    assert address in told.value.reason


def test_what_is_compacted_is_told() -> None:
    error: CompactedError = lost(3, 320)
    assert error.reason.startswith("offset 3 was compacted away: the log begins at 320")


def test_the_path_of_a_log_is_pickled(tmp_path: Path) -> None:
    import pickle

    from quorate.spark.options import SourceOptions
    from quorate.spark.source.data_source import FilePart, LivePart, QuorateReader

    options = SourceOptions.of({"path": str(tmp_path), "startOffset": "7"})
    for value in (
        QuorateReader(options),
        FilePart(ChunkOrigin("a", "b"), 0, 1, 0, 1, 0, 1, True),
        LivePart(0, 1),
        SourceOptions.of({"bootstrap": "localhost:9093"}),
    ):
        again = pickle.loads(pickle.dumps(value))
        assert type(again) is type(value)
