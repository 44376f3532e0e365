"""Quorate without asyncio: a node and a client whose event loop runs in a thread of its own.

The methods have the names, parameters and errors of their asynchronous counterparts, block until
they are done, and can be called from any thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from quorate.common.endpoints import Endpoint
from quorate.embedded.node import Node as AsyncNode
from quorate.embedded.state_machine import (
    StateMachine,
    StateSnapshot,
    check_machine,
    check_result,
)
from quorate.embedded.storage import Config
from quorate.raft.errors import MisuseError
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import ReplicaKey
from quorate.records.batch import Record
from quorate.rpc.client.quorum_client import QuorumClient, Transport
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.values import OPAQUE_KEY, AppendResult, OpaqueRecord, QuorumDescription

__all__ = ["Client", "Node"]

T = TypeVar("T")


class _LoopThread:
    """An event loop in a thread of its own. owner: what it belongs to, for names and messages."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._is_closing = False
        self._loop = uvloop.new_event_loop()
        self._is_over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"quorate-{owner}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # At its end the runner cancels what still runs and waits for it.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._is_over.wait())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. An interrupt cancels it.

        MisuseError if the loop is closed, also meanwhile, or belongs to another process.
        """
        try:
            self.check_process()
            with self._guard:
                # Work that arrived after the loop has cancelled its tasks would never end.
                if self._is_closing or self._loop.is_closed():
                    raise self._closed()
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except MisuseError:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._closed() from None
        finally:
            future.cancel()

    def _closed(self) -> MisuseError:
        return MisuseError(f"the {self._owner} is closed")

    @property
    def is_closed(self) -> bool:
        """Whether its thread has ended, or is about to."""
        return self._is_closing

    def check_process(self) -> None:
        """Raise MisuseError in a forked child: no thread of its parent runs there."""
        if os.getpid() != self._process:
            raise MisuseError(f"the {self._owner} is one of another process: make another one here")

    def close(self) -> None:
        """Stop the loop and wait for its thread. Closing twice does nothing."""
        with self._guard:
            self._is_closing = True
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()


class _InThread(StateMachine):
    """A state machine whose methods are called in a thread of its own, one at a time."""

    def __init__(self, machine: StateMachine) -> None:
        check_machine(machine)
        for name in ("apply", "snapshot", "leadership_acquired", "leadership_lost"):
            if inspect.iscoroutinefunction(getattr(machine, name)):
                raise MisuseError(f"{name} is a coroutine function: use it with quorate.Node")
        self._machine = machine
        self._executor = ThreadPoolExecutor(1, "quorate-state-machine")
        self._running: int | None = None

    @property
    def is_calling(self) -> bool:
        """Whether the caller is a method of the state machine."""
        return self._running == threading.get_ident()

    @staticmethod
    def waits_for_itself() -> MisuseError:
        return MisuseError("a method of the state machine would wait for itself")

    def close(self) -> None:
        """End the thread once it has returned."""
        self._executor.shutdown()

    async def apply(self, batch: Sequence[Record]) -> None:
        await self._call(self._machine.apply, batch)

    def restore(self, snapshot: StateSnapshot) -> None:
        self._executor.submit(self._noted, self._machine.restore, snapshot).result()

    async def snapshot(self) -> Iterable[bytes] | None:
        taken: list[Any] = []
        await self._call(lambda machine: taken.append(machine.snapshot()), self._machine)
        check_result(*taken)
        chunks: Iterable[bytes] | None = taken[0]
        return chunks

    async def leadership_acquired(self, epoch: int) -> None:
        await self._call(self._machine.leadership_acquired, epoch)

    async def leadership_lost(self, epoch: int) -> None:
        await self._call(self._machine.leadership_lost, epoch)

    async def _call(self, method: Callable[[T], object], argument: T) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._noted, method, argument)

    def _noted(self, method: Callable[[T], object], argument: T) -> None:
        self._running = threading.get_ident()
        try:
            check_result(method(argument))
        except (SystemExit, KeyboardInterrupt) as error:
            # On the loop these would end its thread, and nothing would stop the node.
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        finally:
            self._running = None


class Node:
    """The node of quorate.Node without asyncio: runs within `with`, or from `start` to `stop`.

    The methods of the state machine run in one thread of their own, one at a time, and may block. A
    program that reads the state in another thread needs a lock. They may call `append`, but not
    `read_index`, `applied`, `stopped` and `stop`, which wait for them: MisuseError.

    Example:
        with quorate.sync.Node(settings, KeyValues()) as node:
            result = node.append([(b"key", b"value")])
            node.applied(result.base_offset)
    """

    def __init__(
        self, config: Config, state_machine: StateMachine, *, request_timeout_ms: int = 30_000
    ) -> None:
        self._machine = _InThread(state_machine)
        self._node = AsyncNode(config, self._machine, request_timeout_ms=request_timeout_ms)
        self._thread: _LoopThread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(kind, error, traceback)

    def start(self) -> None:
        """Start the node; returns once it listens. Raises NodeError."""
        if self._thread is not None:
            raise MisuseError("a node can be started once: make another one to start it again")
        self._thread = _LoopThread("node")
        try:
            self._thread.call(self._node.__aenter__())
        except BaseException:
            self._thread.close()
            self._machine.close()
            raise

    def stop(self) -> None:
        """Stop the node. Raises NodeError if it has failed. Stopping twice does nothing.

        MisuseError in a method of the state machine, for which this would wait.
        """
        self._leave(None, None, None)

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        thread = self._running
        thread.check_process()
        if self._machine.is_calling:
            raise self._machine.waits_for_itself()
        if thread.is_closed:
            return
        try:
            self._call_outside(self._node.__aexit__(kind, error, traceback))
        finally:
            thread.close()
            self._machine.close()

    @property
    def _running(self) -> _LoopThread:
        if self._thread is None:
            raise MisuseError("the node was not started: use `with`, or call start")
        return self._thread

    def _call_outside(self, work: Coroutine[Any, Any, T]) -> T:
        """Run what waits for the state machine, so that the state machine must not call it."""
        if self._machine.is_calling:
            work.close()
            raise self._machine.waits_for_itself()
        return self._running.call(work)

    def append(
        self,
        records: Sequence[OpaqueRecord],
        *,
        if_last_offset: int | None = None,
        if_key_offsets: Mapping[bytes, int] | None = None,
        timeout_ms: int | None = None,
    ) -> AppendResult:
        """See `quorate.Node.append`."""
        return self._running.call(
            self._node.append(
                records,
                if_last_offset=if_last_offset,
                if_key_offsets=if_key_offsets,
                timeout_ms=timeout_ms,
            )
        )

    def read_index(self, *, timeout_ms: int | None = None) -> int:
        """See `quorate.Node.read_index`."""
        return self._call_outside(self._node.read_index(timeout_ms=timeout_ms))

    def applied(self, offset: int) -> None:
        """See `quorate.Node.applied`."""
        self._call_outside(self._node.applied(offset))

    def describe(self) -> QuorumDescription:
        """See `quorate.Node.describe`."""
        return self._running.call(self._node.describe())

    def stopped(self) -> None:
        """Wait until the node stops. Raises NodeError if it fails."""
        self._call_outside(self._node.stopped())

    @property
    def leader(self) -> CurrentLeader:
        """See `quorate.Node.leader`."""
        return self._running.call(_get(lambda: self._node.leader))

    @property
    def key(self) -> ReplicaKey:
        """The node id and the directory id, which identify this replica."""
        return self._running.call(_get(lambda: self._node.key))


async def _get(read: Callable[[], T]) -> T:
    """A value that belongs to the loop's thread."""
    return read()


class Client:
    """The client of quorate.Client without asyncio. Use it with `with`, or call `close`.

    Example:
        with quorate.sync.Client(["controller-1:9093"]) as client:
            offset = client.append_value(b"committed by a majority, or not at all")
            for record in client.read(offset):
                print(record.offset, record.value)
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        tls: TlsConfig | None = None,
        request_timeout_ms: int = 30_000,
        cluster_id: str = "",
        transport: Transport = "auto",
    ) -> None:
        self._client = QuorumClient(
            bootstrap,
            tls=tls,
            request_timeout_ms=request_timeout_ms,
            cluster_id=cluster_id,
            transport=transport,
        )
        self._thread = _LoopThread("client")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Appends in flight end with OutcomeUnknownError.

        Other calls in flight end with MisuseError or a ClientError. Closing twice does nothing.
        """
        self._thread.check_process()
        if self._thread.is_closed:
            return
        try:
            self._thread.call(self._client.close())
        finally:
            self._thread.close()

    def append(
        self,
        records: Sequence[OpaqueRecord],
        *,
        if_last_offset: int | None = None,
        if_key_offsets: Mapping[bytes, int] | None = None,
        timeout_ms: int | None = None,
    ) -> AppendResult:
        """See `quorate.Client.append`."""
        return self._thread.call(
            self._client.append(
                records,
                if_last_offset=if_last_offset,
                if_key_offsets=if_key_offsets,
                timeout_ms=timeout_ms,
            )
        )

    def append_value(self, value: bytes | None, key: bytes = OPAQUE_KEY) -> int:
        """See `quorate.Client.append_value`."""
        return self._thread.call(self._client.append_value(value, key))

    def read(
        self,
        from_offset: int = 0,
        *,
        follow: bool = False,
        linearizable: bool | None = None,
        max_records: int | None = None,
        metadata: bool = True,
        timeout_ms: int | None = None,
    ) -> Iterator[Record]:
        """See `quorate.Client.read`. With `follow`, close the iterator to end the read."""
        records = self._client.read(
            from_offset,
            follow=follow,
            linearizable=linearizable,
            max_records=max_records,
            metadata=metadata,
            timeout_ms=timeout_ms,
        )
        # A read that follows the log must not wait for further records.
        at_once = 1 if follow else RECORDS_MAX
        try:
            while found := self._thread.call(_some(records, at_once)):
                yield from found
        finally:
            # MisuseError: the client is closed. RuntimeError: an interrupt is ending the read.
            with suppress(MisuseError, RuntimeError):
                self._thread.call(records.aclose())

    def read_index(self, *, timeout_ms: int | None = None) -> int:
        """See `quorate.Client.read_index`."""
        return self._thread.call(self._client.read_index(timeout_ms=timeout_ms))

    def describe_quorum(self) -> QuorumDescription:
        """See `quorate.Client.describe_quorum`."""
        return self._thread.call(self._client.describe_quorum())

    def finalize_application_version(
        self, level: int = 1, *, timeout_ms: int | None = None
    ) -> None:
        """See `quorate.Client.finalize_application_version`."""
        work = self._client.finalize_application_version(level, timeout_ms=timeout_ms)
        self._thread.call(work)

    def add_voter(
        self, voter: ReplicaKey, endpoints: Sequence[Endpoint], *, timeout_ms: int | None = None
    ) -> None:
        """See `quorate.Client.add_voter`."""
        self._thread.call(self._client.add_voter(voter, endpoints, timeout_ms=timeout_ms))

    def remove_voter(
        self, voter: ReplicaKey, *, timeout_ms: int | None = None, force: bool = False
    ) -> None:
        """See `quorate.Client.remove_voter`."""
        self._thread.call(self._client.remove_voter(voter, timeout_ms=timeout_ms, force=force))

    def transfer_leadership(self, target: ReplicaKey, *, timeout_ms: int | None = None) -> None:
        """See `quorate.Client.transfer_leadership`."""
        self._thread.call(self._client.transfer_leadership(target, timeout_ms=timeout_ms))


RECORDS_MAX = 500
"""The most records that a read passes from thread to thread at once."""


async def _some(records: AsyncIterator[Record], most: int) -> list[Record]:
    """The next records, at most so many; none at the end."""
    found: list[Record] = []
    async for record in records:
        found.append(record)
        if len(found) >= most:
            break
    return found
