"""`--rewrite`: write what the state machine does into the transcripts. Read the difference!"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="rewrite the expectations of tests/scenarios/*.txt with what happens now",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
