"""The commands of docs/mixed-quorums.md: Quorate's controller replaces one of Kafka's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.support import CLUSTER, until
from tests.integration.terminal import Terminal
from tests.processes import listens
from tests.tools.documents import block, command_lines
from tests.wire.test_mixed_quorum import HOST, KAFKAS, OURS, START_S, MixedQuorum, common_bytes
from tests.wire.tool_runner import run_tool

REPLACED = 1
TOOL = "kafka-metadata-quorum"


@pytest.mark.timeout(400)
def test_a_controller_is_added_and_one_of_kafkas_removed(
    kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    quorum = MixedQuorum(tmp_path)
    quorum.ours.configure({"controller.quorum.auto.join.enable": "false"})
    names = {
        "CLUSTER-ID": CLUSTER,
        "controller.properties": quorum.ours.properties,
        "c1:9093": f"{HOST}:{quorum.ports[REPLACED]}",
        "c4:9093": f"{HOST}:{quorum.ports[OURS]}",
        "DIRECTORY-ID": quorum.directory_id(REPLACED),
    }
    lines = command_lines(block("docs/mixed-quorums.md", "remove-controller"))
    try:
        quorum.format_and_start_kafkas()
        until("Kafka leads", lambda: quorum.leader() in KAFKAS, START_S)
        with Terminal(tmp_path, names) as terminal:
            for line in lines:
                program, *arguments = terminal.localized(line).split()
                if program == f"{TOOL}.sh":
                    until("it listens", lambda: listens(quorum.ports[OURS]))
                    said = run_tool(TOOL, *arguments)
                    assert said.startswith(("Added controller 3", "Removed ")), said
                else:
                    terminal.run(line)
            until("the voters are 2 and 3", lambda: not quorum.is_voter(REPLACED), START_S)
            assert quorum.is_voter(OURS)
            kept = [quorum.data[node] for node in (*KAFKAS, OURS) if node != REPLACED]
            assert len(common_bytes(*kept)) > 1000
    finally:
        quorum.kill()
