"""A client outside of the cluster: it runs in the test's process and knows the outside addresses.

No name of a Service resolves there, so whatever it does, it does at the addresses of the cluster's
machines. They must be reachable from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path

import pytest
from quorate.rpc.client.quorum_client import AdminError, OutcomeUnknownError, QuorumClient
from quorate.rpc.tls import TlsConfig

from tests.cluster.conftest import STEADY
from tests.cluster.lab import Lab
from tests.tools.documents import block

pytestmark = pytest.mark.timeout(900)

COUNT = 20
"""How many records are appended before, and after each change of the leader."""
CONNECT_S = 5.0


def machine_address(lab: Lab) -> str:
    """The address of a machine of the cluster."""
    (first, *_) = lab.get("nodes")["items"]
    addresses = {each["type"]: each["address"] for each in first["status"]["addresses"]}
    return str(addresses.get("ExternalIP") or addresses["InternalIP"])


def until_reachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        pytest.skip(f"the node ports of the cluster cannot be reached from here: {address} {error}")


async def append(client: QuorumClient, prefix: str) -> set[bytes]:
    """Append records, and return those that are acknowledged."""
    acknowledged = set()
    for number in range(COUNT):
        value = f"{prefix}-{number}".encode()
        try:
            await client.append_value(value)
        except OutcomeUnknownError:
            continue
        acknowledged.add(value)
    return acknowledged


async def transfer(client: QuorumClient) -> None:
    described = (await client.describe_quorum()).response
    others = [each.key for each in described.voter_set if each.key.id != described.leader.id]
    for voter in others:
        with contextlib.suppress(AdminError):  # it may not have caught up
            await client.transfer_leadership(voter)
            return
    raise AssertionError(described)


def test_a_client_outside_appends_while_the_leader_changes(lab: Lab, tmp_path: Path) -> None:
    """NodePort, with the address of a machine: nothing restarts, and the certificates name it."""
    lab.install(STEADY, "operator.externalAccess=true")
    lab.until_ready(3)
    before = lab.starts()
    external = {"type": "NodePort", "hosts": [machine_address(lab)] * 3}
    patch = json.dumps({"spec": {"external": external}})
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", f"--patch={patch}")
    lab.until("the addresses are known", lambda: lab.status.get("externalBootstrapServers"))
    lab.until_ready(3)
    lab.refresh_files()
    assert lab.starts() == before
    command = block("charts/quorate/README.md", "externalBootstrapServers")
    servers = lab.paste(command).strip().split(",")
    assert len(servers) == len(set(servers)) == 3
    until_reachable(servers[0])
    for name, text in lab.secret(f"{lab.name}-client-tls").items():
        (tmp_path / name).write_text(text)
    tls = TlsConfig(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")

    async def use() -> None:
        async with QuorumClient(servers, tls=tls, request_timeout_ms=60_000) as client:
            acknowledged = await append(client, "first")
            assert len(acknowledged) == COUNT
            await transfer(client)
            acknowledged |= await append(client, "transferred")
            await asyncio.to_thread(lab.kubectl, "delete", "pod", f"{lab.name}-{lab.leader}")
            acknowledged |= await append(client, "deleted")
            await asyncio.to_thread(lab.until_ready, 3)
            acknowledged |= await append(client, "returned")
            found = {record.value async for record in client.read(0, metadata=False)}
            assert acknowledged <= found

    lab.until("the nodes present the new certificates", lambda: asyncio.run(is_known(servers, tls)))
    asyncio.run(use())
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", '--patch={"spec":{"external":null}}')
    service = f"{lab.name}-0-external"
    lab.until("the Services are deleted", lambda: not lab.exists("service", service))
    lab.until_ready(3)


async def is_known(servers: list[str], tls: TlsConfig) -> bool:
    """Whether all nodes present certificates that name the outside address."""
    async with QuorumClient(servers, tls=tls) as client:
        results = await asyncio.gather(*map(client.node_status, servers), return_exceptions=True)
    return not any(isinstance(each, BaseException) for each in results)
