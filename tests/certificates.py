"""Certificates for tests, made by the `openssl` command: authorities, and nodes on loopback.

Where the command is missing, tests are skipped; where CI is set, they fail.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

OPENSSL = shutil.which("openssl")
MISSING = "there is no openssl command"
needs_openssl = pytest.mark.skipif(OPENSSL is None and not os.environ.get("CI"), reason=MISSING)

ADDRESS = "127.0.0.1"
"""For which every certificate is valid."""


def openssl(*arguments: str | Path) -> None:
    assert OPENSSL is not None, MISSING
    subprocess.run([OPENSSL, *map(str, arguments)], check=True, capture_output=True)


def make_authority(directory: Path, name: str) -> tuple[Path, Path]:
    """Its certificate and key."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", f"/CN={name}", "-days", "2", "-keyout", key, "-out", certificate),
        *("-addext", "basicConstraints=critical,CA:TRUE"),
    )
    return certificate, key


def make_certificate(
    directory: Path,
    name: str,
    authority: tuple[Path, Path],
    names: Sequence[str] = (),
    usage: str = "",
    *,
    days: int = 2,
) -> tuple[Path, Path]:
    """A node's certificate and key; names: DNS names that it is valid for besides.

    usage: the only one that it is valid for, such as serverAuth; "" for all. days: how long it is
    valid; below 0 for one that has expired.
    """
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
    alternatives = ",".join((f"IP:{ADDRESS}", *(f"DNS:{each}" for each in names)))
    limited = f"extendedKeyUsage={usage}\n" if usage else ""
    extensions.write_text(f"subjectAltName={alternatives}\n{limited}")
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", f"/CN={name}", "-keyout", key, "-out", request),
    )
    openssl(
        *("x509", "-req", "-in", request, "-CA", authority[0], "-CAkey", authority[1]),
        *("-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", certificate),
    )
    return certificate, key


def certificate_of(*names: bytes, subject: bytes = b"") -> bytes:
    """What a certificate consists of that has these DNS names, in PEM; it has no signature.

    subject: the bytes of its subject, in place of a name.
    """

    def element(tag: int, *content: bytes) -> bytes:
        data = b"".join(content)
        size = len(data).to_bytes(3, "big")
        return bytes([tag, 0x83]) + size + data

    alternatives = element(0x30, *(element(0x82, name) for name in names))
    extension = element(0x30, b"\x06\x03\x55\x1d\x11", element(0x04, alternatives))
    parts = [element(0x02, b"\x01"), element(0x30, element(0x0C, subject))]
    if names:
        parts.append(element(0xA3, element(0x30, extension)))
    der = element(0x30, element(0x30, *parts), element(0x03, b"\0"))
    return ssl.DER_cert_to_PEM_cert(der).encode()
