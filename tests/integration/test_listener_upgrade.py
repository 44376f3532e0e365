"""KIP-853 "Upgrading controller listener": from PLAINTEXT to SSL, node by node, under load.

Three real processes. Each stage restarts them one by one, the leader last, and ends with what the
KIP says that `describe --status` then prints. A workload writes throughout, first in the clear,
later with TLS, and is verified at the end: nothing that was acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from quorate.cli.local.workload import Workload
from quorate.common.endpoints import Endpoint
from quorate.controller.formatting import random_uuid
from quorate.raft.messages import DescribeQuorumResponse
from quorate.rpc.client.quorum_client import QuorumClient, UnreachableError
from quorate.rpc.tls import TlsConfig

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import (
    CLUSTER,
    HOST,
    Node,
    assert_clean,
    free_ports,
    quorate,
    succeed,
)

CLEAR, SECURE = "CONTROLLER", "CONTROLLER_SSL"
IDS = (1, 2, 3)
FETCH_TIMEOUT_MS = 5_000
"""So long that a stalled machine causes no election: a leader that stops hands over."""
STAGE_TIMEOUT_S = 30.0
POLL_S = 0.2

PROTOCOLS = f"{CLEAR}:PLAINTEXT,{SECURE}:SSL"


@dataclass(frozen=True, slots=True)
class Ports:
    """Of one controller."""

    clear: int
    secure: int

    def endpoint(self, name: str) -> Endpoint:
        return Endpoint(name, HOST, self.clear if name == CLEAR else self.secure)

    def listeners(self, *names: str) -> str:
        return ",".join(str(self.endpoint(name)) for name in names)


class Walkthrough:
    """The controllers, their files, and the workload that goes on meanwhile."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(2 * len(IDS))
        self.ports = {i: Ports(*ports[2 * n : 2 * n + 2]) for n, i in enumerate(IDS)}
        self.nodes = {
            i: Node(
                folder,
                i,
                self.ports[i].clear,
                **{
                    "controller.quorum.bootstrap.servers": ",".join(self.addresses(CLEAR)),
                    "listener.security.protocol.map": f"{CLEAR}:PLAINTEXT",
                    "controller.quorum.election.timeout.ms": 300,
                    "controller.quorum.fetch.timeout.ms": FETCH_TIMEOUT_MS,
                },
            )
            for i in IDS
        }
        authority = make_authority(folder, "authority")
        self.certificates = {
            i: make_certificate(folder, f"node-{i}", authority, names=(f"node-{i}",)) for i in IDS
        }
        self.ca = authority[0]
        certificate, key = make_certificate(folder, "client", authority)
        self.tls = TlsConfig(certificate, key, self.ca)
        self.client_properties = folder / "client.properties"
        self.client_properties.write_text(
            "security.protocol=SSL\n"
            f"ssl.certificate.location={certificate}\n"
            f"ssl.key.location={key}\n"
            f"ssl.ca.location={self.ca}\n"
        )
        self.load = Workload(self.addresses(CLEAR), callers=2, pause_s=0.05)
        self.gaps_s: list[float] = []

    def addresses(self, name: str) -> list[str]:
        chosen = (self.ports[i].endpoint(name) for i in IDS)
        return [f"{endpoint.host}:{endpoint.port}" for endpoint in chosen]

    def format(self) -> None:
        ids = {i: random_uuid() for i in IDS}
        voters = ",".join(f"{i}-{ids[i]}@{HOST}:{self.ports[i].clear}" for i in IDS)
        for node in self.nodes.values():
            succeed(
                *("storage", "format", "-t", CLUSTER, "-c", node.properties),
                *("--initial-controllers", voters),
            )

    async def until(
        self, what: str, condition: Callable[[DescribeQuorumResponse], bool]
    ) -> DescribeQuorumResponse:
        """Wait for a leader's description that is as wanted."""
        deadline = time.monotonic() + STAGE_TIMEOUT_S
        while True:
            for node in self.nodes.values():
                assert node.process is None or node.process.poll() is None, node.said()
            try:
                view = await self.load.client.describe_quorum()
                found = f"{view.response}"
                if view.is_leaders_view and condition(view.response):
                    return view.response
            except UnreachableError as error:
                found = f"{error}"
            said = "\n".join(node.said() for node in self.nodes.values())
            assert time.monotonic() < deadline, f"no {what}: {found}\n{said}"
            await asyncio.sleep(POLL_S)

    async def restart_all(self, settings: Callable[[int], dict[str, object]], *names: str) -> None:
        """Reconfigure and restart the controllers one by one, the leader last; each is waited for:
        its entry in the voter set says where it listens, and it has all that is committed.
        """
        leader = (await self.until("leader", lambda d: True)).leader.id
        for i in sorted(IDS, key=lambda i: i == leader):
            node = self.nodes[i]
            self.load.measure()
            assert await asyncio.to_thread(node.stop) == 0
            node.process = None
            node.configure(settings(i))
            node.start()
            listeners = tuple(self.ports[i].endpoint(name) for name in names)
            await self.until(
                f"voter {i} at {listeners}",
                lambda d, i=i, listeners=listeners: all(  # type: ignore[misc]
                    status.log_end_offset >= d.high_watermark
                    and (status.replica.id != i or status.endpoints == listeners)
                    for status in d.voters
                ),
            )
            self.gaps_s.append(self.load.longest_gap_s)

    def files_of(self, i: int) -> dict[str, object]:
        certificate, key = self.certificates[i]
        return {
            "ssl.certificate.location": certificate,
            "ssl.key.location": key,
            "ssl.ca.location": self.ca,
        }

    async def described(self, name: str, *options: object) -> str:
        """What `describe --status` prints, as a user sees it."""
        addresses = ",".join(self.addresses(name))
        command = ("metadata-quorum", "--bootstrap-controller", addresses, *options)
        ran = await asyncio.to_thread(quorate, *command, "describe", "--status")
        assert (ran.status, ran.err) == (0, ""), ran
        return ran.out

    def voters_text(self, *names: str) -> str:
        """The KIP's CurrentVoters, in Kafka 4's form."""
        entries = []
        for i in IDS:
            quoted = ", ".join(f'"{self.ports[i].endpoint(name)}"' for name in names)
            entries.append(
                f'{{"id": {i}, "directoryId": "{self.nodes[i].directory_id}", '
                f'"endpoints": [{quoted}]}}'
            )
        return "[" + ", ".join(entries) + "]"


@asynccontextmanager
async def walkthrough(folder: Path) -> AsyncIterator[Walkthrough]:
    walk = Walkthrough(folder)
    walk.format()
    try:
        for node in walk.nodes.values():
            node.start()
        await walk.until("quorum", lambda d: len(d.voters) == len(IDS))
        await walk.load.start()
        yield walk
    finally:
        await walk.load.stop()
        for node in walk.nodes.values():
            node.kill()


@needs_openssl
@pytest.mark.slow
async def test_from_plaintext_to_ssl_without_losing_a_write(tmp_path: Path) -> None:
    async with walkthrough(tmp_path) as walk:
        assert walk.voters_text(CLEAR) in await walk.described(CLEAR)

        # "Add the new listener": the voters tell the leader (UpdateVoter).
        await walk.restart_all(
            lambda i: {
                "controller.listener.names": f"{CLEAR},{SECURE}",
                "listener.security.protocol.map": PROTOCOLS,
                "listeners": walk.ports[i].listeners(CLEAR, SECURE),
                **walk.files_of(i),
            },
            CLEAR,
            SECURE,
        )
        assert walk.voters_text(CLEAR, SECURE) in await walk.described(CLEAR)

        # "Change default controller listener": from now on the controllers dial that one.
        await walk.restart_all(
            lambda i: {
                "controller.listener.names": f"{SECURE},{CLEAR}",
                "controller.quorum.bootstrap.servers": ",".join(walk.addresses(SECURE)),
            },
            SECURE,
            CLEAR,
        )
        written_in_the_clear = walk.load.acknowledged_count

        # "Change the controller listener in the brokers": whoever uses the quorum goes over.
        await walk.load.use(QuorumClient(walk.addresses(SECURE), tls=walk.tls))

        # "Remove the old controller listener".
        await walk.restart_all(
            lambda i: {
                "controller.listener.names": SECURE,
                "listener.security.protocol.map": f"{SECURE}:SSL",
                "listeners": walk.ports[i].listeners(SECURE),
            },
            SECURE,
        )
        ours = ("--command-config", walk.client_properties)
        assert walk.voters_text(SECURE) in await walk.described(SECURE, *ours)

        violations = await walk.load.verify()
        assert not violations, [str(violation) for violation in violations[:5]]
        written = walk.load.acknowledged_count
        assert written > written_in_the_clear > 0
        assert walk.load.refused_count == 0, "a leader that hands over costs time, not writes"
        for node in walk.nodes.values():
            assert_clean(node.said())
    print(
        f"\n{len(walk.gaps_s)} restarts: {written} writes acknowledged, "
        f"{walk.load.unknown_count} unknown; longest wait {max(walk.gaps_s):.1f} s"
    )
