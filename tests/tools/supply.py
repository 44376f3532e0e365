"""What the images are made of, and whether advisories exist against it.

    python tests/tools/supply.py sbom [DIRECTORY]    CycloneDX, a file for each image (build/sbom)
    python tests/tools/supply.py audit               each lock against the advisories of PyPI

Both read requirements/, which the images are installed from, and need requirements/release.txt. The
exit status of an audit is 0 when nothing is known, 1 when an advisory exists, 3 when the source of
the advisories did not answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements"
IMAGES = ("controller", "operator", "spark")
UNREACHABLE = 3
# A release with an advisory that is years old: an answer without it is no source.
KNOWN = "https://pypi.org/pypi/jinja2/2.10/json"
SECONDS = 20


def sbom(directory: Path) -> int:
    """Write a bill of materials for each image."""
    directory.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        target = directory / f"{image}.cdx.json"
        command = (
            *("cyclonedx-py", "requirements", "--pyproject", "pyproject.toml"),
            *("--output-reproducible", "--spec-version", "1.6", "--output-file", str(target)),
            str(LOCKS / f"{image}.txt"),
        )
        if run(command) != 0:
            print(f"cyclonedx-py could not read {LOCKS / image}.txt, see above", file=sys.stderr)
            return 2
        components = json.loads(target.read_text())["components"]
        hashed = sum(1 for each in components if each.get("externalReferences"))
        print(f"{target}: {len(components)} components, {hashed} with hashes")
    return 0


def source_problem() -> str | None:
    """Why PyPI's advisories cannot be had, or None."""
    try:
        with urlopen(KNOWN, timeout=SECONDS) as answer:
            known = json.load(answer).get("vulnerabilities")
    except HTTPError as error:
        return f"HTTP status {error.code}"
    except (URLError, TimeoutError, ValueError) as error:
        return str(error)
    return None if known else "the answer has no advisories"


def audit() -> int:
    """Look every lock up, and say what is known."""
    problem = source_problem()
    if problem is not None:
        print(f"not scanned: {KNOWN} did not answer with advisories: {problem}", file=sys.stderr)
        return UNREACHABLE
    status = 0
    for lock in sorted(LOCKS.glob("*.txt")):
        print(f"{lock.relative_to(ROOT)}:", flush=True)
        status |= run(
            ("pip-audit", "--disable-pip", "--require-hashes", "--requirement", str(lock))
        )
    return 1 if status else 0


def run(command: Sequence[str]) -> int:
    """Run a tool of requirements/release.txt; its exit status."""
    try:
        return subprocess.run(command, cwd=ROOT).returncode
    except FileNotFoundError:
        hint = "pip install --require-hashes -r requirements/release.txt"
        sys.exit(f"{command[0]} is not installed: {hint}")


def main(arguments: Sequence[str]) -> int:
    match list(arguments):
        case ["sbom"]:
            return sbom(ROOT / "build/sbom")
        case ["sbom", directory]:
            return sbom(Path(directory))
        case ["audit"]:
            return audit()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
