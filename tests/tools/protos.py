"""Generate `services/quorate/v1` from `proto/`, or check that it is what would be generated.

    python tests/tools/protos.py generate
    python tests/tools/protos.py check        exit status 1 if anything is stale

Generated code depends on the generator's version, which pyproject.toml pins for that reason.
"""

from __future__ import annotations

import filecmp
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
SERVICES = ROOT / "services"
PACKAGE = Path("quorate/v1")
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")


def generate(target: Path) -> None:
    """Generate all of `proto/` below `target`, a directory that exists."""
    import grpc_tools
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    included = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [
        "protoc",
        f"-I{PROTO}",
        f"-I{included}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        f"--grpc_python_out={target}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed, see above")


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
