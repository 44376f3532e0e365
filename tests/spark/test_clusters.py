"""Many clusters in one read: each as if it were read alone, and a damaged one left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from quorate.spark.decoding.columns import BATCHES, CLUSTER, LEDGER
from quorate.spark.errors import OptionError
from quorate.spark.history import history
from quorate.spark.jobs import ClusterLogs, Source
from quorate.spark.state import COLUMNS, as_of, table

from tests.spark.conftest import writable_copy
from tests.spark.many_clusters import cluster_id, join_cluster, make_cluster
from tests.spark.test_commands import assert_line, here
from tests.tools.documents import block

KAFKAS, COMPACTED, OURS, SMALL = range(4)
PARTITION = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def paths(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of Kafka: three directories of one cluster, and a compacted one of another. Two of ours."""
    root = tmp_path_factory.mktemp("clusters")
    found = [
        join_cluster(writable_copy(golden / source / node, root / source / node), number)
        for number, source, nodes in (
            (KAFKAS, "full-history", ("controller-1", "controller-2", "controller-3")),
            (COMPACTED, "compacted", ("controller-2",)),
        )
        for node in nodes
    ]
    return [*found, make_cluster(root, OURS, 3_000), make_cluster(root, SMALL, 40)]


def rows_of(found: DataFrame) -> list[Any]:
    columns = sorted(each for each in found.columns if each != CLUSTER)
    return sorted(map(repr, found.select(*columns).collect()))


@pytest.mark.parametrize(
    "derived",
    [
        as_of,
        pytest.param(lambda ledger: ledger, marks=pytest.mark.slow),
        pytest.param(lambda ledger: table(as_of(ledger), "partitions"), marks=pytest.mark.slow),
        pytest.param(history, marks=pytest.mark.slow),
    ],
    ids=["state", "ledger", "state_partitions", "history"],
)
def test_each_cluster_is_read_as_if_alone(
    spark: Any, paths: list[Path], derived: Callable[[DataFrame], DataFrame]
) -> None:
    source = Source(tuple(paths))
    clusters = ClusterLogs.of(source)
    assert list(clusters.logs) == [cluster_id(number) for number in range(4)]
    assert not clusters.faults
    found = derived(clusters.source.read(spark, LEDGER, snapshots="all")).persist()
    for cluster, alone in source.of_clusters().items():
        expected = rows_of(derived(alone.log().read(spark, LEDGER, snapshots="all")))
        assert rows_of(found.where(found[CLUSTER] == cluster)) == expected
        assert expected
    found.unpersist()


def test_the_rows_of_batches_and_of_a_record_type_name_their_cluster(
    spark: Any, paths: list[Path]
) -> None:
    whole = ClusterLogs.of(Source(tuple(paths))).source
    for layer in (BATCHES, "TOPIC_RECORD"):
        found = whole.read(spark, layer)
        assert found.columns[-2:] == ["committed", CLUSTER]
        ids = {row[0] for row in found.select(CLUSTER).distinct().collect()}
        assert ids == {cluster_id(number) for number in range(4)}


def test_the_state_at_a_time_is_that_of_each_cluster(spark: Any, paths: list[Path]) -> None:
    source = Source((paths[0], *paths[4:]))
    ledger = ClusterLogs.of(source).source.read(spark, LEDGER).persist()
    (row,) = ledger.where(ledger["offset"] == 30).agg({"timestamp": "max"}).collect()
    found = as_of(ledger, time=row[0])
    for cluster, alone in source.of_clusters().items():
        expected = rows_of(as_of(alone.log().read(spark, LEDGER), time=row[0]))
        assert rows_of(found.where(found[CLUSTER] == cluster)) == expected
    ledger.unpersist()


def test_the_example_of_the_page(
    spark: Any, paths: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    page = block("docs/pipeline.md", "ClusterLogs.of")
    names = {"paths": tuple(paths[4:]), "build_session": lambda: spark}
    lines = [line for line in page.splitlines() if "import build_session" not in line]
    exec("\n".join(lines), names)
    shown = capsys.readouterr().out
    assert all(cluster_id(number) in shown for number in (OURS, SMALL))


def test_all_tables_have_the_column(spark: Any, paths: list[Path]) -> None:
    ledger = ClusterLogs.of(Source(tuple(paths[4:]))).source.read(spark, LEDGER)
    now = as_of(ledger).persist()
    for kind in COLUMNS:
        assert table(now, kind).columns[-1] == CLUSTER
    now.unpersist()


def test_a_cluster_without_a_majority_is_left_out(paths: list[Path], tmp_path: Path) -> None:
    two = [writable_copy(path, tmp_path / path.name) for path in paths[:2]]
    (segment,) = (two[1] / PARTITION).glob("*.log")
    segment.write_bytes(segment.read_bytes()[:400])
    strange = writable_copy(paths[4], tmp_path / "strange")
    properties = strange / "meta.properties"
    text = properties.read_text()
    properties.write_text(text.replace(cluster_id(OURS), "x' OR 1"))
    clusters = ClusterLogs.of(Source((*two, strange, *paths[4:])))
    assert list(clusters.logs) == [cluster_id(OURS), cluster_id(SMALL)]
    assert "is not a cluster id" in clusters.faults["x' OR 1"]
    assert "the committed offset is unknown" in clusters.faults[cluster_id(KAFKAS)]


def test_a_cluster_with_a_damaged_log_is_left_out(
    spark: Any, paths: list[Path], tmp_path: Path
) -> None:
    damaged = writable_copy(paths[4], tmp_path / "cluster-1")
    other = writable_copy(paths[5], tmp_path / "cluster-10")
    (segment,) = (damaged / PARTITION).glob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    clusters = ClusterLogs.of(Source((damaged, other)))
    with pytest.raises(Exception, match="checksum") as raised:
        clusters.source.read(spark, LEDGER).collect()
    assert clusters.leave_out(raised.value)
    assert list(clusters.logs) == [cluster_id(SMALL)]
    assert "the checksum is wrong" in clusters.faults[cluster_id(OURS)]
    assert not clusters.leave_out(OptionError(f"{damaged}/other is not in a log that is left"))


def test_several_clusters_are_not_one_log(paths: list[Path], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="directories of 2 clusters: expected those of one"):
        Source(tuple(paths[4:])).log()
    renamed = writable_copy(paths[5], tmp_path / "renamed")
    properties = renamed / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    assert Source((paths[4], renamed), replica="2").log().paths == (renamed,)


def test_two_logs_of_one_cluster_are_an_error(spark: Any, paths: list[Path]) -> None:
    given = {"paths": f"{paths[0]},{paths[1]}", "clusters": "true"}
    with pytest.raises(Exception, match="one log of each cluster"):
        spark.read.format("quorate").options(**given).load().collect()
    given = {"paths": f"{paths[4]},{paths[5]}", "highWatermark": "10,20"}
    with pytest.raises(Exception, match="with clusters=true one for each path"):
        spark.read.format("quorate").options(**given).load().collect()


def test_the_high_watermark_of_each_path(spark: Any, paths: list[Path]) -> None:
    given = {"paths": f"{paths[4]},{paths[5]}", "highWatermark": "100,derived", "clusters": "true"}
    found = spark.read.format("quorate").options(**given).load()
    counts = {row[0]: row[1] for row in found.groupBy(CLUSTER).count().collect()}
    whole = Source((paths[5],)).read(spark, LEDGER).count()
    assert counts == {cluster_id(OURS): 100, cluster_id(SMALL): whole}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "directories of several clusters: use --sink delta or --sink iceberg"),
        (("--sink", "delta", "--update"), "--update and --follow continue the tables of one"),
        (("--sink", "iceberg", "--replica", "1"), "--replica and --high-watermark apply to one"),
    ],
)
def test_options_of_one_cluster(paths: list[Path], options: tuple[str, ...], said: str) -> None:
    assert_line(here("pipeline", "run", *paths[3:], *options), said, status=2)
