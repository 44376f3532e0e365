"""The controller that is attacked: its listeners, its files, and what an attacker knows of it."""

from __future__ import annotations

import ssl
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import MESSAGE_BYTES_MAX

from tests.certificates import make_authority, make_certificate
from tests.integration.support import CLUSTER, HOST, Node, free_ports, succeed


@dataclass(frozen=True, slots=True)
class Aim:
    """Ports, and the files of a certificate without rights where gRPC and the Kafka listener have
    TLS; empty where they have none.
    """

    grpc: int
    kafka: int
    http: int
    authority: str = ""
    certificate: str = ""
    key: str = ""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.grpc}"

    @property
    def tls(self) -> TlsConfig | None:
        if not self.authority:
            return None
        return TlsConfig(Path(self.certificate), Path(self.key), Path(self.authority))

    def channel(self) -> grpc.aio.Channel:
        """A connection of its own."""
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.max_send_message_length", 2 * MESSAGE_BYTES_MAX),
            ("grpc.max_receive_message_length", 2 * MESSAGE_BYTES_MAX),
        ]
        if self.tls is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        credentials = self.tls.channel_credentials()
        return grpc.aio.secure_channel(self.address, credentials, options=options)

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["h2"])
        return context

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Target:
    """One controller that is a quorum, with gRPC, the listener for Kafka's brokers, and HTTP.

    tls: gRPC and the Kafka listener take certificates of one authority only. Without it everybody
    is let in, and nobody is refused for who they are.
    """

    def __init__(self, folder: Path, *, tls: bool, **settings: object) -> None:
        ports = free_ports(3)
        protocol = "SSL" if tls else "PLAINTEXT"
        given: dict[str, object] = {
            "controller.quorum.bootstrap.servers": f"{HOST}:{ports[0]}",
            "controller.listener.names": "CONTROLLER,KAFKA",
            "listeners": f"CONTROLLER://{HOST}:{ports[0]},KAFKA://{HOST}:{ports[1]}",
            "listener.security.protocol.map": f"CONTROLLER:{protocol},KAFKA:{protocol}",
            "quorate.kafka.listener.name": "KAFKA",
            "quorate.http.listener": f"{HOST}:{ports[2]}",
        }
        files: list[str] = []
        if tls:
            folder.mkdir(parents=True, exist_ok=True)
            authority = make_authority(folder, "authority")
            own = make_certificate(folder, "node-1", authority, names=("node-1",))
            files = [str(authority[0]), *map(str, make_certificate(folder, "alice", authority))]
            given |= {
                "ssl.certificate.location": own[0],
                "ssl.key.location": own[1],
                "ssl.ca.location": authority[0],
            }
        self.aim = Aim(*ports, *files)
        self.node = Node(folder, 1, ports[0], **given, **settings)

    def start(self) -> None:
        succeed(
            *("storage", "format", "-t", CLUSTER, "-c", self.node.properties, "--standalone"),
            *("--release-version", "3.9"),
        )
        self.node.start()
        self.node.wait_said("leads epoch")

    @property
    def peak_mib(self) -> float:
        """The most that its process has held since it began, MiB (VmHWM)."""
        status = Path(f"/proc/{self.node.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    @property
    def is_alive(self) -> bool:
        return self.node.is_alive
