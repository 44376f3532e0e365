"""The operator's certificates in use: a node that serves with them, its probe, and its clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from quorate.controller.config import load_config
from quorate.controller.unformatted import UnformattedNode
from quorate.rpc.client import QuorumClient, UnreachableError
from quorate.rpc.server import RpcServer, start_server
from quorate.rpc.tls import TlsConfig
from quorate_operator import certificates as c
from quorate_operator import naming, pod
from quorate_operator.loop import Identity

from tests.unit.operator.fake_pods import free_port

ENVIRONMENT = {
    "QUORATE_POD_NAME": "q-1",
    "QUORATE_POD_NAMESPACE": "lab",
    "QUORATE_POD_TLS": "true",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> c.Pair:
    """The files of all nodes where a pod has them, and a port that is free."""
    monkeypatch.setattr(naming, "TLS_PATH", str(tmp_path))
    monkeypatch.setattr(naming, "PORT", free_port())
    made = c.new_authority("q authority")
    write(tmp_path, c.node_files(made, "q", "lab", 90))
    return made


async def serve() -> RpcServer:
    config = load_config(None, pod.settings(ENVIRONMENT))
    assert config.tls is not None
    tls = TlsConfig(config.tls.certificate, config.tls.key, config.tls.ca)
    return await start_server([f"localhost:{naming.PORT}"], UnformattedNode(config), tls)


async def test_the_probe_tells_whether_the_member_serves(authority: c.Pair) -> None:
    assert not await asyncio.to_thread(pod.is_serving, ENVIRONMENT)
    server = await serve()
    try:
        assert not await asyncio.to_thread(pod.is_serving, ENVIRONMENT)
        await server.set_serving(True)
        assert await asyncio.to_thread(pod.is_serving, ENVIRONMENT)
    finally:
        await server.stop()


async def test_the_operator_is_let_in_and_strangers_are_not(authority: c.Pair) -> None:
    server = await serve()
    address = f"localhost:{naming.PORT}"
    try:
        operator = Identity(authority)
        async with QuorumClient([address], tls=operator.tls) as client:
            assert (await client.node_status(address)).node_id == 1
        stranger = Identity(c.new_authority("q authority"))
        async with QuorumClient([address], tls=stranger.tls) as client:
            with pytest.raises(UnreachableError):
                await client.node_status(address)
    finally:
        await server.stop()


async def test_renewed_files_are_used_without_a_restart(authority: c.Pair, tmp_path: Path) -> None:
    server = await serve()
    address = f"localhost:{naming.PORT}"
    identity = Identity(authority)
    try:
        async with QuorumClient([address], tls=identity.tls) as client:
            assert (await client.node_status(address)).node_id == 1
        write(tmp_path, c.node_files(authority, "q", "lab", 30))
        async with QuorumClient([address], tls=identity.tls) as client:
            assert (await client.node_status(address)).node_id == 1
        assert not identity.is_due
    finally:
        await server.stop()
