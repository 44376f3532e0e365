"""What the compatibility tests need from outside: Kafka's golden directories, and Kafka's tools.

A clone alone has neither: then these tests are skipped with the reason. With CI set and the shared
folder there, a missing part is a failure, never a skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
PEERS = Path(os.environ.get("PEERS", Path.home() / ".cache/peers"))


def missing(reason: str) -> None:
    """Skip, or fail where CI promised that it is there."""
    if os.environ.get("CI") and SHARED.exists():
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def golden() -> Path:
    """`data/kafka-4.3/quorum`: directories that Kafka 4.3 wrote, read-only."""
    found = SHARED / "data/kafka-4.3/quorum"
    if not found.exists():
        missing(f"Kafka's golden directories are not in {found} (set QUORATE_SHARED)")
    return found


@pytest.fixture(scope="session")
def kafka_tool() -> Callable[..., str]:
    """Runs one of Kafka 4.3's own tools and returns what it printed."""
    fetch = SHARED / "peers/kafka/fetch"
    jars = PEERS / "kafka-4.3.0"
    if not (jars / ".complete").exists():
        if not fetch.exists() or not shutil.which("mvn"):
            missing(
                f"Kafka's jars are not in {jars}, and {fetch} or Maven is not there to get them"
            )
        subprocess.run([fetch, "4.3.0"], check=True)
    if not shutil.which("java"):
        missing("Java is not installed")

    def run(*arguments: str | Path, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [
                "java",
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp",
                f"{jars}/*",
                *map(str, arguments),
            ],
            capture_output=True,
            text=True,
            cwd=cwd,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def copy_writable(source: Path, target: Path) -> Path:
    """A copy of a read-only directory that may be written."""
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target
