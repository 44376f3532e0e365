"""Quorate on copies of Kafka's directories lists what Kafka's own tools list, and creates more.

What Kafka lists is in `oracle/`, as its tools printed it (see `make_metadata_oracle.py`). The
commands' output is compared line by line, where Kafka's order has no meaning as sets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.log.meta_properties import MetaProperties
from quorate.metadata.metadata_version import APPLICATION_VERSION

from tests.wire.metadata_support import GoldenQuorum, run

ORACLE = Path(__file__).parent / "oracle"
STAGES = {"full-history": (1, 2, 3), "compacted": (1, 2)}

LISTINGS = {
    "topics": ("topics", "describe"),
    "topics-list": ("topics", "list"),
    "configs-topics": ("configs", "describe", "--entity-type", "topics"),
    "configs-brokers-default": (
        *("configs", "describe", "--entity-type", "brokers", "--entity-default"),
    ),
    "configs-brokers-102": (
        *("configs", "describe", "--entity-type", "brokers", "--entity-name", "102"),
    ),
    "configs-users": ("configs", "describe", "--entity-type", "users"),
    "configs-clients": ("configs", "describe", "--entity-type", "clients"),
    "configs-users-clients": (
        *("configs", "describe", "--entity-type", "users", "--entity-type", "clients"),
    ),
    "configs-ips": ("configs", "describe", "--entity-type", "ips"),
    "acls": ("acls", "list"),
    "features": ("features", "describe"),
}

LOST_BY_KAFKA = {
    (
        "full-history",
        "configs-users",
    ): "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096"
}
"""In the log, and in Quorate's listing only. Kafka's ScramDelta.apply forgets a mechanism's map as
soon as a removal empties it, and what the same delta puts into that map afterwards with it. A
broker that replays this log at once removes carol before it puts alice, so alice is gone; the
snapshots that Kafka wrote later lack her too, and then Quorate lists what they hold.
"""


@pytest.fixture(scope="module", params=STAGES)
def controllers(
    request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GoldenQuorum]:
    """Quorate's controllers on copies of one stage, at the endpoints that its log names."""
    stage: str = request.param
    running = GoldenQuorum(golden, stage, STAGES[stage], tmp_path_factory.mktemp(stage))
    try:
        running.start()
        yield running
        running.stop()
    finally:
        running.kill()


def comparable(name: str, text: str) -> object:
    """A listing without what has no meaning: order, trailing blanks, the features' epoch, and the
    feature that only Quorate has.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if name == "topics":
        return sorted(map(_sorted_configs, lines))
    if name == "features":
        kafkas = [line for line in lines if not line.startswith(f"Feature: {APPLICATION_VERSION}")]
        return [re.sub(r"\s*Epoch: \S+", "", line) for line in kafkas]
    if any(line.startswith((" ", "\t")) for line in lines):
        return _groups(lines)
    return sorted(map(_sorted_quotas, lines))


def _sorted_configs(line: str) -> str:
    head, found, configs = line.partition("\tConfigs: ")
    return head + found + ",".join(sorted(configs.split(",")))


def _sorted_quotas(line: str) -> str:
    head, found, quotas = line.partition(" are ")
    return head + found + ", ".join(sorted(quotas.split(", ")))


def _groups(lines: list[str]) -> dict[str, list[str]]:
    """Indented lines below the line that they belong to."""
    groups: dict[str, list[str]] = {}
    head = ""
    for line in lines:
        if line.startswith((" ", "\t")):
            groups[head].append(line.strip())
        else:
            head = line
            groups[head] = []
    return {head: sorted(below) for head, below in groups.items()}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LISTINGS)
def test_quorate_lists_what_kafka_lists(controllers: GoldenQuorum, name: str) -> None:
    kafkas = (ORACLE / controllers.stage / f"{name}.txt").read_text()
    kafkas += LOST_BY_KAFKA.get((controllers.stage, name), "")
    command, *arguments = LISTINGS[name]
    ours = run(command, "--bootstrap-controller", controllers.addresses, *arguments)
    assert comparable(name, ours) == comparable(name, kafkas)


@pytest.mark.timeout(300)
def test_and_creates_more(controllers: GoldenQuorum) -> None:
    """In the same cluster: a topic needs a broker that is there, so its configs and users do."""
    ask = ("--bootstrap-controller", controllers.addresses)
    run("configs", *ask, "alter", "--topic", "orders", "--add-config", "retention.bytes=12345")
    run("configs", *ask, "alter", "--user", "dave", "--add-config", "SCRAM-SHA-512=[password=d]")
    described = json.loads(run("topics", *ask, "describe", "--topic", "orders", "--json"))
    assert described[0]["configs"]["retention.bytes"] == "12345"
    assert "'dave'" in run("configs", *ask, "describe", "--user", "dave")
    meta = MetaProperties.read(controllers.nodes[1].data)
    status = json.loads(run("metadata-quorum", *ask, "describe", "--status", "--json"))
    assert status["clusterId"] == meta.cluster_id


@pytest.mark.parametrize("stage", STAGES)
def test_the_shell_shows_the_topics_of_the_files(golden: Path, stage: str) -> None:
    listed = (ORACLE / stage / "topics-list.txt").read_text().split()
    directory = golden / stage / "controller-1"
    shown = run("metadata-shell", "--log-dir", str(directory), "ls", "/image/topics/byName")
    assert sorted(shown.split()) == sorted(listed)
