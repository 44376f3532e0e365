"""The components of a process: what it starts, and stops in the opposite order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol


def _start_nothing() -> None:
    """For a component that others start, or that needs no start."""


async def _stop_nothing() -> None:
    """For a component that ends with those that it uses."""


class Runnable(Protocol):
    """What starts and stops by its own methods."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Component:
    """Something that runs while the process serves."""

    name: str
    start: Callable[[], None] = _start_nothing
    """Does not wait: all components start in one step of the event loop."""
    stop: Callable[[], Awaitable[None]] = _stop_nothing
    """Also called where the component's start was never reached."""

    @classmethod
    def of(cls, name: str, runnable: Runnable) -> Component:
        """A component that starts and stops by its own methods."""
        return cls(name, runnable.start, runnable.stop)


@asynccontextmanager
async def running(components: Sequence[Component]) -> AsyncIterator[None]:
    """Start the components in order. At the end stop all of them in the opposite order, also when
    the body, a start or a stop fails.
    """
    async with AsyncExitStack() as stack:
        for component in components:
            stack.push_async_callback(component.stop)
        for component in components:
            component.start()
        yield
