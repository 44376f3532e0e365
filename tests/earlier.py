"""An earlier version of Quorate from this repository's history: release 0.1.0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.support import Node, environment

ROOT = Path(__file__).parent.parent
COMMIT = "62f1c790812fdedaf41eddc618b4365002c0060a"
"""The last one whose snapshots keep no offsets."""


class EarlierNode(Node):
    """A node whose process runs the earlier version, or this one while `sources` is None."""

    sources: Path | None = None

    @property
    def variables(self) -> dict[str, str]:
        return {} if self.sources is None else {"PYTHONPATH": str(self.sources)}


def unpack_files(folder: Path, *names: str) -> None:
    """The earlier version's files of these names; without names all. Skips the test in a checkout
    without it.
    """
    archived = subprocess.run(
        ["git", "-C", str(ROOT), "archive", COMMIT, *names], capture_output=True
    )
    if archived.returncode != 0:
        why = archived.stderr.decode().strip().splitlines()[-1:]
        pytest.skip(f"commit {COMMIT[:7]} is not in this checkout (fetch all of history): {why}")
    # Not tarfile: before Python 3.11.4, the version of Debian 12 among them, it has no filters.
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archived.stdout, check=True)


def unpack(folder: Path) -> Path:
    """The earlier version's sources, for PYTHONPATH: they run on the packages of this environment.
    Skips the test in a checkout without them.
    """
    unpack_files(folder, "services")
    sources = folder / "services"
    variables = environment() | {"PYTHONPATH": str(sources)}
    found = subprocess.run(
        [sys.executable, "-c", "import quorate; print(quorate.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        env=variables,
        cwd=os.sep,
    )
    assert Path(found.stdout.strip()).is_relative_to(sources), found.stdout
    return sources
