"""A controller that takes part in the migration from ZooKeeper: runs the migration driver.

Owns the driver of KIP-866 on this node, and its operations in ZooKeeper. Steps:

0. The ensemble must hold this quorum's cluster. If it responds and holds none or another one, the
   process ends. The check does not apply if the log says that there is nothing to migrate. A
   controller without a quorum cannot know that yet: it logs the mismatch and waits for the quorum.
1. When this node leads and its metadata is empty, it first writes PRE_MIGRATION, together with
   metadata.version. From then until the copy is committed it accepts only broker registrations and
   heartbeats, DescribeCluster and RegisterController. All other requests fail with NOT_CONTROLLER.
2. Every controller registers itself in the log (`registration`), and states whether its
   `zookeeper.metadata.migration.enable` is true. The driver waits until it is true for all voters.
3. The outputs of the driver are carried out one at a time: in ZooKeeper by a worker thread, in the
   log by the metadata controller. Each result carries the epoch of its output.
4. Changes of the image are collected from the start of a synchronization on, and written with the
   next dual write.
5. A controller without the setting resigns if it leads while others have the setting. Once no voter
   has it and no broker is in ZooKeeper mode, the leader ends the migration for good
   (POST_MIGRATION).
6. If `quorate.kafka.listener.name` is set, Kafka's brokers find their controller on that listener
   (`kafka.listener`) from the start of the migration on. They replicate the metadata log as
   observers before they register. Without the listener they never register, and the driver waits
   for them without claiming ZooKeeper. Brokers in ZooKeeper mode receive leaders and ISRs after
   ZooKeeper holds the same state. Brokers in KRaft mode read the log, during the migration and
   after it.

Source: KIP-866; KIP-919 (controller registration).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from quorate.bridge.propagation.propagation import Propagation
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.controller.config import ControllerConfig
from quorate.controller.kafka.settings import LISTENER
from quorate.controller.migration.metrics import MigrationMetrics, migration_samples
from quorate.controller.migration.settings import ENABLE
from quorate.failpoints import failpoint
from quorate.log.meta_properties import random_uuid
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.managers.feature_manager import bootstrap_records
from quorate.metadata.requests import (
    BrokerHeartbeat,
    DescribeCluster,
    RegisterBroker,
    RegisterController,
)
from quorate.migration import driver as d
from quorate.migration.copying import copy
from quorate.migration.errors import FencedError, MigrationError, WrongClusterError
from quorate.migration.znodes import Tree
from quorate.process.extension import NodeComponents
from quorate.raft.roles import Leader
from quorate.records.metadata import (
    AbortTransactionRecord,
    MetadataRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
    encode,
)
from quorate.rpc.cancellation import cancel_tasks
from quorate.runtime.tasks import supervise
from quorate.telemetry.samples import Sample

if TYPE_CHECKING:
    from quorate.migration.zk_migration_client import ZkMigrationClient

LOGGER = logging.getLogger(__name__)

FIRST_LEVELS = {METADATA_VERSION: 21}
"""3.9-IV0, the last metadata.version that brokers in ZooKeeper mode support."""
APPEND_TIMEOUT_MS = 30_000

LOOK_PERIOD_S = 0.2
"""How often leadership and registrations are checked, seconds."""
LOG_KNOWN_S = 10.0
"""How long to wait for the committed log before a wrong ensemble is logged, seconds."""

GRACE_S = 3.0
"""How long a leader without the setting waits for the others to restart, seconds."""
POSITION_PERIOD_S = 5.0
"""How often the offset in /migration is updated while the log changes nothing else in ZooKeeper,
seconds.
"""

TAKEN_ALWAYS = (DescribeCluster, RegisterController)
TAKEN_BEFORE_THE_COPY = (RegisterBroker, BrokerHeartbeat, *TAKEN_ALWAYS)


class _AppendError(MigrationError):
    """The log rejected a batch, or the outcome of the append is unknown."""


class MigrationRunner:
    """The migration on one controller; implements `process.extension.Extension`."""

    def __init__(self, components: NodeComponents[ControllerConfig]) -> None:
        self.metrics = MigrationMetrics()
        self._settings = components.config.migration
        self._components = components
        self._raft = components.driver
        self._loader = components.loader
        self._metadata = components.metadata
        self._driver = d.Driver(enabled=self._settings.enabled)
        self._zk_client = _open_zk_client(components) if self._settings.enabled else None
        self._propagation = Propagation(
            components.config.node_id, components.config.migration.broker_listener
        )
        self._changes: MetadataDelta | None = None
        self._led: int | None = None
        self._prepared: int | None = None
        self._prepared_at = 0.0
        self._position_at = 0.0
        self._said: set[str] = set()
        self._wake = asyncio.Event()
        self._log_known = asyncio.Event()
        self._work: asyncio.Queue[tuple[int, d.Output]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start. Without the setting the tasks start only once the log holds a migration."""
        if self._settings.enabled:
            self._run()
        self._loader.add_listener(self._changed)

    def _run(self) -> None:
        for run in (self._look, self._obey):
            name = f"migration-{run.__name__.strip('_')}"
            self._tasks.append(supervise(run(), name, self._raft.fail))

    async def stop(self) -> None:
        await cancel_tasks(*self._tasks)
        await self._propagation.silence()
        if self._zk_client is not None:
            await asyncio.to_thread(self._zk_client.close)

    def samples(self) -> Iterator[Sample]:
        """The metrics of the migration, on the leader."""
        if isinstance(self._raft.node.core.role, Leader):
            yield from migration_samples(self._loader.image, self.metrics, self.lag)

    @property
    def state(self) -> d.State:
        return self._driver.state

    @property
    def lag(self) -> int:
        """ZkWriteBehindLag, in records."""
        return self._driver.lag

    def refuses(self, request: object) -> str:
        """Why the node must reject this metadata request for the time being, or ""."""
        undecided = self._settings.enabled and _is_new(self._loader.image)
        if isinstance(request, TAKEN_ALWAYS if undecided else TAKEN_BEFORE_THE_COPY):
            return ""
        if self._driver.accepts_requests and not undecided:
            return ""
        waits = self._driver.waits_for
        text = "the metadata has not been copied from ZooKeeper yet"
        return text + (f": waiting for {waits}" if waits else "")

    # --- inputs -----------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return self._raft.now_ms()

    def _changed(self, image: MetadataImage, changes: MetadataDelta) -> None:
        """Called by the loader for each change of the image."""
        if not self._tasks:
            if not image.features.migration_is_under_way:
                return
            self._run()
        if self._changes is not None:
            self._changes.add(changes)
        self._apply(image)
        self._wake.set()

    def _apply(self, image: MetadataImage) -> None:
        state = ZkMigrationState(image.features.zk_migration)
        brokers = frozenset(
            broker.broker_id
            for broker in image.cluster.brokers.values()
            if broker.is_migrating_zk_broker
        )
        self._driver.applied(
            image.offset, state, brokers, self._now_ms, in_transaction=image.in_transaction
        )
        if self._driver.state is d.State.INACTIVE:
            self._changes = None

    async def _look(self) -> None:
        """Feed leadership, readiness and time to the driver, and queue its outputs."""
        while True:
            self._wake.clear()
            if self._knows_the_log():
                self._log_known.set()
            try:
                await self._follow()
            except _AppendError as error:
                LOGGER.warning("migration: %s", error)
            self._driver.tick(self._now_ms)
            for output in self._driver.take_outputs():
                self._work.put_nowait((self._driver.epoch or -1, output))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_PERIOD_S)

    async def _follow(self) -> None:
        epoch = self._raft.node.epoch if self._metadata.is_active else None
        if self._led is not None and self._led != epoch:
            self._led = self._prepared = None
            self._driver.resigned()
        if epoch is None:
            return
        image = self._loader.image
        if self._prepared != epoch:
            self._prepared, self._prepared_at = epoch, asyncio.get_running_loop().time()
        state = ZkMigrationState(image.features.zk_migration)
        if not self._settings.enabled:
            await self._lead_without_setting(state, image)
        elif _is_new(image):
            await self._append(
                [
                    *([] if image.features.metadata_version else bootstrap_records(FIRST_LEVELS)),
                    ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION, version=0),
                ]
            )
            LOGGER.info("migration: begun, PRE_MIGRATION is in the log")
        elif state in (ZkMigrationState.NONE, ZkMigrationState.POST_MIGRATION):
            self._complain(
                f"{ENABLE}=true, but this cluster "
                + (
                    "was never in ZooKeeper: it has metadata of its own"
                    if state is ZkMigrationState.NONE
                    else "has finished its migration"
                )
                + "; the setting is ignored: remove it"
            )
        if self._led is None and self._metadata.is_active and self._raft.node.epoch == epoch:
            self._led = epoch
            self._apply(self._loader.image)
            self._driver.led(epoch, self._now_ms)
        missing = [n for n, ready in self._readiness(self._loader.image).items() if not ready]
        self._driver.controllers(
            ready=not missing,
            reason=f"controllers {_list(missing)} to register with {ENABLE}=true",
            now_ms=self._now_ms,
        )

    def _readiness(self, image: MetadataImage) -> dict[int, bool | None]:
        """Whether each voter has registered with the setting; None if it has not registered."""
        ready = {
            controller_id: controller.zk_migration_ready
            for controller_id, controller in image.cluster.controllers.items()
        }
        return {voter.id: ready.get(voter.id) for voter in self._raft.node.voters}

    async def _lead_without_setting(self, state: ZkMigrationState, image: MetadataImage) -> None:
        """Step 5."""
        if state is not ZkMigrationState.MIGRATION:
            return
        readiness = self._readiness(image).items()
        with_it = [node for node, ready in readiness if ready is not False]
        if not with_it:
            brokers = image.cluster.brokers.values()
            left = sorted(b.broker_id for b in brokers if b.is_migrating_zk_broker)
            if left:
                self._complain(
                    f"{ENABLE} is no longer true on any controller, but brokers {_list(left)} "
                    "are still in ZooKeeper mode: restart them with process.roles=broker to end "
                    "the migration"
                )
                return
            await self._append([ZkMigrationStateRecord(ZkMigrationState.POST_MIGRATION, version=0)])
            LOGGER.info(
                "migration: finalized, since %s is no longer true on any controller", ENABLE
            )
            return
        if asyncio.get_running_loop().time() - self._prepared_at < GRACE_S:
            return
        text = (
            f"a migration from ZooKeeper is under way, but {ENABLE} is not true here, while "
            f"controllers {_list(with_it)} have it: set it and zookeeper.connect here, or "
            "restart all controllers without it to end the migration"
        )
        LOGGER.error("%s", text)
        self._raft.resign(text)

    def _complain(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOGGER.error("%s", text)

    # --- outputs ----------------------------------------------------------------------------------

    @property
    def _zookeeper(self) -> ZkMigrationClient:
        assert self._zk_client is not None, "without the setting nothing is done in ZooKeeper"
        return self._zk_client

    async def _check(self) -> None:
        """Step 0. An ensemble that does not respond here is checked again by every claim."""
        try:
            async with asyncio.timeout(LOG_KNOWN_S):
                await self._log_known.wait()
        except TimeoutError:
            await self._warn_of_another_cluster()
            await self._log_known.wait()
        image = self._loader.image
        if not _is_new(image) and not image.features.migration_is_under_way:
            return
        try:
            await asyncio.to_thread(self._zookeeper.check_cluster)
        except WrongClusterError as error:
            self._components.on_fatal(error)
        except (MigrationError, OSError) as error:
            LOGGER.warning("migration: %s", error)

    async def _warn_of_another_cluster(self) -> None:
        """Log that the ensemble holds no cluster, or another one, while there is no quorum.

        The process goes on: the committed log may hold a migration that has ended, which needs no
        ensemble. The log line matters because controllers that ended for this reason may be why
        there is no quorum.
        """
        try:
            await asyncio.to_thread(self._zookeeper.check_cluster)
        except (MigrationError, OSError) as error:
            self._complain(str(error))

    def _knows_the_log(self) -> bool:
        """Whether the image holds everything that was committed before this epoch."""
        node = self._raft.node
        committed = node.high_watermark
        return (
            node.is_attached
            and self._loader.offset >= committed
            and node.epoch_before(committed) == node.epoch
        )

    async def _obey(self) -> None:
        if self._settings.enabled:
            await self._check()
        while True:
            epoch, output = await self._work.get()
            if isinstance(output, d.Moved):
                LOGGER.info(
                    "migration: %s after %s, %s", output.after, output.before, output.reason
                )
                if output.after is d.State.INACTIVE:
                    self._changes = None
                    await self._propagation.silence()
                failpoint(f"migration.{output.after}")
                continue
            try:
                await self._do(epoch, output)
            except FencedError as error:
                LOGGER.error("migration: %s", error)
                self._driver.fenced(epoch)
            except (MigrationError, OSError) as error:
                LOGGER.warning("migration: %s: %s, will be retried", type(output).__name__, error)
                self._driver.failed(epoch, self._now_ms)
            except Exception as error:
                LOGGER.exception("migration: %s failed", type(output).__name__)
                self._driver.failed(epoch, self._now_ms)
                self._complain(f"migration: {error}")
            self._wake.set()

    async def _do(self, epoch: int, output: d.Output) -> None:
        if isinstance(output, d.Resign):
            self._raft.resign("another controller has claimed ZooKeeper")
            return
        if epoch != self._driver.epoch:
            return
        match output:
            case d.ReadBrokers():
                brokers = await asyncio.to_thread(self._zookeeper.known_brokers)
                self._driver.brokers_read(epoch, brokers, self._now_ms)
            case d.Claim():
                await asyncio.to_thread(self._zookeeper.claim, output.epoch)
                failpoint("migration.claimed")
                self._driver.claimed(epoch)
            case d.ReadTree():
                tree = await asyncio.to_thread(self._zookeeper.read_tree)
                self._driver.tree_read(epoch, tree)
            case d.Copy():
                await self._copy(output.tree)
                self._driver.copied(epoch)
            case d.AbortCopy():
                if self._loader.image.in_transaction:
                    await self._abort("the active controller changed")
            case d.Synchronize():
                self._changes = MetadataDelta()
                image = self._loader.image.copy()
                written = await asyncio.to_thread(self._zookeeper.synchronize, image)
                self.metrics.snapshot_ms = written.milliseconds
                LOGGER.info(
                    "migration: synchronized ZooKeeper with offset %d, %d operations, %.0f ms",
                    written.offset,
                    written.operations,
                    written.milliseconds,
                )
                self._driver.synchronized(epoch, written.offset)
            case d.TellBrokers():
                zk_epoch = self._zookeeper.zk_epoch
                if self._components.config.kafka.name is None:
                    self._complain(f"migration: {LISTENER} is not set: no broker finds this node")
                await self._propagation.tell_everything(self._loader.image, zk_epoch)
                self._driver.brokers_notified(epoch, self._now_ms)
            case d.WriteChanges():
                offset = await self._write_changes()
                self._driver.changes_written(epoch, offset, self._now_ms)

    async def _write_changes(self) -> int:
        """Perform the dual write, and return the offset up to which ZooKeeper reflects the log.

        ZooKeeper and the brokers receive a copy of the image with exactly these changes, whatever
        is committed in the meantime.
        """
        changes, self._changes = self._changes or MetadataDelta(), MetadataDelta()
        image = self._loader.image
        now = asyncio.get_running_loop().time()
        if not changes and now - self._position_at < POSITION_PERIOD_S:
            return image.offset
        self._position_at = now
        try:
            image = image.copy()
            written = await asyncio.to_thread(self._zookeeper.write_changes, image, changes)
        except BaseException:
            changes.add(self._changes or MetadataDelta())
            self._changes = changes
            raise
        if changes:
            self.metrics.delta_ms = written.milliseconds
            await self._propagation.tell(image, changes)
        return written.offset

    # --- the log ----------------------------------------------------------------------------------

    async def _copy(self, tree: Tree) -> None:
        """Copy the whole tree to the log in one transaction. Any error aborts it."""
        batches = copy(tree, random_uuid, self._loader.image.level)
        count = 0
        begun = False
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                begun = True
                await self._append(batch)
                count += len(batch)
                failpoint("migration.copying" if count > 1 else "migration.copy-begun")
        except BaseException as error:
            if begun:
                with contextlib.suppress(_AppendError):
                    await self._abort(str(error) or type(error).__name__)
            raise
        LOGGER.info("migration: copied %d records in one transaction", count)

    async def _abort(self, reason: str) -> None:
        await self._append([AbortTransactionRecord(reason[:200], version=0)])

    async def _append(self, records: list[MetadataRecord]) -> None:
        values = [encode(record, record.version) for record in records]
        error, _, text = await self._metadata.append_records(values, APPEND_TIMEOUT_MS)
        if error is not ErrorCode.NONE:
            raise _AppendError(f"the append to the log failed: {error.name}{text and ': '}{text}")


def _is_new(image: MetadataImage) -> bool:
    """Whether the log holds no metadata that a copy could conflict with."""
    return (
        image.features.zk_migration == ZkMigrationState.NONE
        and not image.topics.names
        and not image.cluster.brokers
        and not image.configs.resources
        and not image.in_transaction
    )


def _open_zk_client(components: NodeComponents[ControllerConfig]) -> ZkMigrationClient:
    from quorate.migration.zk_migration_client import ZkMigrationClient  # noqa: PLC0415 - needs the extra

    settings = components.config.migration
    return ZkMigrationClient(
        settings.connect or "",
        components.config.node_id,
        components.cluster_id,
        session_timeout_s=settings.session_timeout_ms / 1000,
        tls=settings.tls,
        on_write=lambda _operation: failpoint("migration.writing"),
    )


def _list(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
