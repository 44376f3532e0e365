"""The page of guarantees is what the command prints."""

from __future__ import annotations

from tests.key_value.guarantees import PAGE, RUNS, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "python -m tests.key_value --guarantees > examples/..."


def test_every_table_has_rows_of_equal_width() -> None:
    rows = [line.replace(r"\|", "") for line in page().splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {5, 2 + len(RUNS)}
