"""The ports of a local cluster's nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorate.cli.local import local_cluster
from quorate.cli.local.local_cluster import LocalCluster, free_ports


@pytest.fixture
def few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine ports on which nothing listens, none of them assigned yet."""
    monkeypatch.setattr(local_cluster, "PORTS", free_ports(9))
    monkeypatch.setattr(local_cluster, "_assigned", set())


@pytest.mark.usefixtures("few_ports")
def test_ports_are_assigned_once() -> None:
    found = [*free_ports(4), *free_ports(5)]
    assert sorted(found) == sorted(local_cluster.PORTS)
    with pytest.raises(OSError, match="fewer than 1 ports are free"):
        free_ports(1)


@pytest.mark.usefixtures("few_ports")
def test_a_new_node_does_not_take_the_port_of_a_stopped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LocalCluster(tmp_path / "quorum", kafka_listener=True).create([1, 2, 3], [101])
    monkeypatch.setattr(local_cluster, "_assigned", set())

    loaded = LocalCluster(tmp_path / "quorum")
    loaded.load()
    added = loaded.add(4)
    old = [*(loaded.nodes[each] for each in (1, 2, 3)), *loaded.brokers.values()]
    used = {port for node in old for port in (node.port, node.kafka_port)} - {None}
    assert len(used) == 7
    assert used.isdisjoint({added.port, added.kafka_port})
