"""The operations page has every alert of the chart, and log lines that the code writes."""

from __future__ import annotations

import ast
import re

import pytest

from tests.tools.documents import DOCS, ROOT, code_spans

PAGE = (DOCS / "operations.md").read_text()
RULES = ROOT / "charts/quorate/templates/prometheus-rules.yaml"
LINES = PAGE.partition("## Log lines")[2].partition("\n## ")[0]
LITERAL_MIN = 12
"""A text with fewer characters beside its placeholders would match any line."""


def texts() -> set[tuple[str, ...]]:
    """Each text in the code that can be a line of the log, cut at its placeholders."""
    found = set()
    for path in (ROOT / "services").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            elif isinstance(node, ast.JoinedStr):
                constants = (p.value if isinstance(p, ast.Constant) else "%s" for p in node.values)
                text = "".join(map(str, constants))
            parts = tuple(re.split(r"%(?:\.\d)?[sdfgr]", text))
            if sum(map(len, parts)) >= LITERAL_MIN and "\n" not in text:
                found.add(parts)
    return found


def can_be(line: str, parts: tuple[str, ...]) -> bool:
    """Whether a text can be this line, with something for each placeholder."""
    if len(parts) == 1:
        return line == parts[0]
    if not (line.startswith(parts[0]) and line.endswith(parts[-1])):
        return False
    position, end = len(parts[0]), len(line) - len(parts[-1])
    for part in parts[1:-1]:
        position = line.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return position <= end


def test_every_alert_is_explained() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert re.findall(r"^\| (Quorate\w+)", PAGE, re.MULTILINE) == alerts


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_the_severity_of_an_alert_is_that_of_the_chart(severity: str) -> None:
    rules = re.findall(r"- alert: (\w+).*?severity: (\w+)", RULES.read_text(), re.DOTALL)
    critical = set(re.findall(r"^\| (Quorate\w+) \(critical\)", PAGE, re.MULTILINE))
    for name, found in rules:
        assert (name in critical) == (found == "critical"), name


def test_the_code_writes_every_log_line() -> None:
    known = texts()
    rows = re.findall(r"^\| `([^`]+)`", LINES, re.MULTILINE)
    assert len(rows) > 20
    unknown = [line for line in rows if not any(can_be(line, each) for each in known)]
    assert unknown == []


def test_a_line_is_compared_with_a_text() -> None:
    parts = ("lost voter ", ": ", " remain")
    assert can_be("lost voter 2: why; 2 remain", parts)
    assert not can_be("lost voter 2: remain", parts)
    assert not can_be("lost voter 2; why; 2 remain", parts)
    assert can_be("stopping", ("stopping",))
    assert not can_be("stopping now", ("stopping",))


def test_the_page_names_settings_and_no_others() -> None:
    settings = re.findall(r"^\| `([a-z.]+)`", (DOCS / "configuration.md").read_text(), re.MULTILINE)
    named = {
        span.partition("=")[0] for span in code_spans(PAGE) if re.match(r"quorate\.[a-z.]+=", span)
    }
    assert named <= set(settings)
