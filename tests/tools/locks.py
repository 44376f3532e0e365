"""Pin what is installed, with hashes: `requirements/*.txt` from `pyproject.toml`, by uv.

    python tests/tools/locks.py              add what pyproject.toml asks for, keep other versions
    python tests/tools/locks.py --upgrade    take the newest versions that pyproject.toml allows

Each file is good for every Python that pyproject.toml allows. `all.txt` is resolved first, and the
others are parts of it, so an image has the versions that were tested.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements"
PYTHON = "3.11"

# The extras in each file, beside the project's own dependencies.
EXTRAS = {
    "all": (
        "backup",
        "console",
        "console-test",
        "docs",
        "migration",
        "oauth",
        "operator",
        "spark",
        "telemetry",
        "test",
    ),
    "base": (),
    "console": ("console", "console-test"),
    "controller": ("backup", "migration", "oauth", "telemetry"),
    "docs": ("docs",),
    "operator": ("operator",),
    "spark": ("spark",),
    "test": ("test",),
}
# Tools that are not installed beside the project, each file a dependency group of pyproject.toml.
GROUPS = ("build", "proto", "release")


def pin(name: str, *options: str) -> None:
    """Write `requirements/NAME.txt`."""
    target = LOCKS / f"{name}.txt"
    command = ("uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON)
    header = "python tests/tools/locks.py"
    output = ("--generate-hashes", "--custom-compile-command", header, "--output-file", str(target))
    try:
        done = subprocess.run([*command, *output, *options], cwd=ROOT)
    except FileNotFoundError:
        sys.exit("uv is not installed: pip install --require-hashes -r requirements/release.txt")
    if done.returncode != 0:
        sys.exit(f"uv could not pin {target.relative_to(ROOT)}, see above")


def main(arguments: Sequence[str]) -> int:
    if list(arguments) not in ([], ["--upgrade"]):
        print(__doc__, file=sys.stderr)
        return 2
    for name, extras in EXTRAS.items():
        wanted = [option for extra in extras for option in ("--extra", extra)]
        parts = [] if name == "all" else ["--constraint", "requirements/all.txt"]
        pin(name, *wanted, *parts, *arguments, "pyproject.toml")
    for name in GROUPS:
        alone = ["--no-deps"] if name == "proto" else []
        pin(name, "--group", name, *alone, *arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
