"""TLS between nodes and for clients: turns PEM files into gRPC credentials.

Rules:
1. TLS is mutual: as a server and as a client, a node presents its certificate and requires one
   signed by its authorities. A server accepts clients without a certificate only with
   `require_client_certificate` off.
2. Files are read when a server starts and for each new channel. A server reads changed files again
   before the next handshake, so a renewed certificate needs no restart. If a changed file cannot be
   used, servers and clients log this and keep the old ones. The same if the new certificate has
   expired and the old one has not.
3. A file that cannot be used raises `TlsError`, which names the file and the reason.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import grpc

from quorate.rpc.errors import TlsError

LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

_Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """PEM files. `key` and `certificate` may be one file; a client may omit both.

    Example:
        tls = quorate.TlsConfig(Path("client.pem"), Path("client.key"), Path("ca.pem"))
        client = quorate.Client(["controller-1:9093"], tls=tls)
        await client.close()
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    """The authorities that must have signed the peer's certificate; None for the system's, which a
    server cannot use.
    """
    require_client_certificate: bool = True

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials for a client. Raises TlsError."""
        if (self.certificate is None) != (self.key is None):
            raise TlsError("a certificate needs its key and vice versa: only one of them is given")
        _check(self)
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca, "authorities", "CERTIFICATE") if self.ca else None,
            private_key=_read(self.key, "key", "PRIVATE KEY") if self.key else None,
            certificate_chain=_read(self.certificate, "certificate", "CERTIFICATE")
            if self.certificate
            else None,
        )

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials for a server. Raises TlsError."""
        return _ServerFiles(self).credentials()


_SAN_OID = b"\x06\x03\x55\x1d\x11"
_SEQUENCE = 0x30
_EXTENSIONS = 0xA3
_DNS_NAME = 0x82
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""The formats of UTCTime and GeneralizedTime by tag (RFC 5280, section 4.1.2.5)."""
CERTIFICATES_MAX = 1024
"""How many certificates' names are kept, because every call asks for its caller's."""


def dns_names(certificate: Path) -> tuple[str, ...]:
    """The DNS names in the first certificate of the node's own file. Raises TlsError."""
    try:
        return dns_names_in(_read(certificate, "certificate", "CERTIFICATE"))
    except ValueError:
        raise TlsError(f"{certificate}: the certificate cannot be read") from None


@lru_cache(maxsize=CERTIFICATES_MAX)
def dns_names_in(pem: bytes) -> tuple[str, ...]:
    """The DNS names in the first certificate of a text. Raises ValueError."""
    try:
        return tuple(_dns_names(_first_certificate(pem)))
    except IndexError:
        raise ValueError("the certificate is truncated") from None


def _first_certificate(pem: bytes) -> bytes:
    """The DER bytes of the first certificate of a text. Raises ValueError."""
    text = pem.decode("latin-1")
    block = text[text.index("-----BEGIN CERTIFICATE") :]
    end = block.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(block[:end])


def expiry_in(pem: bytes) -> datetime:
    """The end of validity of the first certificate of a text. Raises ValueError."""
    der = _first_certificate(pem)
    try:
        _, position, _ = _element(der, 0)
        sequences = [each for each in _elements(der, position) if each[0] == _SEQUENCE]
        # Those of a TBSCertificate are: signature, issuer, validity, … (RFC 5280, section 4.1).
        _, (tag, start, stop) = _between(der, *sequences[2][1:])
        text = der[start:stop].decode("ascii", "replace")
        return datetime.strptime(text, _TIMES.get(tag, "")).replace(tzinfo=UTC)
    except IndexError:
        pass
    raise ValueError("the certificate is truncated")


def _dns_names(der: bytes) -> Iterator[str]:
    """The names of the subjectAltName extension.

    RFC 5280: a certificate begins with its TBSCertificate, which may have extensions. Each is its
    id, optionally a critical flag, and an octet string, here of the names.
    """
    _, position, _ = _element(der, 0)
    for tag, begin, _ in _elements(der, position):
        if tag != _EXTENSIONS:
            continue
        for _, position, end in _elements(der, begin):
            identifier, *_, (_, names, _) = _between(der, position, end)
            if der[position : identifier[2]] != _SAN_OID:
                continue
            for kind, start, stop in _elements(der, names):
                if kind == _DNS_NAME:
                    yield der[start:stop].decode("ascii", "replace")


def _elements(der: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """The DER elements inside the element at `position`, each as from `_element`."""
    _, begin, end = _element(der, position)
    return _between(der, begin, end)


def _between(der: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    while position < end:
        found = _element(der, position)
        yield found
        position = found[2]


def _element(der: bytes, position: int) -> tuple[int, int, int]:
    """The DER element at `position`: (tag, start of its content, end of its content)."""
    tag, length, begin = der[position], der[position + 1], position + 2
    if length & 0x80:
        count = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + count], "big"), begin + count
    return tag, begin, begin + length


def certificate_for_peers(tls: TlsConfig, host: str) -> Mapping[str, Any]:
    """The node's own certificate, as `ssl.SSLObject.getpeercert` describes it to a peer.

    host: the name or address that peers dial. It is the result of a mutual handshake, in memory, in
    which both sides have these files. Raises TlsError if one side rejects the other.
    """
    _check(tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key, password="")
        context.load_verify_locations(tls.ca)
        client = context.wrap_bio(to_client, to_server, server_hostname=host)
        accepting = ServerContext(tls).current()
        server = accepting.wrap_bio(to_server, to_client, server_side=True)
        while not all([_has_shaken_hands(client), _has_shaken_hands(server)]):
            if not (to_server.pending or to_client.pending):
                raise TlsError(f"peers would not complete a handshake with {tls.certificate}")
    except ssl.SSLCertVerificationError as error:
        said = error.verify_message
        raise TlsError(f"peers would reject {tls.certificate}: {said.rstrip('.')}") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsError(f"the TLS files cannot be used: {_said(error)}") from None
    return client.getpeercert() or {}


def _has_shaken_hands(side: ssl.SSLObject) -> bool:
    """Continue a handshake; returns whether it is complete."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


class ClientCredentials:
    """Credentials for the channels of one client, from the files as they are for each channel.

    If changed files cannot be used, the last ones are kept: a node whose certificate was replaced
    by one for another key must still reach its peers.
    """

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._validity = _Validity(tls)
        self._last: grpc.ChannelCredentials | None = None
        self._problem = ""

    def current(self) -> grpc.ChannelCredentials:
        """The credentials for the next channel. Raises TlsError if no files were usable before."""
        try:
            credentials = self._tls.channel_credentials()
            self._validity.renew()
        except TlsError as error:
            if self._last is None:
                raise
            if str(error) != self._problem:
                self._problem = str(error)
                _log_kept(error)
        else:
            self._last, self._problem = credentials, ""
        return self._last


def _log_kept(error: TlsError) -> None:
    LOGGER.warning("the changed TLS files cannot be used, keeping the old ones: %s", error)


class _Validity:
    """The end of validity of the certificate in use."""

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._end: datetime | None = None

    def renew(self) -> None:
        """Use the certificate in the file.

        Raises TlsError if it has expired, and the one in use has not.
        """
        path = self._tls.certificate
        if path is None:
            return
        try:
            end = expiry_in(_read(path, "certificate", "CERTIFICATE"))
        except ValueError:
            raise TlsError(f"{path}: the certificate cannot be read") from None
        now = datetime.now(UTC)
        if self._end is not None and end <= now < self._end:
            raise TlsError(f"{path}: the certificate expired at {end:%F %T} UTC")
        self._end = end


class _WatchedFiles:
    """A server's files, reloaded when they change."""

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._validity = _Validity(tls)
        self._stamp = self._current_stamp()

    def _paths(self) -> tuple[Path, ...]:
        return tuple(p for p in (self._tls.certificate, self._tls.key, self._tls.ca) if p)

    def _current_stamp(self) -> _Stamp:
        try:
            stats = [path.stat() for path in self._paths()]
        except OSError:
            return ()
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)

    def _check(self) -> None:
        tls = self._tls
        if tls.certificate is None or tls.key is None:
            raise TlsError("a server needs a certificate and a key")
        if tls.ca is None and tls.require_client_certificate:
            raise TlsError("a server that requires client certificates needs a file of authorities")
        _check(tls)
        self._validity.renew()

    def _reread(self, load: Callable[[], T]) -> T | None:
        """Load changed files with `load`; None if they did not change or cannot be used."""
        stamp = self._current_stamp()
        if stamp in ((), self._stamp):
            return None
        self._stamp = stamp
        try:
            loaded = load()
        except TlsError as error:
            _log_kept(error)
            return None
        LOGGER.info("reloaded the changed TLS files")
        return loaded


class _ServerFiles(_WatchedFiles):
    """Credentials for gRPC servers."""

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            self._renewed,  # type: ignore[arg-type]  # None is "no change", which the stubs forget
            self._tls.require_client_certificate,
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        self._check()
        tls = self._tls
        assert tls.key is not None
        assert tls.certificate is not None
        return grpc.ssl_server_certificate_configuration(
            [
                (
                    _read(tls.key, "key", "PRIVATE KEY"),
                    _read(tls.certificate, "certificate", "CERTIFICATE"),
                )
            ],
            _read(tls.ca, "authorities", "CERTIFICATE") if tls.ca else None,
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC before each handshake, on one of its threads."""
        return self._reread(self._configuration)


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """The SSL context of a client, which checks host names. Raises OSError, ssl.SSLError."""
    context = ssl.create_default_context(cafile=tls.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key, password="")
    return context


class ServerContext(_WatchedFiles):
    """The SSL context for servers of the standard library. Raises TlsError.

    requests_certificate: without `require_client_certificate`, ask clients for a certificate, which
    must be valid if they present one.
    """

    def __init__(self, tls: TlsConfig, *, requests_certificate: bool = False) -> None:
        super().__init__(tls)
        self._requests_certificate = requests_certificate
        self._context = self._made()

    def current(self) -> ssl.SSLContext:
        """The context for the next handshake; call this before each.

        Changed files give a new context, so that authorities removed from them are not trusted.
        """
        self._context = self._reread(self._made) or self._context
        return self._context

    def _made(self) -> ssl.SSLContext:
        self._check()
        tls = self._tls
        assert tls.certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(tls.certificate, tls.key, password="")
            if tls.ca is not None:
                context.load_verify_locations(tls.ca)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TlsError(f"the TLS files cannot be read: {_said(error)}") from None
        if tls.require_client_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        elif self._requests_certificate:
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def _check(tls: TlsConfig) -> None:
    """Reject files that gRPC would accept at first and fail with at each handshake."""
    for path, what, block in (
        (tls.certificate, "certificate", "CERTIFICATE"),
        (tls.key, "key", "PRIVATE KEY"),
        (tls.ca, "authorities", "CERTIFICATE"),
    ):
        if path is not None:
            _read(path, what, block)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if tls.certificate is not None and tls.key is not None:
            # The empty password keeps OpenSSL from asking for one at the terminal.
            context.load_cert_chain(tls.certificate, tls.key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsError(
            f"the certificate {tls.certificate} with the key {tls.key}: {_said(error)}"
        ) from None
    try:
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"the authorities in {tls.ca}: {_said(error)}") from None


def _said(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or str(error) or type(error).__name__).lower().replace("_", " ")


def _read(path: Path, what: str, block: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path}: the {what} cannot be read: {error.strerror}") from None
    if b"-----BEGIN " not in data or f"{block}-----".encode() not in data:
        raise TlsError(f"{path}: no {what} in PEM format: it has no BEGIN {block} block")
    return data
