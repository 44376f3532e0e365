"""`topics import`: what Kafka wrote, moved into a quorum that runs and that Kafka never saw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.runtime.metadata_files import read_directory

from tests.integration.support import Node, free_ports
from tests.wire.metadata_support import run
from tests.wire.test_metadata_listing import LISTINGS, LOST_BY_KAFKA, ORACLE, comparable

STAGES = ("full-history", "compacted")
CLUSTER = "AAAAAAAAAAAAAAAAAAAAZg"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A quorum of one, without any metadata."""
    node = Node(tmp_path, 1, free_ports(1)[0])
    node.format("--standalone", CLUSTER)
    node.start()
    try:
        node.wait_said("active controller in epoch")
        yield node
        assert node.stop() == 0
    finally:
        node.kill()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", STAGES)
def test_everything_that_kafka_lists_comes_along(golden: Path, node: Node, stage: str) -> None:
    ask = ("--bootstrap-controller", node.address)
    source = golden / stage / "controller-1"
    first = json.loads(run("topics", *ask, "import", "--from", str(source), "--json"))
    assert sorted(first["topics"]) == sorted(
        (ORACLE / stage / "topics-list.txt").read_text().split()
    )
    for name, (command, *arguments) in LISTINGS.items():
        kafkas = (ORACLE / stage / f"{name}.txt").read_text()
        kafkas += LOST_BY_KAFKA.get((stage, name), "")
        ours = run(command, *ask, *arguments)
        assert comparable(name, ours) == comparable(name, kafkas), name
    again = json.loads(run("topics", *ask, "import", "--from", str(source), "--json"))
    assert again["topics"] == []
    assert again["thereAlready"] == sorted(first["topics"])
    kafkas_image, ours_image = read_directory(source), read_directory(node.data)
    assert ours_image.topics == kafkas_image.topics
    assert ours_image.producer_ids == kafkas_image.producer_ids
    assert ours_image.acls == kafkas_image.acls
    assert ours_image.cluster.brokers == {}


@pytest.mark.timeout(300)
def test_some_topics_from_a_checkpoint(golden: Path, node: Node) -> None:
    ask = ("--bootstrap-controller", node.address)
    source = golden / "compacted/controller-1/__cluster_metadata-0"
    checkpoint = max(source.glob("*.checkpoint"))
    run("topics", *ask, "import", "--from", str(checkpoint), "--topic", "metrics-.*")
    listed = run("topics", *ask, "list").split()
    assert listed
    assert all(name.startswith("metrics-") for name in listed)
    assert run("acls", *ask, "list") == ""
    run("topics", *ask, "import", "--from", str(checkpoint), "--topic", "none", status=1)
    run("topics", *ask, "import", "--from", str(source / "none"), status=1)
