"""What happens to the files of a controller that does not run: damaged, missing, or older ones.

Each function changes one directory and returns what it did, for people. What is above the recovery
point may be scanned differently from what is below, so that damage comes to the oldest part of the
log, to its last batch, and to a batch with sound ones behind it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quorate.records.batch import BatchHeader, iter_batches
from quorate.records.errors import RecordsError

from tests.integration.support import PARTITION

SECTOR_BYTES = 512
TAIL_BYTES = 256 * 1024
RECOVERY_POINT = "recovery-point-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class Place:
    """One batch: its segment, where it begins and its header."""

    path: Path
    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        return self.position + self.header.size_bytes


def segments(data: Path) -> list[Path]:
    """The segments of a log directory, the oldest first."""
    return sorted((data / PARTITION).glob("*.log"))


def checkpoints(data: Path) -> list[Path]:
    """The checkpoints, the oldest first; not the bootstrap checkpoint."""
    found = sorted((data / PARTITION).glob("*.checkpoint"))
    return [path for path in found if int(path.name[:20]) > 0]


def places(path: Path) -> Iterator[Place]:
    """The batches of a segment, up to its allocated room."""
    position = 0
    try:
        for header, _ in iter_batches(path.read_bytes()):
            yield Place(path, position, header)
            position += header.size_bytes
    except RecordsError:
        return


def last_places(data: Path) -> list[Place]:
    """The batches of the newest segment that has any."""
    for path in reversed(segments(data)):
        found = list(places(path))
        if found:
            return found
    raise AssertionError(f"{data} has no batches")


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def _flip(place: Place, choices: random.Random) -> str:
    # Of the records; the header's length would make other bytes the checksum's.
    position = choices.randrange(place.position + 61, place.end)
    with place.path.open("rb") as file:
        file.seek(position)
        [byte] = file.read(1)
    bit = choices.randrange(8)
    overwrite(place.path, position, bytes([byte ^ 1 << bit]))
    return (
        f"bit {bit} of byte {position} of {place.path}, in the batch at offset "
        f"{place.header.base_offset}"
    )


def flip_old_bit(data: Path, choices: random.Random) -> str:
    """Flip a bit in the older half of the log's first segment."""
    found = list(places(segments(data)[0]))
    return _flip(choices.choice(found[: max(1, len(found) // 2)]), choices)


def flip_last_bit(data: Path, choices: random.Random) -> str:
    """Flip a bit in the last batch, which was synced."""
    return _flip(last_places(data)[-1], choices)


def zero_sector(data: Path, choices: random.Random) -> str:
    """Zero one sector among the newest batches, all of which were synced."""
    found = last_places(data)
    end = found[-1].end
    first = max(0, end - TAIL_BYTES) // SECTOR_BYTES
    sector = choices.randrange(first, -(-end // SECTOR_BYTES))
    path = found[-1].path
    size = min(SECTOR_BYTES, path.stat().st_size - sector * SECTOR_BYTES)
    overwrite(path, sector * SECTOR_BYTES, bytes(size))
    return f"sector {sector} of {path}, where the log ends at byte {end}"


def remove_segment(data: Path, choices: random.Random) -> str:
    """Remove any segment: the oldest, the active one, or one between."""
    path = choices.choice(segments(data))
    path.unlink()
    return f"{path} removed"


def remove_segments(data: Path, choices: random.Random) -> str:
    """Remove all segments; quorum-state and checkpoints stay."""
    for path in segments(data):
        path.unlink()
    return f"all segments of {data / PARTITION} removed"


def remove_quorum_state(data: Path, choices: random.Random) -> str:
    path = data / PARTITION / "quorum-state"
    path.unlink()
    return f"{path} removed"


def remove_recovery_point(data: Path, choices: random.Random) -> str:
    path = data / RECOVERY_POINT
    path.unlink(missing_ok=True)
    return f"{path} removed"


def remove_partition(data: Path, choices: random.Random) -> str:
    """Remove the partition's directory; meta.properties stays."""
    shutil.rmtree(data / PARTITION)
    return f"{data / PARTITION} removed"


def remove_directory(data: Path, choices: random.Random) -> str:
    shutil.rmtree(data)
    return f"{data} removed"


def truncate_checkpoint(data: Path, choices: random.Random) -> str:
    """Cut the newest checkpoint short."""
    path = checkpoints(data)[-1]
    size = choices.randrange(path.stat().st_size)
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path} truncated to {size} bytes"


def overwrite_checkpoint(data: Path, choices: random.Random) -> str:
    """Write random bytes into the newest checkpoint."""
    path = checkpoints(data)[-1]
    position = choices.randrange(path.stat().st_size)
    overwrite(path, position, choices.randbytes(64))
    return f"64 bytes of {path} overwritten from byte {position} on"
