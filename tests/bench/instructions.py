"""What the hot paths cost, in bytecode instructions: the same on every machine, however busy.

    python -m tests.bench.instructions            # count, beside what is kept
    python -m tests.bench.instructions --write    # keep what is counted now

Each path does the same work each time, and only instructions of Quorate's own code are counted, not
those of libraries, tests or the interpreter's C. `instructions.json` keeps a figure for each path
and version of Python; `test_instructions.py` fails where a path costs a tenth more than that, and
where one costs a tenth less, so that a gain is kept and not given away later. What libraries and
the network take, this does not see: `tests/integration/test_costs.py` does, in time and so more
coarsely.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import quorate
import typer
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import uuid_from_bytes
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.raft.messages import CurrentLeader, FetchRequest, FetchResponse
from quorate.raft.types import ReplicaKey
from quorate.records import metadata as rec
from quorate.records.batch import build_data_batch, read_header, stamp
from quorate.rpc.client.appending import Coalescer
from quorate.rpc.server.records_answer import encode_with_records
from quorate.rpc.wire import convert, convert_append
from quorate.rpc.wire.values import AppendResult, OpaqueRecord
from quorate.runtime.metadata_batches import apply_batch, build_metadata_batch
from quorate.v1 import quorum_pb2, raft_pb2
from rich.console import Console
from rich.table import Table

from tests.scenarios.harness import Harness

KEPT = Path(__file__).with_name("instructions.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
TOLERANCE = 0.10
OURS = str(Path(quorate.__file__).parent)
VALUE = bytes(256)
DIRECTORY = uuid_from_bytes(bytes(range(16)))

Costs = dict[str, float]
"""Instructions a unit of work, by path."""


def instructions(work: Callable[[], object]) -> int:
    """Bytecode instructions of Quorate's modules while `work` runs in this thread."""
    count = 0

    def local(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return local

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


# --- the paths ------------------------------------------------------------------------------------


def commits(group: int) -> Callable[[], float]:
    """Three replicas agree on appends of `group` batches; a batch."""

    def measure() -> float:
        harness = Harness()
        harness.execute("cluster voters=1A,2A,3A lead=1 hide=all")
        append = "append 1 " + " ".join(["x"] * group)

        def work() -> None:
            for _ in range(20):
                harness.execute(append)
                harness.execute("settle")

        work()  # what is remembered after the first time is remembered now
        return instructions(work) / (20 * group)

    return measure


def append_messages(values: int) -> Callable[[], float]:
    """An append of some values: the client's message, the leader's batch, the answer; a value."""

    def work() -> None:
        records: list[OpaqueRecord] = [(b"", VALUE)] * values
        data = convert_append.encode_append_request(1, records, 30_000).SerializeToString()
        read, _ = convert_append.decode_append_request(quorum_pb2.AppendRequest.FromString(data))
        stamp(build_data_batch(read, 1), 5, 1)

    return lambda: instructions(work) / values


def finished(work: Coroutine[Any, Any, bytes]) -> bytes:
    """The result of a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def fetches(batches: int) -> Callable[[], float]:
    """A follower's Fetch and its answer with some batches, there and back; a batch."""
    records = []
    for offset in range(batches):
        batch = build_data_batch([(b"", VALUE)], 1)
        stamp(batch, offset, 1)
        records.append(batch)
    request = FetchRequest("c" * 22, ReplicaKey(2, DIRECTORY), 1, 0, 1, max_wait_ms=500)
    response = FetchResponse(ErrorCode.NONE, CurrentLeader(1, 1), records_from=0)

    def work() -> None:
        asked = convert.encode_fetch_request(request).SerializeToString()
        convert.decode_fetch_request(raft_pb2.FetchRequest.FromString(asked))
        rest = convert.encode_fetch_response(response)
        answer = finished(encode_with_records(rest, "records", records))
        convert.decode_fetch_response(raft_pb2.FetchResponse.FromString(answer))

    return lambda: instructions(work) / batches


def coalesced(callers: int) -> Callable[[], float]:
    """The client library, from callers that each append a value to their offsets; a value."""

    async def send(_records: list[OpaqueRecord]) -> AppendResult:
        return AppendResult(0, 1)

    async def all_of_them() -> None:
        coalescer = Coalescer(send)
        await asyncio.gather(*(coalescer.append((b"", VALUE)) for _ in range(callers)))
        await coalescer.close()

    return lambda: instructions(lambda: asyncio.run(all_of_them())) / callers


def replay(partitions: int) -> Callable[[], float]:
    """Committed metadata into an image: a topic with partitions; a record."""
    topic = uuid_from_bytes(bytes(15) + b"\7")
    records: list[Any] = [rec.TopicRecord(topic_id=topic, name="t")]
    records += [
        rec.PartitionRecord(
            topic_id=topic,
            partition_id=number,
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            leader=1 + number % 3,
            directories=(DIRECTORY,) * 3,
            version=1,
        )
        for number in range(partitions)
    ]
    batch = build_metadata_batch(records, 1)
    stamp(batch, 0, 1)
    view = memoryview(bytes(batch))

    def measure() -> float:
        apply_batch(MetadataImage(), read_header(view), view)
        image = MetadataImage()
        return instructions(lambda: apply_batch(image, read_header(view), view)) / len(records)

    return measure


PATHS: dict[str, Callable[[], float]] = {
    "a commit through three replicas, alone": commits(1),
    "a commit through three replicas, 64 at once": commits(64),
    "an append's messages and batch, a value alone": append_messages(1),
    "an append's messages and batch, 64 values": append_messages(64),
    "a fetch and its answer, one batch": fetches(1),
    "a fetch and its answer, 64 batches": fetches(64),
    "the client library, 64 callers": coalesced(64),
    "replay of a metadata record": replay(500),
}


def kept() -> Costs:
    """What is kept for this version of Python, {} if nothing is."""
    found: Costs = json.loads(KEPT.read_text()).get(VERSION, {}) if KEPT.exists() else {}
    return found


def main(
    write: Annotated[bool, typer.Option("--write", help="Keep what is counted now.")] = False,
) -> None:
    """Count the instructions of each path, a unit of work."""
    before = kept()
    counted = {name: round(measure(), 1) for name, measure in PATHS.items()}
    table = Table("path", f"kept ({VERSION})", "now", "ratio")
    for name, now in counted.items():
        was = before.get(name)
        ratio = "" if was is None else f"{now / was:.3f}"
        table.add_row(name, "" if was is None else f"{was:,.1f}", f"{now:,.1f}", ratio)
    Console().print(table)
    if write:
        everything = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        everything[VERSION] = counted
        KEPT.write_text(json.dumps(everything, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    typer.run(main)
