"""The commands in docs/backup.md do what the page says."""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.integration.conftest import append
from tests.integration.support import Node, Quorum, free_ports, here, until
from tests.integration.terminal import Terminal
from tests.integration.test_backup import archived_end
from tests.tools.documents import block, command_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_backups_and_restores(lone_node: Node, tmp_path: Path) -> None:
    asyncio.run(append(lone_node.address, 40))
    new = Quorum(tmp_path / "new", (1, 2))
    first, second = new.nodes.values()
    names = {
        "HOST:PORT": lone_node.address,
        "/backups/metadata": tmp_path / "archive",
        "1.properties": first.properties,
        "2.properties": second.properties,
        "120000": 20,
        "2026-11-21T03:35:22Z": datetime.now(UTC).isoformat(),
    }
    create, follow, listing, verify, prune, *restores = command_lines(
        block("docs/backup.md", "# once")
    )
    with Terminal(tmp_path, names) as terminal:
        terminal.run(create)
        terminal.run(follow)
        before = archived_end(tmp_path / "archive")
        asyncio.run(append(lone_node.address, 1))
        until("a new record is archived", lambda: archived_end(tmp_path / "archive") > before)
        assert terminal.run(listing)
        assert terminal.run(verify)
    followed, alone = command_lines(block("docs/backup.md", "# without a quorum"))
    with Terminal(tmp_path, names) as terminal:
        terminal.run(followed)
        until("it is running", lambda: "archived up to" in terminal.said(0))
    for line in (prune, alone):
        assert Terminal(tmp_path, names).run(line)
    terminal = Terminal(tmp_path, names)
    ends = []
    for line in reversed(restores):
        shutil.rmtree(first.data, ignore_errors=True)
        _, *arguments = terminal.localized(line).split()
        done = here(*arguments, "--json").json()
        ends.append(done["endOffset"])
    to_time, to_offset, whole = ends
    assert to_offset == 20
    assert to_time <= before < whole
    grow(new, done["clusterId"], tmp_path)


def test_encryption(lone_node: Node, tmp_path: Path) -> None:
    asyncio.run(append(lone_node.address, 3))
    new = Node(tmp_path, 1, free_ports(1)[0])
    names = {
        "HOST:PORT": lone_node.address,
        "/backups/encrypted": tmp_path / "archive",
        "backup.keys": tmp_path / "backup.keys",
        "1.properties": new.properties,
    }
    terminal = Terminal(tmp_path, names)
    for line in command_lines(block("docs/backup.md", "new-key backup.keys")):
        terminal.run(line)
    assert (new.data / "meta.properties").exists()
    for path in (tmp_path / "archive").glob("*/*"):
        assert path.read_bytes().startswith(b"quorate-encrypted-1\n")


def grow(new: Quorum, cluster_id: str, folder: Path) -> None:
    """Add the second controller, as the runbook does."""
    first, second = new.nodes.values()
    first.start()
    try:
        first.wait_said("leads epoch")
        second.configure({"controller.quorum.bootstrap.servers": first.address})
        names = {"2.properties": second.properties, "NEW-CLUSTER-ID": cluster_id}
        with Terminal(folder, names) as terminal:
            said = terminal.paste(block("docs/backup.md", "NEW-CLUSTER-ID"))
            assert "Added controller 2" in said
            new.until_voters(1, 2)
    finally:
        first.kill()
