"""Encrypted backups of a real controller with SCRAM users: no byte of its log is in the store."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import append
from tests.integration.support import (
    QUORATE,
    Node,
    assert_error,
    files,
    here,
    succeed,
    until,
)
from tests.integration.test_backup import leading_node, read_values
from tests.processes import Process

WINDOW = 16
SCRAM = "SCRAM-SHA-256=[iterations=4096,password=secret]"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with leading_node(tmp_path) as node:
        yield node


def windows(data: bytes, step: int) -> set[bytes]:
    return {data[at : at + WINDOW] for at in range(0, len(data) - WINDOW, step)}


def objects(archive: Path) -> list[bytes]:
    return [path.read_bytes() for path in archive.glob("*/*")]


def end(archive: Path, key_file: Path) -> int:
    ran = here("backup", "list", archive, "--key-file", key_file, "--json")
    return -1 if ran.status else int(ran.json()["runs"][-1]["endOffset"])


@pytest.mark.slow
def test_a_quorum_is_restored_from_what_the_store_cannot_read(node: Node, tmp_path: Path) -> None:
    ask = ("--bootstrap-controller", node.address)
    succeed("features", *ask, "upgrade", "--release-version", "4.2")
    user = ("--entity-type", "users", "--entity-name", "alice")
    succeed("configs", *ask, "alter", *user, "--add-config", SCRAM)
    key_file, archive, plain = (tmp_path / name for name in ("keys", "archive", "plain"))
    succeed("backup", "new-key", key_file)
    options = ("--to", archive, "--key-file", key_file, "--follow", "--interval", 0.3)
    command = (sys.executable, *QUORATE, "backup", "create", *ask, *options)
    process = Process("backup", tmp_path / "backup.log", *command)
    process.start()
    try:
        until("a backup", lambda: end(archive, key_file) > 0)
        process.kill()
        succeed("backup", "new-key", key_file, "--add")
        process.start()
        asyncio.run(append(node.address, 20))
        wanted = asyncio.run(read_values(node.address))
        until("the new records", lambda: end(archive, key_file) > wanted[-1][0])
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()
    succeed("backup", "create", *ask, "--to", plain)
    secret = b"".join(path.read_bytes() for path in plain.glob("log/*"))
    assert b"alice" in secret
    known = windows(secret, 1)
    for data in objects(archive):
        assert known.isdisjoint(windows(data, 1))
        assert b"alice" not in data
    before = files(archive)
    assert_error(here("backup", "create", *ask, "--to", archive), "--key-file is needed")
    ran = here("backup", "create", *ask, "--to", plain, "--key-file", key_file)
    assert_error(ran, "plain is not encrypted")
    assert files(archive) == before

    shown = here("configs", *ask, "describe", *user).out
    assert "SCRAM-SHA-256" in shown
    node.kill()
    shutil.rmtree(node.data)
    succeed("backup", "verify", archive, "--key-file", key_file)
    succeed("restore", archive, "-c", node.properties, "--key-file", key_file)
    node.start()
    node.wait_said("leads epoch")
    assert here("configs", *ask, "describe", *user).out == shown
    assert asyncio.run(read_values(node.address)) == wanted
