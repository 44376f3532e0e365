"""The launcher of tests: failpoints have actions, and the parameters that it changes exist."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from quorate.failpoints import ACTIONS, failpoint

from tests.launcher import launched_by, set_default


def launch(*options: str, command: str = "--help") -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, *launched_by(*options), command]
    return subprocess.run(arguments, capture_output=True, text=True)


def test_a_failpoint_does_nothing_until_a_test_registers_an_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    failpoint("migration.writing")
    monkeypatch.setitem(ACTIONS, "migration.writing", lambda: seen.append("writing"))
    failpoint("migration.writing")
    failpoint("migration.claimed")
    assert seen == ["writing"]


def test_the_launcher_changes_parameters_that_exist() -> None:
    done = launch("--unsafe-isr")
    assert done.returncode == 0, done.stderr
    assert "quorum" in done.stdout


def test_a_parameter_that_does_not_exist_is_an_error() -> None:
    def function(*, present: bool = True) -> bool:
        return present

    set_default(function, "present", False)
    assert not function()
    with pytest.raises(KeyError, match="absent"):
        set_default(function, "absent", False)


def test_only_the_first_process_is_killed_at_a_failpoint(tmp_path: Path) -> None:
    marker = tmp_path / "died"
    code = (
        "import sys; from tests import launcher; from quorate.failpoints import failpoint;"
        f"launcher.main = lambda _: failpoint('here') or 0;"
        f"sys.exit(launcher.run(['--kill', 'here={marker}', '--', 'topics']))"
    )
    statuses = [subprocess.run([sys.executable, "-c", code]).returncode for _ in range(2)]
    assert statuses == [-signal.SIGKILL, 0]
    assert marker.exists()
