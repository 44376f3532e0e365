"""Background tasks whose owners notice their end, and one-line texts of unexpected errors.

A task that nobody awaits fails silently: asyncio reports its exception only when the task is
garbage collected, if ever. Each task is therefore started by `supervise`, with a callback for its
failure.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from quorate.log.errors import LogError
from quorate.raft.errors import FatalError
from quorate.records.errors import RecordsError

LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

OnFailure = Callable[[BaseException], None]

FOR_PEOPLE = (FatalError, LogError, RecordsError, OSError)
"""Errors whose text already explains what failed and where."""


class UnexpectedError(Exception):
    """An unexpected error; its text is one line with the type and the place that raised it."""


def explained(error: BaseException, what: str = "") -> BaseException:
    """`error` if it is in `FOR_PEOPLE`, else an `UnexpectedError` that names its type and place.

    what: what failed; the text then begins with it. The traceback is logged at debug level.
    """
    if isinstance(error, (*FOR_PEOPLE, UnexpectedError)):
        return UnexpectedError(f"{what}: {error}") if what else error
    LOGGER.debug("unexpected: %r", error, exc_info=error)
    text = " ".join(str(error).split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    unexpected = UnexpectedError(f"{what}: {line}{_place(error)}" if what else line + _place(error))
    unexpected.__cause__ = error
    return unexpected


def _place(error: BaseException) -> str:
    """The innermost frame of Quorate's own code: " (package/module.py:line in function)"."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "quorate" in Path(frame.filename).parts] or frames
    if not own:
        return ""
    path = Path(own[-1].filename)
    return f" ({path.parent.name}/{path.name}:{own[-1].lineno} in {own[-1].name})"


def supervise(
    work: Coroutine[Any, Any, T], name: str, on_failure: OnFailure, *, endless: bool = True
) -> asyncio.Task[T]:
    """Run `work` in a task; call `on_failure` once, with a one-line error, if it fails.

    The task fails if it raises, if it is cancelled but not by its owner (gRPC raises CancelledError
    by itself), or, if `endless`, if it returns.
    """
    task = asyncio.create_task(work, name=name)

    def ended(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            if not task.cancelling():
                on_failure(UnexpectedError(f"the task {name} was cancelled unexpectedly"))
            return
        error = task.exception()
        if error is not None:
            on_failure(explained(error, f"the task {name} failed"))
        elif endless:
            on_failure(UnexpectedError(f"the task {name} ended unexpectedly"))

    task.add_done_callback(ended)
    return task
