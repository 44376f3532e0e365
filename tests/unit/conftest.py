"""What unit tests share: no deadlines of Hypothesis, and log levels that each test restores."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# On a busy machine, any example may take longer.
settings.register_profile("without-deadlines", settings(), deadline=None)
settings.load_profile("without-deadlines")


@pytest.fixture(autouse=True)
def _restored_log_levels() -> Iterator[None]:
    """What a test configures is for its process, which runs other tests."""
    loggers = [logging.getLogger(), logging.getLogger("quorate")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
