"""The failure of a node, as those see it who ask again and again."""

from __future__ import annotations

import logging
import traceback

import pytest
from quorate.process.shutdown import NodeError, Shutdown


@pytest.mark.parametrize("failure", [NodeError("the disk failed"), OSError("the disk failed")])
def test_a_failure_that_is_raised_often_does_not_grow(failure: Exception) -> None:
    """Each raise adds frames to the traceback of an exception, which keep their variables alive."""
    shutdown = Shutdown()
    shutdown.fail(failure)
    frames = []
    for _ in range(3):
        with pytest.raises(NodeError, match="the disk failed") as caught:
            shutdown.raise_failure()
        frames.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert frames[0] == frames[-1]


def test_the_first_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    shutdown = Shutdown()
    shutdown.fail(OSError(28, "No space left on device", "/var/lib/quorate"))
    shutdown.fail(NodeError("the replica failed"))
    line = "stopping after a failure: [Errno 28] No space left on device: '/var/lib/quorate'"
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [(logging.CRITICAL, line)]
