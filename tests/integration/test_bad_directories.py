"""A controller on a directory that it must not or cannot use: one line that says so, and the
directory as it was. A torn tail alone is repaired.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from quorate.log.offset_files import read_recovery_point
from quorate.records.batch import BatchHeader, iter_batches
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.conftest import Start, append
from tests.integration.support import (
    CLUSTER,
    FIRST_SEGMENT,
    HOST,
    OTHER_CLUSTER,
    PARTITION,
    Node,
    Ran,
    assert_clean,
    assert_error,
    files,
    here,
    quorate,
    succeed,
    until,
)


def copy_of(used: Node, folder: Path, **settings: object) -> Node:
    """A controller on a copy of another's directory, at its address."""
    node = Node(folder, used.id, used.port, **settings)
    shutil.copytree(used.data, node.data)
    return node


def refuses(node: Node, *said: str, run: Callable[..., Ran] = quorate) -> None:
    """The controller ends at once with one line that says all this, and changes nothing."""
    before = files(node.data)
    ran = run("controller", node.properties)
    *logged, last = ran.err.splitlines()
    assert ran.status == 1, ran
    assert ran.out == ""
    assert last.startswith("quorate: error: "), ran.err
    assert "this is a bug" not in last
    for line in logged:
        assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+ INFO ", line), line
    for text in said:
        assert text in last, (text, last)
    assert files(node.data) == before


def batches(node: Node) -> list[tuple[int, BatchHeader]]:
    """Each batch of the first segment: the byte at which it begins, and its header."""
    found = []
    position = 0
    for header, _ in iter_batches((node.data / FIRST_SEGMENT).read_bytes()):
        found.append((position, header))
        position += header.size_bytes
    return found


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


# --- who reads it ---------------------------------------------------------------------------------


def test_only_its_user_reads_a_directory(used_node: Node) -> None:
    for path in (used_node.data, *used_node.data.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert "every user" not in used_node.said()


def test_a_directory_that_everybody_reads(used_node: Node, make_node: Start) -> None:
    node = make_node(1)
    shutil.copytree(used_node.data, node.data)
    for path in (node.data, node.data / PARTITION):
        path.chmod(0o755)
    node.start()
    node.wait_said(f"every user of this machine can read {node.data}, and the log has credentials")
    assert node.stop() == 0


# --- whose directory this is ----------------------------------------------------------------------


def test_a_directory_of_another_cluster(used_node: Node, tmp_path: Path) -> None:
    node = copy_of(used_node, tmp_path, **{"cluster.id": OTHER_CLUSTER})
    refuses(node, f"{node.data}/meta.properties", CLUSTER, OTHER_CLUSTER, "correct", run=here)


def test_a_directory_of_another_node(used_node: Node, tmp_path: Path) -> None:
    node = copy_of(used_node, tmp_path, **{"node.id": 7})
    refuses(node, f"{node.data}/meta.properties", "node 1", "node.id is 7", "correct")


def test_a_directory_that_is_not_formatted(make_node: Start) -> None:
    node = make_node(1)
    refuses(node, f"{node.data} is not formatted", "Run `quorate storage format`")
    assert not node.data.exists()


def test_meta_properties_that_are_broken(used_node: Node, tmp_path: Path) -> None:
    node = copy_of(used_node, tmp_path)
    path = node.data / "meta.properties"
    whole = path.read_text()
    for text, said in (
        ("", "has no version"),
        (re.sub(r"directory\.id=.*", "directory.id=short", whole), "directory.id"),
    ):
        path.write_text(text)
        refuses(node, str(path), said, run=here)


def test_a_directory_in_use(lone_node: Node) -> None:
    node = lone_node
    until("it has elected itself", lambda: (read_recovery_point(node.data) or 0) > 0)
    refuses(node, f"{node.data} is in use", f"process {node.pid}", "Stop it first")
    asyncio.run(append(node.address, 1))
    assert_clean(node.said())


def test_a_port_in_use(used_node: Node, tmp_path: Path) -> None:
    node = copy_of(used_node, tmp_path)
    with socket.create_server((HOST, node.port)):
        refuses(node, f"cannot listen at {node.address}", "another process listens there")


# --- damage ---------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_off(used_node: Node, tmp_path: Path, make_node: Start) -> None:
    node = copy_of(used_node, tmp_path)
    segment = node.data / FIRST_SEGMENT
    position, header = batches(node)[-1]
    torn = bytearray(segment.read_bytes()[position : position + header.size_bytes - 9])
    torn[:8] = header.end_offset.to_bytes(8, "big")
    with segment.open("ab") as file:
        file.write(torn)
    try:
        node.start()
        node.wait_said(f"dropped {len(torn)} bytes of an unfinished write")
        assert asyncio.run(values(node)) == [f"value-{number}" for number in range(40)]
        assert node.stop() == 0
    finally:
        node.kill()


async def values(node: Node) -> list[str]:
    async with QuorumClient([node.address]) as client:
        return [
            bytes(record.value or b"").decode().rstrip(".")
            async for record in client.read(0)
            if record.key is not None
        ]


def test_damage_in_the_middle_of_the_log(used_node: Node, tmp_path: Path) -> None:
    node = copy_of(used_node, tmp_path)
    segment = node.data / FIRST_SEGMENT
    position, header = batches(node)[10]
    overwrite(segment, position + header.size_bytes - 3, b"\xff\xff")
    refuses(
        node,
        f"{segment} is damaged from byte {position} to ",
        f"where offset {header.base_offset} is expected",
        "Nothing was changed",
        "remove-controller",
    )


def test_a_log_that_lost_its_end(used_node: Node, tmp_path: Path) -> None:
    node = copy_of(used_node, tmp_path)
    segment = node.data / FIRST_SEGMENT
    position, header = batches(node)[30]
    with segment.open("r+b") as file:
        file.truncate(position)
    expected = f"ends at offset {header.base_offset}, but everything before"
    refuses(node, expected, "was synced and is gone", "remove-controller", run=here)


def test_quorum_state_that_is_broken(used_node: Node, tmp_path: Path) -> None:
    node = copy_of(used_node, tmp_path)
    path = node.data / PARTITION / "quorum-state"
    whole = json.loads(path.read_text())
    for text in ("", json.dumps(whole | {"leaderEpoch": -5})):
        path.write_text(text)
        said = (f"{path} is broken", "does not know how it voted", "Do not delete the file")
        refuses(node, *said, run=here)


def test_a_damaged_checkpoint(used_node: Node, tmp_path: Path) -> None:
    node = copy_of(used_node, tmp_path)
    path = next((node.data / PARTITION).glob("*.checkpoint"))
    whole = path.read_bytes()
    overwrite(path, len(whole) // 2, b"\xee" * 4)
    refuses(node, f"checkpoint {path} is damaged at byte", "remove-controller")
    path.write_bytes(whole[: len(whole) - 5])
    refuses(node, f"checkpoint {path} is damaged at byte", run=here)


# --- another cluster among the bootstrap servers --------------------------------------------------


def test_a_controller_of_another_cluster_does_not_join(lone_node: Node, make_node: Start) -> None:
    node = lone_node
    stranger = make_node(
        2,
        **{
            "controller.quorum.bootstrap.servers": node.address,
            "controller.quorum.auto.join.enable": "true",
        },
    )
    stranger.format("--no-initial-controllers", OTHER_CLUSTER)
    stranger.start()
    stranger.wait_said("belongs to another cluster")
    ran = here("metadata-quorum", "add-controller", "-c", stranger.properties)
    assert_error(ran, f"{stranger.data} was formatted for cluster {OTHER_CLUSTER}", CLUSTER)
    asyncio.run(append(node.address, 5))
    said = stranger.said()
    assert said.count("belongs to another cluster") == 1, "it says so, and not all the time"
    assert f"{node.endpoint} belongs to another cluster" in said
    assert OTHER_CLUSTER in said
    assert "controller.quorum.bootstrap.servers" in said
    assert "follower" not in said
    assert "in epoch 1" not in said, "the epochs of another cluster are not taken over"
    ask = ("metadata-quorum", "--bootstrap-controller", node.address)
    status = succeed(*ask, "describe", "--status", "--json").json()
    assert [voter["id"] for voter in status["currentVoters"]] == [1]
    assert status["currentObservers"] == []
    assert stranger.stop() == 0
    assert_clean(node.said())
    assert_clean(said)
