"""Kept inputs always, fresh ones some, and every bit of a log: nothing crashes, damage is found."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from random import Random

import pytest
from quorate.log.config import LogConfig
from quorate.log.errors import LogError
from quorate.log.metadata_log import MetadataLog
from quorate.raft.batches import LeaderChange
from quorate.raft.types import ReplicaKey
from quorate.records.batch import build_control_batch, build_data_batch, stamp
from quorate.records.errors import RecordsError

from tests.hostile.__main__ import KEPT, try_one
from tests.hostile.decoders import Decoder, decoders
from tests.hostile.inputs import hostile

FRESH = int(os.environ.get("QUORATE_HOSTILE_INPUTS", "6000"))
RECORDS = 9
SEED = int(os.environ.get("QUORATE_HOSTILE_SEED", random.randrange(1 << 31)))


@pytest.fixture(scope="module")
def found() -> list[Decoder]:
    return decoders()


def test_every_sound_input_is_taken(found: list[Decoder]) -> None:
    for decoder in found:
        for data in decoder.corpus:
            if data != b"[1]":
                decoder.decode(data)


def test_kept_inputs(found: list[Decoder]) -> None:
    by_name = {decoder.name: decoder for decoder in found}
    for path in KEPT.glob("*.bin"):
        assert try_one(by_name[path.stem.rpartition("-")[0]], path.read_bytes()) is None, path


def test_fresh_inputs(found: list[Decoder]) -> None:
    for number in range(FRESH):
        decoder = found[number % len(found)]
        data = hostile(Random(f"{SEED} {number}"), list(decoder.corpus))
        problem = try_one(decoder, data)
        assert problem is None, f"{decoder.name}: {problem}: {data.hex()} (seed {SEED})"


def _write_log(folder: Path) -> Path:
    """A log of three epochs with data and control batches; returns its segment."""
    log = MetadataLog.open(folder, LogConfig(), on_durable=lambda _: None, on_failure=_fail)
    offset = 0
    for ticket, epoch in enumerate((1, 2, 4)):
        leader = ReplicaKey(epoch, "A" * 21 + "A")
        batches = [build_control_batch((LeaderChange(epoch, (leader,), (leader,)),), 1_000)]
        batches += [build_data_batch([(b"k", b"v" * size)], 1_000) for size in (1, 40)]
        for batch in batches:
            stamp(batch, offset, epoch)
            offset += 1
        log.append(1 + ticket, batches)
    log.close()
    return next(folder.rglob("*.log"))


def _fail(error: BaseException) -> None:
    raise AssertionError(error)


def _is_found(folder: Path, end_offset: int) -> bool:
    """Whether opening the log refuses it, or ends it before the damage."""
    try:
        log = MetadataLog.open(folder, LogConfig(), on_durable=lambda _: None, on_failure=_fail)
    except (LogError, RecordsError):
        return True
    try:
        return log.end_offset < end_offset
    finally:
        log.close()


def test_every_flipped_bit_of_a_log_is_found(tmp_path: Path) -> None:
    segment = _write_log(tmp_path / "sound")
    sound = segment.read_bytes()
    where = segment.relative_to(tmp_path / "sound")
    missed = []
    for position in range(len(sound)):
        folder = tmp_path / "flipped"
        shutil.copytree(tmp_path / "sound", folder)
        damaged = bytearray(sound)
        damaged[position] ^= 1 << (position % 8)
        (folder / where).write_bytes(damaged)
        # As after a crash: a log that was closed in peace is not read again.
        for marker in folder.rglob(".kafka_cleanshutdown"):
            marker.unlink()
        if not _is_found(folder, RECORDS):
            missed.append(position)
        shutil.rmtree(folder)
    # A batch's epoch lies outside its checksum (Kafka's format): that of the last batch shows when
    # the next one is appended, or in the audit over all replicas.
    last = sound.rindex(bytes([0, 0, 0, 4, 2]))
    assert missed == list(range(last, last + 4))
