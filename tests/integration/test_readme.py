"""The programs and commands in README.md and docs do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.embedded_support import without_stalls
from tests.integration.support import HOST, Quorum
from tests.integration.terminal import START_S, Terminal
from tests.processes import free_ports, listens, until
from tests.tools.documents import block


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
    with Terminal(tmp_path, names | ports) as made:
        yield made


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
@pytest.mark.parametrize(
    ("start", "then", "program"),
    [
        (
            block("README.md", "quickstart --port"),
            block("README.md", "quorate health"),
            block("README.md", "append_value"),
        ),
        (
            block("docs/getting-started.md", "quickstart --port"),
            block("docs/getting-started.md", "quorate health"),
            "",
        ),
    ],
    ids=["README", "getting-started"],
)
def test_the_quickstart_can_be_pasted(
    start: str, then: str, program: str, terminal: Terminal
) -> None:
    terminal.paste(start)
    until("three voters", lambda: "3 voters" in terminal.said(0), START_S)
    assert terminal.paste(then)
    if program:
        program = terminal.localized(program)
        assert_appends_and_reads(program, run_program(program))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (
            block("docs/getting-started.md", "storage random-uuid"),
            block("docs/getting-started.md", "add-controller"),
            "controller-{}.properties",
        ),
        (
            block("docs/cli.md", "storage random-uuid"),
            block("docs/cli.md", "add-controller -c 2.properties"),
            "{}.properties",
        ),
    ],
    ids=["getting-started", "cli"],
)
def test_a_quorum_of_ones_own_is_formed(
    first: str, second: str, names: str, terminal: Terminal, port: int
) -> None:
    properties = terminal.localized(block("docs/getting-started.md", "process.roles=controller"))
    for number in (1, 2):
        own = properties.replace("node.id=1", f"node.id={number}").replace(
            f"listeners=CONTROLLER://{HOST}:{port}",
            f"listeners=CONTROLLER://{HOST}:{port + number - 1}",
        )
        own = re.sub(r"(?m)^metadata.log.dir=.*", rf"\g<0>-{number}", own)
        (terminal.folder / names.format(number)).write_text(own)
    terminal.paste(first)
    until("the first listens", lambda: listens(port), START_S)
    *before, start, add = second.splitlines()
    terminal.paste("\n".join((*before, start)))
    until("the second listens", lambda: listens(port + 1), START_S)
    assert "Added controller 2" in terminal.run(add)


def test_the_embedded_node_writes_and_reads(tmp_path: Path) -> None:
    program = block("docs/embedding.md", "quorate.Node")
    program = program.replace("127.0.0.1:9093", f"{HOST}:{free_ports(1)[0]}")
    program = program.replace("/var/lib/program", str(tmp_path / "data"))
    done = run_program(program)
    assert (done.returncode, done.stdout) == (0, "b'blue'\n"), done.stderr
    warned = without_stalls(done.stderr)
    assert warned == "", "without a logging configuration, warnings would be here"


def test_the_program_writes_and_reads(quorum: Quorum) -> None:
    found = block("docs/client.md", "append_value")
    program = found.replace("controller-1:9093", quorum.addresses.split(",")[0])
    assert program != found
    assert_appends_and_reads(program, run_program(program))


def test_the_program_with_conditions_holds_the_lock(quorum: Quorum) -> None:
    found = block("docs/client.md", "quorate.recipes")
    done = run_program(found.replace("controller-1:9093", quorum.addresses.split(",")[0]))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"holding the lock with fencing token \d+\n", done.stdout)
