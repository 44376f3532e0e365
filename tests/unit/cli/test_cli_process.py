"""The command line as a process: interrupts and closed pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

INTERRUPTED_IMPORT = """
import os, signal, weakref

class Thing:
    pass

thing = Thing()
callback = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
del thing
print("not interrupted")
"""


def test_an_interrupt_during_an_import_ends_the_command(tmp_path: Path) -> None:
    """Python drops the KeyboardInterrupt if a callback of a weak reference runs.

    A process that a shell starts in the background ignores SIGINT, and so do its children.
    """
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IMPORT)
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from quorate.cli.commands import COMMANDS, Lazy; from quorate.cli.main import main; "
        "COMMANDS['wait'] = Lazy('interrupted', 'wait', ''); main(['wait'])"
    )
    python_path = os.pathsep.join([str(ROOT / "services"), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ, PYTHONPATH=python_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_reader_that_has_gone_is_no_error() -> None:
    python_path = os.pathsep.join([str(ROOT / "services"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m quorate.cli.main config-docs --json | head -c 1"],
        env=dict(os.environ, PYTHONPATH=python_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("[", "")


@pytest.mark.parametrize("node", ["controller", "broker"])
def test_a_node_runs_without_what_only_commands_and_errors_need(node: str, tmp_path: Path) -> None:
    """It would stay in its memory, and lengthens each start."""
    unwanted = {"typer", "pydantic", "rich", "re2", "difflib", "decimal"}
    program = (
        "import sys, quorate.cli.main as m\n"
        f"try: m._run([{node!r}, 'missing.properties'])\n"
        "except Exception as error: print(type(error).__name__)\n"
        f"print({{name.split('.')[0] for name in sys.modules}} & {unwanted})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ, PYTHONPATH=str(ROOT / "services")),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("ConfigError\nset()\n", "")
