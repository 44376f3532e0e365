"""The components of a process, which it starts in order and stops in reverse order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol


def _start_nothing() -> None:
    """Do nothing: something else starts the component, or it needs no start."""


async def _stop_nothing() -> None:
    """Do nothing: the component ends with those that it uses."""


class Runnable(Protocol):
    """An object with `start` and `stop` methods."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Component:
    """Something that runs while the process serves."""

    name: str
    start: Callable[[], None] = _start_nothing
    """Must not block: all components start in one iteration of the event loop."""
    stop: Callable[[], Awaitable[None]] = _stop_nothing
    """Also called if `start` was never called."""

    @classmethod
    def of(cls, name: str, runnable: Runnable) -> Component:
        """A component that calls the `start` and `stop` methods of `runnable`."""
        return cls(name, runnable.start, runnable.stop)


@asynccontextmanager
async def running(components: Sequence[Component]) -> AsyncIterator[None]:
    """Start the components in order, and stop all of them in reverse order on exit.

    All stops are called even if the body, a start or a stop fails.
    """
    async with AsyncExitStack() as stack:
        for component in components:
            stack.push_async_callback(component.stop)
        for component in components:
            component.start()
        yield
