"""Archives of backups as tables, and in the audit, alone and beside replicas."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate.backup.archive import require_manifest
from quorate.backup.encryption import HEADER
from quorate.backup.manifest import LOG_FOLDER, MANIFEST_FOLDER
from quorate.backup.retention import DAY_MS
from quorate.backup.stores import LocalStore
from quorate.raft.batches import LeaderChange
from quorate.records.batch import build_data_batch, read_header
from quorate.spark.audit import audit
from quorate.spark.errors import NotALogError, OptionError
from quorate.spark.files import find_replicas
from quorate.spark.jobs import Source

from tests.spark.checkpoints import snapshot_findings
from tests.tools.documents import block
from tests.unit.backup.backup_support import CLUSTER, WrittenLog, back_up

HELD = ("offset", "epoch", "timestamp", "type", "key", "value", "data")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    log = written(tmp_path / "log", b"2")
    yield log
    log.close()


def written(directory: Path, value: bytes) -> WrittenLog:
    log = WrittenLog.begun(directory)
    log.metadata(3)
    log.batch(build_data_batch([(b"a", b"1"), (b"b", value)], 1000))
    log.control(2, LeaderChange(1, (), ()))
    log.metadata(2)
    return log


def divided(log: WrittenLog, target: Path) -> None:
    """Back up a log whose run is divided at a checkpoint."""
    back_up(log, target)
    log.checkpoint(2 * DAY_MS)
    log.application(2, time_ms=2 * DAY_MS)
    back_up(log, target)
    log.clean()
    back_up(log, target, keep_ms=1 << 60)
    assert len(require_manifest(LocalStore(target)).runs) == 2


def test_an_archive_is_a_replica(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    divided(log, target)
    (target / LOG_FOLDER / f"{7:020d}-{9:020d}.segment").write_bytes(b"an object of a killed run")
    (found,) = find_replicas([target])
    manifest = require_manifest(LocalStore(target))
    assert {str(path.relative_to(target)) for path in found.files} == manifest.names
    assert (found.name, found.start_offset, found.cluster_id) == (str(target), 0, CLUSTER)
    assert found.archive is not None
    assert found.archive.end == log.end
    assert snapshot_findings([found]) == []


def test_runs_with_a_gap_are_replicas_of_their_own(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    first = log.end
    log.application(2)
    log.compact()
    log.application(1)
    back_up(log, target)
    names = [each.name for each in find_replicas([target])]
    assert names == [
        f"{target}, offsets 0 to {first}",
        f"{target}, offsets {first + 2} to {first + 3}",
    ]
    with pytest.raises(OptionError, match="is an archive with a gap"):
        Source((target,)).log()
    assert Source((target,)).cluster_id() == CLUSTER


def test_what_cannot_be_read(log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    (name,) = LocalStore(target).names(LOG_FOLDER)
    (target / name).rename(tmp_path / "segment")
    with pytest.raises(NotALogError, match=f"lacks {name}, which its manifest lists"):
        find_replicas([target])
    (tmp_path / "segment").rename(target / name)
    (manifest,) = LocalStore(target).names(MANIFEST_FOLDER)
    (target / manifest).write_text("{}")
    with pytest.raises(NotALogError, match="is not the manifest that a backup wrote"):
        find_replicas([target])
    (target / manifest).write_bytes(HEADER + b"ciphertext")
    with pytest.raises(NotALogError, match="is an encrypted archive"):
        find_replicas([target])
    (target / manifest).unlink()
    with pytest.raises(NotALogError, match="contains no backup"):
        find_replicas([target])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_table_and_the_audit_of_an_archive(spark: Any, log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    read = spark.read.format("quorate")
    ledger, expected = (read.load(str(path)) for path in (target, tmp_path / "log"))
    assert ledger.select(*HELD).collect() == expected.select(*HELD).collect()
    assert {row.committed for row in ledger.collect()} == {True}
    divided(log, target)
    assert read.load(str(target)).count() == log.end
    assert Source((target,)).log().paths == (target,)
    assert audit(spark, find_replicas([target])).collect() == []


@pytest.mark.timeout(300)
def test_faults_of_an_archive_are_named(spark: Any, log: WrittenLog, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    divided(log, target)
    first, *_, last = (run.segments[-1] for run in require_manifest(LocalStore(target)).runs)
    data = bytearray((target / first.name).read_bytes())
    data[-1] ^= 1
    (target / first.name).write_bytes(data)
    data = bytearray((target / last.name).read_bytes())
    (target / last.name).write_bytes(data[:-1])
    found = {row.rule: row for row in audit(spark, find_replicas([target])).collect()}
    assert set(found) == {"checksum", "a lost tail"}
    assert (found["checksum"].file, found["checksum"].replica) == (
        str(target / first.name),
        str(target),
    )
    assert found["checksum"].offset == first.end - 2
    assert found["a lost tail"].file == str(target / last.name)
    assert found["a lost tail"].offset == last.base
    assert f"the archive's manifest refers to offset {log.end}" in found["a lost tail"].text


@pytest.mark.timeout(300)
def test_an_archive_that_differs_from_the_nodes(
    spark: Any, log: WrittenLog, tmp_path: Path
) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    nodes = [shutil.copytree(tmp_path / "log", tmp_path / f"node-{n}") for n in (1, 2, 3)]
    assert audit(spark, find_replicas([*nodes, target])).collect() == []
    (segment,) = require_manifest(LocalStore(target)).last_run.segments
    data = (target / segment.name).read_bytes()
    other = written(tmp_path / "other", b"3")
    forged = other.read()
    other.close()
    assert len(forged) == len(data) != 0
    (target / segment.name).write_bytes(forged)
    (row,) = audit(spark, find_replicas([*nodes, target])).collect()
    assert (row.replica, row.offset, row.file) == (str(target), 6, str(target / segment.name))
    assert read_header(forged, row.position).base_offset == 6
    assert row.other in {str(node) for node in nodes}


@pytest.mark.timeout(300)
def test_the_example(
    spark: Any, log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "archive"
    back_up(log, target)
    program = block("docs/pipeline.md", '/backups/metadata"), Path')
    program = program.replace("/backups/metadata", str(target))
    for name in ("c1", "c2", "c3"):
        shutil.copytree(tmp_path / "log", tmp_path / name)
        program = program.replace(f'"{name}"', f'"{tmp_path / name}"')
    exec(program, {})
    out = capsys.readouterr().out
    assert re.search(r"\| *LEADER_CHANGE\| *2\|", out)
    assert "|rule|offset|" in out
