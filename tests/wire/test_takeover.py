"""A stopped Kafka quorum's directories, taken over by Quorate, and read by Kafka's tools
afterwards.

The three controllers of the golden `full-history` run under `quorate controller` on the endpoints
that Kafka wrote into the log. They elect, commit 10,000 records, snapshot, and lose nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.log.meta_properties import MetaProperties
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records.batch import iter_batches, iter_records
from quorate.records.metadata import ConfigRecord, encode
from quorate.rpc.client.quorum_client import ClientError, QuorumClient
from quorate.runtime.metadata_batches import apply_batch, holds_metadata
from quorate.runtime.metadata_files import read_snapshot

from tests.wire.metadata_support import LOG, GoldenQuorum, kafka_controller, run

KAFKA_DUMP = "org.apache.kafka.tools.DumpLogSegments"
NEW_RECORDS = 10_000
KAFKAS_LAST_EPOCH = 5
STAGE = "full-history"


async def describe_until_led(client: QuorumClient) -> str:
    """Wait for a leader; the cluster id that it names."""
    deadline = time.monotonic() + 30
    while True:
        try:
            described = await client.describe_quorum()
        except ClientError:
            assert time.monotonic() < deadline, "no node answers"
        else:
            if described.is_leaders_view and described.response.leader.epoch > KAFKAS_LAST_EPOCH:
                return described.cluster_id
            assert time.monotonic() < deadline, described
        await asyncio.sleep(0.1)


async def append_configs(client: QuorumClient) -> None:
    """NEW_RECORDS metadata records, 100 a batch, as Kafka's controller would write them."""
    for first in range(0, NEW_RECORDS, 100):
        records = [
            encode(
                ConfigRecord(
                    resource_type=4, resource_name="1", name="log.retention.ms", value=str(i)
                )
            )
            for i in range(first, first + 100)
        ]
        await client.append([(None, record) for record in records])


def data_values(file: Path) -> list[bytes]:
    """The values of all data records in a segment or checkpoint."""
    return [
        bytes(record.value or b"")
        for header, batch in iter_batches(file.read_bytes())
        if not header.is_control
        for record in iter_records(batch, header)
    ]


@pytest.mark.timeout(500)
async def test_kafka_directories_are_taken_over(
    golden: Path, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": 300_000}
    takeover = GoldenQuorum(golden, STAGE, (1, 2, 3), tmp_path, **settings)
    client = QuorumClient(takeover.addresses.split(","))
    try:
        takeover.start()
        cluster_id = await describe_until_led(client)
        status = json.loads(run(*takeover.ask, "describe", "--status", "--json"))
        await append_configs(client)
        new = [
            bytes(record.value)
            async for record in client.read(0)
            if record.value and b"retention.ms" in record.value
        ]
        await wait_for_snapshots(takeover)
        takeover.stop()
    finally:
        await client.close()
        takeover.kill()
    meta = MetaProperties.read(takeover.nodes[1].data)
    assert cluster_id == meta.cluster_id == status["clusterId"]
    voters = {voter["id"]: voter["directoryId"] for voter in status["currentVoters"]}
    assert sorted(voters) == [1, 2, 3]
    assert voters == {i: node.directory_id for i, node in takeover.nodes.items()}
    assert len(new) >= NEW_RECORDS
    print(f"epoch {status['leaderEpoch']}, {NEW_RECORDS} new records committed, all read back")
    check_nothing_lost(takeover, golden)
    check_kafka_reads_it(takeover, kafka_tool)
    await check_kafka_serves_it(takeover, kafka_tool, int(str(status["leaderEpoch"])))


async def wait_for_snapshots(takeover: GoldenQuorum) -> None:
    """Every node writes a snapshot of its own."""
    deadline = time.monotonic() + 30
    while not all(new_checkpoints(takeover.nodes[i].data) for i in (1, 2, 3)):
        assert time.monotonic() < deadline, "no snapshot was written"
        await asyncio.sleep(0.2)


def new_checkpoints(data: Path) -> list[Path]:
    return [p for p in (data / LOG).glob("*.checkpoint") if int(p.name.split("-")[0]) > 0]


def check_nothing_lost(takeover: GoldenQuorum, golden: Path) -> None:
    """Kafka's bytes are a prefix of the log, and each snapshot holds what the log comes to."""
    for node_id in (1, 2, 3):
        name = f"{LOG}/{0:020}.log"
        before = (golden / STAGE / f"controller-{node_id}" / name).read_bytes()
        after = (takeover.nodes[node_id].data / name).read_bytes()
        assert after[: len(before)] == before
        assert len(after) > len(before)
        for checkpoint in new_checkpoints(takeover.nodes[node_id].data):
            image = read_snapshot(checkpoint)
            assert len(data_values(checkpoint)) == len(list(image.records()))
            assert image == replayed(after, image.offset + 1)


def replayed(log: bytes, end_offset: int) -> MetadataImage:
    """The image that the log's records before an offset make."""
    image = MetadataImage()
    for header, batch in iter_batches(log):
        if header.end_offset > end_offset:
            break
        if holds_metadata(batch, header):
            apply_batch(image, header, batch)
    return image


def check_kafka_reads_it(takeover: GoldenQuorum, kafka_tool: Callable[..., str]) -> None:
    """Kafka's dump of every segment and checkpoint: no complaint, and the same as ours."""
    for node_id in (1, 2, 3):
        data = takeover.nodes[node_id].data
        files = sorted([*(data / LOG).glob("*.log"), *(data / LOG).glob("*.checkpoint")])
        for file in files:
            arguments = ("--cluster-metadata-decoder", "--files", file)
            kafkas = kafka_tool(KAFKA_DUMP, *arguments)
            ours = run("dump-log", "--show-secrets", *arguments)
            for complaint in ("isvalid: false", "rror", "xception", "Non-consecutive", "Invalid"):
                assert complaint not in kafkas, (file, kafkas[:2000])
            assert kafkas.splitlines() == ours.splitlines(), file
            print(f"{file.name} of controller {node_id}: {len(kafkas.splitlines())} lines, equal")


async def check_kafka_serves_it(
    takeover: GoldenQuorum, kafka_tool: Callable[..., str], epoch: int
) -> None:
    """Kafka's own controllers open the directories again, elect, and keep what Quorate wrote."""
    written = {
        i: (node.data / LOG / f"{0:020}.log").read_bytes() for i, node in takeover.nodes.items()
    }
    kafkas = [
        kafka_controller(node.folder / "kafka", i, node.port, node.data, takeover.addresses)
        for i, node in takeover.nodes.items()
    ]
    with contextlib.ExitStack() as running:
        for kafka in kafkas:
            running.enter_context(kafka).start()
        status = await until_kafka_leads(takeover, kafka_tool)
        for kafka in kafkas:
            kafka.send(signal.SIGTERM)
        for kafka in kafkas:
            kafka.wait(60)
    for kafka, (node_id, before) in zip(kafkas, written.items(), strict=True):
        logs = kafka.said()
        assert "FATAL" not in logs
        assert "encountered" not in logs.lower() or "fault" not in logs.lower(), logs[-2000:]
        after = (takeover.nodes[node_id].data / LOG / f"{0:020}.log").read_bytes()
        assert after[: len(before)] == before, f"Kafka changed what controller {node_id} held"
    found = dict(re.findall(r"^(\w+): +(.*)$", status, re.MULTILINE))
    assert int(found["LeaderEpoch"]) > epoch
    assert int(found["HighWatermark"]) > NEW_RECORDS
    directories = {v["id"]: v["directoryId"] for v in json.loads(found["CurrentVoters"])}
    assert directories == {i: node.directory_id for i, node in takeover.nodes.items()}
    print(
        f"Kafka leads epoch {found['LeaderEpoch']} on the same directories, "
        f"high watermark {found['HighWatermark']}, the same voters"
    )


async def until_kafka_leads(takeover: GoldenQuorum, kafka_tool: Callable[..., str]) -> str:
    """`describe --status` of Kafka's own tool, once one of Kafka's controllers leads."""
    deadline = time.monotonic() + 120
    answer = ""
    while time.monotonic() < deadline:
        with contextlib.suppress(AssertionError):  # no controller answers yet
            answer = await asyncio.to_thread(
                kafka_tool,
                *("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-controller"),
                *(takeover.addresses, "describe", "--status"),
            )
        watermark = re.search(r"HighWatermark: +(\d+)", answer)
        if watermark and int(watermark[1]) > NEW_RECORDS:
            return answer
        await asyncio.sleep(1)
    pytest.fail(f"none of Kafka's controllers leads: {answer}")
