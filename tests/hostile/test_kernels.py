"""Compiled loops have no safety net but their own checks: here their memory ends at a wall.

The page behind the last byte that they may touch cannot be read or written: a step too far ends the
process.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from quorate.common.batch_layout import HEADER_SIZE
from quorate.records.batch import build_data_batch, stamp
from quorate.records.metadata import encode
from quorate.spark.decoding import framing, kernels
from quorate.spark.decoding.envelope import read_records
from quorate.spark.decoding.rendering import declared
from quorate.spark.errors import DamagedError

from tests.spark import arbitrary

BEHIND = 15
"""What may be written behind the text, by the rules of `kernels`."""
PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Wall:
    """Memory before a page that cannot be touched."""

    def __init__(self, size: int) -> None:
        self._size = -(-size // PAGE) * PAGE
        self._map = mmap.mmap(-1, self._size + PAGE)
        self._all = np.frombuffer(self._map, np.uint8)
        self._protect(0)

    def before(self, size: int) -> npt.NDArray[np.uint8]:
        """The last bytes before the wall."""
        return self._all[self._size - size : self._size]

    def end(self) -> None:
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)

    def _protect(self, how: int) -> None:
        done = _LIBC.mprotect(self._all.ctypes.data + self._size, PAGE, how)
        assert done == 0, ctypes.get_errno()


@pytest.fixture
def walls() -> Iterator[list[Wall]]:
    made = [Wall(1 << 20), Wall(8 << 20)]
    yield made
    for wall in made:
        wall.end()


def damaged(rng: random.Random, data: bytearray) -> None:
    """Changes some bytes behind the header, lengths and numbers of fields often among them."""
    for _ in range(rng.choice((0, 1, 2, 8))):
        at = rng.randrange(HEADER_SIZE, len(data))
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def records(rng: random.Random, count: int) -> list[tuple[None, bytes]]:
    found = []
    for record, version in arbitrary.records(rng, count):
        value = bytearray(encode(record, version))
        if rng.random() < 0.5:
            value[rng.randrange(3, len(value))] = rng.randrange(256)
            value = value[: rng.choice((len(value), rng.randint(3, len(value))))]
        found.append((None, bytes(value)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_nothing_beyond_the_end_is_touched(seed: int, walls: list[Wall]) -> None:
    rng = random.Random(seed)
    read = written = 0
    for _ in range(60):
        batch = build_data_batch(records(rng, rng.choice((1, 3, 20))), 1_795_231_990_458)
        stamp(batch, 0, 3)
        if rng.random() < 0.5:
            damaged(rng, batch)
        data = walls[0].before(len(batch))
        data[:] = np.frombuffer(batch, np.uint8)
        chunk = framing.parse(data, len(data))
        try:
            found = read_records(chunk)
        except DamagedError:
            continue
        read += len(found)
        frames = np.empty((3, len(found)), np.int64)
        kernels.read_frames(data.ctypes.data, found.found, chunk.is_control, frames)
        tables = declared()
        room = kernels.json_room(frames, tables.number_of, tables.spans)
        out = walls[1].before(room + BEHIND)
        bounds = np.empty(len(found) + 1, np.int32)
        is_written = np.empty(len(found), np.bool_)
        tables.write(data, frames, out, bounds, is_written)
        assert bounds[0] == 0
        assert (np.diff(bounds) >= 0).all()
        assert bounds[-1] <= room
        written += int(is_written.sum())
    assert read > written > 100


def test_a_run_of_batches_ends_where_the_bytes_do(walls: list[Wall]) -> None:
    batch = build_data_batch([(None, b"v")], 1)
    stamp(batch, 0, 1)
    for cut in range(len(batch) * 2):
        content = (bytes(batch) * 2)[:cut]
        data = walls[0].before(cut)
        data[:] = np.frombuffer(content, np.uint8)
        assert framing.parse(data, cut).size == cut // len(batch) * len(batch)
