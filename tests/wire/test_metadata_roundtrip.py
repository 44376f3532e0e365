"""The round trip: Kafka's directories, taken over by Quorate, changed by it, opened by Kafka again.

Quorate's controllers run on copies of the golden `full-history`, register a broker, create topics,
set configurations, quotas, users and entries, remove a voter, and write snapshots of the image.
Then Kafka's own controllers run on the same directories, and Kafka's tools list what Quorate's
commands listed.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.metadata_version import SUPPORTED
from quorate.rpc.metadata_client import MetadataClient

from tests.wire import make_metadata_oracle as kafka
from tests.wire.metadata_support import LOG, GoldenQuorum, run
from tests.wire.test_metadata_listing import LISTINGS, comparable

BROKER = 7
INCARNATION = "b9c1L2YyQwqGrBcZ56ewKg"
DIRECTORY = "wUq0rMvBQ9mD1fHnF0sXpg"
COMPARED = tuple(name for name in kafka.LISTINGS if name in LISTINGS)


@pytest.mark.timeout(900)
def test_kafka_lists_what_quorate_wrote(
    golden: Path, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": 1_000,
        # A busy machine may keep the broker's heartbeats back for seconds.
        "broker.session.timeout.ms": 6_000,
    }
    controllers = GoldenQuorum(golden, "full-history", (1, 2, 3), tmp_path, **settings)
    try:
        controllers.start()
        change(controllers)
        ours = listed(controllers)
        wait_for_snapshots(controllers)
        controllers.stop()
    finally:
        controllers.kill()
    kafkas, voters = kafka_lists(controllers, tmp_path / "kafka", kafka_tool)
    for name in COMPARED:
        assert comparable(name, kafkas[name]) == comparable(name, ours[name]), name
    assert comparable("features", kafkas["features"]) == comparable("features", ours["features"])
    assert voters == {1, 2}


def change(controllers: GoldenQuorum) -> None:
    """Something of everything, by the commands; and one voter less."""
    ask = ("--bootstrap-controller", controllers.addresses)
    with broker(controllers.addresses.split(",")):
        replicas = ",".join(["7"] * 5)
        run("topics", *ask, "create", "--topic", "written", "--replica-assignment", replicas)
        run("topics", *ask, "create", "--topic", "doomed", "--replica-assignment", "7")
        run("topics", *ask, "delete", "--topic", "doomed")
        run("topics", *ask, "alter", "--topic", "written", "--partitions", "8")
    added = "retention.ms=1,cleanup.policy=[compact,delete]"
    run("configs", *ask, "alter", "--topic", "written", "--add-config", added)
    run("configs", *ask, "alter", "--topic", "orders", "--delete-config", "retention.ms")
    run("configs", *ask, "alter", "--broker-defaults", "--add-config", "background.threads=12")
    quotas = "producer_byte_rate=1000,request_percentage=12.5"
    run("configs", *ask, "alter", "--client", "batch-job", "--add-config", quotas)
    run("configs", *ask, "alter", "--ip-defaults", "--add-config", "connection_creation_rate=5")
    scram = "SCRAM-SHA-256=[iterations=8192,password=e]"
    run("configs", *ask, "alter", "--user", "erin", "--add-config", scram)
    run("configs", *ask, "alter", "--user", "bob", "--delete-config", "SCRAM-SHA-512")
    run("acls", *ask, "add", "--allow-principal", "User:erin", "--operation", "Write", "--cluster")
    run("acls", *ask, "remove", "--force", "--topic", "orders")
    run("metadata-quorum", *ask, "remove-controller", "-i", "3")
    wait_fenced(ask)


async def be_a_broker(addresses: list[str], unfenced: Event, stop: Event) -> None:
    """A broker that registers and heartbeats until it is told to fall silent."""
    async with MetadataClient(addresses) as client:
        registered = await client.ask(
            r.RegisterBroker(
                BROKER,
                INCARNATION,
                (Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
                log_dirs=(DIRECTORY,),
                features=tuple(r.BrokerFeature(name, all_of) for name, all_of in SUPPORTED.items()),
            )
        )
        assert registered.error is ErrorCode.NONE, registered
        epoch = registered.broker_epoch
        while not stop.is_set():
            beat = await client.ask(r.BrokerHeartbeat(BROKER, epoch, epoch))
            assert beat.error is ErrorCode.NONE, beat
            if not beat.is_fenced:
                unfenced.set()
            await asyncio.sleep(0.3)


@contextmanager
def broker(addresses: list[str]) -> Iterator[None]:
    unfenced, stop = Event(), Event()
    with ThreadPoolExecutor(1) as pool:
        beats = pool.submit(asyncio.run, be_a_broker(addresses, unfenced, stop))
        try:
            assert unfenced.wait(60) or beats.result(), "the broker stayed fenced"
            yield
        finally:
            stop.set()
            beats.result(60)


def wait_fenced(ask: tuple[str, ...]) -> None:
    """Until the silent broker's session is over: its partitions have no leader."""
    deadline = time.monotonic() + 60
    while True:
        (topic,) = json.loads(run("topics", *ask, "describe", "--topic", "written", "--json"))
        if all(partition["leader"] is None for partition in topic["partitions"]):
            assert len(topic["partitions"]) == 8
            return
        assert time.monotonic() < deadline, topic
        time.sleep(0.5)


def listed(controllers: GoldenQuorum) -> dict[str, str]:
    """What Quorate's commands list."""
    found = {}
    for name in (*COMPARED, "features"):
        command, *arguments = LISTINGS[name]
        found[name] = run(command, "--bootstrap-controller", controllers.addresses, *arguments)
    return found


def wait_for_snapshots(controllers: GoldenQuorum) -> None:
    """Until both voters have snapshots of all that was listed."""
    ask = ("--bootstrap-controller", controllers.addresses)
    status = json.loads(run("metadata-quorum", *ask, "describe", "--status", "--json"))
    end = int(status["highWatermark"])
    deadline = time.monotonic() + 90
    for node_id in (1, 2):
        while True:
            names = (controllers.nodes[node_id].data / LOG).glob("*.checkpoint")
            if any(int(path.name.split("-")[0]) >= end for path in names):
                break
            assert time.monotonic() < deadline, "no snapshot was written"
            time.sleep(0.5)


def kafka_lists(
    controllers: GoldenQuorum, folder: Path, kafka_tool: Callable[..., str]
) -> tuple[dict[str, str], set[int]]:
    """What Kafka's tools list, and who its voters are, on the same directories."""
    servers = controllers.addresses
    ports = {node_id: node.port for node_id, node in controllers.nodes.items()}
    data = {node_id: controllers.nodes[node_id].data for node_id in (1, 2)}
    with (
        kafka.controllers(folder, servers, ports, data),
        kafka.broker(folder, kafka.LISTER, servers) as address,
    ):
        found = {
            name: kafka.ask(tool, "--bootstrap-server", address, *arguments)
            for name, (tool, *arguments) in kafka.LISTINGS.items()
        }
        at = ("--bootstrap-controller", servers)
        found["features"] = kafka.ask(kafka.FEATURES, *at, "describe")
        status = kafka_tool(
            "org.apache.kafka.tools.MetadataQuorumCommand", *at, "describe", "--status"
        )
    for log in folder.rglob("server.log"):
        assert not faults(log.read_text()), log
    voters = re.search(r"CurrentVoters: +(\[.*\])", status)
    assert voters is not None, status
    return found, {voter["id"] for voter in json.loads(voters[1])}


def faults(log: str) -> list[str]:
    """The errors of a Kafka node's log, each with its stack trace.

    A request that reaches a controller that does not lead is logged as an error too, with
    NotControllerException as its cause: the sender asks again, so it is none. It happens whenever
    a node registers while the election is going on.
    """
    entries = re.split(r"^(?=\[[^\]\n]+\] [A-Z]+ )", log, flags=re.MULTILINE)
    failed = [entry for entry in entries if re.search(r"\b(FATAL|ERROR)\b", entry)]
    return [entry[:3000] for entry in failed if "NotControllerException: The active" not in entry]
