"""The commands in docs/operations.md do what the page says.

The tests run in order, on one quorum of three. Each leaves it to the next as it says.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.support import (
    FIRST_SEGMENT,
    HOST,
    PARTITION,
    Node,
    Quorum,
    here,
    until,
    voters,
)
from tests.integration.terminal import Terminal
from tests.tools.documents import block

BATCH_HEADER_BYTES = 61
EXHAUSTED = 2147483640
"""An epoch with too few above it."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    made = Quorum(tmp_path_factory.mktemp("operations"), (1, 2, 3))
    try:
        made.form()
        yield made
    finally:
        made.kill()


@pytest.fixture
def directories(trio: Quorum) -> list[Path]:
    return [node.data for node in trio.nodes.values()]


def terminal_of(quorum: Quorum, folder: Path, **names: object) -> Terminal:
    """A terminal for which controller-1:9093 is the quorum. names: others that stand for values."""
    return Terminal(folder, {"controller-1:9093": quorum.addresses, **names})


def numbered(directories: Sequence[Path]) -> dict[str, Path]:
    """D1, D2 and so on."""
    return {f"D{number}": path for number, path in enumerate(directories, 1)}


def damage(directory: Path) -> None:
    """Change a byte of the first batch, behind its header."""
    segment = directory / FIRST_SEGMENT
    content = bytearray(segment.read_bytes())
    content[BATCH_HEADER_BYTES] ^= 0xFF
    segment.write_bytes(content)


def exhaust(directory: Path) -> None:
    """Have a replica that is stopped be in one of the last epochs."""
    state = directory / PARTITION / "quorum-state"
    fields = json.loads(state.read_text())
    state.write_text(json.dumps(fields | {"leaderEpoch": EXHAUSTED, "leaderId": -1, "votedId": -1}))


def leads_alone(quorum: Quorum, node: Node) -> None:
    quorum.until(
        f"{node.id} leads alone",
        lambda s: s["leaderId"] == node.id and list(voters(s)) == [node.id],
    )


def test_health_and_upgrade(trio: Quorum, tmp_path: Path) -> None:
    strict = ("health", "--bootstrap-controller", trio.addresses, "--strict")
    until("all voters have caught up", lambda: here(*strict).status == 0)
    with terminal_of(trio, tmp_path) as terminal:
        said = terminal.paste(block("docs/operations.md", "quorate health"))
        assert said.startswith("healthy: ")
        assert terminal.paste(block("docs/operations.md", "features --bootstrap-controller"))


def test_a_lost_disk(trio: Quorum, tmp_path: Path) -> None:
    """The new replica of controller 2 runs in the terminal, and is stopped with it."""
    node = trio.nodes[2]
    status = trio.until_voters(1, 2, 3)
    node.kill()
    node.lose_disk()
    (tmp_path / "controller-2.properties").write_text(node.properties.read_text())
    names = {"CLUSTER-ID": status["clusterId"], "OLD-DIRECTORY-ID": voters(status)[2]}
    with terminal_of(trio, tmp_path, **names) as terminal:
        assert "Added controller 2" in terminal.paste(
            block("docs/operations.md", "OLD-DIRECTORY-ID")
        )
        assert voters(trio.until_voters(1, 2, 3))[2] == node.directory_id


def test_each_example_of_recover_applies(
    trio: Quorum, directories: list[Path], tmp_path: Path
) -> None:
    """To copies of the directories. No controller runs at the end."""
    trio.kill()
    prepared: dict[str, Callable[[Path], None]] = {"replica": damage, "epochs": exhaust}
    for line in block("docs/cli.md", "recover inspect").splitlines():
        command = line.split()[2]
        copies = [tmp_path / command / each.parent.name for each in directories]
        for original, copy in zip(directories, copies, strict=True):
            shutil.copytree(original, copy)
            prepared.get(command, lambda _: None)(copy)
        assert Terminal(tmp_path, {**numbered(copies), "NEW": HOST}).run(line)


def test_changed_addresses_and_exhausted_epochs(
    trio: Quorum, directories: list[Path], tmp_path: Path
) -> None:
    """All three run at the end."""
    trio.move()
    new = {f"new-{node.id}:9093": node.address for node in trio.nodes.values()}
    for directory in directories:
        exhaust(directory)
    with terminal_of(trio, tmp_path, **numbered(directories), **new) as terminal:
        assert "Set the epoch" in terminal.paste(block("docs/operations.md", "recover epochs"))
        assert "Wrote the voters" in terminal.paste(
            block("docs/operations.md", "recover endpoints")
        )
    for node in trio.nodes.values():
        node.start()
    status = trio.until_voters(1, 2, 3)
    assert status["leaderEpoch"] < 1_000
    found = {v["id"]: v["endpoints"] for v in status["currentVoters"]}
    assert found == {node.id: [node.endpoint] for node in trio.nodes.values()}


def test_a_damaged_log(trio: Quorum, tmp_path: Path) -> None:
    """Controller 3 runs at the end, but no longer votes."""
    node = trio.nodes[3]
    node.kill()
    damage(node.data)
    old = node.directory_id
    with terminal_of(trio, tmp_path, D1=node.data) as terminal:
        terminal.paste(block("docs/operations.md", "recover replica"))
    assert node.directory_id != old
    node.start()
    trio.until("an observer", lambda s: [o["id"] for o in s["currentObservers"]] == [3])


def test_a_lost_majority(trio: Quorum, tmp_path: Path) -> None:
    """Controller 1 leads alone at the end. What a pod executes is executed here."""
    survivor, *others = trio.nodes.values()
    leader_id = trio.until("a leader", lambda s: s["leaderId"] > 0)["leaderId"]
    for node in others:
        node.kill()
        node.lose_disk()
    if leader_id == survivor.id:
        survivor.wait_said("resigned")
    stopped = shutil.copytree(survivor.data, tmp_path / "stopped")
    names = {"kubectl exec POD -- ": "", "/var/lib/quorate/metadata": survivor.data, "D1": stopped}
    with terminal_of(trio, tmp_path, **names) as terminal:
        assert "Made {1-" in terminal.paste(block("docs/operations.md", "recover inspect"))
        terminal.paste(block("docs/operations.md", "kubectl exec POD"))
    assert survivor.wait() == 0
    survivor.start()
    leads_alone(trio, survivor)
