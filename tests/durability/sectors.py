"""Synced sectors or whole files of the log that are lost, damaged or old when it is opened again.

After random work the process is killed (the recovery point is as fresh as it gets), or the power
fails (it is up to a second old). Then some sectors that hold acknowledged batches are zeroed,
reverted to what they held before, overwritten, or have a bit flipped; or files are missing or
older. Opening must refuse the log, or store a required end that covers everything acknowledged, or
nothing acknowledged may be lost. The same holds for votes. Where no sector is zero, opening must
refuse the log, for no power failure explains that.

What no replica can detect alone is counted, not accepted silently:

- tail: what is damaged or missing is not older than the recovery point has to be on the disk, with
  nothing sound after, and not all of the log;
- epoch: a batch's epoch differs, which no checksum covers;
- revert: the sector holds an older batch that was as sound as the newer one.
"""

from __future__ import annotations

import os
import shutil
import traceback
from pathlib import Path
from random import Random

from quorate.log.config import LogConfig
from quorate.log.errors import LogError
from quorate.log.metadata_log import MetadataLog
from quorate.log.quorum_state import QUORUM_STATE_FILE, QuorumStateFile
from quorate.raft.types import BOOTSTRAP_SNAPSHOT
from quorate.records.batch import read_header

from tests.durability.disk import SECTOR_BYTES
from tests.durability.power import Outcome
from tests.durability.replica import (
    FIRST_BYTES,
    QuietDisk,
    Replica,
    ViolationError,
    read_all,
)
from tests.durability.stepping import writer_of

KINDS = ("zero", "zero", "revert", "flip", "garbage")
FILES = ("segment", "cut", "partition", "votes", "old votes")
EPOCH_AT = slice(12, 16)


def run(seed: int, base: Path) -> Outcome:
    random = Random(seed)
    folder = base / f"sectors-{seed}"
    replica = None
    try:
        replica = Replica(folder, random)
        for _ in range(random.randint(0, 2)):
            replica.live(random.choice(("power", "kill", "close")))
            if random.random() < 0.5:
                replica.crash()
        old_votes = replica.quorum_state()
        replica.live("quiet", pace=random.choice((None, 0.0, 0.0)))
        detail = _damage_and_open(replica, random, old_votes)
        return Outcome(seed, None, 1, detail)
    except ViolationError as error:
        return Outcome(seed, str(error), 1)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        return Outcome(seed, text, 1)
    finally:
        if replica is not None:
            replica.close()
        shutil.rmtree(folder, ignore_errors=True)


def _damage_and_open(replica: Replica, random: Random, old_votes: bytes | None) -> str:
    """What came of it, in a word. ViolationError if acknowledged batches went silently."""
    assert replica.disk is not None
    older = {
        path.name: dict(replica.disk.file(path).older) for path in replica.partition.glob("*.log")
    }
    if random.random() < 0.7:
        replica.crash()
    places = _acknowledged(replica)
    if not places:
        # Votes may be in it.
        shutil.rmtree(replica.partition)
        return _open(replica, "partition", [(replica.partition, -1)], places)
    if random.random() < 0.25:
        kind = random.choice(FILES)
        damaged = _damage_files(replica, kind, places, old_votes, random)
    else:
        kind = random.choice(KINDS)
        is_whole = kind in ("flip", "garbage") and _is_whole(replica)
        behind = [place for place in places if place[3] >= replica.point.floor]
        chosen = behind if behind and random.random() < 0.5 else places
        damaged = _damage(chosen, kind, older, random)
        if kind == "zero" and random.random() < 0.5:
            damaged += _damage(chosen, kind, older, random)
        if is_whole and not _lacks_first_bytes(damaged, places):
            return _open(replica, kind, damaged, places, may_drop=False)
    return _open(replica, kind, damaged, places) if damaged else "nothing to revert"


def _is_whole(replica: Replica) -> bool:
    """Whether the log would be opened as it is, so that what is damaged next is its only fault."""
    copy = replica.base / "copy"
    shutil.copytree(replica.root, copy)
    try:
        log = _opened(copy)
        writer_of(log).stop()
        log.close()
        return log.recovered.truncated_bytes == 0
    finally:
        shutil.rmtree(copy)


def _lacks_first_bytes(damaged: list[Damage], places: list[Place]) -> bool:
    """Whether the damage left zeros where a batch begins, all that its sector holds of it."""
    for path, start, _, _ in places:
        size = -start % SECTOR_BYTES
        if 0 < size <= max(FIRST_BYTES) and (path, start // SECTOR_BYTES) in damaged:
            with path.open("rb") as file:
                file.seek(start)
                if not any(file.read(size)):
                    return True
    return False


def _opened(root: Path) -> MetadataLog:
    return MetadataLog.open(
        root,
        LogConfig(preallocate_bytes=0),
        on_durable=lambda _: None,
        on_failure=lambda _: None,
        disk=QuietDisk(),
    )


def _open(
    replica: Replica,
    kind: str,
    damaged: list[Damage],
    places: list[Place],
    *,
    may_drop: bool = True,
) -> str:
    model = replica.model
    try:
        log = _opened(replica.root)
    except LogError:
        return "refused"
    try:
        if kind == "partition":
            raise ViolationError("the partition directory is gone, and nobody notices")
        try:
            state = QuorumStateFile(replica.partition).read()
            QuorumStateFile(replica.partition).check(state, log.recovered.last_epoch)
        except LogError:
            return "refused: votes"
        if kind in ("votes", "old votes"):
            # What was voted in the epoch of the last record is gone, if not the epoch.
            if state is None or state.epoch < log.last_epoch:
                raise ViolationError(f"quorum-state is {state}, and nobody notices")
            return "undetectable: votes"
        if log.recovered.dropped_end is not None and not may_drop:
            raise ViolationError(f"{kind} of {damaged}: sound batches are dropped, not refused")
        found = dict(read_all(log))
        lost = [
            (offset, batch)
            for offset, batch in model.batches
            if log.start_offset <= offset < model.acknowledged and found.get(offset) != batch
        ]
        if not lost:
            return "nothing lost"
        is_only = len({path for path, *_ in places}) == 1
        if kind == "segment" and is_only and model.snapshot == BOOTSTRAP_SNAPSHOT:
            raise ViolationError("the only segment is gone, and nobody notices")
        required = log.recovered.required_end
        epoch = max(read_header(batch).epoch for offset, batch in lost)
        if required is not None:
            end = (required.end.epoch, required.end.offset)
            if end >= (epoch, model.acknowledged):
                return "required end"
        if required is not None:
            # It covers every sound batch, and the last ones of the log are gone.
            places = [place for place in places if place[3] >= required.end.offset]
        return _undetectable(lost, found, kind, damaged, places, replica.point.floor)
    finally:
        writer_of(log).stop()
        log.close()


def _damage_files(
    replica: Replica, kind: str, places: list[Place], old_votes: bytes | None, random: Random
) -> list[Damage]:
    """Remove or revert files; return which, with no sector."""
    path, start, _, _ = random.choice(places[-6:])
    if kind == "segment":
        path.unlink()
    elif kind == "cut":
        # An older copy: the log ended there once.
        for later in sorted(replica.partition.glob("*.log")):
            if later > path:
                later.unlink()
        os.truncate(path, start)
    elif kind == "partition":
        path = replica.partition
        shutil.rmtree(path)
    else:
        path = replica.partition / QUORUM_STATE_FILE
        if kind == "votes":
            path.unlink()
        elif old_votes is None:
            return []
        else:
            path.write_bytes(old_votes)
    return [(path, -1)]


Damage = tuple[Path, int]
"""A file, and the number of a sector in it."""
Place = tuple[Path, int, int, int]
"""Of an acknowledged batch: its file, where it begins and ends there, its offset."""


def _acknowledged(replica: Replica) -> list[Place]:
    places: list[Place] = []
    sizes = {offset: len(batch) for offset, batch in replica.model.batches}
    ends = {offset: read_header(batch).end_offset for offset, batch in replica.model.batches}
    for path in sorted(replica.partition.glob("*.log")):
        position, offset = 0, int(path.stem)
        while offset in sizes and offset < replica.model.acknowledged:
            if position + sizes[offset] > path.stat().st_size:
                break
            places.append((path, position, position + sizes[offset], offset))
            position += sizes[offset]
            offset = ends[offset]
    return places


def _damage(
    places: list[Place], kind: str, older: dict[str, dict[int, list[bytes]]], random: Random
) -> list[Damage]:
    """Damage one sector, or a few in a row; return which. places: where it may be."""
    path, start, end, _ = random.choice(random.choice((places, places[-6:], places[-20:])))
    sector = random.randrange(start, end) // SECTOR_BYTES
    count = random.choice((1, 1, 1, 2, 4)) if kind in ("zero", "revert") else 1
    last = max(place[2] for place in places if place[0] == path)
    done: list[Damage] = []
    with path.open("r+b") as file:
        for number in range(sector, sector + count):
            first = number * SECTOR_BYTES
            if first >= last:
                break
            file.seek(first)
            content = bytearray(file.read(SECTOR_BYTES))
            if kind == "zero":
                content[:] = bytes(len(content))
            elif kind == "garbage":
                content[:] = random.randbytes(len(content))
            elif kind == "flip":
                within = min(end, first + SECTOR_BYTES) - max(start, first)
                at = max(start, first) - first + random.randrange(within)
                content[at] ^= 1 << random.randrange(8)
            else:
                versions = older.get(path.name, {}).get(number)
                if not versions:
                    break
                content[:] = random.choice(versions)[: len(content)]
            file.seek(first)
            file.write(content)
            done.append((path, number))
    return done


def _undetectable(  # noqa: PLR0917 - the evidence
    lost: list[tuple[int, bytes]],
    found: dict[int, bytes],
    kind: str,
    damaged: list[Damage],
    places: list[Place],
    point: int,
) -> str:
    """Why nobody could have noticed; ViolationError if somebody could."""
    changed = [(batch, found[offset]) for offset, batch in lost if offset in found]
    is_epoch = all(_without_epoch(old) == _without_epoch(new) for old, new in changed)
    if kind in ("flip", "garbage") and len(changed) == len(lost) and is_epoch:
        return "undetectable: epoch"
    if kind == "revert" and changed:
        return "undetectable: revert"
    first = lost[0][0]
    sound_behind = [
        offset
        for path, start, end, offset in places
        if offset > first
        and (kind not in FILES or (path.exists() and end <= path.stat().st_size))
        and not any(
            path == other and start < (sector + 1) * SECTOR_BYTES and end > sector * SECTOR_BYTES
            for other, sector in damaged
        )
    ]
    if first >= point and not sound_behind and kind in ("zero", "revert", "segment", "cut"):
        return "undetectable: tail"
    raise ViolationError(
        f"{kind} of {[(path.name, sector) for path, sector in damaged]}: acknowledged batches from "
        f"{first} on are lost silently; durable was {point}, sound behind {sound_behind}"
    )


def _without_epoch(batch: bytes) -> bytes:
    content = bytearray(batch)
    content[EPOCH_AT] = bytes(4)
    return bytes(content)
