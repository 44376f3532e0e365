"""What refusals may write, and clients that leave."""

from __future__ import annotations

import asyncio
import logging

import grpc.aio
import pytest
from quorate.rpc.server.request_validation import (
    BURST,
    GRPC_LOGGER,
    LINES_PER_SECOND,
    DecodeErrorInterceptor,
    RejectionLog,
)


def test_a_flood_of_refusals_is_counted_and_not_written(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    refusals = RejectionLog(logging.getLogger("refused"), lambda: now)
    for number in range(10_000):
        refusals.say("Fetch", "ipv4:10.0.0.1:5", f"reason {number}")
    assert len(caplog.messages) == BURST
    assert caplog.messages[0] == "rejected Fetch from ipv4:10.0.0.1:5: reason 0"

    now += 1 / LINES_PER_SECOND
    refusals.say("Vote", "ipv4:10.0.0.2:6", "why")
    untold = 10_000 - BURST
    assert caplog.messages[-1] == (
        f"rejected Vote from ipv4:10.0.0.2:6: why ({untold} earlier messages suppressed)"
    )
    now += 1 / LINES_PER_SECOND
    refusals.say("Vote", "ipv4:10.0.0.2:6", "again")
    assert caplog.messages[-1].endswith(": again")


async def test_clients_that_leave_and_cancelled_calls_are_no_errors_and_all_else_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    DecodeErrorInterceptor(grpc.aio.server())
    left = grpc.aio.InternalError("execute_batch")
    for error in (left, asyncio.CancelledError(), KeyError("x")):
        try:
            raise error
        except (Exception, asyncio.CancelledError):
            GRPC_LOGGER.exception("raised by a method")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError]
