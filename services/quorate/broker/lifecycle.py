"""The broker's lifecycle at the controller: registration, heartbeats, controlled shutdown.

1. Register with a new incarnation id and the epoch of the last clean shutdown. While an earlier
   process of this id still has a session, the controller rejects the registration
   (DUPLICATE_BROKER_REGISTRATION), and the broker retries until `registration_timeout_ms`.
2. Send a heartbeat every `heartbeat_interval_ms`, each with the last replayed metadata offset. The
   broker is fenced until that offset reaches its own registration, and when its session expires. It
   asks to stay fenced until its replicas match the metadata (`ready`).
3. Controlled shutdown: heartbeats request it until the controller has moved all leaderships and all
   active brokers have passed that offset, or until the timeout.
4. STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED: another process has registered with this id, or the
   id was unregistered. This process can never be unfenced again, and stops.

Source: KIP-631 "Broker registration and heartbeats", KIP-841; Kafka's BrokerLifecycleManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import StrEnum

from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata.requests import (
    BrokerFeature,
    BrokerHeartbeat,
    BrokerHeartbeatResponse,
    RegisterBroker,
)
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.errors import AdminError, ClientError
from quorate.rpc.metadata_client import MetadataClient
from quorate.runtime.tasks import supervise

LOGGER = logging.getLogger(__name__)

REGISTRATION_RETRY_MS = 200
SHUTDOWN_HEARTBEAT_MS = 100
"""Pauses between attempts to register, and between heartbeats while shutting down."""

REPLACED = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class LifecycleError(Exception):
    """The broker cannot be part of the cluster; the message gives the reason."""


class BrokerState(StrEnum):
    """The state of this broker at the controller."""

    STARTING = "starting"
    FENCED = "fenced"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting_down"


class Lifecycle:
    """Registers the broker and sends its heartbeats.

    metadata_offset: returns the last replayed offset. fail: called when step 4 applies, or when the
    heartbeat task fails.
    """

    def __init__(
        self,
        registration: RegisterBroker,
        client: MetadataClient,
        *,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        registration_timeout_ms: int,
        metadata_offset: Callable[[], int],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.state = BrokerState.STARTING
        self.broker_epoch = -1
        self.ready = False
        self.unfenced = asyncio.Event()
        self._registration = registration
        self._client = client
        self._interval_ms = heartbeat_interval_ms
        self._session_ms = session_timeout_ms
        self._registration_timeout_ms = registration_timeout_ms
        self._metadata_offset = metadata_offset
        self._fail = fail
        self._wants_shutdown = False
        self._shut_down = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def why_fenced(self) -> str:
        """Why this broker is not in service, "" while it is unfenced."""
        if self.unfenced.is_set():
            return ""
        match self.state:
            case BrokerState.STARTING:
                return "this broker is not registered yet"
            case BrokerState.SHUTTING_DOWN:
                return "this broker is shutting down"
        return "this broker is fenced"

    async def register(self) -> int:
        """Register (step 1); return the broker epoch, the offset of the registration record.

        LifecycleError if the registration is rejected permanently, or until the timeout.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._registration_timeout_ms / 1000
        said = ""
        while True:
            left_ms = round((deadline - loop.time()) * 1000)
            if left_ms <= 0:
                raise LifecycleError(
                    f"broker {self._registration.broker_id} cannot register: {said}"
                )
            try:
                answer = await self._client.ask(
                    self._registration, timeout_ms=min(left_ms, self._session_ms)
                )
            except ClientError as error:
                text, is_final = str(error), False
                if isinstance(error, AdminError):
                    is_final = _is_final(error.code)
            else:
                if answer.error is ErrorCode.NONE:
                    self.broker_epoch = answer.broker_epoch
                    self.state = BrokerState.FENCED
                    return self.broker_epoch
                text = f"{answer.error.name} {answer.message}".rstrip()
                is_final = _is_final(answer.error)
            if is_final:
                raise LifecycleError(
                    f"broker {self._registration.broker_id} cannot register: {text}"
                )
            if text != said:
                LOGGER.info("not registered yet: %s", text)
                said = text
            await asyncio.sleep(REGISTRATION_RETRY_MS / 1000)

    def start(self) -> None:
        """Start sending heartbeats."""
        self._task = supervise(self._run(), "heartbeats", self._fail, endless=False)

    def hurry(self) -> None:
        """Send the next heartbeat immediately, because the controller waits for its content."""
        self._hurry.set()

    async def shut_down(self, timeout_ms: int) -> bool:
        """Request a controlled shutdown (step 3); True if the controller agreed in time."""
        self._wants_shutdown = True
        self.state = BrokerState.SHUTTING_DOWN
        self._hurry.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._shut_down.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    async def _run(self) -> None:
        while not self._shut_down.is_set():
            self._hurry.clear()
            heartbeat = BrokerHeartbeat(
                self._registration.broker_id,
                self.broker_epoch,
                self._metadata_offset(),
                want_fence=not self.ready,
                want_shutdown=self._wants_shutdown,
            )
            try:
                answer = await self._client.ask(heartbeat, timeout_ms=self._session_ms // 2)
            except AdminError as error:
                answer = BrokerHeartbeatResponse(error=error.code, message=error.message)
            except ClientError as error:
                answer = BrokerHeartbeatResponse(
                    error=ErrorCode.NETWORK_EXCEPTION, message=str(error)
                )
            if not self._take(answer):
                return
            await self._pause(answer)

    async def _pause(self, answer: BrokerHeartbeatResponse) -> None:
        pause_ms = self._interval_ms
        if self._wants_shutdown or (self.ready and answer.is_fenced):
            # Heartbeats are more frequent while the broker waits to be unfenced or to shut down.
            pause_ms = min(pause_ms, SHUTDOWN_HEARTBEAT_MS)
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._hurry.wait()
        except TimeoutError:
            return

    def _take(self, answer: BrokerHeartbeatResponse) -> bool:
        """Handle a heartbeat response; False if no more heartbeats are to be sent."""
        if answer.error in REPLACED:
            if self._wants_shutdown:
                self._shut_down.set()
                return False
            self._fail(
                LifecycleError(
                    f"broker {self._registration.broker_id} with epoch {self.broker_epoch} is no "
                    f"longer known to the controller ({answer.error.name}): another process has "
                    "registered with this id, or it was unregistered"
                )
            )
            return False
        if answer.error is not ErrorCode.NONE:
            LOGGER.info("heartbeat failed: %s %s", answer.error.name, answer.message)
            return True
        if answer.should_shut_down:
            self._shut_down.set()
            return False
        if not self._wants_shutdown:
            state = BrokerState.FENCED if answer.is_fenced else BrokerState.RUNNING
            if state is not self.state:
                LOGGER.info("%s (epoch %d)", state.value, self.broker_epoch)
            self.state = state
            if state is BrokerState.RUNNING:
                self.unfenced.set()
            else:
                self.unfenced.clear()
        return True


def _is_final(error: ErrorCode) -> bool:
    """Whether no retry of the registration can succeed."""
    return error in (
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )


def supported_features(supported: Mapping[str, VersionRange]) -> tuple[BrokerFeature, ...]:
    """Features with the levels that this broker supports."""
    return tuple(BrokerFeature(name, levels) for name, levels in sorted(supported.items()))
