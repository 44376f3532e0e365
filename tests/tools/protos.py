"""Generate `services/quorate/v1` from `proto/`, or check that it is what would be generated.

    python tests/tools/protos.py generate
    python tests/tools/protos.py check        exit status 1 if anything is stale

Generated code needs at least the protobuf and grpcio of its generator, so the generator is an old
one: the version in requirements/proto.txt sets the lower bounds in pyproject.toml. It does not fit
beside a current protobuf in one environment, so pip puts it into build/ when it is first needed.
"""

from __future__ import annotations

import filecmp
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
SERVICES = ROOT / "services"
PACKAGE = Path("quorate/v1")
LOCK = ROOT / "requirements/proto.txt"
BUILD = ROOT / "build"
GENERATED = ("*_pb2.py", "*_pb2.pyi")


def installed_generator() -> Path:
    """The directory with the pinned grpcio-tools, which pip installs there unless it exists."""
    pinned = re.search(r"^grpcio-tools==(\S+)", LOCK.read_text(), re.MULTILINE)
    if pinned is None:
        sys.exit(f"{LOCK}: grpcio-tools is missing")
    target = BUILD / f"grpcio-tools-{pinned[1]}-{sys.implementation.cache_tag}"
    if target.exists():
        return target
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, ignore_cleanup_errors=True) as directory:
        # protoc is all that is used of it: grpcio, protobuf and setuptools are not needed.
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        options = ("--no-deps", "--only-binary=:all:", "--require-hashes")
        done = subprocess.run([*pip, *options, "--target", directory, "--requirement", str(LOCK)])
        if done.returncode != 0:
            sys.exit(f"pip could not install {LOCK}, see above")
        try:
            Path(directory).rename(target)
        except OSError:  # another process was faster
            if not target.exists():
                raise
    return target


def protoc(*arguments: str) -> None:
    """Run the pinned protoc with `proto/` and the well-known types on its path."""
    generator = installed_generator()
    included = (f"-I{PROTO}", f"-I{generator}/grpc_tools/_proto")
    command = (sys.executable, "-m", "grpc_tools.protoc", *included, *arguments)
    if subprocess.run(command, env={**os.environ, "PYTHONPATH": str(generator)}).returncode != 0:
        sys.exit("protoc failed, see above")


def sources() -> list[str]:
    """The files of `proto/`, relative to it."""
    return sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))


def generate(target: Path) -> None:
    """Generate all of `proto/` below `target`, a directory that exists."""
    outputs = (f"--{kind}_out={target}" for kind in ("python", "pyi"))
    protoc(*outputs, *sources())


def generated(below: Path) -> dict[Path, Path]:
    """The generated files in the package below a directory: relative path to path."""
    found = (path for pattern in GENERATED for path in (below / PACKAGE).glob(pattern))
    return {path.relative_to(below): path for path in found}


def stale(fresh: Path) -> list[str]:
    """What differs between `services` and what was generated into `fresh`, one line each."""
    old, new = generated(SERVICES), generated(fresh)
    missing = [f"{path} is missing" for path in sorted(new.keys() - old.keys())]
    left_over = [f"{path} has no source in proto/" for path in sorted(old.keys() - new.keys())]
    changed = [
        f"{path} is not what proto/ generates"
        for path in sorted(old.keys() & new.keys())
        if not filecmp.cmp(old[path], new[path], shallow=False)
    ]
    return [*missing, *left_over, *changed]


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["generate"]:
        generate(SERVICES)
        return 0
    if list(arguments) != ["check"]:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        problems = stale(Path(directory))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("run: python tests/tools/protos.py generate", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
