"""A stream from a live quorum under load, into Parquet and into Delta: each offset exactly once.

Three controllers, writers, snapshots that compact the log. The process with the query is killed
with SIGKILL at random moments and started again, ten times: every other time wherever it is, else
once it has committed something. The leader is killed twice and started again. Writers wait for a
query that is far behind: what it has not read would be compacted away, which is an error and
another test. In the end the table holds every committed offset once, though the log has lost its
beginning.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest
from quorate.rpc.client.batch_reader import BatchReader, QuorumConnection
from quorate.spark.formats import CONNECTORS, TableFormat
from quorate.spark.lake import DeltaSink
from quorate.spark.session import build_session
from quorate.spark.sinks import ParquetSink, Sink

from tests.integration.support import Node, quorate
from tests.integration.support import Quorum as Controllers
from tests.processes import QUORATE, Process
from tests.spark.conftest import MASTER
from tests.spark.load import Load

KILLS = int(os.environ.get("STREAM_KILLS", "10"))
LEADER_KILLS = (KILLS // 3, 2 * KILLS // 3)
PROGRESS_S = 900
LAG_MAX = 6_000
"""Records; the log keeps twice as many."""
BROKERS = 50
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": 100_000,
    "metadata.max.retention.bytes": 400_000,
    "internal.metadata.log.segment.bytes": 100_000,
    "controller.quorum.auto.join.enable": "true",
}


class Query(Process):
    """`quorate pipeline run --follow` as a process of its own, in a group of its own."""

    def __init__(self, addresses: str, out: Path, sink: str, log: Path) -> None:
        command = follow(addresses, out, sink)
        # setsid: the JVM and the workers are killed with it.
        super().__init__("the query", log, "setsid", sys.executable, *QUORATE, *command)

    def kill(self) -> None:
        """Everything: Python, the JVM, the workers."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()


def follow(addresses: str, out: Path, sink: str) -> tuple[object, ...]:
    """The command line of a query that writes the tables in `out`."""
    where = ("--bootstrap-controller", addresses, "--out", out)
    return ("pipeline", "run", "--follow", *where, "--sink", sink, "--master", MASTER)


def leader_of(controllers: Controllers) -> Node:
    status = controllers.until("a leader", lambda s: s["leaderId"] in controllers.nodes)
    return controllers.nodes[status["leaderId"]]


DELTA_FITS = ".".join(pyspark.__version__.split(".")[:2]) in CONNECTORS[TableFormat.DELTA].versions


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session that reads all formats here. A process has only one JVM."""
    session = build_session(MASTER, tables=TableFormat.DELTA if DELTA_FITS else TableFormat.PARQUET)
    yield session
    session.stop()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_every_committed_offset_is_in_the_table_once(tmp_path: Path, spark: Any, sink: str) -> None:
    if sink == "delta" and not DELTA_FITS:
        pytest.skip(f"Delta Lake has no connector for PySpark {pyspark.__version__}")
    controllers = Controllers(tmp_path, (1, 2, 3), **SETTINGS)
    for node in controllers.nodes.values():
        node.format("--standalone" if node.id == 1 else "--no-initial-controllers")
        node.start()
    rng = random.Random(7)
    out = tmp_path / "tables"
    query = Query(controllers.addresses, out, sink, tmp_path / "query.log")
    try:
        controllers.until_voters(1, 2, 3)
        with Load(
            controllers.addresses,
            brokers=BROKERS,
            must_wait=lambda written: written - committed(out) > LAG_MAX,
            pause_s=0.02,
        ) as load:
            for round_ in range(KILLS):
                before = committed(out)
                query.start()
                if round_ % 2 == 0:
                    more = partial(has_more, out, before)
                    wait_for(more, "it commits more", query)
                time.sleep(rng.uniform(2, 20))
                if round_ in LEADER_KILLS:
                    leader = leader_of(controllers)
                    leader.kill()
                    time.sleep(3)
                    leader.start()
                query.kill()
            query.start()
            wait_for(lambda: min(log_starts(controllers)) > 0, "the logs are compacted", query)
            query.kill()
        assert load.acknowledged > 1_000
        with BatchReader(QuorumConnection(tuple(controllers.addresses.split(",")))) as reader:
            end = reader.extent().end
        finish(query, controllers.addresses, out, sink)
        found = written_offsets(spark, out, sink)
        counted = Counter(found)
        assert [offset for offset, times in counted.items() if times > 1] == []
        assert sorted(offset for offset in counted if offset < end) == list(range(end))
        starts = log_starts(controllers)
        print(f"\n{sink}: {end} offsets once each after {KILLS} kills; logs begin at {starts}")
        assert min(starts) > 0
    finally:
        query.kill()
        controllers.kill()


def committed(out: Path) -> int:
    """The offset before which the query's checkpoint has everything."""
    # Those of Delta have a folder for each cluster.
    commits = out.glob("_checkpoints/**/ledger/commits/*")
    done = {int(path.name): path.parents[1] for path in commits if path.name.isdecimal()}
    if not done:
        return 0
    checkpoint = done[max(done)]
    lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
    return int(json.loads(lines[-1])["offset"])


def has_more(out: Path, before: int) -> bool:
    return committed(out) > before


def wait_for(holds: Callable[[], bool], what: str, query: Query) -> None:
    deadline = time.monotonic() + PROGRESS_S
    while not holds():
        assert query.is_alive, f"the query ended by itself before {what}"
        assert time.monotonic() < deadline, f"not within {PROGRESS_S} s: {what}"
        time.sleep(0.5)


def finish(query: Query, addresses: str, out: Path, sink: str) -> None:
    """Let the query catch up and end by itself."""
    ran = quorate(*follow(addresses, out, sink), "--available-now", timeout_s=900)
    assert ran.status == 0, ran


def written_offsets(spark: Any, out: Path, sink: str) -> list[int]:
    tables: Sink = ParquetSink(spark, str(out))
    if sink == "delta":
        (cluster,) = (path.name for path in (out / "_checkpoints").iterdir())
        tables = DeltaSink(spark, str(out), cluster)
    return [row.offset for row in tables.read("ledger").select("offset").collect()]


def log_starts(controllers: Controllers) -> list[int]:
    return [
        min(int(path.stem) for path in node.data.glob("__cluster_metadata-0/*.log"))
        for node in controllers.nodes.values()
    ]
