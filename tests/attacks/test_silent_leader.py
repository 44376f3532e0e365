"""Clients leave a leader whose loop stands still: gRPC in it goes on accepting calls and answering
pings.

Real controllers, which stand still on SIGUSR1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from quorate.metadata.requests import DescribeCluster
from quorate.rpc.client.quorum_client import OutcomeUnknownError, QuorumClient
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.limits import ChannelLimits

from tests.attacks.conftest import MakeQuorum

pytestmark = pytest.mark.timeout(120)

STILL_S = 90
SHIM = f"import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: time.sleep({STILL_S}))\n"
REQUEST_TIMEOUT_MS = 60_000
FAILOVER_S = 30.0
"""Far below the client's own timeout, and far above what it takes on an idle machine."""


async def _read(client: QuorumClient) -> list[bytes]:
    return [bytes(record.value or b"") async for record in client.read(0) if record.key is not None]


async def test_clients_leave_a_leader_that_stands_still(
    make_quorum: MakeQuorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shim"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SHIM)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    quorum = await make_quorum()
    leader, epoch = await quorum.leader()
    async with (
        QuorumClient(quorum.addresses, request_timeout_ms=REQUEST_TIMEOUT_MS) as writer,
        QuorumClient(quorum.addresses, request_timeout_ms=REQUEST_TIMEOUT_MS) as reader,
        MetadataClient(quorum.addresses, request_timeout_ms=REQUEST_TIMEOUT_MS) as metadata,
    ):
        await writer.append_value(b"before")
        assert await _read(reader) == [b"before"]
        await metadata.ask(DescribeCluster())
        os.kill(leader.pid, signal.SIGUSR1)
        stood_still = time.monotonic()
        calls: list[Awaitable[Any]] = [
            writer.append_value(b"under way"),
            _read(reader),
            metadata.ask(DescribeCluster()),
        ]
        append, read, described = await asyncio.gather(*calls, return_exceptions=True)
        took_s = time.monotonic() - stood_still
        assert isinstance(append, OutcomeUnknownError), append
        assert f"no response for {ChannelLimits().silence_ms} ms" in str(append)
        assert read[:1] == [b"before"], read
        assert not isinstance(described, BaseException), described
        assert took_s < FAILOVER_S
        assert await writer.append_value(b"after") > 0
        assert time.monotonic() - stood_still < FAILOVER_S
        assert (await quorum.leader(epoch))[0] is not leader
