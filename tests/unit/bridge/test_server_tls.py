"""The listener with TLS: who a caller is, who is turned away, and files that change."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from quorate.bridge.framing.frames import Decoder
from quorate.bridge.listener import server as module
from quorate.bridge.listener.connections import Connections, KafkaConnection
from quorate.bridge.listener.handshakes import PER_ADDRESS_MAX, Handshakes
from quorate.bridge.listener.server import BridgeServer
from quorate.bridge.messages import schemas as s
from quorate.rpc.errors import BadMessageError
from quorate.rpc.tls import TlsConfig

from tests.certificates import make_authority, make_certificate, needs_openssl, openssl
from tests.unit.bridge.client_frames import read_frame, write_frame
from tests.unit.bridge.test_server import HOST, Busy, heartbeat

pytestmark = needs_openssl

Files = tuple[Path, Path]
Serve = Callable[[], Awaitable[BridgeServer]]


class Noting(Busy):
    def __init__(self) -> None:
        self.callers: list[Any] = []

    def refuse(self, _head: s.Call, connection: KafkaConnection) -> Any:
        self.callers.append(connection.caller)


class Lab:
    """A server, its authority and what it heard."""

    def __init__(self, folder: Path, handshakes: Handshakes | None = None) -> None:
        self.folder = folder
        self.authority = make_authority(folder, "authority")
        self.own = make_certificate(folder, "controller", self.authority)
        self.heard = Noting()
        self.connections = Connections()
        self.server = BridgeServer(
            self.heard,
            Decoder(),
            connections=self.connections,
            handshakes=handshakes,
            tls=TlsConfig(*self.own, self.authority[0]),
        )

    def context(self, files: Files | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority[0])
        if files is not None:
            context.load_cert_chain(*files)
        return context

    async def ask(self, files: Files | None) -> bytes | None:
        """What a client with this certificate hears; None where the connection is closed."""
        reader, writer = await asyncio.open_connection(
            *self.server.addresses[0], ssl=self.context(files)
        )
        try:
            write_frame(writer, heartbeat())
            return await read_frame(reader)
        except (OSError, ssl.SSLError, BadMessageError):
            return None
        finally:
            writer.close()


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    made = Lab(tmp_path)
    await made.server.start(HOST, 0)
    yield made
    await made.server.stop()


def shown_subject(certificate: Path) -> str:
    """As OpenSSL writes it, and gRPC with it."""
    command = ["openssl", "x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in"]
    done = subprocess.run([*command, str(certificate)], check=True, capture_output=True, text=True)
    return done.stdout.removesuffix("\n").removeprefix("subject=")


SUBJECTS = [
    "/CN=broker-1",
    "/C=DE/O=Acme, Inc/OU=ops/CN=kafka1.example.com",
    "/O=a+OU=b/CN=two at once",
    "/CN= begins and ends with a blank ",
    '/CN=#,"\\\\<>;=User:CN\\=admin',
    "/CN=Zo\u00eb \u0416",
    "/CN=tab\there",
    "/DC=org/DC=example/UID=u1/emailAddress=a@b.c/CN=x",
]


@pytest.mark.parametrize("subject", SUBJECTS)
async def test_the_principal_is_the_subject_as_openssl_writes_it(lab: Lab, subject: str) -> None:
    certificate, key = lab.folder / "broker.pem", lab.folder / "broker.key"
    request = lab.folder / "broker.csr"
    extensions = lab.folder / "broker.ext"
    extensions.write_text("subjectAltName=DNS:node-7,DNS:other\n")
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-utf8"),
        *("-multivalue-rdn", "-subj", subject, "-keyout", key, "-out", request),
    )
    openssl(
        *("x509", "-req", "-in", request, "-CA", lab.authority[0], "-CAkey", lab.authority[1]),
        *("-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate),
    )
    assert await lab.ask((certificate, key)) is not None
    (caller,) = lab.heard.callers
    assert caller.principal == f"User:{shown_subject(certificate)}"
    assert (caller.nodes, caller.has_certificate, caller.host) == ({7}, True, HOST)


async def test_a_subject_that_cannot_be_written_alike_is_nobody(lab: Lab) -> None:
    certificate, key = lab.folder / "odd.pem", lab.folder / "odd.key"
    request = lab.folder / "odd.csr"
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=admin/jurisdictionC=DE", "-keyout", key, "-out", request),
    )
    openssl(
        *("x509", "-req", "-in", request, "-CA", lab.authority[0], "-CAkey", lab.authority[1]),
        *("-CAcreateserial", "-days", "2", "-out", certificate),
    )
    assert await lab.ask((certificate, key)) is not None
    assert [caller.principal for caller in lab.heard.callers] == [None]


async def test_only_certificates_of_our_authorities_are_taken(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    other = make_authority(lab.folder, "other")
    stranger = make_certificate(lab.folder, "stranger", other)
    assert await lab.ask(None) is None
    assert await lab.ask(stranger) is None
    reader, writer = await asyncio.open_connection(*lab.server.addresses[0])
    write_frame(writer, heartbeat())
    assert await reader.read() == b"" or reader.at_eof(), "without TLS"
    writer.close()
    assert not lab.heard.callers
    failed = f"bridge: TLS handshake with {HOST} failed: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{failed}the client presented no certificate",
        f"{failed}the client's certificate was rejected: unable to get local issuer certificate",
        f"{failed}the client does not use TLS",
    ]
    assert await lab.ask(None) is None
    assert len(caplog.records) == 3, "a client that tries again and again does not fill the log"
    assert len(lab.connections) == 0


async def test_a_handshake_that_is_not_finished_ends(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.2)
    reader, writer = await asyncio.open_connection(*lab.server.addresses[0])
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    assert len(lab.connections) == 0
    assert caplog.messages == [
        f"bridge: TLS handshake with {HOST} failed: it was not complete in time"
    ]


async def test_a_client_that_rejects_the_nodes_certificate(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.authority = make_authority(lab.folder, "other")
    context = lab.context(None)

    def ask() -> None:
        with (
            socket.create_connection(lab.server.addresses[0], 10) as made,
            context.wrap_socket(made, server_hostname=HOST),
        ):
            pass

    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(ask)
    async with asyncio.timeout(10):
        while not caplog.messages:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    (line,) = caplog.messages
    assert "failed: the client rejected this node's certificate: it does not trust the CA" in line


async def test_a_probe_that_only_connects_is_not_logged(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection(*lab.server.addresses[0])
    writer.close()
    await writer.wait_closed()
    broker = make_certificate(lab.folder, "broker", lab.authority)
    assert await lab.ask(broker) is not None
    assert caplog.messages == []


async def test_changed_files_count_for_the_next_connection(lab: Lab) -> None:
    before = make_certificate(lab.folder, "before", lab.authority)
    assert await lab.ask(before) is not None
    other = make_authority(lab.folder, "other")
    after = make_certificate(lab.folder, "after", other)
    own = lab.authority[0].read_bytes()
    lab.authority[0].unlink()
    lab.authority[0].write_bytes(other[0].read_bytes())
    trusted = lab.folder / "trusted.pem"
    trusted.write_bytes(own)
    lab.authority = (trusted, lab.authority[1])
    assert await lab.ask(before) is None, "its authority was taken out"
    assert await lab.ask(after) is not None


STRANGER = "127.0.0.2"


async def test_half_open_handshakes_of_one_address_keep_nobody_out(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    half_open = [
        await asyncio.open_connection(*lab.server.addresses[0], local_addr=(STRANGER, 0))
        for _ in range(3 * PER_ADDRESS_MAX)
    ]
    for _, writer in half_open:
        writer.write(b"\x16\x03\x01\x02\x00")  # a ClientHello of 512 bytes begins
    broker = make_certificate(lab.folder, "broker", lab.authority)
    assert await lab.ask(broker) is not None
    assert len(lab.connections) <= PER_ADDRESS_MAX + 1
    for reader, _ in half_open[: 2 * PER_ADDRESS_MAX]:
        async with asyncio.timeout(10):
            assert await reader.read() == b"", "it began before others of its address"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, said
    assert f"of {STRANGER} is closed: {PER_ADDRESS_MAX} handshakes of its address" in said[0]
    for _, writer in half_open:
        writer.close()


async def test_a_flood_of_handshakes_does_not_go_before_a_broker(tmp_path: Path) -> None:
    """They cost the event loop signatures, so they come at a rate, and addresses take turns."""
    lab = Lab(tmp_path, Handshakes(rate=20.0, burst=1))
    await lab.server.start(HOST, 0)
    begun: list[str] = []
    files = make_certificate(lab.folder, "broker", lab.authority)

    async def dial(host: str) -> None:
        _, writer = await asyncio.open_connection(
            *lab.server.addresses[0], ssl=lab.context(files), local_addr=(host, 0)
        )
        begun.append(host)
        writer.close()

    flood = [asyncio.create_task(dial(STRANGER)) for _ in range(30)]
    async with asyncio.timeout(30):
        while not begun:  # noqa: ASYNC110 - until the flood has taken its first turn
            await asyncio.sleep(0.001)
        await dial(HOST)
        assert len(begun) < 15, begun
        await asyncio.gather(*flood)
    assert begun.count(STRANGER) == 30
    await lab.server.stop()
