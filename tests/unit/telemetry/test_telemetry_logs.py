"""What a process logs, as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from quorate.telemetry.logs import LogFormat, LogLevel, configure


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    own = logging.getLogger("quorate")
    handlers, level, own_level = root.handlers[:], root.level, own.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    own.setLevel(own_level)


def test_text_says_node_epoch_and_offset() -> None:
    said = io.StringIO()
    context = configure("controller", 7, LogFormat.TEXT, said)
    logging.getLogger("quorate.x").info("begins with %d", 1)
    context.position = lambda: (3, 42)
    logging.getLogger("quorate.x").warning("goes on")
    first, second = said.getvalue().splitlines()
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert re.fullmatch(rf"{when} INFO \[controller 7\] begins with 1", first)
    assert re.fullmatch(rf"{when} WARNING \[controller 7 epoch 3 offset 42\] goes on", second)


def test_text_is_one_line_whatever_a_caller_is_called() -> None:
    said = io.StringIO()
    configure("controller", 7, LogFormat.TEXT, said)
    logging.getLogger("quorate.x").warning("%s is refused", "x\r\nERROR forged\x1b[2J\u2028\x9b")
    (line,) = said.getvalue().splitlines()
    assert line.endswith("x\\u000d\\u000aERROR forged\\u001b[2J\\u2028\\u009b is refused")


@pytest.mark.parametrize("log_format", LogFormat)
def test_no_character_of_a_name_reaches_a_terminal_as_a_control(log_format: LogFormat) -> None:
    """C1 controls (CSI is one character), DEL, separators of lines, and overrides of direction."""
    name = "a\x7f\x85\x9b2J\u061c\u200e\u2028\u2029\u202e\u2066é😀"
    said = io.StringIO()
    configure("controller", 7, log_format, said)
    logging.getLogger("quorate.x").warning("%s is refused", name)
    (line,) = said.getvalue().splitlines()
    assert "\\u007f\\u0085\\u009b2J\\u061c\\u200e\\u2028\\u2029\\u202e\\u2066é😀 is refused" in line
    if log_format is LogFormat.JSON:
        assert json.loads(line)["message"] == f"{name} is refused"


def test_json_is_one_object_a_line() -> None:
    said = io.StringIO()
    context = configure("controller", 7, LogFormat.JSON, said)
    logging.getLogger("quorate.x").info('says "%s"', "two\nlines")
    context.position = lambda: (3, 42)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("quorate.x").exception("failed")
    first, second = (json.loads(line) for line in said.getvalue().splitlines())
    assert first["message"] == 'says "two\nlines"'
    assert first["node_id"] == 7
    assert "epoch" not in first
    assert (second["level"], second["epoch"], second["offset"]) == ("ERROR", 3, 42)
    assert "ValueError: broken" in second["error"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", second["time"])


def test_the_last_configuration_counts() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure("controller", 1, LogFormat.TEXT, first)
    configure("controller", 1, LogFormat.TEXT, second)
    logging.getLogger("quorate.x").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


@pytest.mark.parametrize(
    ("level", "own", "others"),
    [
        (LogLevel.DEBUG, ["debug", "info", "warning", "error"], ["info", "warning", "error"]),
        (LogLevel.INFO, ["info", "warning", "error"], ["info", "warning", "error"]),
        (LogLevel.WARNING, ["warning", "error"], ["warning", "error"]),
        (LogLevel.ERROR, ["error"], ["error"]),
    ],
)
def test_the_level_is_the_lowest_that_is_logged(
    level: LogLevel, own: list[str], others: list[str]
) -> None:
    """The details of other libraries are never logged: they may contain what clients sent."""
    said = io.StringIO()
    configure("controller", 7, LogFormat.TEXT, said, level=level)
    for name in ("quorate.x", "other.x"):
        for each in LogLevel:
            logging.getLogger(name).log(getattr(logging, each.name), "%s %s", name, each.value)
    messages = [line.rpartition("] ")[2] for line in said.getvalue().splitlines()]
    assert messages == [f"quorate.x {each}" for each in own] + [f"other.x {e}" for e in others]


def test_an_event_may_be_of_an_earlier_epoch_than_the_current_one() -> None:
    said = io.StringIO()
    context = configure("controller", 7, LogFormat.TEXT, said)
    context.position = lambda: (3, 42)
    logging.getLogger("quorate.x").info("started", extra={"epoch": 0})
    assert "[controller 7 epoch 0 offset 42] started" in said.getvalue()
