"""Identifies callers: the principal and the nodes that a certificate names, and the host.

Rules:
1. The principal of a certificate is `User:` and its subject as RFC 2253 writes it, the most
   specific part first, mapped by `ssl.principal.mapping.rules`. A certificate without a subject is
   named by its first DNS name, as `DNS=host`, which no subject can look like.
2. Without TLS or without a certificate, the principal is `User:ANONYMOUS`.
3. A DNS name `node-N` in a certificate identifies node N. Nothing else does. The names are read
   from the certificate, because gRPC's cut a name at its first NUL character.
4. The standard library's description of a certificate is converted to the same text as gRPC's:
   OpenSSL's form of RFC 2253. A subject with an attribute that is not in `_SHORT` has no principal:
   gRPC writes such an attribute in its encoded form, which the standard library does not expose.
5. The mapping rules are tried in order; the first whose pattern matches the whole subject makes the
   name. A subject that no rule matches has no principal: it is `None` and may do nothing. The same
   applies to a subject of more than `SUBJECT_MAX` characters.
6. Patterns are RE2's: matching takes time proportional to the subject, whatever the pattern. Java's
   look-around, back references and possessive quantifiers are rejected.

Source: Kafka's DefaultKafkaPrincipalBuilder and SslPrincipalMapper (KIP-371).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from quorate.metadata.authorizer import ANONYMOUS
from quorate.rpc.tls import dns_names_in

if TYPE_CHECKING:
    import re2

_NODE = re.compile(r"node-(0|[1-9][0-9]{0,9})")
_RULE = re.compile(
    r"""\s*(?: (?P<default>DEFAULT)
             | RULE: (?P<pattern>(?:\\.|[^\\/])*) / (?P<replacement>(?:\\.|[^\\/])*) /
               (?P<case>[LU]?) )
        \s*(?:,|$)""",
    re.VERBOSE,
)
_REFERENCE = re.compile(r"\\(.)|\$([0-9])")
SUBJECT_MAX = 4096


@dataclass(frozen=True, slots=True)
class _Rule:
    """One mapping rule. pattern None: the name is the subject itself."""

    pattern: re2._Regexp | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        name = _REFERENCE.sub(
            lambda found: found[1] or match[int(found[2])] or "", self.replacement
        )
        if self.case == "L":
            return name.lower()
        return name.upper() if self.case == "U" else name


@dataclass(frozen=True, slots=True)
class PrincipalMapping:
    """`ssl.principal.mapping.rules`."""

    rules: tuple[_Rule, ...] = (_Rule(),)

    @classmethod
    def parse(cls, text: str) -> PrincipalMapping:
        """Parse rules: `DEFAULT` and `RULE:pattern/replacement/`, separated by commas.

        `L` or `U` may follow a rule's last slash. Raises ValueError with the reason.
        """
        rules: list[_Rule] = []
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise ValueError(f"{text[position:]!r} is not a valid rule")
            rules.append(_rule(found))
            position = found.end()
        if not rules:
            raise ValueError("there is no rule")
        return cls(tuple(rules))

    def name(self, subject: str) -> str | None:
        """The name that a subject maps to; None if no rule matches."""
        if len(subject) > SUBJECT_MAX:
            return None
        for rule in self.rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        return None


def _rule(found: re.Match[str]) -> _Rule:
    if found["default"]:
        return _Rule()
    import re2  # noqa: PLC0415 - 1 MB, only where there are rules

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(found["pattern"], options)
    except re2.error as error:
        (reason,) = error.args
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(
            f"{found['pattern']!r} is not a valid RE2 regular expression: {text}"
        ) from None
    for reference in _REFERENCE.finditer(found["replacement"]):
        if reference[2] and int(reference[2]) > pattern.groups:
            raise ValueError(f"{found['pattern']!r} has no group ${reference[2]}")
    return _Rule(pattern, found["replacement"], found["case"])


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity of a caller."""

    principal: str | None = ANONYMOUS
    """The caller's principal, None for a certificate that no rule maps."""
    host: str = ""
    nodes: frozenset[int] = frozenset()
    """The nodes that the certificate names."""
    has_certificate: bool = False
    """Whether the caller presented a certificate; without one `nodes` has no meaning."""
    used_sasl: bool = False
    """Whether the caller authenticated with SASL instead, whose principals name no nodes."""
    used_token: bool = False
    """Whether the caller authenticated with a delegation token."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the caller has proven its principal."""
        proved = self.has_certificate or self.used_sasl
        return proved and self.principal not in (None, ANONYMOUS)


AuthContext = Mapping[str, Iterable[bytes]]
"""How gRPC describes a connection's security."""


def caller_of(auth: AuthContext, peer: str, mapping: PrincipalMapping) -> Caller:
    """The caller of a gRPC call. auth: gRPC's auth_context. peer: gRPC's name of the peer."""
    host = host_of(peer)
    certificate = next(iter(auth.get("x509_pem_cert", ())), b"")
    if not certificate:
        return Caller(host=host)
    try:
        names = dns_names_in(certificate)
    except ValueError:
        names = ()
    subject = next(iter(auth.get("x509_subject", ())), b"").decode("utf-8", "replace")
    return _caller(subject, names, host, mapping)


def caller_of_certificate(
    certificate: Mapping[str, Any] | None, host: str, mapping: PrincipalMapping
) -> Caller:
    """The caller of a TLS connection.

    certificate: the peer's, as `ssl.SSLSocket.getpeercert` returns it; None without one.
    """
    if not certificate:
        return Caller(host=host)
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]
    subject = _subject(certificate.get("subject", ()))
    if subject is None:
        return Caller(None, host, nodes_of(names), True)
    return _caller(subject, names, host, mapping)


def _caller(subject: str, names: Sequence[str], host: str, mapping: PrincipalMapping) -> Caller:
    if not subject:
        subject = f"DNS={names[0]}" if names else ""
    name = mapping.name(subject) if subject else None
    return Caller(None if name is None else f"User:{name}", host, nodes_of(names), True)


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "emailAddress",
    "givenName": "GN",
    "initials": "initials",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "serialNumber": "serialNumber",
    "stateOrProvinceName": "ST",
    "streetAddress": "street",
    "surname": "SN",
    "title": "title",
    "userId": "UID",
}
"""OpenSSL's long attribute names, which the standard library uses, and the short ones."""


def _subject(parts: Sequence[Sequence[tuple[str, str]]]) -> str | None:
    """The subject's text (rule 4). parts: least specific first, each with its attributes."""
    written = []
    for part in reversed(parts):
        attributes = []
        for name, value in reversed(part):
            if name not in _SHORT:
                return None
            attributes.append(f"{_SHORT[name]}={_escaped(value)}")
        written.append("+".join(attributes))
    return ",".join(written)


def _escaped(value: str) -> str:
    """Escape like OpenSSL's XN_FLAG_RFC2253: control and non-ASCII characters in hex."""
    found = []
    last = len(value) - 1
    for index, each in enumerate(value):
        if each in ',+"\\<>;' or (each in " #" and index == 0) or (each == " " and index == last):
            found.append(f"\\{each}")
        elif " " <= each <= "~":
            found.append(each)
        else:
            found += [f"\\{byte:02X}" for byte in each.encode("utf-8", "surrogatepass")]
    return "".join(found)


def nodes_of(names: Sequence[str]) -> frozenset[int]:
    """The nodes that a certificate's DNS names identify."""
    return frozenset(int(found[1]) for found in map(_NODE.fullmatch, names) if found)


def host_of(peer: str) -> str:
    """The address in gRPC's name of a peer: `ipv4:127.0.0.1:4711`, `ipv6:[::1]:4711` (escaped)."""
    kind, _, address = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return address
    host = address.rpartition(":")[0].strip("[]")
    return host.removeprefix("::ffff:")
