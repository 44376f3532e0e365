"""What a process holds after large buffers came and went between small things that stay."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

LIFE = """
import random, sys
from quorate.runtime.malloc_tuning import return_large_buffers

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "fixed":
    return_large_buffers()
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
    assert held("fixed") < held("as it is") / 2
    assert held("fixed") < 4 * 200 * 30 * 1000, "little more than the small things"
