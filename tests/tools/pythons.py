"""Install the wheel in a clean environment of every Python that is here, and use it.

    python tests/tools/pythons.py [--wheel FILE] [--root DIR]... [--only 3.N]... [--no-demo]

It looks for each version that pyproject.toml names: on the path, among pyenv's and uv's, and in
the root file systems given by --root, such as `debootstrap` makes (only as root). Each gets a new
virtual environment with requirements/base.txt and the wheel, in which a quorum is started and used
by README's program; then `quorate quickstart --demo` runs. Exit status: 1 if something fails, 3 if
nothing fails and a version was not found.
"""

from __future__ import annotations

import argparse
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.tools.documents import code_blocks  # noqa: E402

MISSING = 3
PORTS = 6
START_S = 120.0
STEP_S = 900.0
# Its version, and itself rather than a virtual environment of it.
ASK = "import os, sys; print('%d.%d.%d' % sys.version_info[:3], os.path.realpath(sys.executable))"
# Of the root file system: what a program needs to run, and to reach a package index.
MOUNTS = """
set -e
mount --rbind /dev "$0/dev"
mount -t proc proc "$0/proc"
for each in /etc/ssl/certs /etc/resolv.conf /etc/hosts; do mount --bind "$each" "$0$each"; done
exec chroot "$0" "$@"
"""


class StepError(Exception):
    """A command failed; the text says which, with the end of its output."""


@dataclass(frozen=True)
class Interpreter:
    """A Python. root: the root file system in which `path` is, None for this machine's own."""

    version: str
    path: str
    root: Path | None = None

    @property
    def minor(self) -> str:
        return minor_of(self.version)

    @property
    def prefix(self) -> tuple[str, ...]:
        return () if self.root is None else entered(self.root)

    def __str__(self) -> str:
        where = self.path if self.root is None else f"{self.path} in {self.root}"
        return f"Python {self.version} ({where})"


def minor_of(version: str) -> str:
    """3.13 of 3.13.1."""
    return ".".join(version.split(".")[:2])


def entered(root: Path) -> tuple[str, ...]:
    """The command that runs another one in a root file system, whose mounts end with it."""
    return ("unshare", "--mount", "--", "sh", "-c", MOUNTS, str(root))


def wanted() -> list[str]:
    """The versions that pyproject.toml names, such as 3.13."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c) for c in classifiers)
    return [each[1] for each in found if each]


def candidates(minor: str, roots: Sequence[Path]) -> Iterator[tuple[str, Path | None]]:
    """Paths at which an interpreter of a version may be."""
    name = f"python{minor}"
    if on_path := shutil.which(name):
        yield on_path, None
    for pattern in (f".pyenv/versions/{minor}.*", f".local/share/uv/python/cpython-{minor}.*"):
        for folder in sorted(Path.home().glob(pattern), reverse=True):
            yield str(folder / "bin" / name), None
    for root in roots:
        if (root / "usr/bin" / name).exists():
            yield f"/usr/bin/{name}", root


def find(minor: str, roots: Sequence[Path]) -> Interpreter | None:
    """The first interpreter of a version that runs."""
    for path, root in candidates(minor, roots):
        prefix = () if root is None else entered(root)
        try:
            ran = subprocess.run((*prefix, path, "-c", ASK), capture_output=True, text=True)
        except OSError:
            continue
        version, _, executable = ran.stdout.strip().partition(" ")
        if ran.returncode == 0 and minor_of(version) == minor:
            return Interpreter(version, executable, root)
    return None


class Environment:
    """A virtual environment and a folder for its processes, both in the interpreter's root.

    folder: as seen from here; inside: as seen by the interpreter.
    """

    def __init__(self, interpreter: Interpreter, folder: Path) -> None:
        self.interpreter = interpreter
        self.folder = folder
        root = interpreter.root
        self.inside = folder if root is None else Path("/") / folder.relative_to(root)
        self.bin = self.inside / "venv/bin"

    def command(self, *arguments: object) -> list[str]:
        return [*self.interpreter.prefix, *map(str, arguments)]

    def run(self, *arguments: object) -> str:
        """The output of a command. StepError."""
        command = self.command(*arguments)
        ran = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_S,
        )
        if ran.returncode != 0:
            raise StepError(f"{shlex.join(map(str, arguments))}\n{ran.stdout[-3000:]}")
        return ran.stdout

    def install(self, wheel: Path) -> None:
        """The locked dependencies and the wheel, and nothing else."""
        for file in (wheel, ROOT / "requirements/base.txt"):
            shutil.copy(file, self.folder)
        self.run(self.interpreter.path, "-m", "venv", self.inside / "venv")
        pip = (self.bin / "pip", "install", "--quiet", "--disable-pip-version-check")
        self.run(*pip, "--require-hashes", "-r", self.inside / "base.txt")
        self.run(*pip, "--no-deps", "--no-index", self.inside / wheel.name)
        self.run(self.bin / "pip", "check")

    @contextmanager
    def quorum(self, port: int) -> Iterator[None]:
        """A quorum of three, as README's quickstart."""
        options = ("--port", port, "--dir", self.inside / "quorum")
        command = self.command(self.bin / "quorate", "quickstart", *options)
        with (self.folder / "quickstart.log").open("w") as log:
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(START_S)

    def await_quorum(self, port: int) -> None:
        """Wait until the quorum is healthy. StepError."""
        ends = time.monotonic() + START_S
        ask = (self.bin / "quorate", "health", "--bootstrap-controller", f"127.0.0.1:{port}")
        while True:
            try:
                self.run(*ask)
            except StepError:
                if time.monotonic() > ends:
                    raise
                time.sleep(1)
            else:
                return


def readme_program(port: int) -> str:
    """README's program, for a quorum on other ports."""
    blocks = code_blocks((ROOT / "README.md").read_text(), "python")
    program = next(each for each in blocks if "append_value" in each)
    return program.replace("127.0.0.1:9093", f"127.0.0.1:{port}")


def free_port() -> int:
    """The first of as many consecutive free ports as a quickstart uses."""
    while True:
        first = random.randrange(20_000, 30_000)
        with ExitStack() as opened, suppress(OSError):
            for port in range(first, first + PORTS):
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def use(environment: Environment, *, demo: bool) -> Iterator[str]:
    """Use what is installed; what it said. StepError."""
    yield environment.run(environment.bin / "quorate", "--version").strip()
    port = free_port()
    with environment.quorum(port):
        environment.await_quorum(port)
        printed = environment.run(environment.bin / "python", "-c", readme_program(port))
        yield f"client: {printed.strip()}"
    if demo:
        printed = environment.run(environment.bin / "quorate", "quickstart", "--demo")
        yield f"demo: {printed.strip().splitlines()[-1]}"


def check(interpreter: Interpreter, wheel: Path, *, demo: bool) -> bool:
    """Install the wheel and use it; whether all of it worked."""
    print(f"{interpreter}:", flush=True)
    parent = None if interpreter.root is None else interpreter.root / "tmp"
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quorate-", dir=parent) as folder:
        environment = Environment(interpreter, Path(folder))
        try:
            environment.install(wheel)
            for line in use(environment, demo=demo):
                print(f"    {line}", flush=True)
        except (StepError, subprocess.TimeoutExpired) as error:
            print(f"    failed: {error}", flush=True)
            return False
    print(f"    passed in {time.monotonic() - started:.0f} s", flush=True)
    return True


def built(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def check_all(options: argparse.Namespace, found: Mapping[str, Interpreter | None]) -> int:
    """Check each interpreter that was found; the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        wheel: Path = options.wheel or built(Path(folder))
        passed = [
            check(interpreter, wheel, demo=options.demo)
            for interpreter in found.values()
            if interpreter is not None
        ]
    missing = [minor for minor, interpreter in found.items() if interpreter is None]
    for minor in missing:
        print(f"Python {minor}: no interpreter was found")
    if not all(passed):
        return 1
    return MISSING if missing else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path, help="default: one of this checkout")
    parser.add_argument("--root", type=Path, action="append", default=[])
    parser.add_argument("--only", metavar="3.N", action="append", default=[])
    parser.add_argument("--no-demo", dest="demo", action="store_false")
    options = parser.parse_args(arguments)
    versions = options.only or wanted()
    return check_all(options, {minor: find(minor, options.root) for minor in versions})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
