"""How many of malloc's arenas the threads of a process share."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from quorate.process.malloc_arenas import ARENAS_MAX

LIFE = """
import ctypes, sys, threading
from quorate.process.malloc_arenas import limit_arenas

if sys.argv[1] == "limited":
    limit_arenas()
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
    command = [sys.executable, "-c", LIFE, how, path]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_all_threads_share_two_arenas(tmp_path: Path) -> None:
    path = str(tmp_path / "info")
    assert arenas("limited", path) == ARENAS_MAX
    assert arenas("as it is", path) > ARENAS_MAX
