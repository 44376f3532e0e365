"""How a process starts its components, stops them, and ends."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from quorate.process.component import Component, running
from quorate.process.shutdown import NodeError, Shutdown


class Journal:
    """Makes components that note what becomes of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def component(
        self, name: str, *, start_fails: bool = False, stop_fails: bool = False
    ) -> Component:
        def start() -> None:
            self.lines.append(f"start {name}")
            if start_fails:
                raise RuntimeError(f"{name} does not start")

        async def stop() -> None:
            self.lines.append(f"stop {name}")
            await asyncio.sleep(0)
            if stop_fails:
                raise RuntimeError(f"{name} does not stop")

        return Component(name, start, stop)


async def test_components_stop_in_the_opposite_order() -> None:
    journal = Journal()
    async with running([journal.component(name) for name in "abc"]):
        journal.lines.append("serve")
    assert journal.lines == [
        *(f"start {name}" for name in "abc"),
        "serve",
        *(f"stop {name}" for name in "cba"),
    ]


async def test_all_are_stopped_where_the_body_fails() -> None:
    journal = Journal()
    with pytest.raises(RuntimeError, match="the body"):
        async with running([journal.component(name) for name in "ab"]):
            raise RuntimeError("the body")
    assert journal.lines[2:] == ["stop b", "stop a"]


async def test_all_are_stopped_where_one_does_not_start_or_stop() -> None:
    journal = Journal()
    components = [
        journal.component("a"),
        journal.component("b", stop_fails=True),
        journal.component("c", start_fails=True),
        journal.component("d"),
    ]
    with pytest.raises(RuntimeError) as raised:
        async with running(components):
            pytest.fail("it began to serve")
    assert journal.lines == [
        "start a",
        "start b",
        "start c",
        "stop d",
        "stop c",
        "stop b",
        "stop a",
    ]
    errors = {str(raised.value), str(raised.value.__context__)}
    assert errors == {"b does not stop", "c does not start"}


async def test_a_component_may_have_nothing_to_do() -> None:
    async with running([Component("nothing")]):
        pass


async def test_the_first_failure_ends_the_process_and_is_its_line() -> None:
    shutdown = Shutdown()
    heard: list[BaseException] = []
    shutdown.add_listener(heard.append)
    shutdown.raise_failure()
    first, second = RuntimeError("the disk failed"), RuntimeError("and so on")
    shutdown.fail(first)
    shutdown.fail(second)
    assert shutdown.requested.is_set()
    assert heard == [first]
    with pytest.raises(NodeError, match="the disk failed"):
        shutdown.raise_failure()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_without_a_failure(number: signal.Signals) -> None:
    shutdown = Shutdown()
    shutdown.handle_signals()
    try:
        os.kill(os.getpid(), number)
        async with asyncio.timeout(5):
            await shutdown.requested.wait()
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)
    shutdown.raise_failure()
