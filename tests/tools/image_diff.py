"""Build an image of the Dockerfile twice without a cache, and compare what is in it, file by file.

    python tests/tools/image_diff.py controller [--build-arg BASE=python:3.13-slim] [...]

What follows the target goes to the builder: Docker with buildx, or buildah where Docker does not
run ($BUILDER names another command, such as `buildah --root DIR`). It compares each file's path,
type, mode, owner, time and content. Exit status: 0 when nothing differs, 1 when something does, 2
when a build fails.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 20  # differences
# Each build makes these anew for its containers; they are not the image's.
MOUNTED = ("dev", "etc/hostname", "etc/hosts", "etc/resolv.conf", "proc", "run", "sys")


def builder() -> list[str]:
    """The command that builds images here."""
    given = os.environ.get("BUILDER")
    if given:
        return shlex.split(given)
    try:
        docker = subprocess.run(["docker", "buildx", "ls"], capture_output=True).returncode == 0
    except FileNotFoundError:
        docker = False
    return ["docker", "buildx"] if docker else ["buildah"]


def build(target: str, options: Sequence[str], output: Path) -> None:
    """Build an image and write its files as a tar archive."""
    flags = ("--no-cache", "--target", target, "--output", f"type=tar,dest={output}")
    command = [*builder(), "build", *flags, *options, "--file", str(ROOT / "Dockerfile"), str(ROOT)]
    try:
        done = subprocess.run(command, stdout=sys.stderr)
    except FileNotFoundError:
        print("neither docker nor buildah is installed", file=sys.stderr)
        sys.exit(2)
    if done.returncode != 0:
        print(f"the build failed: {shlex.join(command)}", file=sys.stderr)
        sys.exit(2)


def contents(archive: Path) -> dict[str, str]:
    """One line on each file of an archive, by path."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            path = member.name.removeprefix("./").rstrip("/")
            if not path or path.split("/")[0] in MOUNTED or path in MOUNTED:
                continue
            file = tar.extractfile(member) if member.isreg() else None
            digest = hashlib.sha256(file.read()).hexdigest() if file else member.linkname
            owner = f"{member.uid}:{member.gid}"
            # Directories outside /opt get their time from mounts of the build.
            time = int(member.mtime) if path.startswith("opt/") else "-"
            found[path] = f"{member.type.decode()} {member.mode:o} {owner} {time} {digest}"
    return found


def differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """What two builds do not have in common, one line each."""
    lines = []
    for path in sorted(first.keys() | second.keys()):
        one, other = first.get(path, "missing"), second.get(path, "missing")
        if one != other:
            lines.append(f"/{path}: {one}, then {other}")
    return lines


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    target, *options = arguments
    builds = []
    for number in (1, 2):
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / "image.tar"
            build(target, options, archive)
            builds.append(contents(archive))
        lines = "".join(f"{path} {line}\n" for path, line in sorted(builds[-1].items()))
        digest = hashlib.sha256(lines.encode()).hexdigest()
        print(f"{target}, build {number}: {len(builds[-1])} files, sha256 {digest}", flush=True)
    differing = differences(*builds)
    for line in differing[:SHOWN]:
        print(line)
    if differing:
        print(f"files that differ: {len(differing)}")
    else:
        print("no file differs")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
