"""Certificates for tests, made by the `openssl` command: authorities, and nodes on loopback.

Where the command is missing, tests are skipped; where CI is set, they fail.
"""

from __future__ import annotations

import os
import shutil
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
    directory: Path, name: str, authority: tuple[Path, Path], names: Sequence[str] = ()
) -> tuple[Path, Path]:
    """A node's certificate and key; names: DNS names that it is valid for besides."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
    alternatives = ",".join((f"IP:{ADDRESS}", *(f"DNS:{each}" for each in names)))
    extensions.write_text(f"subjectAltName={alternatives}\n")
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", f"/CN={name}", "-keyout", key, "-out", request),
    )
    openssl(
        *("x509", "-req", "-in", request, "-CA", authority[0], "-CAkey", authority[1]),
        *("-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate),
    )
    return certificate, key
