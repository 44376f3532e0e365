"""The programs without their extras, as after a bare `pip install`: one line, and status 1."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.tools.documents import ROOT

WITHOUT = """
import sys
from importlib import import_module

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing)
sys.argv = {arguments!r}
module, _, function = {entry!r}.partition(":")
sys.exit(getattr(import_module(module), function)())
"""
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize(
    ("command", "packages", "extra"),
    [
        *((f"quorate pipeline {each} .", ("pyspark",), "spark") for each in ("run", "state")),
        *((f"quorate pipeline {each} .", ("pyarrow",), "spark") for each in ("history", "audit")),
        ("quorate console --bootstrap-controller 127.0.0.1:1", ("nicegui",), "console"),
        ("quorate-operator", ("kubernetes", "tenacity", "opentelemetry"), "operator"),
        ("kubectl-quorate status q", ("kubernetes",), "operator"),
        ("quorate backup new-key /nowhere/keys", ("tink",), "backup"),
    ],
)
def test_the_missing_package_and_the_extra_are_named(
    command: str, packages: tuple[str, ...], extra: str
) -> None:
    program, *arguments = command.split()
    code = WITHOUT.format(
        packages=packages, arguments=[program, *arguments], entry=SCRIPTS[program]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert packages[0] in done.stderr
    assert f"pip install 'quorate[{extra}]'" in done.stderr
