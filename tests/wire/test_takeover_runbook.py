"""A cluster of Kafka 4.3 is taken over, and given back, by the commands of docs/takeover.md.

Its broker runs all the time with the same configuration. The cluster has dynamic voters, or static
ones (kraft.version 0).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import quorate
from tests.processes import HOST, until
from tests.tools.documents import block, command_lines
from tests.wire.kafka_nodes import KafkaCluster
from tests.wire.takeover_support import PORT_OFFSET, Clients, Operator, runbook

RELEASE = "4.3-IV0"


@pytest.fixture(params=["dynamic", "static"])
def operator(
    request: pytest.FixtureRequest, kafka_tool: Callable[..., str], tmp_path: Path
) -> Iterator[Operator]:
    cluster = KafkaCluster(tmp_path, kafka_tool, static=request.param == "static")
    made = Operator(cluster, tmp_path)
    try:
        cluster.format_and_start(RELEASE)
        yield made
    finally:
        made.kill()
        cluster.kill()


def endpoints(operator: Operator) -> dict[int, list[str]]:
    status = "\n".join(operator.cluster.describe("--status"))
    found: Any = re.search(r"CurrentVoters: +(\[.*\])", status)
    return {voter["id"]: voter["endpoints"] for voter in json.loads(found[1])}


@pytest.mark.timeout(600)
def test_a_cluster_is_taken_over_and_given_back(operator: Operator) -> None:
    cluster = operator.cluster
    broker = cluster.broker.process
    clients = Clients(cluster)
    clients.create("before")
    clients.write()
    refuses_while_kafka_runs(operator)

    when_stopped, *while_running = command_lines(block("docs/cli.md", "takeover check"))
    for line in while_running:
        operator.run(line, 1)
    stop, *rest = runbook(0)[1:]
    operator.follow([runbook(0)[0], stop])
    operator.run(when_stopped, 1)
    clients.write()
    operator.follow(rest)
    clients.create("during")
    clients.write()
    listed = operator.answers["cluster --bootstrap-controller"]
    assert re.search(r"^101\t.*\tunfenced", listed, re.MULTILINE), listed
    raft = {i: f"RAFT://{HOST}:{port + PORT_OFFSET}" for i, port in cluster.ports.items()}
    kafkas = {i: f"CONTROLLER://{HOST}:{port}" for i, port in cluster.ports.items()}
    # At kraft.version 0 the log has no voters.
    after = {i: [raft[i]] if cluster.static else [raft[i], kafkas[i]] for i in raft}
    until("the log names all listeners", lambda: endpoints(operator) == after)
    survives_restarts(operator)

    operator.follow(runbook(1))
    clients.create("after")
    clients.write()
    until("Kafka's listener only", lambda: endpoints(operator) == {i: [kafkas[i]] for i in raft})
    clients.check()
    assert list(clients.written) == ["before", "during", "after"]
    assert cluster.broker.process is broker
    assert broker is not None
    assert broker.poll() is None
    for node in cluster.controllers.values():
        assert not re.search(r"FATAL|encountered .*fault", node.said())


def refuses_while_kafka_runs(operator: Operator) -> None:
    """The check of a directory in use fails, and says what to do; nothing is written."""
    node = operator.cluster.controllers[1]
    ran = quorate("takeover", "check", "--config", node.properties, "--json")
    assert ran.status == 1, ran
    report = ran.json()
    assert report["supported"] is False
    wrong = [each for each in report["checks"] if each["state"] == "failed"]
    assert [each["check"] for each in wrong] == ["process"], wrong
    assert node.process is not None
    assert str(node.process.pid) in wrong[0]["text"]
    assert wrong[0]["todo"].startswith("stop Kafka's controller")
    servers = ("--bootstrap-server", operator.cluster.broker_address)
    asked = quorate("takeover", "check", *servers, "--json")
    assert asked.status == 0, asked
    found = {each["check"]: each["text"] for each in asked.json()["checks"]}
    assert found["metadata.version"] == f"30 ({RELEASE})"
    assert found["kraft.version"].startswith("0" if operator.cluster.static else "1")


def survives_restarts(operator: Operator) -> None:
    """One controller after the other is restarted, as after any change of settings."""
    for node_id, process in operator.quorates.items():
        operator.serve("stop", "quorate-controller", node_id)
        operator.serve("start", "quorate-controller", node_id)
        process.wait_said("listening for Kafka's brokers")
