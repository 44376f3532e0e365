"""Records of applications in checkpoints, compared with the log. No Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from quorate.log.disk import Disk
from quorate.log.snapshots import SnapshotStore
from quorate.metadata.config.config_defs import CLEANUP_POLICY, COMPACT
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_data_batch, keep_base_offset, read_header
from quorate.records.compaction import with_survivors
from quorate.records.metadata import (
    HAS_STATE,
    ApplicationTag,
    ConfigRecord,
    application_record,
)
from quorate.runtime.metadata_batches import build_metadata_batch
from quorate.spark.auditing.rules import AuditRule, Finding
from quorate.spark.files import find_replicas

from tests.spark.checkpoints import snapshot_findings
from tests.spark.make_log import FIRST_MS, VOTERS, LogWriter

BROKERS = 4
"""The resource type of brokers' configs. Those of the empty name are the cluster's."""
FIRST = 3
"""The offset of the first record of an application, after the control records."""
KEYS = [b"a", b"b", b"a", b"c", b"", b"b", b"d", b"", b"e", b"a"]
VALUES: list[bytes | None] = [b"%d" % number for number in range(len(KEYS))]
VALUES[6] = None
LAST = {key: FIRST + number for number, key in enumerate(KEYS)}
PER_BATCH = 2
END = OffsetAndEpoch(FIRST + len(KEYS) + 1, 1)
"""Behind the records of applications and one of the metadata."""
POLICY = ConfigRecord(BROKERS, "", CLEANUP_POLICY, COMPACT)
OTHER = ConfigRecord(BROKERS, "", "num.io.threads", "9")

Survives = Callable[[int, bytes, bytes | None], bool]
"""Whether a checkpoint has the record at an offset, with its key and value."""


def last_of_key(offset: int, key: bytes, value: bytes | None) -> bool:
    return not key or (value is not None and LAST[key] == offset)


def batches(values: Sequence[bytes | None] = VALUES) -> Iterable[bytearray]:
    pairs = list(zip(KEYS, values, strict=True))
    for at in range(0, len(pairs), PER_BATCH):
        yield build_data_batch(pairs[at : at + PER_BATCH], FIRST_MS)


def write_log(directory: Path, config: ConfigRecord) -> Path:
    writer = LogWriter(directory)
    writer.elect(1, FIRST_MS)
    for batch in batches():
        writer.append(batch)
    writer.append(build_metadata_batch([config], FIRST_MS))
    writer.close()
    assert writer.offset == END.offset
    return writer.partition


def write_checkpoint(
    partition: Path,
    config: ConfigRecord,
    survives: Survives,
    values: Sequence[bytes | None] = VALUES,
    *,
    before: Sequence[bytearray] = (),
    keeps_offsets: bool = True,
) -> None:
    found = [build_metadata_batch([config], FIRST_MS), *before]
    offset = FIRST
    for batch in batches(values):
        base = offset
        if keeps_offsets:
            keep_base_offset(batch, base)
        kept = with_survivors(
            batch,
            read_header(batch),
            lambda r, base=base: survives(base + r.offset, r.key or b"", r.value),
        )
        found += [] if kept is None else [kept]
        offset += PER_BATCH
    SnapshotStore(partition, Disk()).write(END, 1, VOTERS, FIRST_MS, found)


def findings(directory: Path) -> list[Finding]:
    return snapshot_findings(find_replicas([directory]))


def all_records(offset: int, key: bytes, value: bytes | None) -> bool:
    return True


def without(*offsets: int) -> Survives:
    return lambda offset, key, value: offset not in offsets


def compacted_without(*offsets: int) -> Survives:
    return lambda offset, key, value: last_of_key(offset, key, value) and offset not in offsets


def test_a_checkpoint_with_all_records_is_right(tmp_path: Path) -> None:
    for keeps_offsets in (True, False):
        directory = tmp_path / str(keeps_offsets)
        partition = write_log(directory, OTHER)
        write_checkpoint(partition, OTHER, all_records, keeps_offsets=keeps_offsets)
        assert findings(directory) == []


def test_a_compacted_checkpoint_is_right(tmp_path: Path) -> None:
    write_checkpoint(write_log(tmp_path, POLICY), POLICY, last_of_key)
    assert findings(tmp_path) == []


def test_a_checkpoint_with_a_state_is_right(tmp_path: Path) -> None:
    partition = write_log(tmp_path, OTHER)
    state = application_record(ApplicationTag.STATE_CHUNK, b"\0state")
    before = [build_metadata_batch([each], FIRST_MS) for each in (HAS_STATE, state)]
    write_checkpoint(partition, OTHER, lambda offset, *_: offset >= FIRST + 5, before=before)
    assert findings(tmp_path) == []


MISSING, DIFFERENT = "are missing", "differ"


@pytest.mark.parametrize(
    ("config", "survives", "forged", "text"),
    [
        (OTHER, without(FIRST + 3, FIRST + 8), {}, f"{MISSING}: 2, from offset {FIRST + 3}"),
        # Without the policy, also records whose key has a later one must be there.
        (OTHER, without(FIRST), {}, f"{MISSING}: 1, from offset {FIRST}"),
        (OTHER, without(FIRST + 6), {}, f"{MISSING}: 1, from offset {FIRST + 6}"),
        (POLICY, compacted_without(FIRST + 5), {}, f"{MISSING}: 1, from offset {FIRST + 5}"),
        (POLICY, compacted_without(FIRST + 7), {}, f"{MISSING}: 1, from offset {FIRST + 7}"),
        (OTHER, all_records, {3: b"forged"}, f"{DIFFERENT}: 1, from offset {FIRST + 3}"),
        (POLICY, last_of_key, {8: b"forged"}, f"{DIFFERENT}: 1, from offset {FIRST + 8}"),
    ],
)
def test_lost_and_forged_records_are_found(
    tmp_path: Path, config: ConfigRecord, survives: Survives, forged: dict[int, bytes], text: str
) -> None:
    partition = write_log(tmp_path, config)
    values = [forged.get(number, value) for number, value in enumerate(VALUES)]
    write_checkpoint(partition, config, survives, values)
    expected = findings(tmp_path)
    # The log start moved: the log itself has no state from which a replay can begin.
    path = partition / f"{0:020}.log"
    data = path.read_bytes()
    (partition / f"{FIRST:020}.log").write_bytes(data[read_header(data).size_bytes :])
    path.unlink()
    assert findings(tmp_path) == expected
    (found,) = expected
    assert found.rule is AuditRule.SNAPSHOT
    assert f"application records {text}" in found.text
    assert found.file.endswith(".checkpoint")
    if forged:
        data = Path(found.file).read_bytes()
        assert b"forged" in data[found.position :][: read_header(data, found.position).size_bytes]


def test_superfluous_records_are_found(tmp_path: Path) -> None:
    partition = write_log(tmp_path, OTHER)
    extra = build_data_batch([(b"z", b"never written")], FIRST_MS)
    keep_base_offset(extra, END.offset - 1)
    write_checkpoint(partition, OTHER, all_records, before=[extra])
    (found,) = findings(tmp_path)
    assert f"application records are superfluous: 1, from offset {END.offset - 1}" in found.text


def test_of_three_checkpoints_without_a_log_most_are_right(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        partition = write_log(tmp_path / str(number), OTHER)
        survives = without(FIRST + 3) if number == 1 else all_records
        write_checkpoint(partition, OTHER, survives)
        (partition / f"{0:020}.log").unlink()
        (partition.parent / "meta.properties").unlink()
    (found,) = findings(tmp_path)
    assert found.replica == str(tmp_path / "1")
    assert f"{MISSING}: 1, from offset {FIRST + 3}" in found.text
