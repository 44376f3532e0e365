"""Mutual TLS with certificates that the `openssl` command makes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from quorate.common.endpoints import Endpoint
from quorate.raft.messages import VoteRequest, VoteResponse
from quorate.rpc.client.handshake_faults import CLOSED, PREFIX, is_handshake_fault
from quorate.rpc.client.quorum_client import QuorumClient, UnreachableError
from quorate.rpc.client.transport import PeerTransport, TransportError, TransportKind
from quorate.rpc.errors import TlsError
from quorate.rpc.server.grpc_server import start_server
from quorate.rpc.tls import ClientCredentials, ServerContext, TlsConfig, expiry_in

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.unit.rpc.rpc_support import CLUSTER, HOST, KEY, Node, address_of, endpoint_of, serving

NOBODY = 65_534

VOTE = VoteRequest(CLUSTER, 4, KEY, KEY, 0, 0, pre_vote=True)


Make = Callable[[str, str], TlsConfig]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The files of a node: its name, and its authority's, which it also trusts."""
    directory = tmp_path_factory.mktemp("tls")
    authorities: dict[str, tuple[Path, Path]] = {}

    def make_node(name: str, authority: str) -> TlsConfig:
        if authority not in authorities:
            authorities[authority] = make_authority(directory, authority)
        certificate, key = make_certificate(directory, name, authorities[authority])
        return TlsConfig(certificate, key, authorities[authority][0])

    return make_node


@needs_openssl
async def test_nodes_of_one_authority_talk_to_each_other(make: Make) -> None:
    transport = PeerTransport(CLUSTER, make("client", "ours"))
    async with serving(Node(), make("server", "ours")) as server:
        answer = await transport.call(endpoint_of(server), VOTE, 5_000)
        assert isinstance(answer, VoteResponse)
        async with QuorumClient([address_of(server)], tls=make("admin", "ours")) as client:
            assert await client.append_value(b"value") == 0
    await transport.close()


@needs_openssl
@pytest.mark.parametrize("who", ["another authority", "no certificate", "no TLS"])
async def test_others_are_not_let_in(make: Make, who: str) -> None:
    ours = make("server", "ours")
    tls = {
        "another authority": make("stranger", "theirs"),
        "no certificate": TlsConfig(ca=ours.ca),
        "no TLS": None,
    }[who]
    node = Node()
    async with serving(node, ours) as server:
        transport = PeerTransport(CLUSTER, tls)
        with pytest.raises(TransportError) as failed:
            await transport.call(endpoint_of(server), VOTE, 2_000)
        await transport.close()
        if who == "another authority":
            assert failed.value.kind is TransportKind.UNAUTHENTICATED
        async with QuorumClient([address_of(server)], tls=tls, request_timeout_ms=500) as client:
            with pytest.raises(UnreachableError):
                await client.append_value(b"value")
    assert node.asked == []


REJECTED = f"{PREFIX}the node's certificate was rejected: unable to get local issuer certificate"


@needs_openssl
@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("no TLS", CLOSED),
        ("no certificate", CLOSED),
        ("a certificate of another authority", CLOSED),
        ("trust in another authority", REJECTED),
    ],
)
async def test_a_client_is_told_why_the_handshake_failed(make: Make, who: str, fault: str) -> None:
    ours, theirs = make("server", "ours"), make("stranger", "theirs")
    tls = {
        "no TLS": None,
        "no certificate": TlsConfig(ca=ours.ca),
        "a certificate of another authority": TlsConfig(theirs.certificate, theirs.key, ours.ca),
        "trust in another authority": theirs,
    }[who]
    async with serving(Node(), ours) as server:
        assert await fault_of(endpoint_of(server), tls) == fault


@needs_openssl
async def test_a_client_is_told_of_a_wrong_name_and_of_a_listener_without_tls(make: Make) -> None:
    ours = make("server", "ours")
    async with serving(Node(), ours) as server:
        other = replace(endpoint_of(server), host="localhost")
        name = f"{PREFIX}the node's certificate does not contain the name or address in use"
        assert await fault_of(other, ours) == name
    async with serving(Node(), None) as server:
        fault = await fault_of(endpoint_of(server), ours)
        assert fault == f"{PREFIX}the listener does not use TLS"


async def fault_of(endpoint: Endpoint, tls: TlsConfig | None) -> str:
    """Why a node is not reached, which is known as a fault of the handshake."""
    transport = PeerTransport(CLUSTER, tls)
    with pytest.raises(TransportError) as failed:
        await transport.call(endpoint, VOTE, 10_000)
    await transport.close()
    assert is_handshake_fault(failed.value.text)
    assert failed.value.nothing_done
    return failed.value.text


@needs_openssl
async def test_clients_without_certificate_are_let_in_where_none_is_required(make: Make) -> None:
    ours = make("server", "ours")
    tls = TlsConfig(ours.certificate, ours.key, ours.ca, require_client_certificate=False)
    async with (
        serving(Node(), tls) as server,
        QuorumClient([address_of(server)], tls=TlsConfig(ca=ours.ca)) as client,
    ):
        assert (await client.describe_quorum()).is_leaders_view


def install(tls: TlsConfig, live: TlsConfig) -> None:
    """Replace files by others, one after the other."""
    for source, target in (
        (tls.certificate, live.certificate),
        (tls.key, live.key),
        (tls.ca, live.ca),
    ):
        assert source is not None
        assert target is not None
        fresh = target.with_suffix(".new")
        shutil.copy(source, fresh)
        fresh.replace(target)


@needs_openssl
async def test_a_renewed_certificate_needs_no_restart(make: Make, tmp_path: Path) -> None:
    old, new = make("old", "before"), make("new", "after")
    live = TlsConfig(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    install(old, live)
    async with serving(Node(), live) as server:

        async def lets_in(tls: TlsConfig) -> bool:
            transport = PeerTransport(CLUSTER, tls)
            try:
                await transport.call(endpoint_of(server), VOTE, 2_000)
            except TransportError:
                return False
            finally:
                await transport.close()
            return True

        assert (await lets_in(old), await lets_in(new)) == (True, False)
        install(new, live)
        assert (await lets_in(old), await lets_in(new)) == (False, True)
        assert live.key is not None
        live.key.write_text("half a key")
        assert await lets_in(new), "what cannot be used does not replace what can"


@needs_openssl
async def test_a_client_keeps_the_files_that_it_can_use(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node's certificate is replaced by one for another key; it still reaches further peers."""
    own, other = make("own", "ours"), make("another", "ours")
    live = TlsConfig(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    install(own, live)
    transport = PeerTransport(CLUSTER, live)
    server = make("server", "ours")
    async with (
        serving(Node(), server) as one,
        serving(Node(), server) as two,
        serving(Node(), server) as three,
    ):
        await transport.call(endpoint_of(one), VOTE, 5_000)
        assert other.certificate is not None
        assert live.certificate is not None
        shutil.copy(other.certificate, live.certificate)
        for peer in (two, three):
            answer = await transport.call(endpoint_of(peer), VOTE, 5_000)
            assert isinstance(answer, VoteResponse)
    await transport.close()
    (said,) = [each for each in caplog.records if "keeping the old ones" in each.message]
    assert "key values mismatch" in said.message
    with pytest.raises(TlsError):
        live.channel_credentials()


@needs_openssl
async def test_an_expired_certificate_does_not_replace_one_that_is_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Servers and clients keep the valid one; the next valid one replaces it."""
    authority = make_authority(tmp_path, "authority")
    days = {"valid": 2, "expired": -1, "renewed": 3}
    files = {
        name: TlsConfig(*make_certificate(tmp_path, name, authority, days=each), authority[0])
        for name, each in days.items()
    }
    folder = tmp_path / "live"
    folder.mkdir()
    live = TlsConfig(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    install(files["valid"], live)
    context, credentials = ServerContext(live), ClientCredentials(live)
    async with serving(Node(), live) as server:
        for name in days:
            before = context.current(), credentials.current()
            install(files[name], live)
            after = context.current(), credentials.current()
            is_kept = [old is new for old, new in zip(before, after, strict=True)]
            assert is_kept == [name == "expired"] * 2, name
            transport = PeerTransport(CLUSTER, files["valid"])
            answer = await transport.call(endpoint_of(server), VOTE, 5_000)
            assert isinstance(answer, VoteResponse), name
            await transport.close()
    said = {each.message for each in caplog.records if "keeping the old ones" in each.message}
    assert len(said) == 1
    assert "the certificate expired at" in said.pop()


@needs_openssl
def test_an_expired_certificate_alone_is_used(tmp_path: Path) -> None:
    """Peers reject it and say why; a server that does not start says less."""
    authority = make_authority(tmp_path, "authority")
    certificate, key = make_certificate(tmp_path, "expired", authority, days=-1)
    assert expiry_in(certificate.read_bytes()) < datetime.now(UTC)
    assert ServerContext(TlsConfig(certificate, key, authority[0])).current()


@needs_openssl
def test_a_key_of_another_certificate_is_refused(make: Make) -> None:
    one, other = make("one", "ours"), make("other", "ours")
    with pytest.raises(TlsError, match="key values mismatch"):
        TlsConfig(one.certificate, other.key, one.ca).server_credentials()


@needs_openssl
async def test_a_listener_may_do_without_tls(make: Make) -> None:
    server = await start_server(
        [f"{HOST}:0"], Node(), make("server", "ours"), plaintext=[f"{HOST}:0"]
    )
    try:
        async with QuorumClient([f"{HOST}:{server.ports[1]}"]) as client:
            assert (await client.describe_quorum()).is_leaders_view
    finally:
        await server.stop(0)


@needs_openssl
async def test_the_name_of_a_listener_says_whether_it_is_dialled_with_tls(make: Make) -> None:
    server = await start_server(
        [f"{HOST}:0"], Node(), make("server", "ours"), plaintext=[f"{HOST}:0"]
    )
    secure, clear = (
        Endpoint(name, HOST, port) for name, port in zip("SC", server.ports, strict=True)
    )
    transport = PeerTransport(
        CLUSTER, make("client", "ours"), is_encrypted=lambda name: name == "S"
    )
    without = PeerTransport(CLUSTER, is_encrypted=lambda name: name == "S")
    try:
        for endpoint in (secure, clear):
            answer = await transport.call(endpoint, VOTE, 5_000)
            assert isinstance(answer, VoteResponse)
        with pytest.raises(TransportError):
            await transport.call(replace(secure, name="C"), VOTE, 2_000)
        with pytest.raises(TransportError):
            await transport.call(replace(clear, name="S"), VOTE, 2_000)
        with pytest.raises(TransportError, match="this node has no certificate") as failed:
            await without.open_fetch_stream(secure, lambda _: None)
        assert failed.value.kind is TransportKind.UNAUTHENTICATED
    finally:
        await transport.close()
        await without.close()
        await server.stop(0)


def pem(path: Path, block: str) -> Path:
    path.write_text(f"-----BEGIN {block}-----\nAAAA\n-----END {block}-----\n")
    return path


async def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    certificate = pem(tmp_path / "cert.pem", "CERTIFICATE")
    key = pem(tmp_path / "key.pem", "PRIVATE KEY")
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("hello")
    for tls, words in (
        (
            TlsConfig(missing, key, certificate),
            "missing.pem: the certificate cannot be read: No such",
        ),
        (TlsConfig(certificate, text, certificate), "text.pem: no key in PEM format"),
        (TlsConfig(certificate, certificate, certificate), "cert.pem: no key in PEM format"),
        (TlsConfig(certificate, key, missing), "missing.pem: the authorities cannot be read"),
        (TlsConfig(certificate, key, None), "needs a file of authorities"),
        (TlsConfig(None, None, certificate), "needs a certificate and a key"),
    ):
        with pytest.raises(TlsError, match=words):
            await start_server([f"{HOST}:0"], Node(), tls)
    with pytest.raises(TlsError, match=r"the certificate \S*cert.pem with the key \S*key.pem: "):
        await start_server([f"{HOST}:0"], Node(), TlsConfig(certificate, key, certificate))
    with pytest.raises(TlsError, match="needs its key and vice versa"):
        TlsConfig(certificate, None).channel_credentials()


@contextmanager
def not_root() -> Iterator[None]:
    """Root may read everything: be somebody else meanwhile."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(0)


def test_a_file_that_may_not_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        certificate, key = (
            pem(folder / "c.pem", "CERTIFICATE"),
            pem(folder / "key.pem", "PRIVATE KEY"),
        )
        key.chmod(0)
        words = r"key.pem: the key cannot be read: Permission denied"
        with not_root(), pytest.raises(TlsError, match=words):
            TlsConfig(certificate, key).channel_credentials()
