"""docs/compatibility.md says what the tests compare."""

from __future__ import annotations

from quorate.bridge.requests.apis import KAFKA_APIS

from tests.tools import compatibility
from tests.wire.client_operations import CONFLUENT_KAFKA, KAFKA_PYTHON
from tests.wire.controller_apis import COMPARED, DIFFERENCES
from tests.wire.tool_commands import BROKER_COMMANDS, CLASSES, CONTROLLER_COMMANDS


def test_the_page_is_up_to_date() -> None:
    assert compatibility.PAGE.wanted() == compatibility.PAGE.path.read_text(), "poe compatibility"


def test_every_api_and_every_known_difference_is_on_the_page() -> None:
    text = compatibility.PAGE.wanted()
    commands = (*BROKER_COMMANDS, *CONTROLLER_COMMANDS)
    reasons = {each.difference for each in (*commands, *CONFLUENT_KAFKA, *KAFKA_PYTHON)}
    names = {api.name for api in KAFKA_APIS.values()}
    for found in (*reasons, *DIFFERENCES.values(), *(f" {name} |" for name in names)):
        assert found in text, found


def test_the_tables_name_tools_and_apis_that_exist() -> None:
    assert {each.tool for each in (*BROKER_COMMANDS, *CONTROLLER_COMMANDS)} == CLASSES.keys()
    served = {api.name for api in KAFKA_APIS.values()}
    assert DIFFERENCES.keys() <= served
    assert served >= COMPARED


def test_a_cell_says_what_is_the_same_and_what_differs() -> None:
    assert compatibility.summary([]) == ""
    assert compatibility.summary([("a", ""), ("b", "")]) == "same (2)"
    assert compatibility.summary([("a", "why"), ("b", "why")]) == "why"
    mixed = compatibility.summary([("a", ""), ("b", "why"), ("", "other")])
    assert mixed == "same (1)<br>`b`: why<br>other"
