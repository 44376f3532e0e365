"""The source code is tidy, but for the exceptions in the table."""

from __future__ import annotations

import pytest

from tests.unit.tidy.exceptions import EXCEPTIONS
from tests.unit.tidy.graph import cycle_through, strongly_connected
from tests.unit.tidy.rules import RULES
from tests.unit.tidy.source import modules


@pytest.mark.parametrize("rule", RULES)
def test_the_code_follows_the_rule(rule: str) -> None:
    allowed = EXCEPTIONS[rule]
    found = list(RULES[rule](allowed))
    problems = [finding.text for finding in found if finding.key not in allowed]
    assert not problems, "\n".join((f"{rule}:", *problems))
    unneeded = sorted(allowed.keys() - {finding.key for finding in found})
    assert not unneeded, f"{rule}: delete these exceptions, nothing needs them: {unneeded}"


def test_every_exception_belongs_to_a_rule_and_has_a_reason() -> None:
    assert EXCEPTIONS.keys() == RULES.keys()
    assert all(reason.strip() for table in EXCEPTIONS.values() for reason in table.values())


def test_no_environment_variable_changes_production_code_for_tests() -> None:
    found = [module.name for module in modules() if "QUORATE_TEST" in module.text]
    assert not found, "register an action in quorate.failpoints, see tests/launcher.py"


def test_cycles_are_found_in_a_graph() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"e"}}
    components = [found for _index, found in strongly_connected(edges)]
    assert {"a", "b", "c"} in components
    assert len(components) == 4
    assert cycle_through({"a", "b", "c"}, edges) == ["a", "b", "c", "a"]
