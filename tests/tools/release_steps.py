"""What the steps of a release share: the version, where files go, and running tools."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build/release"
"""Where the files of a release are."""
CHART = ROOT / "charts/quorate"
HINTS = {
    "cosign": "see docs.sigstore.dev",
    "docker": "with buildx",
    "helm": "or set HELM",
    "twine": "pip install --require-hashes -r requirements/release.txt",
}


class ReleaseError(Exception):
    """A step cannot be done; the text says why."""


def version() -> str:
    """That of pyproject.toml."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def run(*command: str, cwd: Path = ROOT) -> str:
    """The output of a tool, which is also printed. ReleaseError."""
    try:
        done = subprocess.run(
            command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except FileNotFoundError:
        hint = HINTS.get(command[0], "install it")
        raise ReleaseError(f"{command[0]} is not installed ({hint})") from None
    print(done.stdout, end="")
    if done.returncode != 0:
        raise ReleaseError(f"failed with status {done.returncode}: {shlex.join(command)}")
    return done.stdout


def export(target: Path) -> Path:
    """Write the last commit's files to `target`, without what is not committed."""
    archive = subprocess.run(("git", "archive", "HEAD"), cwd=ROOT, capture_output=True)
    if archive.returncode != 0:
        raise ReleaseError(f"git archive failed: {archive.stderr.decode().strip()}")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    # Not tarfile: before Python 3.11.4, the version of Debian 12 among them, it has no filters.
    subprocess.run(("tar", "-x", "-C", str(target)), input=archive.stdout, check=True)
    return target


def problems(tag: str = "", root: Path = ROOT) -> list[str]:
    """What is in the way of a release. tag: the one to release, none if there is no release yet."""
    wanted: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((root / "charts/quorate/Chart.yaml").read_text())
    package = re.search(
        r'^__version__ = "(.+)"$',
        (root / "services/quorate/version.py").read_text(),
        re.MULTILINE,
    )
    elsewhere = {
        "services/quorate/version.py": package[1] if package else None,
        "version in charts/quorate/Chart.yaml": chart["version"],
        "appVersion in charts/quorate/Chart.yaml": chart["appVersion"],
    }
    found = [
        f"{place} is {each}, but pyproject.toml has {wanted}"
        for place, each in elsewhere.items()
        if each != wanted
    ]
    return found + (tag_problems(tag, wanted, (root / "CHANGELOG.md").read_text()) if tag else [])


def tag_problems(tag: str, wanted: str, changelog: str) -> list[str]:
    """What does not fit a tag. changelog: its text."""
    found = []
    if tag != f"v{wanted}":
        found.append(f"the tag is {tag}, but the version is {wanted}: expected v{wanted}")
    sections = changelog_sections(changelog)
    if sections.get("Unreleased"):
        found.append(f"CHANGELOG.md has unreleased changes: move them to a section {wanted}")
    if not sections.get(wanted):
        found.append(f"CHANGELOG.md has no section {wanted}")
    return found


def changelog_sections(changelog: str) -> dict[str, str]:
    """The text of each section of CHANGELOG.md, by the first word of its heading."""
    found = re.findall(r"^## (\S+).*\n((?:(?!## ).*\n)*)", changelog, re.MULTILINE)
    return {heading: text.strip() for heading, text in found}
