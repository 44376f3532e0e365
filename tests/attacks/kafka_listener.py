"""A controller with TLS for gRPC and a listener for Kafka's brokers, without or with TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.acls import CLUSTER_NAME, LITERAL
from quorate.metadata.authorizer import Operation, ResourceType
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.tls import TlsConfig

from tests.certificates import make_authority, make_certificate
from tests.integration.support import CLUSTER, HOST, Node, free_ports, succeed, until
from tests.integration.test_bridge import Asker
from tests.processes import listens

BROKER = 1001
AUTHORIZER: dict[str, object] = {
    "authorizer.class.name": "quorate.authorizer",
    "super.users": "User:CN=admin;User:CN=node-1",
}
ACTION = (ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)


class Lab:
    """One controller; admin is a super user, broker and stranger name nodes, alice nobody."""

    def __init__(self, folder: Path, protocol: str, settings: dict[str, object]) -> None:
        self.authority = make_authority(folder, "authority")
        self.files = {
            name: make_certificate(folder, name, self.authority, names=names)
            for name, names in {
                "admin": (),
                "broker": (f"node-{BROKER}",),
                "stranger": ("node-2000",),
                "node-1": ("node-1",),
            }.items()
        }
        port, self.port = free_ports(2)
        self.node = Node(
            folder,
            1,
            port,
            **{
                "controller.quorum.bootstrap.servers": f"{HOST}:{port}",
                "controller.listener.names": "CONTROLLER,KAFKA",
                "listeners": f"CONTROLLER://{HOST}:{port},KAFKA://{HOST}:{self.port}",
                "listener.security.protocol.map": f"CONTROLLER:SSL,KAFKA:{protocol}",
                "quorate.kafka.listener.name": "KAFKA",
                "ssl.certificate.location": self.files["node-1"][0],
                "ssl.key.location": self.files["node-1"][1],
                "ssl.ca.location": self.authority[0],
                **settings,
            },
        )
        succeed(
            *("storage", "format", "-t", CLUSTER, "-c", self.node.properties, "--standalone"),
            *("--release-version", "3.9"),
        )

    def start(self) -> None:
        self.node.start()
        until("it listens", lambda: listens(self.port))
        self.node.wait_said("leads epoch")

    def tls(self, name: str) -> TlsConfig:
        return TlsConfig(*self.files[name], self.authority[0])

    def fill(self, requests: int) -> None:
        """Append about 0.75 MiB of metadata per request."""

        async def create() -> None:
            async with MetadataClient([self.node.address], tls=self.tls("admin")) as client:
                for number in range(requests):
                    acls = tuple(
                        r.Acl(
                            ResourceType.TOPIC,
                            f"{number}-{count}",
                            LITERAL,
                            "User:" + "x" * 1_000,
                            "*",
                            Operation.READ,
                            3,
                        )
                        for count in range(700)
                    )
                    answer = await client.ask(r.CreateAcls(acls))
                    assert {each.error for each in answer.results} == {ErrorCode.NONE}

        asyncio.run(create())

    def asker(self, name: str | None = None) -> Asker:
        if name is None:
            return Asker(self.port)
        context = ssl.create_default_context(cafile=self.authority[0])
        context.load_cert_chain(*self.files[name])
        return Asker(self.port, context)

    def allow(self, principal: str, *rights: tuple[ResourceType, str, Operation]) -> None:
        async def create() -> None:
            acls = tuple(
                r.Acl(kind, name, LITERAL, principal, "*", operation, 3)
                for kind, name, operation in rights
            )
            client = MetadataClient([self.node.address], tls=self.tls("admin"))
            async with client:
                answer = await client.ask(r.CreateAcls(acls))
            assert {each.error for each in answer.results} == {ErrorCode.NONE}

        asyncio.run(create())

    @property
    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.node.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def controller(folder: Path, protocol: str = "PLAINTEXT", **settings: object) -> Iterator[Lab]:
    lab = Lab(folder, protocol, settings)
    try:
        lab.start()
        yield lab
    finally:
        lab.node.kill()
