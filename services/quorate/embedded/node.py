"""A controller within a program: the node that `quorate controller` runs, and a state machine.

The node consists of the same components (`controller.main`), in the event loop of the program. It
changes nothing of the process: no signal handlers, no logging configuration, no tuning of the
interpreter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from quorate.common.error_codes import ErrorCode
from quorate.controller.config import ControllerConfig
from quorate.controller.main import Controller
from quorate.controller.migration.main import check_extra
from quorate.controller.migration.runner import MigrationRunner
from quorate.embedded.runner import StateMachineRunner
from quorate.embedded.state_machine import StateMachine, check_machine
from quorate.embedded.storage import Config, read_config
from quorate.process.extension import NodeComponents
from quorate.process.run import ENDINGS
from quorate.process.shutdown import NodeError, Shutdown
from quorate.raft.errors import MisuseError
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import ReplicaKey
from quorate.recovery.staged import apply_staged
from quorate.rpc.client.leader_client import timeout_or
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError, ClientError
from quorate.rpc.wire.limits import format_address
from quorate.rpc.wire.values import AppendResult, OpaqueRecord, QuorumDescription
from quorate.telemetry.logs import NodeContext

LOGGER = logging.getLogger(__name__)

T = TypeVar("T")


class Node:
    """A voter (or an observer) of a quorum within this program, which runs within `async with`.

    config: the settings of `quorate controller`, by name or as the path of a properties file. Its
    directory must be formatted (`format_storage`), unless quorate.unformatted.format is true.
    state_machine: gets every committed record; see there in which thread. request_timeout_ms: the
    default timeout of `append`, `read_index` and `describe`. These act with the node's certificate:
    with an authorizer, its principal must be a super user, or needs ALTER, DESCRIBE and
    CLUSTER_ACTION on the cluster.

    Entering returns once the node listens, and raises NodeError if it cannot start. ConfigError is
    raised at once, as is MisuseError for something that is not a state machine. If the node fails
    later, `stopped` and the end of the block raise NodeError, and so does every call that has not
    ended by then: what it appends may be committed. A node can be entered once.

    Example:
        async with quorate.Node(settings, KeyValues()) as node:
            result = await node.append([(b"key", b"value")])
            print("committed at offset", result.base_offset)
    """

    def __init__(
        self, config: Config, state_machine: StateMachine, *, request_timeout_ms: int = 30_000
    ) -> None:
        self._config = read_config(config)
        check_extra(self._config)
        check_machine(state_machine)
        self._machine = state_machine
        self._timeout_ms = timeout_or(request_timeout_ms, 0)
        self._shutdown = Shutdown()
        self._task: asyncio.Task[None] | None = None
        self._client: QuorumClient | None = None
        self._components: NodeComponents[ControllerConfig] | None = None
        self._runner: StateMachineRunner | None = None
        self._is_leaving = False

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise MisuseError("a node can be entered once: make another one to start it again")
        for warning in self._config.warnings:
            LOGGER.warning("%s", warning)
        serving = asyncio.Event()
        self._task = asyncio.create_task(self._run(serving))
        entered = asyncio.create_task(serving.wait())
        try:
            await asyncio.wait((self._task, entered), return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                self._task.result()
                raise NodeError("the node stopped before it served")
        except BaseException:
            await self._leave()
            raise
        finally:
            entered.cancel()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None, "it was entered"
        await self._leave()
        failure = None if self._task.cancelled() else self._task.exception()
        if error is None and failure is not None:
            raise failure

    async def _run(self, serving: asyncio.Event) -> None:
        """Run the controller. Raises NodeError."""
        config = self._config
        try:
            await Controller(
                config,
                NodeContext(config.role, config.node_id),
                self._shutdown,
                apply_staged,
                (MigrationRunner, self._extend),
                on_serving=serving.set,
            ).run()
        except NodeError:
            raise
        except ENDINGS + (OSError,) as error:  # noqa: RUF005 - mypy rejects an unpacking here
            raise NodeError(str(error)) from error
        finally:
            # After the last responses: the calls that still wait would go on until their timeout.
            if self._client is not None:
                await self._client.close()

    def _extend(self, components: NodeComponents[ControllerConfig]) -> StateMachineRunner:
        self._components = components
        # The state machine may append before the node is entered.
        self._client = self._connect(components.cluster_id)
        self._runner = StateMachineRunner(components, self._machine)
        return self._runner

    async def _leave(self) -> None:
        """Stop, and wait for the end. A failure is left in the task."""
        self._is_leaving = True
        if self._runner is not None:
            self._runner.leave()
        try:
            if self._client is not None:
                await self._client.close()
        finally:  # also if the program cancels the close
            self._shutdown.requested.set()
            if self._task is not None:
                await asyncio.wait((self._task,))

    def _connect(self, cluster_id: str) -> QuorumClient:
        """A client of this node, which names the leader, and of the bootstrap servers."""
        config = self._config
        first = config.grpc_listeners[0]
        own = next(each for each in config.endpoints if each.name == first.name)
        addresses = [format_address(own.host, own.port)]
        addresses += [format_address(host, port) for host, port in config.bootstrap_servers]
        return QuorumClient(
            list(dict.fromkeys(addresses)),
            tls=config.tls.mutual if config.tls is not None and first.tls else None,
            request_timeout_ms=self._timeout_ms,
            client_id=f"quorate-node/{config.node_id}",
            cluster_id=cluster_id,
        )

    async def stopped(self) -> None:
        """Wait until the node stops. Raises NodeError if it fails."""
        await asyncio.shield(self._running)

    @property
    def _running(self) -> asyncio.Task[None]:
        if self._task is None:
            raise MisuseError("the node was not started: use `async with`")
        return self._task

    @property
    def _parts(self) -> tuple[NodeComponents[ControllerConfig], StateMachineRunner]:
        """The components of the running node. Raises NodeError if it has stopped or failed."""
        is_over = self._running.done()
        if self._shutdown.failure is not None:
            self._shutdown.raise_failure()
        if is_over or self._components is None or self._runner is None:
            raise NodeError("the node has stopped")
        return self._components, self._runner

    @property
    def _open_client(self) -> QuorumClient:
        """The client. Raises NodeError if the node is stopping, has stopped or failed."""
        self._parts  # noqa: B018 - raises if the node has stopped
        if self._is_leaving:
            raise NodeError("the node is stopping")
        return self.client

    async def _call(self, call: Callable[[QuorumClient], Awaitable[T]]) -> T:
        """A call of the client. Raises NodeError if the node has stopped, or fails meanwhile."""
        client = self._open_client
        try:
            return await call(client)
        except ClientError:
            self._shutdown.raise_failure()
            raise

    # --- the log ----------------------------------------------------------------------------------

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        *,
        if_last_offset: int | None = None,
        if_key_offsets: Mapping[bytes, int] | None = None,
        timeout_ms: int | None = None,
    ) -> AppendResult:
        """Commit one batch of (key, value), all or nothing, through the leader, whichever it is.

        Returns after commit with the offset of the first record and the epoch. It does not wait for
        the state machine of this node: see `applied`. A key may be empty, but not None. Conditions
        as in `Client.append`. Raises as that; NodeError.
        """
        if any(key is None for key, _ in records):
            raise MisuseError("records without a key are metadata: applications' have a key")
        return await self._call(
            lambda client: client.append(
                records,
                if_last_offset=if_last_offset,
                if_key_offsets=if_key_offsets,
                timeout_ms=timeout_ms,
            )
        )

    async def read_index(self, *, timeout_ms: int | None = None) -> int:
        """Wait until a read of the state machine is linearizable, and return the offset of it.

        The state then includes everything that was committed before the call, on any node. Raises
        as `Client.read_index`, AdminError(REQUEST_TIMED_OUT) if the state machine does not get
        that far in time; NodeError.
        """
        timeout_ms = timeout_or(timeout_ms, self._timeout_ms)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        index = await self._call(lambda client: client.read_index(timeout_ms=timeout_ms))
        _, runner = self._parts
        try:
            async with asyncio.timeout_at(deadline_s):
                await runner.reached(index)
        except TimeoutError:
            text = f"the state machine has reached offset {runner.offset} of {index}"
            raise AdminError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        return index

    async def applied(self, offset: int) -> None:
        """Wait until this node's state machine has applied the record at `offset`.

        Raises NodeError if the node stops before.
        """
        _, runner = self._parts
        await runner.reached(offset + 1)

    # --- the quorum -------------------------------------------------------------------------------

    @property
    def key(self) -> ReplicaKey:
        """The node id and the directory id, which identify this replica."""
        components, _ = self._parts
        return components.driver.node.core.local

    @property
    def leader(self) -> CurrentLeader:
        """The leader that this node knows: epoch, id (None if unknown) and endpoints.

        It may be outdated. Only the commit of an append proves, afterwards, that this node was
        the leader.
        """
        components, _ = self._parts
        return components.driver.node.current_leader

    async def describe(self) -> QuorumDescription:
        """The leader's view of the quorum. Raises as `Client.describe_quorum`; NodeError."""
        return await self._call(lambda client: client.describe_quorum())

    @property
    def client(self) -> QuorumClient:
        """A client of the node's quorum, with the node's certificate, for everything else."""
        if self._client is None:
            raise MisuseError("the node was not started: use `async with`")
        return self._client
