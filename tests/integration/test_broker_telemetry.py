"""What real brokers show of themselves: pages, metrics, traces, logs, as controllers do."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.broker.client import Producer
from quorate.cli.local.local_cluster import LocalCluster
from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests import CreateTopics, NewTopic
from quorate.rpc.metadata_client import MetadataClient
from quorate.telemetry.catalogue import METRICS

from tests.integration.support import CLUSTER, HOST, free_ports, quorate, until
from tests.integration.test_broker import properties
from tests.integration.test_telemetry import (
    PAGES,
    Collector,
    Traced,
    families,
    fresh_samples,
    get,
    samples,
)

pytestmark = pytest.mark.slow

BROKERS = (101, 102)
TOPIC = "watched"


class Watched:
    """A controller and two brokers whose telemetry is on, and the collector that they tell."""

    def __init__(self, folder: Path) -> None:
        self.collector = Collector()
        settings = {
            "quorate.otlp.endpoint": f"http://{HOST}:{self.collector.port}",
            "quorate.trace.sample.ratio": "1",
            "quorate.log.format": "json",
        }
        self.cluster = LocalCluster(
            folder / "cluster", broker_settings=settings, controller_settings=settings
        )
        self.cluster.create([1], BROKERS)
        self.ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        for broker, port in self.ports.items():
            path = self.cluster.brokers[broker].properties
            path.write_text(f"{path.read_text()}quorate.http.listener={HOST}:{port}\n")

    def stop(self) -> None:
        self.cluster.stop()
        self.collector.stop()

    async def create_topic(self) -> None:
        """Two partitions on both brokers; each leads one."""
        topic = NewTopic(
            TOPIC, assignments=((101, 102), (102, 101)), configs=(("min.insync.replicas", "2"),)
        )
        async with MetadataClient(self.cluster.addresses) as client:
            made = await client.ask(CreateTopics((topic,)), timeout_ms=20_000)
        assert made.topics[0].error is ErrorCode.NONE, made

    async def produce(self) -> None:
        async with Producer(self.cluster.broker_addresses) as producer:
            for partition in (0, 1):
                await producer.send(TOPIC, b"v", partition=partition)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    found = Watched(tmp_path_factory.mktemp("watched"))
    try:
        yield found
    finally:
        found.stop()


def is_replicated(watched: Watched) -> bool:
    """Whether each broker leads one partition, with a whole ISR."""
    for port in watched.ports.values():
        found = samples(port)
        whole = found.get(("under_replicated_partitions", ())) == 0
        if not whole or found.get(("leader_count", ())) != 1:
            return False
    return True


def test_a_broker_without_a_quorum_is_alive_and_not_ready(watched: Watched) -> None:
    """The first test: the controller does not run yet."""
    watched.cluster.start(BROKERS)
    port = watched.ports[101]
    until("/healthz answers", lambda: get(port, "/healthz") == (200, "alive\n"))
    for path in ("/readyz", "/quorumz"):
        assert get(port, path)[0] == 503
    until("a replica", lambda: samples(port).get(("ready", ())) == 0)
    assert samples(port)["fenced", ()] == 1
    watched.cluster.start([1])
    for port in watched.ports.values():
        for path in PAGES:
            until(f"{path} is fine", lambda port=port, path=path: get(port, path)[0] == 200)
        found = fresh_samples(port)
        assert (found["ready", ()], found["fenced", ()]) == (1, 0)


def test_every_metric_is_exported_and_in_the_catalogue(watched: Watched) -> None:
    of_brokers = [m for m in METRICS if "broker" in m.roles and not m.leader_only]
    for port in watched.ports.values():
        wanted = {metric.prometheus_name for metric in of_brokers}
        if samples(port)["snapshot_offset", ()] < 0:
            wanted -= {"quorate_snapshot_age_seconds", "quorate_snapshot_size_bytes"}
        assert families(port) == wanted
    names = {metric.name.lower() for metric in of_brokers}
    told = watched.collector.metrics
    optional = {"snapshot-age", "snapshot-size"}
    for node in ("101", "102"):
        until(f"all of {node}", lambda node=node: names - optional <= told[node] <= names)


def test_metrics_and_traces_tell_of_partitions(watched: Watched) -> None:
    asyncio.run(watched.create_topic())
    until("whole ISRs", lambda: is_replicated(watched))
    asyncio.run(watched.produce())
    for port in watched.ports.values():
        found = fresh_samples(port)
        assert found["partition_count", ()] == 2
        assert found["under_min_isr_partitions", ()] == 0
        assert found["isobserver", ()] == 1
        assert found["current_leader", ()] == 1
        assert found["fetched_records_total", ()] > 0

    def produced() -> set[int]:
        spans = watched.collector.named("quorate.broker.produce")
        keys = [{a.key: a.value for a in span.attributes} for span in spans]
        return {key["quorate.node_id"].int_value for key in keys}

    until("a span of each broker", lambda: produced() == set(BROKERS))


def test_a_write_to_the_metadata_log_is_traced_to_the_brokers(watched: Watched) -> None:
    async def append() -> int:
        traced = Traced(",".join(watched.cluster.addresses))
        async with traced.client as client:
            await client.append_value(b"v")
        return traced.span("quorate.append").get_span_context().trace_id

    trace_id = asyncio.run(append())

    def followers() -> set[int]:
        spans = watched.collector.of_trace(trace_id)["quorate.follower.append"]
        return {
            a.value.int_value for s in spans for a in s.attributes if a.key == "quorate.node_id"
        }

    until("a span of each broker", lambda: followers() == set(BROKERS))


def test_every_line_of_the_log_is_an_object(watched: Watched) -> None:
    for broker in BROKERS:
        lines = watched.cluster.brokers[broker].log_file.read_text().splitlines()
        objects = [json.loads(line) for line in lines]
        assert {each["node_id"] for each in objects} == {broker}
        assert any("epoch" in each and "offset" in each for each in objects)
        assert any(each["message"].startswith("registered with epoch") for each in objects)


def test_a_broker_that_misses_a_follower_says_so(watched: Watched) -> None:
    """The last test of these brokers: one of them dies."""
    watched.cluster.kill(102)
    port = watched.ports[101]

    def alone() -> bool:
        found = samples(port)
        return found["leader_count", ()] == found["under_replicated_partitions", ()] == 2

    until("101 leads both partitions alone", alone)
    assert samples(port)["under_min_isr_partitions", ()] == 2
    assert get(port, "/readyz")[0] == 200


def test_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
        path = properties(tmp_path, quorate_http_listener=address)
        ran = quorate("broker", path, "--format", CLUSTER)
    assert ran.status == 1
    (line,) = ran.err.splitlines()
    error = f"quorate.http.listener={address}: cannot listen on this address"
    assert line.startswith(f"quorate: error: {error}")
