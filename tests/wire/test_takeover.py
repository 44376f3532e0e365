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
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from quorate.log.meta_properties import MetaProperties
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records.batch import iter_batches, iter_records
from quorate.records.metadata import ConfigRecord, encode
from quorate.rpc.client.quorum_client import ClientError, QuorumClient
from quorate.runtime.metadata_batches import apply_batch, holds_metadata
from quorate.runtime.metadata_files import read_snapshot

from tests.wire.conftest import PEERS, copy_writable, missing

KAFKA_DUMP = "org.apache.kafka.tools.DumpLogSegments"
NEW_RECORDS = 10_000
KAFKAS_LAST_EPOCH = 5
LOG = "__cluster_metadata-0"


class Takeover:
    """The copied directories and the processes on them."""

    def __init__(self, golden: Path, folder: Path) -> None:
        self.golden = golden
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        text = (golden / "describe.txt").read_text()
        voters = re.findall(r"CurrentVoters: +(\[.*\])", text.split("copied")[0])[-1]
        self.voters = {}
        for described in re.findall(r"CurrentVoters: +(\[.*\])", text):
            for voter in json.loads(described):
                host, port = voter["endpoints"][0].removeprefix("CONTROLLER://").split(":")
                self.voters[voter["id"]] = (host, int(port))
        assert json.loads(voters)

    @property
    def addresses(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self.voters.values()]

    def data(self, node_id: int) -> Path:
        return self.folder / f"controller-{node_id}"

    def start(self) -> None:
        for node_id, (host, port) in self.voters.items():
            with socket.socket() as probe:
                if probe.connect_ex((host, port)) == 0:
                    missing(f"the golden endpoint {host}:{port} is in use on this machine")
            copy_writable(
                self.golden / "full-history" / f"controller-{node_id}", self.data(node_id)
            )
            properties = self.folder / f"{node_id}.properties"
            properties.write_text(
                "process.roles=controller\n"
                f"node.id={node_id}\n"
                "controller.listener.names=CONTROLLER\n"
                f"listeners=CONTROLLER://{host}:{port}\n"
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
                f"controller.quorum.bootstrap.servers={','.join(self.addresses)}\n"
                f"metadata.log.dir={self.data(node_id)}\n"
                "metadata.log.max.record.bytes.between.snapshots=300000\n"
            )
            with (self.folder / f"{node_id}.log").open("wb") as output:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "quorate.cli.main", "controller", str(properties)],
                        stdout=output,
                        stderr=output,
                    )
                )

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            assert process.wait(20) == 0, [p.read_text() for p in self.folder.glob("*.log")]


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
    takeover = Takeover(golden, tmp_path)
    client = QuorumClient(takeover.addresses)
    try:
        takeover.start()
        cluster_id = await describe_until_led(client)
        status = describe_with_the_command(takeover)
        await append_configs(client)
        new = [
            bytes(record.value)
            async for record in client.read(0)
            if record.value and b"retention.ms" in record.value
        ]
        await wait_for_snapshots(takeover)
    finally:
        await client.close()
        takeover.stop()
    meta = MetaProperties.read(takeover.data(1))
    assert cluster_id == meta.cluster_id == status["clusterId"]
    voters = {voter["id"]: voter["directoryId"] for voter in status["currentVoters"]}
    assert voters == {i: MetaProperties.read(takeover.data(i)).directory_id for i in (1, 2, 3)}
    assert len(new) >= NEW_RECORDS
    print(f"epoch {status['leaderEpoch']}, {NEW_RECORDS} new records committed, all read back")
    check_nothing_lost(takeover)
    check_kafka_reads_it(takeover, kafka_tool)
    await check_kafka_serves_it(takeover, kafka_tool, int(str(status["leaderEpoch"])))


def describe_with_the_command(takeover: Takeover) -> dict[str, object] | dict[str, list]:  # type: ignore[type-arg]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "quorate.cli.main", "metadata-quorum"),
            *("--bootstrap-controller", takeover.addresses[0]),
            *("describe", "--status", "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def wait_for_snapshots(takeover: Takeover) -> None:
    """Every node writes a snapshot of its own."""
    deadline = time.monotonic() + 30
    while not all(new_checkpoints(takeover.data(i)) for i in (1, 2, 3)):
        assert time.monotonic() < deadline, "no snapshot was written"
        await asyncio.sleep(0.2)


def new_checkpoints(data: Path) -> list[Path]:
    return [p for p in (data / LOG).glob("*.checkpoint") if int(p.name.split("-")[0]) > 0]


def check_nothing_lost(takeover: Takeover) -> None:
    """Kafka's bytes are a prefix of the log, and each snapshot holds what the log comes to."""
    for node_id in (1, 2, 3):
        name = f"{LOG}/{0:020}.log"
        before = (takeover.golden / "full-history" / f"controller-{node_id}" / name).read_bytes()
        after = (takeover.data(node_id) / name).read_bytes()
        assert after[: len(before)] == before
        assert len(after) > len(before)
        for checkpoint in new_checkpoints(takeover.data(node_id)):
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


def check_kafka_reads_it(takeover: Takeover, kafka_tool: Callable[..., str]) -> None:
    """Kafka's dump of every segment and checkpoint: no complaint, and the same as ours."""
    for node_id in (1, 2, 3):
        data = takeover.data(node_id)
        files = sorted([*(data / LOG).glob("*.log"), *(data / LOG).glob("*.checkpoint")])
        for file in files:
            name = file.relative_to(data)
            kafkas = kafka_tool(KAFKA_DUMP, "--cluster-metadata-decoder", "--files", name, cwd=data)
            ours = subprocess.run(
                [
                    *(sys.executable, "-m", "quorate.cli.main", "dump-log", "--show-secrets"),
                    *("--cluster-metadata-decoder", "--files", str(name)),
                ],
                capture_output=True,
                text=True,
                cwd=data,
                timeout=120,
            )
            assert ours.returncode == 0, ours.stderr
            for complaint in ("isvalid: false", "rror", "xception", "Non-consecutive", "Invalid"):
                assert complaint not in kafkas, (file, kafkas[:2000])
            assert kafkas.splitlines() == ours.stdout.splitlines(), file
            print(f"{file.name} of controller {node_id}: {len(kafkas.splitlines())} lines, equal")


async def check_kafka_serves_it(
    takeover: Takeover, kafka_tool: Callable[..., str], epoch: int
) -> None:
    """Kafka's own controllers open the directories again, elect, and keep what Quorate wrote."""
    processes = []
    written = {i: (takeover.data(i) / LOG / f"{0:020}.log").read_bytes() for i in takeover.voters}
    try:
        for node_id, (host, port) in takeover.voters.items():
            properties = takeover.folder / f"kafka-{node_id}.properties"
            properties.write_text(
                "process.roles=controller\n"
                f"node.id={node_id}\n"
                "controller.listener.names=CONTROLLER\n"
                f"listeners=CONTROLLER://{host}:{port}\n"
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
                f"controller.quorum.bootstrap.servers={','.join(takeover.addresses)}\n"
                f"log.dirs={takeover.data(node_id)}\n"
            )
            output = (takeover.folder / f"kafka-{node_id}.log").open("wb")
            with output:
                processes.append(start_kafka(properties, output))
        status = await until_kafka_leads(takeover, kafka_tool)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
    for node_id, before in written.items():
        logs = (takeover.folder / f"kafka-{node_id}.log").read_text()
        assert "FATAL" not in logs
        assert "encountered" not in logs.lower() or "fault" not in logs.lower(), logs[-2000:]
        after = (takeover.data(node_id) / LOG / f"{0:020}.log").read_bytes()
        assert after[: len(before)] == before, f"Kafka changed what controller {node_id} held"
    found = dict(re.findall(r"^(\w+): +(.*)$", status, re.MULTILINE))
    assert int(found["LeaderEpoch"]) > epoch
    assert int(found["HighWatermark"]) > NEW_RECORDS
    directories = {v["id"]: v["directoryId"] for v in json.loads(found["CurrentVoters"])}
    assert directories == {
        i: MetaProperties.read(takeover.data(i)).directory_id for i in takeover.voters
    }
    print(
        f"Kafka leads epoch {found['LeaderEpoch']} on the same directories, "
        f"high watermark {found['HighWatermark']}, the same voters"
    )


def start_kafka(properties: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *("java", "-Xmx400m", "-cp", f"{PEERS}/kafka-4.3.0/*"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "kafka.Kafka", str(properties)),
        ],
        stdout=output,
        stderr=output,
    )


async def until_kafka_leads(takeover: Takeover, kafka_tool: Callable[..., str]) -> str:
    """`describe --status` of Kafka's own tool, once one of Kafka's controllers leads."""
    deadline = time.monotonic() + 120
    answer = ""
    while time.monotonic() < deadline:
        with contextlib.suppress(AssertionError):  # no controller answers yet
            answer = await asyncio.to_thread(
                kafka_tool,
                *("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-controller"),
                *(",".join(takeover.addresses), "describe", "--status"),
            )
        watermark = re.search(r"HighWatermark: +(\d+)", answer)
        if watermark and int(watermark[1]) > NEW_RECORDS:
            return answer
        await asyncio.sleep(1)
    pytest.fail(f"none of Kafka's controllers leads: {answer}")
