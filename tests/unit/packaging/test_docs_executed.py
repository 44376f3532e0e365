"""A test executes each block of commands or Python in the documents, or a reason is here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tools.documents import ROOT, Block, blocks, command_lines, documents, find_block

SUITE = "`.ci/run` runs it"
INSTALLS = (
    "it installs packages: `.ci/run` runs it, and `poe test-pythons` installs the wheel and runs "
    "the demo"
)

NOT_EXECUTED: dict[tuple[str, str], str] = {
    ("README.md", "quickstart --demo"): INSTALLS,
    ("README.md", "poe test"): SUITE,
    ("CONTRIBUTING.md", "poe test"): SUITE,
    ("docs/testing.md", "poe test"): SUITE,
    ("docs/index.md", "quickstart --demo"): INSTALLS,
    ("docs/getting-started.md", "pip install ."): INSTALLS,
    ("docs/getting-started.md", "quickstart --demo"): "`poe test-pythons` runs the demo",
    ("docs/releasing.md", "cosign"): "it needs a published release",
    ("docs/versions.md", "debootstrap"): "it installs Debian from the network",
    ("charts/quorate/README.md", "docker build"): "it builds images, and pushes them to a registry",
}
"""Page, content and reason, for `find_block`."""

PROGRAMS = frozenset(
    {
        *("cosign", "debootstrap", "docker", "export", "grpcurl", "helm", "pip", "poe", "quorate"),
        *("kafka-console-consumer.sh", "kafka-console-producer.sh", "kafka-metadata-quorum.sh"),
        *("kubectl", "sha256sum", "spark-submit", "systemctl", "until"),
    }
)


def calls() -> Iterator[tuple[str, ast.Call]]:
    """The calls of `block` in tests, with their places."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if "tests.tools.documents import" not in text or "block(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "block":
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def executed() -> set[Block]:
    """The blocks that tests take from the documents."""
    found = set()
    for place, call in calls():
        page, content = (getattr(argument, "value", None) for argument in call.args)
        assert isinstance(page, str), f"{place}: the page is not a literal"
        assert isinstance(content, str), f"{place}: the content is not a literal"
        found.add(find_block(page, content))
    return found


def executable() -> set[Block]:
    return {each for path in documents() for each in blocks(path) if each.is_executable}


def shown(found: set[Block]) -> list[str]:
    return sorted(f"{each.page}:{each.line}" for each in found)


def test_each_block_is_executed_or_has_a_reason() -> None:
    excused = {find_block(*key) for key in NOT_EXECUTED}
    assert shown(executable() - executed() - excused) == []


def test_each_reason_is_needed() -> None:
    excused = [find_block(*key) for key in NOT_EXECUTED]
    assert len(set(excused)) == len(excused), "two reasons for one block"
    assert shown(set(excused) - executable()) == [], "nobody executes these"
    assert shown(executed().intersection(excused)) == [], "tests execute these"


def test_blocks_without_a_language_have_commands() -> None:
    """Other blocks need a language, such as `text` or `properties`."""
    other = {
        f"{each.page}:{each.line}: {line}"
        for each in executable()
        if not each.language
        for line in command_lines(each.text)
        if not is_command(line)
    }
    assert other == set()


def is_command(line: str) -> bool:
    """Whether the program is known, after an assignment."""
    return re.sub(r"^\w+=(\$\(|\S+ )", "", line).partition(" ")[0] in PROGRAMS


def test_commands_are_recognized() -> None:
    text = """# a comment
quorate health \\
  --strict    # another
ID=$(quorate storage random-uuid)

VARIABLE=value poe test
"""
    found = command_lines(text)
    assert [line.split() for line in found[:1]] == [["quorate", "health", "--strict"]]
    assert len(found) == 3
    assert all(map(is_command, found))
    assert not any(map(is_command, ("node.id=1", "✓ done", "metadata: name", "SPARK=x y")))
