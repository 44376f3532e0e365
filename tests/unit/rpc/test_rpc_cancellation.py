"""Background tasks end before `cancel_tasks` returns."""

from __future__ import annotations

import asyncio

from quorate.rpc.cancellation import cancel_tasks


async def test_tasks_have_ended_and_their_errors_are_dropped() -> None:
    cleaned: list[str] = []

    async def work(name: str, error: Exception | None = None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(name)
            if error is not None:
                raise error

    tasks = [
        asyncio.create_task(work("one")),
        asyncio.create_task(work("two", OSError("its file cannot be closed"))),
    ]
    await asyncio.sleep(0)
    await cancel_tasks(None, *tasks)
    assert sorted(cleaned) == ["one", "two"]
    assert tasks[0].cancelled()
    assert isinstance(tasks[1].exception(), OSError)


async def test_a_task_that_has_ended_keeps_its_result() -> None:
    ended = asyncio.create_task(asyncio.sleep(0, "result"))
    assert await ended == "result"
    await cancel_tasks(ended)
    assert ended.result() == "result"


async def test_nothing_to_cancel() -> None:
    await cancel_tasks()
    await cancel_tasks(None)
