"""`quorate backup` beside real controllers, and `quorate restore` into new ones."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from quorate.cli.local.workload import Workload
from quorate.log.config import LogConfig
from quorate.log.meta_properties import MetaProperties
from quorate.log.metadata_log import MetadataLog
from quorate.records.batch import Record, iter_batches, iter_records
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.conftest import append
from tests.integration.support import (
    QUORATE,
    Node,
    Quorum,
    assert_error,
    files,
    free_ports,
    here,
    quorate,
    succeed,
    until,
)
from tests.processes import Process, listens

LOAD_S = 1.5
INTERVAL_S = 0.3


def backup_process(folder: Path, addresses: str, target: Path) -> Process:
    """A continuous backup."""
    command = ("backup", "create", "--bootstrap-controller", addresses, "--to", target)
    follow = ("--follow", "--interval", INTERVAL_S)
    return Process("backup", folder / "backup.log", sys.executable, *QUORATE, *command, *follow)


def last_run(target: Path) -> dict[str, Any]:
    run: dict[str, Any] = here("backup", "list", target, "--json").json()["runs"][-1]
    return run


def archived_end(target: Path) -> int:
    ran = here("backup", "list", target, "--json")
    return -1 if ran.status else int(ran.json()["runs"][-1]["endOffset"])


async def read_values(addresses: str) -> list[tuple[int, str]]:
    async with QuorumClient(addresses.split(",")) as client:
        found = [record async for record in client.read(0, metadata=False)]
    return [(record.offset, bytes(record.value or b"").decode()) for record in found]


def restored_records(directory: Path, end: int) -> list[Record]:
    """The records in a directory's log before an offset; nothing but control records follows."""
    log = MetadataLog.open(
        directory, LogConfig(), on_durable=lambda _: None, on_failure=lambda _: None
    )
    try:
        data = b"".join(bytes(b) for b in log.read(log.start_offset, 1 << 30))
    finally:
        log.close()
    records: list[Record] = []
    for header, batch in iter_batches(data):
        assert header.is_control or header.base_offset < end
        records += [r for r in iter_records(batch, header) if r.offset < end]
    return records


@pytest.mark.slow
def test_all_acknowledged_records_survive_the_loss_of_every_disk(tmp_path: Path) -> None:
    old = Quorum(tmp_path / "old", (1, 2, 3))
    target = tmp_path / "archive"
    new = Quorum(tmp_path / "new", (1, 2, 3))
    process = backup_process(tmp_path, old.addresses, target)
    try:
        old.form()
        load = asyncio.run(_load_under_kills(old, process, target))
        process.send(signal.SIGTERM)
        assert process.wait() == 0
        for node in old.nodes.values():
            node.kill()
            node.lose_disk()
        assert here("backup", "verify", target).status == 0

        first, *others = new.nodes.values()
        done = here("restore", target, "-c", first.properties, "--json").json()
        assert done["clusterId"] != done["oldClusterId"]
        first.start()
        first.wait_said("leads epoch")
        assert load.history.verify(asyncio.run(read_values(first.address))) == []
        for node in others:
            node.format("--no-initial-controllers", done["clusterId"])
            node.start()
            node.wait_until("it listens", lambda port=node.port: listens(port))
            succeed(*new.ask, "add-controller", "-c", node.properties)
        new.until_voters(1, 2, 3)
        asyncio.run(append(new.addresses.split(",")[0], 3))
        _restored_to_offsets_and_times(tmp_path, target, load)
    finally:
        process.kill()
        old.kill()
        new.kill()


async def _load_under_kills(quorum: Quorum, process: Process, target: Path) -> Workload:
    """Append while the backup and the leader are killed; return when all of it is archived."""
    load = Workload(quorum.addresses.split(","))
    await load.start()
    process.start()
    await asyncio.to_thread(until, "a backup", lambda: archived_end(target) > 0)
    for round_number in range(2):
        await asyncio.sleep(LOAD_S)
        process.kill()
        if round_number:
            status = await asyncio.to_thread(quorum.status)
            assert status is not None
            leader = quorum.nodes[status["leaderId"]]
            await asyncio.to_thread(leader.kill)
            leader.start()
        await asyncio.to_thread(
            quorum.until, "a leader", lambda status: status["leaderId"] is not None
        )
        process.start()
        end = archived_end(target)
        await asyncio.to_thread(until, "progress", lambda end=end: archived_end(target) > end)
    assert await load.verify() == []
    await load.stop()
    committed = await read_values(quorum.addresses)
    end = committed[-1][0] + 1
    await asyncio.to_thread(until, "the whole log", lambda: archived_end(target) >= end)
    return load


def _restored_to_offsets_and_times(tmp_path: Path, target: Path, load: Workload) -> None:
    whole = tmp_path / "whole"
    place = ("--node-id", 9, "--endpoint", "CONTROLLER://localhost:9093")
    succeed("restore", target, "--directory", whole, *place)
    end = archived_end(target)
    records = restored_records(whole, end)
    assert [record.offset for record in records] == list(range(end))
    middle = records[len(records) // 2]
    for number, wanted in enumerate((1, middle.offset - 1, middle.offset, end - 1)):
        directory = tmp_path / f"offset-{number}"
        succeed("restore", target, "--directory", directory, *place, "--to-offset", wanted)
        assert restored_records(directory, wanted) == records[:wanted]
    directory = tmp_path / "time"
    text = _iso(middle.timestamp)
    succeed("restore", target, "--directory", directory, *place, "--to-time", text)
    kept = next(i for i, record in enumerate(records) if record.timestamp > middle.timestamp)
    assert kept > middle.offset
    assert restored_records(directory, kept) == records[:kept]


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


@contextmanager
def leading_node(folder: Path) -> Iterator[Node]:
    """A controller, the only voter of its quorum."""
    node = Node(folder, 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("leads epoch 1")
        yield node
    finally:
        node.kill()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with leading_node(tmp_path) as node:
        yield node


def test_a_quorum_of_one_voter_is_restored_with_the_same_node_id(
    node: Node, tmp_path: Path
) -> None:
    """Its metadata stays, and the new voter set follows the old one."""
    target = tmp_path / "archive"
    ask = ("--bootstrap-controller", node.address)
    succeed("features", *ask, "upgrade", "--release-version", "4.2")
    broker = ("--entity-type", "brokers", "--entity-default")
    succeed("configs", *ask, "alter", *broker, "--add-config", "log.cleaner.threads=2")
    before = here("configs", *ask, "describe", *broker)
    ran = quorate("backup", "create", *ask, "--to", target)
    assert ran.status == 0, ran
    assert f"contains offsets 0 to {archived_end(target)}" in ran.out
    assert_error(
        here("restore", target, "-c", node.properties), str(node.data), "an empty directory"
    )
    node.kill()
    old = files(node.data)
    shutil.rmtree(node.data)

    ran = here("restore", target, "-c", node.properties, "--keep-cluster-id")
    assert_error(ran, "--erased 1-")
    assert not node.data.exists()
    done = succeed("restore", target, "-c", node.properties, "--json").json()
    assert done["oldVoters"] == [f"1-{done['oldVoters'][0][2:]}"]
    assert files(node.data).keys() >= {name for name in old if name.endswith(".log")}
    node.start()
    node.wait_said("leads epoch")
    after = here("configs", *ask, "describe", *broker)
    assert after == before
    assert "log.cleaner.threads=2" in after.out

    # The restored quorum is another one: it is not added to the old archive.
    assert_error(
        here("backup", "create", *ask, "--to", target),
        f"the quorum is cluster {done['clusterId']}: use another place",
    )


def test_the_old_cluster_id_stays_only_without_the_old_members(tmp_path: Path) -> None:
    old = Quorum(tmp_path / "old", (1, 2))
    new = Node(tmp_path / "new", 7, free_ports(1)[0])
    target = tmp_path / "archive"
    try:
        old.form()
        old.until_voters(1, 2)
        succeed("backup", "create", "--bootstrap-controller", old.addresses, "--to", target)
        keys = [
            f"{node.id}-{MetaProperties.read(node.data).directory_id}"
            for node in old.nodes.values()
        ]
        options = [option for key in keys for option in ("--erased", key)]
        keep = ("restore", target, "-c", new.properties, "--keep-cluster-id")
        first, second = old.nodes.values()
        first.kill()
        for ran in (here(*keep), here(*keep, *options)):
            assert_error(ran, f"the old voter {keys[1]} is running: {second.address} belongs to")
        second.kill()
        assert_error(here(*keep), f"confirm it: --erased {keys[0]} --erased {keys[1]}")
        assert_error(here(*keep, *options[:2]), f"confirm it: --erased {keys[1]}")
        assert not new.data.exists()
        ran = here(*keep, *options, "--json")
        assert ran.status == 0, ran
        assert ran.json()["clusterId"] == ran.json()["oldClusterId"]
        new.start()
        new.wait_said("leads epoch")
    finally:
        old.kill()
        new.kill()


COMPACTING = {
    "internal.metadata.log.segment.bytes": 8 * 1024,
    "metadata.log.max.record.bytes.between.snapshots": 16 * 1024,
    "metadata.log.max.snapshot.interval.ms": 1_000,
    "metadata.max.retention.bytes": 8 * 1024,
}


@pytest.mark.slow
def test_a_log_that_begins_with_a_checkpoint_is_restored(tmp_path: Path) -> None:
    """Records keep their offsets in the checkpoint, whose object is the controller's own file."""
    node = Node(tmp_path, 1, free_ports(1)[0], **COMPACTING)
    node.format("--standalone")
    target = tmp_path / "archive"
    try:
        node.start()
        node.wait_said("leads epoch 1")
        partition = node.data / "__cluster_metadata-0"
        until("a cleaned log", lambda: _appended_until_cleaned(node, partition / f"{0:020}.log"))
        ran = here("backup", "create", "--bootstrap-controller", node.address, "--to", target)
        assert ran.status == 0, ran
        wanted = asyncio.run(read_values(node.address))
        run = last_run(target)
        assert run["startOffset"] > 0
        assert node.stop() == 0
        stored = partition / run["snapshot"].rpartition("/")[2]
        if stored.exists():
            assert (target / run["snapshot"]).read_bytes() == stored.read_bytes()
        shutil.rmtree(node.data)
        assert here("backup", "verify", target).status == 0
        succeed("restore", target, "-c", node.properties)
        node.start()
        node.wait_said("leads epoch")
        assert asyncio.run(read_values(node.address)) == wanted
    finally:
        node.kill()


def _appended_until_cleaned(node: Node, first_segment: Path) -> bool:
    asyncio.run(append(node.address, 50, 200))
    return not first_segment.exists()
