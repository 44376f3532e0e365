"""The programs and commands in README.md and docs do what they say."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.support import HOST, Quorum
from tests.processes import QUORATE, WAIT_S, environment, free_ports, listens, until

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
BACKGROUND = frozenset({"controller", "quickstart"})
"""Commands that run until they are stopped."""
START_S = 4 * WAIT_S
"""For several processes that start at once beside other tests."""


def block(page: Path, content: str, language: str = "") -> str:
    """The first block of code of a page that has `content`."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return next(each for each in blocks if content in each)


class Terminal:
    """Runs lines as a shell does, with other names in place of those in `replaced`."""

    def __init__(self, folder: Path, replaced: Mapping[str, str]) -> None:
        self.folder = folder
        self.replaced = replaced
        self.variables: dict[str, str] = {}
        self.running: list[subprocess.Popen[str]] = []

    def paste(self, lines: str) -> str:
        """Run all lines; what the last one printed."""
        out = ""
        for line in lines.splitlines():
            assigned = re.fullmatch(r"(\w+)=\$\((.*)\)", line)
            out = self.run(assigned[2] if assigned else line)
            if assigned:
                self.variables[assigned[1]] = out.strip()
        return out

    def run(self, line: str) -> str:
        for old, new in self.replaced.items():
            line = line.replace(old, new)
        for name, value in self.variables.items():
            line = line.replace(f"${name}", value)
        program, *arguments = shlex.split(line, comments=True)
        assert program == "quorate", line
        command = [sys.executable, *QUORATE, *arguments]
        if arguments[0] in BACKGROUND:
            with (self.folder / f"{len(self.running)}.log").open("w") as log:
                started = subprocess.Popen(
                    command, cwd=self.folder, env=environment(), stdout=log, stderr=log, text=True
                )
            self.running.append(started)
            return ""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def said(self, number: int) -> str:
        return (self.folder / f"{number}.log").read_text()

    def close(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGINT)
        for process in self.running:
            try:
                process.wait(START_S)
            finally:
                process.kill()


@pytest.fixture
def port() -> int:
    """The first of ports that are free, as many as a quickstart uses."""
    return until(
        "consecutive free ports",
        lambda: next((p for p in free_ports(1) if not any(map(listens, range(p, p + 6)))), None),
    )


@pytest.fixture
def terminal(tmp_path: Path, port: int) -> Iterator[Terminal]:
    names = {"/var/lib/quorate": str(tmp_path / "data"), "127.0.0.1:9093": f"{HOST}:{port}"}
    ports = {"--port 9093": f"--port {port}"}
    ports |= {f"controller-{n}:9093": f"{HOST}:{port + n - 1}" for n in (1, 2, 3)}
    made = Terminal(tmp_path, names | ports)
    yield made
    made.close()


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def assert_appends_and_reads(program: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, (program, done.stderr)
    offset, _, value = done.stdout.strip().partition(" ")
    assert int(offset) > 0
    assert value == "b'committed by a majority, or not at all'"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [README, DOCS / "getting-started.md"], ids=lambda page: page.stem)
def test_the_quickstart_can_be_pasted(page: Path, terminal: Terminal, port: int) -> None:
    terminal.paste(block(page, "quickstart --port"))
    until("three voters", lambda: "3 voters" in terminal.said(0), START_S)
    assert terminal.paste(block(page, "quorate health"))
    if page == README:
        program = block(page, "append_value", "python").replace("127.0.0.1:9093", f"{HOST}:{port}")
        assert_appends_and_reads(program, run_program(program))


@pytest.mark.timeout(600)
def test_a_quorum_of_ones_own_is_formed(terminal: Terminal, port: int) -> None:
    page = DOCS / "getting-started.md"
    properties = block(page, "process.roles=controller")
    for old, new in terminal.replaced.items():
        properties = properties.replace(old, new)
    for number in (1, 2):
        own = properties.replace("node.id=1", f"node.id={number}").replace(
            f"listeners=CONTROLLER://{HOST}:{port}",
            f"listeners=CONTROLLER://{HOST}:{port + number - 1}",
        )
        own = re.sub(r"(?m)^metadata.log.dir=.*", rf"\g<0>-{number}", own)
        (terminal.folder / f"controller-{number}.properties").write_text(own)
    terminal.paste(block(page, "storage random-uuid"))
    until("the first listens", lambda: listens(port), START_S)
    *before, start, add = block(page, "add-controller").splitlines()
    terminal.paste("\n".join((*before, start)))
    until("the second listens", lambda: listens(port + 1), START_S)
    assert "Added controller 2" in terminal.run(add)


def test_the_embedded_node_writes_and_reads(tmp_path: Path) -> None:
    program = block(DOCS / "embedding.md", "quorate.Node", "python")
    program = program.replace("127.0.0.1:9093", f"{HOST}:{free_ports(1)[0]}")
    program = program.replace("/var/lib/program", str(tmp_path / "data"))
    done = run_program(program)
    assert (done.returncode, done.stdout) == (0, "b'blue'\n"), done.stderr
    assert done.stderr == "", "without a logging configuration, warnings would be here"


def test_the_program_writes_and_reads(quorum: Quorum) -> None:
    found = block(DOCS / "client.md", "append_value", "python")
    program = found.replace("controller-1:9093", quorum.addresses.split(",")[0])
    assert program != found
    assert_appends_and_reads(program, run_program(program))


def test_the_program_with_conditions_holds_the_lock(quorum: Quorum) -> None:
    found = block(DOCS / "client.md", "quorate.recipes", "python")
    done = run_program(found.replace("controller-1:9093", quorum.addresses.split(",")[0]))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"holding the lock with fencing token \d+\n", done.stdout)
