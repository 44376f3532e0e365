"""The program in the README does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.integration.support import Quorum

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_program_writes_and_reads(quorum: Quorum) -> None:
    found = re.search(r"## From a program\n\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found
    program = found[1].replace("controller-1:9093", quorum.addresses.split(",")[0])
    assert program != found[1]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    offset, _, value = done.stdout.strip().partition(" ")
    assert int(offset) > 0
    assert value == "b'committed by a majority, or not at all'"
