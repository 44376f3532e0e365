"""A real S3 server on this machine: the Versity gateway, over a local directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.processes import HOST, Process, free_ports

GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
REGION = "us-east-1"
KEYS = {"ROOT_ACCESS_KEY": "quorate", "ROOT_SECRET_KEY": "not-a-secret"}
CLIENT = {
    "AWS_ACCESS_KEY_ID": KEYS["ROOT_ACCESS_KEY"],
    "AWS_SECRET_ACCESS_KEY": KEYS["ROOT_SECRET_KEY"],
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The variables of a client."""


class NoGatewayError(Exception):
    """There is no gateway here."""


def gateway(folder: Path) -> str:
    """The gateway's binary: the installed one, or a static one that Go builds in the folder.

    Raises NoGatewayError.
    """
    found = shutil.which("versitygw")
    if found is not None:
        return found
    if shutil.which("go") is None:
        raise NoGatewayError("there is no versitygw, and no Go to build one")
    done = subprocess.run(
        ["go", "install", GATEWAY],
        env={**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise NoGatewayError(f"Go could not build {GATEWAY}: {done.stderr[-200:]}")
    return str(folder / "versitygw")


def gateway_or_skip(folder: Path) -> str:
    try:
        return gateway(folder)
    except NoGatewayError as error:
        pytest.skip(str(error))


class S3Server(Process):
    """The gateway. Its buckets are directories below `folder`; one of them is made.

    tls: its certificate and key; None: it speaks plain HTTP.
    """

    def __init__(
        self, binary: str, folder: Path, bucket: str, tls: tuple[Path, Path] | None = None
    ) -> None:
        (self.port,) = free_ports(1)
        self.folder = folder
        self.binary = binary
        (folder / bucket).mkdir(parents=True)
        self.scheme = "http" if tls is None else "https"
        secure = () if tls is None else ("--cert", tls[0], "--key", tls[1])
        arguments = ("--port", f"{HOST}:{self.port}", *secure, "posix", folder)
        super().__init__("versitygw", folder.with_suffix(".log"), binary, *arguments)

    @property
    def variables(self) -> Mapping[str, str]:
        return KEYS

    @property
    def options(self) -> str:
        """The query of a backup's URL."""
        return f"?endpoint_override={HOST}:{self.port}&scheme={self.scheme}&region={REGION}"

    @property
    def of_hadoop(self) -> dict[str, str]:
        """Spark's settings for s3a."""
        return {
            "spark.hadoop.fs.s3a.endpoint": f"http://{HOST}:{self.port}",
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
