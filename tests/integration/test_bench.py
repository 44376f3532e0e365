"""`quorate bench`: a workload of each kind measures something, on a small scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quorate.cli.bench.workloads import Bench
from quorate.controller.kafka.settings import PEER_PROTOCOLS

from tests.integration.bridge_support import connections_at
from tests.integration.support import Quorum, assert_error, quorate, succeed

SMALL = ("--seconds", "0.3", "--commits", "20", "--kills", "1", "--records", "2000")
FIGURES = {
    "W1": {
        "p50",
        "p99",
        *(
            f"{who}, {what}"
            for who in ("client", "leader", "a follower")
            for what in ("processor", "switches")
        ),
    },
    "W2p": {"throughput", "p50", "p99"},
    "W4": {"min", "median", "max"},
    "W6": {"until it votes", "received", "one stream to one disk", "share of the floor"},
    "metadata": {
        "create",
        "create, partitions a second",
        "create 100 topics, p50",
        "create 100 topics, p99",
        "resident memory of the leader, empty",
        "resident memory of the leader, full",
        "kill -9 to the next topic",
        "write the checkpoint",
        "size of the checkpoint",
        "load the checkpoint",
        "replay, records a second a core",
        "start from the large checkpoint",
        "processor time of that start",
        "resident memory after that",
    },
}


@pytest.mark.parametrize(
    "workload",
    [each if each == "W2p" else pytest.param(each, marks=pytest.mark.slow) for each in FIGURES],
)
def test_a_workload_prints_its_figures_as_lines_of_json(workload: str, tmp_path: Path) -> None:
    out = tmp_path / "lines"
    done = succeed(
        "bench", workload, *SMALL, "--mebibytes", "8", "--partitions", "300",
        "--dir", str(tmp_path), "--json", "--out", str(out),
    )  # fmt: skip
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert {line["metric"] for line in lines} == FIGURES[workload]
    for line in lines:
        assert line["peer"] == "quorate"
        assert line["value"] > 0
        assert line["n"] > 0
        assert line.get("failed", 0) == 0
    assert out.read_text() == done.out
    assert list(tmp_path.iterdir()) == [out], "a quorum was left behind"


@pytest.mark.slow
def test_many_callers_on_one_connection_are_all_served(tmp_path: Path) -> None:
    """gRPC refuses calls beyond the limit of a connection, and counts some that have ended."""
    done = succeed("bench", "W2u", "--seconds", "5", "--dir", str(tmp_path), "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert lines
    assert [line["failed"] for line in lines if line["failed"]] == []


@pytest.mark.slow
def test_a_running_quorum_is_loaded_and_not_stopped(quorum: Quorum) -> None:
    address = next(iter(quorum.nodes.values())).address
    table = succeed("bench", "W1", "W3", *SMALL, "--bootstrap-controller", address).out
    assert "throughput" in table
    assert "p99, ms" in table
    refused = quorate("bench", "W4", "--bootstrap-controller", address)
    assert_error(refused, "W4", "requires a new quorum", status=2)


@pytest.mark.parametrize("protocol", PEER_PROTOCOLS)
async def test_a_new_quorum_uses_the_protocol(tmp_path: Path, protocol: str) -> None:
    bench = Bench(folder=tmp_path, peer_protocol=protocol)
    async with bench.quorum() as quorum:
        port = quorum.own.nodes[await quorum.leader()].kafka_port
        assert port is not None
        fetching = connections_at(port)
        assert (fetching >= 2) is (protocol == "kafka"), "both followers fetch there"
    measured = bench.took("W1", "p50", 1.0, "ms", 1)
    assert json.loads(measured.line())["peer_protocol"] == protocol


def test_a_protocol_is_for_new_quorums_and_one_of_two() -> None:
    unknown = quorate("bench", "W1", "--peer-protocol", "fax")
    assert_error(unknown, "--peer-protocol fax", "grpc or kafka", status=2)
    running = ("--bootstrap-controller", "localhost:1", "--peer-protocol", "kafka")
    assert_error(quorate("bench", "W1", *running), "a new quorum", status=2)


def test_a_transport_is_one_of_two() -> None:
    assert_error(quorate("bench", "W1", "--transport", "fax"), "fax", "auto or grpc", status=2)


def test_a_new_quorum_needs_all_tls_files(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\nssl.ca.location=/ca.pem\n")
    refused = quorate("bench", "W1", "--command-config", str(config))
    assert_error(refused, "client.properties", "ssl.certificate.location", status=2)


def test_an_unknown_workload_is_named() -> None:
    assert_error(quorate("bench", "W77"), "W77", "W4g", status=2)
