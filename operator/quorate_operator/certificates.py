"""The operator's own certificate authority: who is who in a Quorum.

One authority per Quorum, in a Secret that no pod mounts. Each node has a certificate whose names
are its host name, the Service's, and `node-N`; a client's names `client`. Everything is server and
client certificate at once, because nodes dial each other.

Rules:
1. The authority is created once. A Secret that is there is used, or named as broken; it is never
   replaced silently, since that would cut off every node.
2. A node's certificate is renewed when two thirds of its time are over, or when it is not of this
   authority. Servers read changed files before the next handshake and clients for the next channel,
   so no restart is needed.
3. All ordinals have theirs from the beginning: scaling waits for no certificate.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quorate_operator import naming

AUTHORITY_DAYS = 3650
CLOCK_SKEW = dt.timedelta(minutes=5)
CA_FILE = "ca.crt"


class CertificateError(Exception):
    """An authority or a certificate that cannot be used."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM form."""

    certificate: str
    key: str


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def new_authority(name: str, *, now: dt.datetime | None = None) -> Pair:
    """A self-signed authority."""
    now = now or _now()
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM).decode(), _pem(key))


def issue(
    authority: Pair, name: str, hosts: Iterable[str], days: int, *, now: dt.datetime | None = None
) -> Pair:
    """A certificate for `name`, valid for `days`; `hosts`: more names. CertificateError."""
    now = now or _now()
    issuer, issuer_key = _load(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(each) for each in dict.fromkeys((name, *hosts))]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(min(now + dt.timedelta(days=days), issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM).decode(), _pem(key))


def _load(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        key = serialization.load_pem_private_key(pair.key.encode(), None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"the authority cannot be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the authority's key is not of an elliptic curve")
    if key.public_key() != certificate.public_key():
        raise CertificateError("the authority's key is not that of its certificate")
    return certificate, key


def is_due(authority: Pair, certificate: str, *, now: dt.datetime | None = None) -> bool:
    """Whether to renew a certificate: unreadable, another authority's, or two thirds over."""
    now = now or _now()
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
        issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
        found.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return True
    lifetime = found.not_valid_after_utc - found.not_valid_before_utc
    return now >= found.not_valid_before_utc + lifetime * 2 / 3


# --- a Quorum's -----------------------------------------------------------------------------------


def node_hosts(quorum: str, namespace: str, ordinal: int) -> Sequence[str]:
    """What a node is called by those who dial it."""
    host = naming.host(quorum, namespace, ordinal)
    return (host, f"{host}.cluster.local", f"{naming.service(quorum)}.{namespace}.svc", "localhost")


def node_files(authority: Pair, quorum: str, namespace: str, days: int) -> dict[str, str]:
    """The files of all nodes: ca.crt, node-N.crt, node-N.key."""
    files = {CA_FILE: authority.certificate}
    for ordinal in range(naming.NODES_MAX):
        name = f"node-{ordinal}"
        pair = issue(authority, name, node_hosts(quorum, namespace, ordinal), days)
        files |= {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}
    return files


def client_files(authority: Pair, days: int) -> dict[str, str]:
    """The files of a client, named as in a Secret of Kubernetes' type TLS."""
    pair = issue(authority, "client", (), days)
    return {CA_FILE: authority.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}


def are_due(authority: Pair, files: Mapping[str, str]) -> bool:
    """Whether the files of a Secret are to be issued again."""
    certificates = [text for name, text in files.items() if name.endswith(".crt")]
    if files.get(CA_FILE) != authority.certificate or len(certificates) < 2:
        return True
    return any(is_due(authority, text) for text in certificates if text != authority.certificate)
