"""The operator's own certificates for one Quorum, as files that live as long as the object."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from quorate.rpc.tls import TlsConfig

from quorate_operator import naming
from quorate_operator.objects import certificates
from quorate_operator.objects.authority import Authority, Phase
from quorate_operator.objects.certificates import Pair

OPERATOR_DAYS = 1


class Identity:
    """A certificate from the operator's own authority.

    `tls`: the configuration for connections to nodes. `probe`: a configuration with which only
    connections to nodes succeed that meet the condition of the authority's phase; None if the phase
    has no condition.
    """

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self._folder = tempfile.TemporaryDirectory(prefix="quorate-operator-")
        self._pair = certificates.issue(authority.signer, naming.OPERATOR, (), OPERATOR_DAYS)
        self.tls = write_tls(Path(self._folder.name), "tls", self._pair, authority.trusted)
        self.probe = self._probe()

    def _probe(self) -> TlsConfig | None:
        authority, root = self.authority, Path(self._folder.name)
        match authority.phase:
            case Phase.PREPARING:
                assert authority.successor is not None, "that is what preparing means"
                stranger = certificates.issue(
                    authority.successor, naming.OPERATOR, (), OPERATOR_DAYS
                )
                return write_tls(root, "probe", stranger, authority.trusted)
            case Phase.SWITCHING:
                return write_tls(root, "probe", self._pair, authority.signer.certificate)
            case _:
                return None

    @property
    def is_due(self) -> bool:
        return certificates.is_due(self.authority.signer, self._pair.certificate)


class GivenIdentity:
    """A certificate from another issuer such as cert-manager. files: the data of its Secret."""

    probe = None

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = dict(files)
        self._folder = tempfile.TemporaryDirectory(prefix="quorate-operator-")
        pair = Pair(files["tls.crt"], files["tls.key"])
        self.tls = write_tls(Path(self._folder.name), "tls", pair, files[certificates.CA_FILE])


def write_tls(root: Path, name: str, pair: Pair, trusted: str) -> TlsConfig:
    """Write a certificate, its key and the trusted authorities to files in a folder."""
    certificate, key, ca = root / f"{name}.crt", root / f"{name}.key", root / f"{name}-ca.crt"
    certificate.write_text(pair.certificate)
    key.write_text(pair.key)
    ca.write_text(trusted)
    return TlsConfig(certificate, key, ca)
