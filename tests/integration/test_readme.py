"""The programs in the README do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.integration.support import Quorum, free_ports

README = Path(__file__).resolve().parents[2] / "README.md"


def program_below(heading: str) -> str:
    """The first program below a heading."""
    found = re.search(rf"## {heading}\n.*?```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_embedded_node_writes_and_reads(tmp_path: Path) -> None:
    program = program_below("Embed it")
    replaced = program.replace("127.0.0.1:9093", f"127.0.0.1:{free_ports(1)[0]}")
    replaced = replaced.replace("/var/lib/program", str(tmp_path / "data"))
    done = subprocess.run(
        [sys.executable, "-c", replaced], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "b'blue'\n"), done.stderr
    assert done.stderr == "", "without a logging configuration, warnings would be here"


def test_the_program_writes_and_reads(quorum: Quorum) -> None:
    found = program_below("From a program")
    program = found.replace("controller-1:9093", quorum.addresses.split(",")[0])
    assert program != found
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    offset, _, value = done.stdout.strip().partition(" ")
    assert int(offset) > 0
    assert value == "b'committed by a majority, or not at all'"


def test_the_program_with_conditions_holds_the_lock(quorum: Quorum) -> None:
    found = program_below("Conditional appends and recipes")
    program = found.replace("controller-1:9093", quorum.addresses.split(",")[0])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"holding the lock with fencing token \d+\n", done.stdout)
