"""What real controllers show of themselves: pages, metrics, traces, logs."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2,
    metrics_service_pb2_grpc,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from quorate.process.http import FRESH_S_MAX
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import ClientError
from quorate.telemetry.catalogue import METRICS, PROCESS_METRICS
from quorate.telemetry.tracing import Tracing

from tests.integration.conftest import Start
from tests.integration.support import HOST, Quorum, assert_clean, free_ports, until, voters

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

OF_CONTROLLERS = [metric for metric in METRICS if "controller" in metric.roles]
PAGES = ("/healthz", "/readyz", "/quorumz")


def get(port: int, path: str) -> tuple[int, str]:
    """The status and body of a page; 0 if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def families(port: int) -> set[str]:
    """The names of all metrics, as the catalogue spells them."""
    status, text = get(port, "/metrics")
    assert status == 200
    found = list(text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found)
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in found}


def samples(port: int) -> Samples:
    return {
        (sample.name.removeprefix("quorate_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(get(port, "/metrics")[1])
        for sample in family.samples
    }


def fresh_samples(port: int) -> Samples:
    """The samples of a page rendered after this call; `samples` may return an earlier one."""
    time.sleep(FRESH_S_MAX)
    return samples(port)


class Collector(
    trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer
):
    """An OpenTelemetry collector that keeps everything."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._spans: list[Span] = []
        self.metrics: dict[str, set[str]] = defaultdict(set)
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"{HOST}:0")
        self._server.start()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - of both services
        with self._guard:
            if isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        self._spans.extend(scope.spans)
                return trace_service_pb2.ExportTraceServiceResponse()
            for resource in request.resource_metrics:
                attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
                for scope in resource.scope_metrics:
                    names = {metric.name for metric in scope.metrics}
                    self.metrics[attributes["service.instance.id"]] |= names
            return metrics_service_pb2.ExportMetricsServiceResponse()

    def of_trace(self, trace_id: int) -> dict[str, list[Span]]:
        """The spans of one trace by name."""
        found: dict[str, list[Span]] = defaultdict(list)
        with self._guard:
            for span in self._spans:
                if int.from_bytes(span.trace_id, "big") == trace_id:
                    found[span.name].append(span)
        return found

    def named(self, name: str) -> list[Span]:
        """The spans of a name."""
        with self._guard:
            return [span for span in self._spans if span.name == name]

    def stop(self) -> None:
        self._server.stop(None)


class Watched:
    """Three controllers whose telemetry is all on, and the collector that they tell."""

    def __init__(self, folder: Path) -> None:
        self.collector = Collector()
        self.quorum = Quorum(
            folder,
            (1, 2, 3),
            **{
                "controller.quorum.auto.join.enable": "true",
                "quorate.otlp.endpoint": f"http://{HOST}:{self.collector.port}",
                "quorate.trace.sample.ratio": "0.001",
                "quorate.log.format": "json",
            },
        )
        self.ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
        for node_id, node in self.quorum.nodes.items():
            node.configure({"quorate.http.listener": f"{HOST}:{self.ports[node_id]}"})
            node.format("--standalone" if node_id == 1 else "--no-initial-controllers")
            node.start()

    def leader(self) -> int:
        return int(self.quorum.until("a leader", lambda _: True)["leaderId"])

    def stop(self) -> None:
        self.quorum.kill()
        self.collector.stop()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    found = Watched(tmp_path_factory.mktemp("watched"))
    try:
        found.quorum.until_voters(1, 2, 3)
        yield found
    finally:
        found.stop()


class Traced:
    """A client that traces all it does."""

    def __init__(self, addresses: str) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.client = QuorumClient(addresses.split(","), tracing=Tracing(provider))

    def span(self, name: str) -> ReadableSpan:
        """The last one of a name."""
        return [s for s in self.exporter.get_finished_spans() if s.name == name][-1]


def test_every_metric_is_exported_and_in_the_catalogue(watched: Watched) -> None:
    leader = watched.leader()
    instruments = {metric.name.lower() for metric in OF_CONTROLLERS}
    for node_id, port in watched.ports.items():
        wanted = {
            m.prometheus_name for m in OF_CONTROLLERS if node_id == leader or not m.leader_only
        }
        if samples(port)["snapshot_offset", ()] < 0:
            wanted -= {"quorate_snapshot_age_seconds", "quorate_snapshot_size_bytes"}
        assert families(port) == wanted
    told = watched.collector.metrics
    until("metrics by OTLP", lambda: set.union(set(), *told.values()) == instruments)


def test_metrics_tell_what_is(watched: Watched) -> None:
    leader = watched.leader()
    follower = next(node_id for node_id in watched.ports if node_id != leader)

    async def append() -> int:
        async with QuorumClient(watched.quorum.addresses.split(",")) as client:
            for number in range(20):
                offset = await client.append_value(b"%d" % number)
            return offset

    before = fresh_samples(watched.ports[leader])
    end = asyncio.run(append()) + 1

    def caught_up() -> bool:
        return samples(watched.ports[follower])["high_watermark", ()] >= end

    until("the follower knows what is committed", caught_up)
    found, other = fresh_samples(watched.ports[leader]), fresh_samples(watched.ports[follower])
    for name, wanted in {
        "current_leader": leader,
        "number_of_voters": 3,
        "number_of_observers": 0,
        "number_of_offline_voters": 0,
        "uncommitted_voter_change": 0,
        "isobserver": 0,
        "number_unknown_voter_connections": 0,
        "ignored_static_voters": 0,
        "ready": 1,
        "formatted": 1,
    }.items():
        assert found[name, ()] == wanted, name
    assert found["current_state", (("state", "leader"),)] == 1
    assert other["current_state", (("state", "follower"),)] == 1
    assert other["current_state", (("state", "leader"),)] == 0
    assert found["high_watermark", ()] >= end
    appended = "appended_records_total"
    assert found[appended, ()] - before[appended, ()] >= 20
    assert other["fetched_records_total", ()] >= 20
    commits = "commit_latency_seconds_count"
    assert found[commits, ()] - before[commits, ()] == 20
    assert found["fsync_latency_seconds_count", ()] > before["fsync_latency_seconds_count", ()]
    assert 0.05 < found["poll_idle_ratio", ()] < 1, "an idle controller waits, but not always"
    lags = [labels for name, labels in found if name == "follower_lag"]
    assert {dict(labels)["replica"] for labels in lags} == {
        str(node_id) for node_id in watched.ports if node_id != leader
    }


def test_a_write_is_one_trace_from_the_client_to_the_commit(watched: Watched) -> None:
    leader = watched.leader()

    async def append() -> tuple[int, ReadableSpan]:
        traced = Traced(watched.quorum.addresses)
        async with traced.client as client:
            offset = (await client.append([(b"k", b"v"), (b"k", b"w")])).base_offset
        return offset, traced.span("quorate.append")

    offset, client_span = asyncio.run(append())
    trace_id = client_span.get_span_context().trace_id
    names = {
        "quorate.leader.append": 1,
        "quorate.leader.fsync": 1,
        "quorate.commit": 1,
        "quorate.follower.append": 2,
    }

    def complete() -> dict[str, list[Span]] | None:
        spans = watched.collector.of_trace(trace_id)
        return spans if {name: len(each) for name, each in spans.items()} == names else None

    spans = until(f"the spans of trace {trace_id:x}", complete)
    (served,) = spans["quorate.leader.append"]
    assert int.from_bytes(served.parent_span_id, "big") == client_span.get_span_context().span_id
    nodes = set()
    for name, each in spans.items():
        for span in each:
            attributes = {a.key: a.value.int_value for a in span.attributes}
            nodes.add((name.split(".")[1], attributes["quorate.node_id"]))
            assert attributes["quorate.base_offset"] == offset
            if span is not served:
                assert span.parent_span_id == served.span_id
    followers = {node_id for node_id in watched.ports if node_id != leader}
    assert nodes == {("leader", leader), ("commit", leader), *(("follower", n) for n in followers)}


def test_an_administrators_request_is_traced_by_its_metadata(watched: Watched) -> None:
    leader = watched.leader()
    keys = voters(watched.quorum.until("a leader", lambda _: True))
    target = next(node_id for node_id in keys if node_id != leader)

    async def transfer() -> ReadableSpan | None:
        traced = Traced(watched.quorum.addresses)
        async with traced.client as client:
            description = await client.describe_quorum()
            voter = description.response.voter_set.get(target)
            assert voter is not None
            try:
                await client.transfer_leadership(ReplicaKey(target, voter.key.directory_id))
            except ClientError:
                return None  # the target stalled, or another voter won
        return traced.span("quorate.TransferLeadership")

    span: ReadableSpan = until("leadership is transferred", lambda: asyncio.run(transfer()))
    trace_id = span.get_span_context().trace_id
    name = "quorate.leader.TransferLeadership"
    until(f"a span {name}", lambda: watched.collector.of_trace(trace_id)[name])


def test_every_line_of_the_log_is_an_object(watched: Watched) -> None:
    for node in watched.quorum.nodes.values():
        lines = [json.loads(line) for line in node.said().splitlines()]
        assert {line["node_id"] for line in lines} == {node.id}
        assert any("epoch" in line and "offset" in line for line in lines)
        assert any(line["message"].startswith("voter set ") for line in lines)
        assert not [line for line in lines if line["level"] in ("ERROR", "CRITICAL")]


def test_pages_while_the_quorum_is_lost(watched: Watched) -> None:
    """The last test of these controllers: two of them die."""
    for port in watched.ports.values():
        for path in PAGES:
            until(f"{path} is fine", lambda port=port, path=path: get(port, path)[0] == 200)
    survivor = watched.leader()
    port = watched.ports[survivor]
    for node_id, node in watched.quorum.nodes.items():
        if node_id != survivor:
            node.kill()

    def offline() -> bool:
        name = "number_of_offline_voters", ()
        found = samples(port)
        return found.get(name) == 2 or found["current_leader", ()] == -1

    until("the leader misses its voters", offline)
    until("/quorumz says so", lambda: get(port, "/quorumz")[0] == 503)
    until("/readyz says so", lambda: get(port, "/readyz")[0] == 503)
    assert "electing one takes 2 of" in get(port, "/readyz")[1]
    assert get(port, "/healthz") == (200, "alive\n")
    assert fresh_samples(port)["ready", ()] == 0


def test_a_node_that_waits_to_be_formatted_can_be_watched(make_node: Start) -> None:
    (port,) = free_ports(1)
    node = make_node(
        1,
        **{"quorate.http.listener": f":{port}", "quorate.unformatted.wait": "true"},
    )
    node.start()
    node.wait_said("waiting for Format")
    assert get(port, "/healthz") == (200, "alive\n")
    for path in ("/readyz", "/quorumz"):
        assert get(port, path) == (503, "this node is not formatted and waits for Format\n")
    assert families(port) == {metric.prometheus_name for metric in PROCESS_METRICS}
    assert samples(port)["formatted", ()] == 0
    assert node.stop() == 0
    assert_clean(node.said())


def test_a_collector_that_does_not_answer_harms_nobody(make_node: Start) -> None:
    (nobody,) = free_ports(1)
    node = make_node(1, **{"quorate.otlp.endpoint": f"http://{HOST}:{nobody}"})
    node.format("--standalone")
    node.start()
    node.wait_said("leads epoch")
    assert node.stop() == 0


def test_an_address_in_use_is_one_line(make_node: Start) -> None:
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
        node = make_node(1, **{"quorate.http.listener": address})
        node.format("--standalone")
        node.start()
        assert node.wait() == 1
    (line,) = node.said().splitlines()
    error = f"quorate.http.listener={address}: cannot listen on this address"
    assert line.startswith(f"quorate: error: {error}")


@pytest.mark.parametrize(
    "case",
    [
        ("quorate.http.listener", f"{HOST}:9", "opentelemetry.exporter.prometheus"),
        ("quorate.otlp.endpoint", f"http://{HOST}:9", "opentelemetry.exporter.otlp"),
    ],
)
def test_without_the_extra_one_line_names_it(
    make_node: Start,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    case: tuple[str, str, str],
) -> None:
    setting, value, missing = case
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.startswith({missing!r}):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    node = make_node(1, **{setting: value})
    node.format("--standalone")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
        node.start()
    assert node.wait() == 1
    (line,) = node.said().splitlines()
    assert line.startswith(f"quorate: error: {setting} requires the extra 'telemetry'")
    assert line.endswith("pip install 'quorate[telemetry]'")
