"""The tool that tries the wheel on every Python: what it finds, and what it reports."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from tests.tools import pythons


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for interpreters; there are no others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def interpreter(path: Path, says: str, status: int = 0) -> None:
    """A program that answers a question as Python would, and fails at everything else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] || exit 1\necho "{says}"\nexit {status}\n')
    path.chmod(0o755)


def test_the_first_that_runs_is_taken(on_path: Path, tmp_path: Path) -> None:
    assert pythons.find("3.99", ()) is None
    of_pyenv = tmp_path / ".pyenv/versions/3.99.2/bin/python3.99"
    interpreter(of_pyenv, f"3.99.2 {of_pyenv}")
    interpreter(on_path / "python3.99", "pyenv: python3.99: command not found", status=127)
    found = pythons.find("3.99", ())
    assert found == pythons.Interpreter("3.99.2", str(of_pyenv))


def test_an_interpreter_of_another_version_is_not_taken(on_path: Path) -> None:
    interpreter(on_path / "python3.99", "3.98.0 /usr/bin/python3.98")
    assert pythons.find("3.99", ()) is None


def test_a_root_without_the_interpreter_has_none(on_path: Path, tmp_path: Path) -> None:
    assert list(pythons.candidates("3.99", [tmp_path])) == []
    interpreter(tmp_path / "usr/bin/python3.99", "3.99.1 /usr/bin/python3.99")
    assert list(pythons.candidates("3.99", [tmp_path])) == [("/usr/bin/python3.99", tmp_path)]


def test_paths_are_those_within_the_root(tmp_path: Path) -> None:
    within = pythons.Interpreter("3.99.1", "/usr/bin/python3.99", tmp_path)
    environment = pythons.Environment(within, tmp_path / "tmp/quorate-x")
    assert environment.bin == Path("/tmp/quorate-x/venv/bin")
    command = environment.command("true")
    assert (command[0], command[-2:]) == ("unshare", [str(tmp_path), "true"])


def test_a_failure_and_a_missing_version_are_reported(
    on_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "quorate.whl"
    wheel.touch()
    arguments = ["--wheel", str(wheel), "--only", "3.99"]
    assert pythons.main(arguments) == pythons.MISSING
    assert "Python 3.99: no interpreter was found" in capsys.readouterr().out
    interpreter(on_path / "python3.99", f"3.99.0 {on_path / 'python3.99'}")
    assert pythons.main(arguments) == 1
    assert "-m venv" in capsys.readouterr().out


def test_the_program_is_that_of_the_readme() -> None:
    program = pythons.readme_program(12345)
    ast.parse(program)
    assert "127.0.0.1:12345" in program
    assert "9093" not in program


def test_the_page_names_the_supported_versions() -> None:
    page = (pythons.ROOT / "docs/versions.md").read_text()
    least, *_, most = pythons.wanted()
    assert f"Python {least} to {most}" in page
