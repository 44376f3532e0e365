"""`requirements/` pins what `pyproject.toml` asks for; its bounds fit the generated code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.tools import locks

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
FILES = sorted(locks.EXTRAS) + list(locks.GROUPS)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PIN = re.compile(
    r"^([a-z0-9-]+==[^\\\n]+?) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
DIRECT = re.compile(r"quorate \(pyproject\.toml(:\w+)?\)")


def pins(name: str, python: str) -> dict[str, Version]:
    """The versions that a file gives for a version of Python on Linux."""
    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    found: dict[str, Version] = {}
    for line, _hashes in PIN.findall((ROOT / f"requirements/{name}.txt").read_text()):
        pin = Requirement(line)
        if pin.marker is None or pin.marker.evaluate(environment):
            assert pin.name not in found, f"{pin.name} has two versions for Python {python}"
            (only,) = pin.specifier
            found[pin.name] = Version(only.version)
    return found


def declared(name: str) -> list[Requirement]:
    """What `pyproject.toml` asks for in a file."""
    if name in locks.GROUPS:
        return [Requirement(each) for each in PYPROJECT["dependency-groups"][name]]
    extras = PROJECT["optional-dependencies"]
    lists = [PROJECT["dependencies"], *(extras[extra] for extra in locks.EXTRAS[name])]
    return [Requirement(each) for some in lists for each in some]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", FILES)
def test_a_lock_satisfies_the_project(name: str, python: str) -> None:
    pinned = pins(name, python)
    wrong = [
        f"{each}: {pinned.get(canonicalize_name(each.name), 'missing')}"
        for each in declared(name)
        if (version := pinned.get(canonicalize_name(each.name))) is None
        or not each.specifier.contains(version, prereleases=True)
    ]
    assert wrong == [], "requirements/ is out of date; run: poe lock"


@pytest.mark.parametrize("name", FILES)
def test_a_lock_has_nothing_that_the_project_dropped(name: str) -> None:
    text = (ROOT / f"requirements/{name}.txt").read_text()
    wanted = {canonicalize_name(each.name) for each in declared(name)}
    blocks = re.findall(r"^([a-z0-9-]+)==(.*?)(?=^[a-z0-9]|\Z)", text, re.MULTILINE | re.DOTALL)
    left_over = sorted({pin for pin, rest in blocks if DIRECT.search(rest)} - wanted)
    assert left_over == [], "requirements/ is out of date; run: poe lock"


@pytest.mark.parametrize("name", FILES)
def test_every_line_of_a_lock_is_a_pin_with_hashes(name: str) -> None:
    text = PIN.sub("", (ROOT / f"requirements/{name}.txt").read_text())
    assert [line for line in text.splitlines() if not re.match(r"\s*#|$", line)] == []


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", sorted(locks.EXTRAS))
def test_each_lock_is_a_part_of_the_one_for_all(name: str, python: str) -> None:
    assert pins(name, python).items() <= pins("all", python).items()


def test_the_lower_bounds_are_what_the_generated_code_needs() -> None:
    generated = ROOT / "services/quorate/v1"
    bounds = {
        each.name: min(Version(one.version) for one in each.specifier if one.operator == ">=")
        for each in map(Requirement, PROJECT["dependencies"])
    }
    for module in sorted(generated.glob("*_pb2.py")):
        made = re.search(r"^# Protobuf Python Version: (\S+)$", module.read_text(), re.MULTILINE)
        assert made, module
        assert Version(made[1]) <= bounds["protobuf"], module


def test_the_base_image_is_pinned_by_digest() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (base,) = [line for line in lines if line.startswith("ARG BASE=")]
    assert re.search(r"@sha256:[0-9a-f]{64}$", base)
    stages = [line.split()[1] for line in lines if line.startswith("FROM ")]
    names = [line.split(" AS ")[1] for line in lines if line.startswith("FROM ")]
    assert set(stages) <= {"${BASE}", *names}
