"""Text that callers choose: in the log, in requests of HTTP, in the values of the chart, in tables.

A real controller without TLS, so that nobody is refused for who they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import quorate
import yaml
from quorate.common.endpoints import Endpoint
from quorate.controller.formatting import random_uuid
from quorate.metadata import requests as r
from quorate.metadata.metadata_version import SUPPORTED
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.v1 import common_pb2, quorum_pb2, raft_pb2

from tests.cluster.lab import CHART, helm_program
from tests.integration.support import CLUSTER, HOST, PARTITION, Node, free_ports, here, until

pytestmark = pytest.mark.timeout(120)

FORGED = "2026-01-01 00:00:00,000 CRITICAL [controller 1] the disk failed"
HOSTILE = f"x\r\n{FORGED}\n\x1b]0;owned\x07\x1b[2J\u2028\x9b31m"


class Controller:
    def __init__(self, folder: Path) -> None:
        port, self.http = free_ports(2)
        self.node = Node(folder, 1, port, **{"quorate.http.listener": f"{HOST}:{self.http}"})
        self.node.format("--standalone")
        self.node.start()
        self.node.wait_said("leads epoch")

    async def call(self, name: str, request: Any) -> Any:
        rpc = RPC_METHODS[name]
        async with grpc.aio.insecure_channel(self.node.address) as channel:
            ask = channel.unary_unary(
                rpc.path,
                request_serializer=rpc.request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
            return await ask(request, timeout=10)

    def http_answer(self, *parts: bytes) -> bytes:
        """Everything that is answered to bytes, sent piece by piece, until the connection ends."""
        with socket.create_connection((HOST, self.http), 10) as connection:
            answer = b""
            try:
                for part in parts:
                    connection.sendall(part)
                while more := connection.recv(65_536):
                    answer += more
            except ConnectionResetError:
                pass
            return answer


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    made = Controller(tmp_path_factory.mktemp("hostile"))
    yield made
    made.node.kill()


async def test_no_caller_writes_lines_of_the_log(controller: Controller) -> None:
    key = common_pb2.ReplicaKey(id=7, directory_id=os.urandom(16))
    ends = [common_pb2.Endpoint(name=HOSTILE, host=HOSTILE, port=1)]
    voter = common_pb2.Voter(key=key, endpoints=ends)
    for name, request in (
        ("Fetch", raft_pb2.FetchRequest(cluster_id=HOSTILE, replica=key, epoch=1)),
        ("Fetch", raft_pb2.FetchRequest(cluster_id=CLUSTER, replica=key, epoch=1, endpoints=ends)),
        ("Vote", raft_pb2.VoteRequest(cluster_id=HOSTILE, candidate=key, epoch=1)),
        ("UpdateVoter", raft_pb2.UpdateVoterRequest(cluster_id=CLUSTER, epoch=1, voter=voter)),
        ("Format", quorum_pb2.FormatRequest(cluster_id=HOSTILE, mode=1)),
        ("AddVoter", quorum_pb2.AddVoterRequest(cluster_id=HOSTILE, voter=key, endpoints=ends)),
        ("DescribeQuorum", quorum_pb2.DescribeQuorumRequest(cluster_id=HOSTILE)),
    ):
        await controller.call(name, request)
    async with MetadataClient([controller.node.address]) as client:
        endpoints = (Endpoint(HOSTILE, HOSTILE, 1),)
        for request in (
            r.RegisterBroker(
                *(5, random_uuid(), endpoints),
                rack=HOSTILE,
                log_dirs=(random_uuid(),),
                features=tuple(r.BrokerFeature(*each) for each in SUPPORTED.items()),
            ),
            r.CreateTopics((r.NewTopic(HOSTILE, 1, 1, configs=((HOSTILE, HOSTILE),)),)),
            r.DescribeUserScramCredentials((HOSTILE,)),
        ):
            with contextlib.suppress(AdminError):
                await client.ask(request)
    said = controller.node.said()
    assert "rejected " in said
    assert not any(line.startswith(FORGED) for line in said.splitlines())
    assert not set(said) & set("\r\x1b\x07\x9b\u2028")


def test_names_of_others_are_escaped_in_tables(controller: Controller) -> None:
    async def observe() -> None:
        key = common_pb2.ReplicaKey(id=8, directory_id=os.urandom(16))
        ends = [common_pb2.Endpoint(name="C\x1b[2J", host=HOSTILE, port=1)]
        request = raft_pb2.FetchRequest(cluster_id=CLUSTER, replica=key, epoch=1, endpoints=ends)
        await controller.call("Fetch", request)

    asyncio.run(observe())
    for how in (
        ("describe", "--status"),
        ("describe", "--replication"),
        ("describe", "--status", "--json"),
    ):
        ran = here("metadata-quorum", "--bootstrap-controller", controller.node.address, *how)
        assert ran.status == 0, ran
        assert not set(ran.out) & set("\x1b\x07\x9b\r"), ran.out


OK = b"HTTP/1.1 200 "


def test_a_request_of_http_is_one_request(controller: Controller) -> None:
    """Whatever bodies, lengths and second requests it brings: one answer, and the end."""
    second = b"GET /metrics HTTP/1.1\r\nHost: y\r\n\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    for head, body in (
        (b"Host: x\r\n\r\n", second * 3),
        (b"Content-Length: 5\r\n\r\nhello", second),
        (b"Content-Length: 0\r\n" + chunked, second),
        (b"Content-Length: 9999999999\r\n\r\n", second),
        (b"Transfer-Encoding: \x0bchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", second),
        (b"Host: a\r\nHost: b\r\nX: \x00\x01\r\n\r\n", second),
        (b"Host: x\r\n\tfolded\r\n\r\n", second),
    ):
        answer = controller.http_answer(b"GET /healthz HTTP/1.1\r\n" + head + body)
        assert answer.count(b"HTTP/1.1 ") == 1, (head, answer)
        assert answer.startswith(OK), (head, answer)
        assert b"quorate_" not in answer


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET  /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", 405),
        (b"get /healthz HTTP/1.1\r\n\r\n", 405),
        (b"GET http://elsewhere/healthz HTTP/1.1\r\n\r\n", 404),
        (b"GET //healthz HTTP/1.1\r\n\r\n", 404),
        (b"GET /healthz/../metrics HTTP/1.1\r\n\r\n", 404),
        (b"GET /../../../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /healthz%00 HTTP/1.1\r\n\r\n", 404),
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 3_000 + b"\r\n", 431),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else None,
)
def test_a_wrong_request_of_http_is_refused(
    controller: Controller, sent: bytes, status: int
) -> None:
    answer = controller.http_answer(sent)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert b"\r\nX: y" not in answer, "nothing of it comes back as a header"
    assert "Traceback" not in controller.node.said()


async def test_odd_deadlines_and_headers_harm_nobody(controller: Controller) -> None:
    describe = RPC_METHODS["DescribeQuorum"]
    async with grpc.aio.insecure_channel(controller.node.address) as channel:
        ask = channel.unary_unary(describe.path)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(b"", timeout=-1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED, caught.value
        for timeout in (10**8, None):
            await ask(b"", timeout=timeout)
        for metadata in (
            [(f"x-{number}", "y") for number in range(10_000)],
            [("x-large", "y" * 40_000)],
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(b"", metadata=metadata, timeout=10)
            assert caught.value.code() in (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.UNAVAILABLE,
            ), caught.value
        for parent in ("00-" + "f" * 52, "x" * 55, "00-" + "0" * 32 + "-%s" * 10):
            await ask(b"", metadata=[("traceparent", parent)], timeout=10)
    for timeout_ms in (0, 1, 2**32 - 1):
        records = [{"key": b"k", "value": b"v"}]
        request = quorum_pb2.AppendRequest(records=records, timeout_ms=timeout_ms)
        await controller.call("Append", request)
    async with QuorumClient([controller.node.address]) as client:
        await client.append_value(b"still there")
    assert "Traceback" not in controller.node.said()


# --- the chart ------------------------------------------------------------------------------------

INJECTED = (
    'x"\'\n  injected: "1"\n---\nkind: ClusterRoleBinding\nmetadata: {name: injected}\n# {{ 1 }}',
    "x\n---\nkind: ClusterRoleBinding\nmetadata: {name: injected}\n---\nx",
    "x\n  injected: 1",
)
"""What ends a text and begins something else, quoted or not, as a value or a key."""


def texts(schema: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of the values that may be text."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    for name, part in schema.get("properties", {}).items():
        yield from texts(part, definitions, f"{path}.{name}" if path else name)
    kind = schema.get("type")
    if kind == "string" or (isinstance(kind, list) and "string" in kind):
        yield path
    more = schema.get("additionalProperties")
    if kind == "object" and isinstance(more, dict):
        yield f"{path}.injected-key"


def render(helm: str, values: dict[str, Any], folder: Path) -> list[dict[str, Any]] | None:
    """The objects; None where the chart refuses the values."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [helm, "template", "meta", str(CHART), "-n", "prod", "--kube-version", "1.34.0"]
    ran = subprocess.run([*command, "-f", str(file)], capture_output=True, text=True, timeout=60)
    if ran.returncode != 0:
        return None
    return [each for each in yaml.safe_load_all(ran.stdout) if each]


def test_no_value_of_the_chart_makes_objects_or_fields(tmp_path: Path) -> None:
    helm = helm_program()
    if helm is None:
        pytest.skip("helm is not installed (the variable HELM can name it)")
    schema = json.loads((CHART / "values.schema.json").read_text())
    paths = list(texts(schema, schema["definitions"]))
    assert len(paths) > 20
    on = {
        "quorum": {"enabled": True},
        "brokers": {"enabled": True},
        "pipeline": {"enabled": True},
        "dashboards": {"enabled": True},
        "prometheusRules": {"enabled": True},
        "podMonitor": {"enabled": True},
    }
    usual = render(helm, on, tmp_path)
    assert usual is not None
    kinds = {each["kind"] for each in usual}
    refused = 0
    for path, hostile in itertools.product(paths, INJECTED):
        values: dict[str, Any] = json.loads(json.dumps(on))
        *parts, last = path.split(".")
        at = values
        for part in parts:
            at = at.setdefault(part, {})
        at[hostile if last == "injected-key" else last] = hostile
        found = render(helm, values, tmp_path)
        if found is None:
            refused += 1
            continue
        assert len(found) == len(usual), path
        assert {each["kind"] for each in found} == kinds, path
        for each in found:
            assert "injected" not in each, path
            assert "injected" not in each["metadata"], path
            assert "injected" not in each.get("spec", {}), path
    assert 0 < refused < len(paths) * len(INJECTED)


# --- the console ----------------------------------------------------------------------------------


def test_the_console_draws_names_as_text() -> None:
    """Nothing in its sources makes markup of values: labels and cells of tables are text."""
    folder = Path(quorate.__file__).parent / "console"
    source = "".join(each.read_text() for each in folder.glob("*.py"))
    assert "ui.label(" in source
    for sink in (
        "ui.html",
        "ui.markdown",
        "v-html",
        "innerHTML",
        "run_javascript",
        "add_body_html",
    ):
        assert sink not in source, sink
    for slot in re.findall(r"props\.row\.(\w+)", source):
        assert slot in {"serious", "problem", "role", "healthy", "changeable", "href"}, slot
    assert "default-src 'none'" in source, "nor does the page load anything from elsewhere"


# --- directories ----------------------------------------------------------------------------------


def test_commands_stay_where_they_are_sent(tmp_path: Path) -> None:
    """Names in files and on the command line do not lead elsewhere."""
    node = Node(tmp_path, 1, free_ports(1)[0])
    node.format("--standalone")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for hostile in ("../victim", str(victim), "/etc/passwd", "\x1b[2J", "a\nb"):
        ran = here("dump-log", node.data / hostile)
        assert ran.status != 0, ran
        assert "Traceback" not in ran.err
        assert not set(ran.out + ran.err) & set("\x1b\r"), ran
    assert victim.read_text() == "precious"
    until("nothing is left", lambda: not list(tmp_path.glob("*.tmp")))


@pytest.mark.parametrize("name", [".lock", "meta.properties.tmp", f"{PARTITION}/required-end.tmp"])
def test_a_link_in_a_data_directory_leads_nowhere(tmp_path: Path, name: str) -> None:
    node = Node(tmp_path, 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    node.wait_said("leads epoch")
    assert node.stop() == 0
    victim = tmp_path / "victim"
    victim.write_text("precious" * 1_000)
    link = node.data / name
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    node.start()
    try:
        node.wait_said("leads epoch")
    finally:
        node.kill()
    assert victim.read_text() == "precious" * 1_000
