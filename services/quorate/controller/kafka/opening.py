"""When the listeners for Kafka's protocol open and close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from quorate.controller.config import ControllerConfig
from quorate.process.extension import NodeComponents
from quorate.rpc.cancellation import cancel_tasks
from quorate.runtime.tasks import supervise

LOOK_PERIOD_S = 0.1
"""How often to check whether the committed metadata is loaded, seconds."""


class Opened(Protocol):
    """What listens from `open` to `close`."""

    async def open(self) -> None:
        """Start listening."""

    async def close(self) -> None:
        """Stop listening. Idempotent."""


class ListenerComponent:
    """Opens a listener once the controller has loaded the committed metadata: that has the ACLs and
    the SCRAM credentials.

    warn: logs what the listener's configuration does not protect. is_early: whether it opens at
    once.
    """

    def __init__(
        self,
        components: NodeComponents[ControllerConfig],
        listening: Opened,
        warn: Callable[[ControllerConfig], None],
        *,
        is_early: bool = False,
    ) -> None:
        self._components = components
        self._listening = listening
        self._warn = warn
        self._is_early = is_early
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        on_fatal = self._components.on_fatal
        self._task = supervise(self._open(), "kafka-listener", on_fatal, endless=False)

    async def stop(self) -> None:
        await cancel_tasks(self._task)
        await self._listening.close()

    async def _open(self) -> None:
        # Poll: the loader does not call its listeners while there is no metadata.
        while not (self._is_early or self._components.loader.has_caught_up):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_PERIOD_S)
        self._warn(self._components.config)
        await self._listening.open()
