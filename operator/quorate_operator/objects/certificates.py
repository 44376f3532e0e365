"""The operator's own certificate authority, which issues a Quorum's certificates.

Each Quorum has one authority, in a Secret that no pod mounts. A node's certificate names its host
name, the Service's, its outside addresses (`external`), and `node-N`; a client's certificate names
`client`. Every certificate is both a server and a client certificate, because nodes connect to each
other.

Rules:
1. The authority is created once. An existing Secret is used, or reported as broken. The authority
   is replaced only step by step (`authority.py`), because anything else would disconnect every
   node.
2. A node's certificate is renewed when two thirds of its lifetime have passed, when another
   authority issued it, or when it lacks a name. Until then it keeps names that are no longer
   wanted: a load balancer may be without its address for a moment only. Servers read changed files
   before the next handshake and clients before the next channel, so no restart is needed. Nodes and
   brokers keep their private keys: a pod mounts only its own key, as a file that Kubernetes does
   not update.
3. All ordinals have certificates from the start, so scaling does not wait for any.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import secrets
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


def new_authority(name: str, *, days: int = AUTHORITY_DAYS, now: dt.datetime | None = None) -> Pair:
    """Create a self-signed authority. Its name is unique, because chains are found by name."""
    now = now or dt.datetime.now(dt.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"{name} {secrets.token_hex(4)}"
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM).decode(), _pem(key))


def issue(
    authority: Pair,
    name: str,
    hosts: Iterable[str],
    days: int,
    *,
    key_text: str = "",
    now: dt.datetime | None = None,
) -> Pair:
    """Issue a certificate for `name`, valid for `days`, but not beyond the authority's own end.

    hosts: further DNS names and IP addresses. key_text: the private key to certify, PEM; if it is
    not a valid one, a new key is generated. Raises CertificateError.
    """
    now = now or dt.datetime.now(dt.UTC)
    issuer, issuer_key = _load(authority)
    if now >= issuer.not_valid_after_utc:
        raise CertificateError(f"the authority expired at {issuer.not_valid_after_utc:%F %T} UTC")
    key = _key(key_text) or ec.generate_private_key(ec.SECP256R1())
    names = [_general_name(each) for each in dict.fromkeys((name, *hosts))]
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


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key(text: str) -> ec.EllipticCurvePrivateKey | None:
    try:
        found = serialization.load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, ec.EllipticCurvePrivateKey) else None


def _load(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        key = serialization.load_pem_private_key(pair.key.encode(), None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"the authority cannot be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the authority's key is not an elliptic curve key")
    if key.public_key() != certificate.public_key():
        raise CertificateError("the authority's key does not match its certificate")
    return certificate, key


def problem_of_authority(pair: Pair) -> str:
    """Why an authority cannot sign, whatever its age; "" if it can."""
    try:
        _load(pair)
    except CertificateError as error:
        return str(error)
    return ""


def is_expired(certificate: str, *, now: dt.datetime | None = None) -> bool:
    """Whether a certificate is no longer valid. Raises CertificateError if it is unreadable."""
    return (now or dt.datetime.now(dt.UTC)) >= _authority(certificate).not_valid_after_utc


def end_of(certificate: str) -> dt.datetime | None:
    """When a certificate ends to be valid; None if it is unreadable."""
    try:
        return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc
    except ValueError:
        return None


def is_due(authority: Pair, certificate: str, *, now: dt.datetime | None = None) -> bool:
    """Whether to renew a certificate: unreadable, from another authority, or too old (`is_old`)."""
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
        issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
        found.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return True
    return _is_used_up(found, now)


def is_old(certificate: str, *, now: dt.datetime | None = None) -> bool:
    """Whether two thirds of a certificate's lifetime have passed. Raises CertificateError."""
    return _is_used_up(_authority(certificate), now)


def _authority(certificate: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate.encode())
    except ValueError as error:
        raise CertificateError(f"the authority cannot be read: {error}") from None


def _is_used_up(found: x509.Certificate, now: dt.datetime | None) -> bool:
    lifetime = found.not_valid_after_utc - found.not_valid_before_utc
    return (now or dt.datetime.now(dt.UTC)) >= found.not_valid_before_utc + lifetime * 2 / 3


def has_other_names(certificate: str, name: str, hosts: Sequence[str]) -> bool:
    """Whether a certificate is for other names than a client's. True if it is unreadable."""
    return set(_names_in(certificate)) != set(map(_general_name, (name, *hosts)))


def lacks_names(certificate: str, hosts: Iterable[str]) -> bool:
    """Whether a certificate is not for all of these DNS names and IP addresses."""
    return not set(map(_general_name, hosts)) <= set(_names_in(certificate))


def lack_names(files: Mapping[str, str], needed: Mapping[int, Iterable[str]]) -> bool:
    """Whether the certificate of a node lacks one of the names that are needed, by node id."""
    return any(
        lacks_names(files.get(f"{naming.node_name(node)}.crt", ""), hosts)
        for node, hosts in needed.items()
    )


def _names_in(certificate: str) -> Iterable[x509.GeneralName]:
    """The names of a certificate; none if it is unreadable."""
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
        return found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return ()


# --- a Quorum's -----------------------------------------------------------------------------------


def node_hosts(quorum: str, namespace: str, ordinal: int) -> Sequence[str]:
    """The host names under which other processes connect to a node."""
    host = naming.host(quorum, namespace, ordinal)
    service = f"{naming.service(quorum)}.{namespace}.svc"
    names = (host, service, f"{naming.pod(quorum, ordinal)}.{service}")
    return (*names, *(f"{name}.cluster.local" for name in names), "localhost")


def broker_hosts(quorum: str, namespace: str, ordinal: int) -> Sequence[str]:
    """The further names of a broker. Controllers identify all nodes by `node-N`."""
    host = naming.broker_host(quorum, namespace, ordinal)
    node = naming.node_name(naming.BROKER_ID_FIRST + ordinal)
    return (node, host, f"{host}.cluster.local", "localhost")


NO_HOSTS: Mapping[int, Sequence[str]] = {}


@dataclass(frozen=True, slots=True)
class Issuer:
    """Issues the certificates that are due and keeps the others."""

    signer: Pair
    trusted: str
    """The authorities that all nodes and clients trust, PEM."""
    days: int
    """How many days a certificate is valid."""

    def node_files(
        self,
        quorum: str,
        namespace: str,
        known: Mapping[str, str] | None = None,
        ids: naming.NodeIds = naming.SAME_IDS,
        external: Mapping[int, Sequence[str]] = NO_HOSTS,
    ) -> dict[str, str]:
        """The files of all nodes: ca.crt, node-N.crt, node-N.key. N is the node's id.

        external: by ordinal, the names and addresses under which a node is reached from outside.
        """
        hosts = {
            naming.node_name(ids.of(ordinal)): (
                *node_hosts(quorum, namespace, ordinal),
                *external.get(ordinal, ()),
            )
            for ordinal in range(naming.NODES_MAX)
        }
        return self._files(known, hosts)

    def broker_files(
        self, quorum: str, namespace: str, count: int, known: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The files of `count` brokers: ca.crt, broker-N.crt, broker-N.key."""
        hosts = {
            naming.broker_name(ordinal): broker_hosts(quorum, namespace, ordinal)
            for ordinal in range(count)
        }
        return self._files(known, hosts)

    def client_files(
        self,
        known: Mapping[str, str] | None = None,
        name: str = naming.CLIENT,
        hosts: Sequence[str] = (),
    ) -> dict[str, str]:
        """The files of a client, named as in a Secret of type kubernetes.io/tls.

        hosts: the DNS names and IP addresses in its certificate besides `name`.
        """
        kept = self._kept(known, "tls", hosts)
        if kept is None or has_other_names(kept.certificate, name, hosts):
            kept = issue(self.signer, name, hosts, self.days)
        pair = kept
        return {CA_FILE: self.trusted, "tls.crt": pair.certificate, "tls.key": pair.key}

    def _files(
        self, known: Mapping[str, str] | None, hosts: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """The files of several nodes. hosts: the host names by the certificate's common name."""
        files = {CA_FILE: self.trusted}
        for name, further in hosts.items():
            # A new certificate is for the existing key, because pods have mounted it.
            key = (known or {}).get(f"{name}.key", "")
            pair = self._kept(known, name, further) or issue(
                self.signer, name, further, self.days, key_text=key
            )
            files |= {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}
        return files

    def _kept(
        self, known: Mapping[str, str] | None, name: str, hosts: Sequence[str]
    ) -> Pair | None:
        files = known or {}
        pair = Pair(files.get(f"{name}.crt", ""), files.get(f"{name}.key", ""))
        if not pair.key or lacks_names(pair.certificate, hosts):
            return None
        return None if is_due(self.signer, pair.certificate) else pair

    def are_due(self, files: Mapping[str, str], count: int = 1) -> bool:
        """Whether to rewrite a Secret.

        That is so if its trusted authorities differ, a certificate is due, or there are fewer than
        `count` certificates.
        """
        found = [text for name, text in files.items() if name.endswith(".crt") and name != CA_FILE]
        if files.get(CA_FILE) != self.trusted or len(found) < count:
            return True
        return any(is_due(self.signer, text) for text in found)
