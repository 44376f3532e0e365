"""Check `proto/`, a public API, with buf: its style, and its compatibility with release 0.1.0.

    python tests/tools/proto_lint.py        exit status 1 if buf finds anything

`proto/buf.yaml` has the rules and their exceptions. The release is a commit, so this needs a clone
that contains it. `npm ci --prefix tests/tools/buf` installs the buf that package-lock.json pins.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
BUF = ROOT / "tests/tools/buf/node_modules/.bin/buf"
RELEASE = "62f1c79"
"""The commit that counts as release 0.1.0."""


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in the repository."""
    return subprocess.run(("git", "-C", str(ROOT), *arguments), capture_output=True)


def export_release(target: Path) -> Path:
    """Write `proto/` as of the release below `target`, and return its directory.

    buf can read a repository itself, but not a linked worktree of one.
    """
    if git("cat-file", "-e", f"{RELEASE}^{{commit}}").returncode != 0:
        sys.exit(
            f"proto-lint: commit {RELEASE} (release 0.1.0) is not in this clone;"
            " run: git fetch --unshallow"
        )
    archive = git("archive", RELEASE, "proto")
    if archive.returncode != 0:
        sys.exit(f"proto-lint: git archive {RELEASE} failed: {archive.stderr.decode().strip()}")
    # Not tarfile: before Python 3.11.4, the version of Debian 12 among them, it has no filters.
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)
    released = target / "proto"
    # Without a configuration of its own, buf would look for one in the directories above.
    shutil.copy(PROTO / "buf.yaml", released)
    return released


def buf(*arguments: str) -> bool:
    """Run buf, which prints what it finds; whether it found nothing."""
    return subprocess.run((str(BUF), *arguments), cwd=ROOT).returncode == 0


def main() -> int:
    if not BUF.exists():
        sys.exit("proto-lint: buf is not installed; run: npm ci --prefix tests/tools/buf")
    with tempfile.TemporaryDirectory() as directory:
        released = export_release(Path(directory))
        passed = [buf("lint", "proto"), buf("breaking", "proto", "--against", str(released))]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
