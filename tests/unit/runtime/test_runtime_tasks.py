"""Tasks with an owner, and failures as one line."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest
from quorate.raft.errors import FatalError
from quorate.runtime.tasks import UnexpectedError, explained, supervise

from tests.unit.runtime.replicas import until


async def fails() -> None:
    await asyncio.sleep(0)
    raise KeyError("a field")


async def ends() -> None:
    await asyncio.sleep(0)


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def lasts() -> None:
    await asyncio.sleep(60)


async def test_a_failure_is_reported_once_with_type_and_place() -> None:
    seen: list[BaseException] = []
    supervise(fails(), "job", seen.append)
    await until("it is reported", lambda: seen)
    (error,) = seen
    assert isinstance(error, UnexpectedError)
    assert str(error).startswith("the task job failed: KeyError: 'a field' (")
    assert "in fails)" in str(error)
    assert isinstance(error.__cause__, KeyError)


@pytest.mark.parametrize("endless", [True, False])
async def test_an_end_is_a_failure_of_endless_work_only(endless: bool) -> None:
    seen: list[BaseException] = []
    task = supervise(ends(), "job", seen.append, endless=endless)
    await task
    await asyncio.sleep(0)
    assert [str(each) for each in seen] == (["the task job ended unexpectedly"] if endless else [])


async def test_only_the_owner_may_cancel() -> None:
    seen: list[BaseException] = []
    task = supervise(lasts(), "job", seen.append)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert seen == []
    supervise(cancels_itself(), "other", seen.append, endless=False)
    await until("it is reported", lambda: seen)
    assert "the task other was cancelled unexpectedly" in str(seen[0])


@pytest.mark.parametrize(
    "error", [FatalError("a line for people"), OSError(errno.EIO, "Input/output error")]
)
def test_what_is_written_for_people_stays_as_it_is(error: BaseException) -> None:
    assert explained(error) is error
    assert str(explained(error, "writing")) == f"writing: {error}"


def test_the_line_is_one_line_and_the_traceback_is_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        line = str(explained(error))
    assert line.startswith("ValueError: two lines (")
    assert [r.levelno for r in caplog.records if r.exc_info] == [logging.DEBUG]
    assert explained(AssertionError()).args == ("AssertionError",)
