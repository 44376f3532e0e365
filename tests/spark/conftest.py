"""One Spark session for all tests of the pipeline, on two local cores; Kafka's golden directories.

Without Java these tests are skipped with the reason. With CI set they must run: a missing Java, or
missing golden data beside the repository, is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from quorate.spark.errors import PipelineError
from quorate.spark.java import check_java
from quorate.spark.session import build_session, check_pyspark

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
GOLDEN = SHARED / "data/kafka-4.3/quorum"
MASTER = "local[2]"


def missing(reason: str) -> None:
    """Skip, or fail where CI promised that it is there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    try:
        check_pyspark()
        check_java()
    except PipelineError as error:
        missing(error.reason)
    session = build_session(MASTER, settings={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def golden() -> Path:
    """`data/kafka-4.3/quorum`: directories that Kafka 4.3 wrote, read-only."""
    if not GOLDEN.exists():
        reason = f"Kafka's golden directories are not in {GOLDEN} (set QUORATE_SHARED)"
        if os.environ.get("CI") and SHARED.exists():
            pytest.fail(reason)
        pytest.skip(reason)
    return GOLDEN


def writable_copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


@dataclass(frozen=True, slots=True)
class Dumped:
    """One record as Kafka's dump tool prints it. content: what follows the headers' names."""

    offset: int
    epoch: int
    timestamp: int
    content: str


def kafkas_dump(path: Path) -> list[Dumped]:
    """The records in the text that `kafka-dump-log --cluster-metadata-decoder` printed."""
    found: list[Dumped] = []
    epoch = -1
    for line in path.read_text().splitlines():
        batch = re.match(r"baseOffset: .* partitionLeaderEpoch: (-?\d+) ", line)
        if batch:
            epoch = int(batch[1])
            continue
        record = re.match(r"\| offset: (\d+) \w+: (\d+) .*? headerKeys: \[.*?\] (.*)$", line)
        if record:
            found.append(Dumped(int(record[1]), epoch, int(record[2]), record[3]))
    return found


def as_kafka_prints(row: Any) -> str:
    """A ledger's row in the words of Kafka's dump, up to the name of a control record."""
    if row.is_control:
        return str(row.data)
    return f'payload: {{"type":"{row.type}","version":{row.version},"data":{row.data}}}'


CONTROL_TYPES = {
    "LeaderChange:": "LEADER_CHANGE",
    "KRaftVersion": "KRAFT_VERSION",
    "KRaftVoters": "KRAFT_VOTERS",
    "SnapshotHeader": "SNAPSHOT_HEADER",
    "SnapshotFooter": "SNAPSHOT_FOOTER",
}
