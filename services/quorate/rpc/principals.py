"""Who calls: the principal and the nodes that a certificate names, and from which host.

Rules:
1. The principal of a certificate is `User:` and its subject as RFC 2253 writes it, the most
   specific part first, mapped by `ssl.principal.mapping.rules`. A certificate without a subject is
   named by its first DNS name, as `DNS=host`, which no subject can look like.
2. Without TLS, and without a certificate, it is `User:ANONYMOUS`.
3. A DNS name `node-N` in a certificate says: this is node N. Nothing else does.
4. The rules are tried in order; the first whose pattern matches the whole subject makes the name.
   A subject that no rule matches is nobody: `None`, and may do nothing.

Source: Kafka's DefaultKafkaPrincipalBuilder and SslPrincipalMapper (KIP-371).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from quorate.metadata.authorizer import ANONYMOUS

_NODE = re.compile(r"node-(0|[1-9][0-9]{0,9})")
_RULE = re.compile(
    r"""\s*(?: (?P<default>DEFAULT)
             | RULE: (?P<pattern>(?:\\.|[^\\/])*) / (?P<replacement>(?:\\.|[^\\/])*) /
               (?P<case>[LU]?) )
        \s*(?:,|$)""",
    re.VERBOSE,
)
_REFERENCE = re.compile(r"\\(.)|\$([0-9])")


@dataclass(frozen=True, slots=True)
class _Rule:
    """pattern None: the subject as it is."""

    pattern: re.Pattern[str] | None = None
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
        """`DEFAULT` and `RULE:pattern/replacement/` with `L` or `U` behind it, separated by commas.

        ValueError with the reason.
        """
        rules: list[_Rule] = []
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise ValueError(f"{text[position:]!r} begins no rule")
            rules.append(_rule(found))
            position = found.end()
        if not rules:
            raise ValueError("no rule")
        return cls(tuple(rules))

    def name(self, subject: str) -> str | None:
        """The name of whom a subject means; None if no rule matches."""
        for rule in self.rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        return None


def _rule(found: re.Match[str]) -> _Rule:
    if found["default"]:
        return _Rule()
    try:
        pattern = re.compile(found["pattern"])
    except re.error as error:
        raise ValueError(f"{found['pattern']!r} is not a regular expression: {error}") from None
    for reference in _REFERENCE.finditer(found["replacement"]):
        if reference[2] and int(reference[2]) > pattern.groups:
            raise ValueError(f"{found['pattern']!r} has no group ${reference[2]}")
    return _Rule(pattern, found["replacement"], found["case"])


@dataclass(frozen=True, slots=True)
class Caller:
    """principal: None for a certificate that no rule maps. nodes: that the certificate names.

    has_certificate: whether it showed one; without it `nodes` says nothing.
    """

    principal: str | None = ANONYMOUS
    host: str = ""
    nodes: frozenset[int] = frozenset()
    has_certificate: bool = False


AuthContext = Mapping[str, Iterable[bytes]]
"""What gRPC says of a connection's security."""


def caller_of(auth: AuthContext, peer: str, mapping: PrincipalMapping) -> Caller:
    """auth: gRPC's auth_context; peer: its name of the other side."""
    host = host_of(peer)
    if not auth.get("x509_pem_cert"):
        return Caller(host=host)
    names = [name.decode("utf-8", "replace") for name in auth.get("peer_dns", ())]
    subject = next(iter(auth.get("x509_subject", ())), b"").decode("utf-8", "replace")
    if not subject:
        subject = f"DNS={names[0]}" if names else ""
    name = mapping.name(subject) if subject else None
    return Caller(None if name is None else f"User:{name}", host, nodes_of(names), True)


def nodes_of(names: Sequence[str]) -> frozenset[int]:
    """The nodes that DNS names of a certificate name."""
    return frozenset(int(found[1]) for found in map(_NODE.fullmatch, names) if found)


def host_of(peer: str) -> str:
    """The address in gRPC's name of a peer: `ipv4:127.0.0.1:4711`, `ipv6:[::1]:4711` (escaped)."""
    kind, _, address = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return address
    host = address.rpartition(":")[0].strip("[]")
    return host.removeprefix("::ffff:")
