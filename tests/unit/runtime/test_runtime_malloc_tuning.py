"""The memory that a process keeps, and the arenas that its threads share."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from quorate.runtime.malloc_tuning import ARENAS_MAX

LIFE = """
import random, sys
from quorate.runtime.malloc_tuning import tune_malloc

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "tuned":
    tune_malloc()
chance, before, small, large = random.Random(1), resident(), [], []
for _ in range(200):
    large.append(bytearray(8 << 20))
    small.extend(bytearray(600 + chance.randrange(400)) for _ in range(30))
    if len(large) > 4:
        large.pop(chance.randrange(4))
large.clear()
print(resident() - before)
"""


def held(how: str) -> int:
    """Bytes."""
    command = [sys.executable, "-c", LIFE, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_large_buffers_leave_nothing_behind() -> None:
    tuned = held("tuned")
    assert tuned < held("as it is") / 2
    assert tuned < 4 * 200 * 30 * 1000, "little more than the small things"


THREADS = """
import ctypes, sys, threading
from quorate.runtime.malloc_tuning import tune_malloc

if sys.argv[1] == "tuned":
    tune_malloc()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = (ctypes.c_int, ctypes.c_void_p)
libc.fclose.argtypes = (ctypes.c_void_p,)
met = threading.Barrier(8)

def allocate():
    libc.malloc(ctypes.c_size_t(2048))
    met.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
print(open(sys.argv[2]).read().count("<heap "))
"""


def arenas(how: str, path: str) -> int:
    command = [sys.executable, "-c", THREADS, how, path]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_all_threads_share_two_arenas(tmp_path: Path) -> None:
    path = str(tmp_path / "info")
    assert arenas("tuned", path) == ARENAS_MAX
    assert arenas("as it is", path) > ARENAS_MAX
