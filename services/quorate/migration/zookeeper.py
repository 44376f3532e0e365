"""The adapter to a ZooKeeper ensemble (kazoo): reads the tree, claims it, writes under the claim.

Every write is one ZooKeeper transaction `[check /controller_epoch, set or check /migration, …]`: it
succeeds only while no other controller has claimed ZooKeeper since, so two controllers that both
believe they lead cannot both write (KIP-866, "Controller Leadership" and "Dual Write Mode").

The methods block; call them from a thread. One object belongs to one thread at a time.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from quorate.migration import znodes
from quorate.migration.errors import FencedError, ZooKeeperError
from quorate.migration.operations import Create, CreateSequential, Delete, SetData, ZNodeOperation
from quorate.migration.tls import ZooKeeperTls
from quorate.migration.znodes import Tree, ZNode

READS_IN_FLIGHT = 256
"""How many reads are in flight at once."""
CONNECT_TIMEOUT_S = 15.0
COMMIT_TIMEOUT_S = 30.0
"""How long to wait for a write, seconds. After a timeout its outcome is unknown."""
WRITE_OPERATIONS_MAX = 100
WRITE_BYTES_MAX = 400 * 1024
"""Limits of one transaction, which keep its request below ZooKeeper's limit of 1 MiB."""

Progress = Callable[[int, int], None]
"""Called with the number of znodes read and the number of znodes known so far."""


@dataclass(frozen=True, slots=True)
class Position:
    """The data of `/migration`: the writing controller, and the log position in ZooKeeper."""

    controller_id: int
    controller_epoch: int
    offset: int
    epoch: int

    def encode(self) -> bytes:
        fields = {
            "version": 0,
            "kraft_controller_id": self.controller_id,
            "kraft_controller_epoch": self.controller_epoch,
            "kraft_metadata_offset": self.offset,
            "kraft_metadata_epoch": self.epoch,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, node: ZNode) -> Position:
        """Raises ZNodeError."""
        return cls(
            node.number("kraft_controller_id"),
            node.number("kraft_controller_epoch"),
            node.number("kraft_metadata_offset", bits=64),
            node.number("kraft_metadata_epoch"),
        )


@dataclass(frozen=True, slots=True)
class ZkClaim:
    """A claim on ZooKeeper."""

    controller_id: int
    epoch: int
    zk_epoch: int
    """The number in `/controller_epoch`."""
    epoch_version: int
    """The version of `/controller_epoch`, which writes check."""
    migration_version: int
    """The version of `/migration`, which writes check."""
    position: Position


class ZooKeeper:
    """A connection. connect: as in `zookeeper.connect`, `host:port,…/chroot`.

    Znodes are created with an open ACL, as Kafka does without zookeeper.set.acl.
    """

    def __init__(
        self, connect: str, *, session_timeout_s: float = 18.0, tls: ZooKeeperTls | None = None
    ) -> None:
        self.connect_string = connect
        self._acl: Sequence[ACL] = OPEN_ACL_UNSAFE
        self._client = KazooClient(
            hosts=connect,
            timeout=session_timeout_s,
            use_ssl=tls is not None,
            ca=tls and str(tls.ca),
            certfile=tls and tls.key_store and str(tls.key_store),
            keyfile=tls and tls.key_store and str(tls.key_store),
            check_hostname=tls is not None and tls.check_host,
            connection_retry=KazooRetry(max_tries=-1, max_delay=2.0),
            command_retry=KazooRetry(max_tries=3, max_delay=2.0),
        )

    def start(self) -> None:
        """Connect. Raises ZooKeeperError."""
        try:
            self._client.start(timeout=CONNECT_TIMEOUT_S)
        except (KazooTimeoutError, KazooException) as error:
            self._client.stop()
            raise ZooKeeperError(
                f"zookeeper.connect={self.connect_string}: no session within "
                f"{CONNECT_TIMEOUT_S:.0f} s ({error})"
            ) from None

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    # --- reading ----------------------------------------------------------------------------------

    def read(self, path: str) -> ZNode | None:
        """Read one znode; None if it does not exist. Raises ZooKeeperError."""
        try:
            data, stat = self._client.retry(self._client.get, path)
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            raise self._failed(f"reading {path}", error) from None
        return ZNode(path, data, stat.version, stat.ephemeralOwner)

    def children(self, path: str) -> list[str]:
        """The names of a znode's children; [] if it does not exist. Raises ZooKeeperError."""
        try:
            return sorted(self._client.retry(self._client.get_children, path))
        except NoNodeError:
            return []
        except (KazooException, KazooTimeoutError) as error:
            raise self._failed(f"listing {path}", error) from None

    def broker_ids(self) -> frozenset[int]:
        """The ids of the brokers that are registered in ZooKeeper."""
        return frozenset(int(name) for name in self.children(znodes.BROKER_IDS) if name.isdigit())

    def read_tree(self, on_progress: Progress = lambda _read, _known: None) -> Tree:
        """Read all migrated znodes in parallel, without those that are deleted meanwhile."""
        single = (*znodes.METADATA_NODES, "/brokers", "/admin", *znodes.NOTICES)
        return self.read_some(single, znodes.METADATA_ROOTS, on_progress)

    def read_some(
        self,
        nodes: Iterable[str],
        trees: Iterable[str],
        on_progress: Progress = lambda _read, _known: None,
    ) -> Tree:
        """Read single znodes and whole subtrees, as far as they exist. Raises ZooKeeperError."""
        get, list_children = self._client.get_async, self._client.get_children_async
        found: dict[str, ZNode] = {}
        waiting = deque((root, True) for root in trees)
        roots = {root for root, _ in waiting}
        waiting.extend((path, False) for path in nodes if path not in roots)
        known = len(waiting)
        while waiting:
            batch = [waiting.popleft() for _ in range(min(READS_IN_FLIGHT, len(waiting)))]
            reads = [
                (
                    path,
                    None if below and _is_partition(path) else get(path),
                    list_children(path) if below and not _is_state(path) else None,
                )
                for path, below in batch
            ]
            for path, data, names in reads:
                try:
                    node = ZNode(path)
                    if data is not None:
                        content, stat = data.get(timeout=CONNECT_TIMEOUT_S)
                        node = ZNode(path, content, stat.version, stat.ephemeralOwner)
                    children = () if names is None else names.get(timeout=CONNECT_TIMEOUT_S)
                except NoNodeError:
                    known -= 1
                    continue
                except (KazooException, KazooTimeoutError) as error:
                    raise self._failed(f"reading {path}", error) from None
                found[path] = node
                waiting.extend((f"{path}/{name}", True) for name in children)
                known += len(children)
            on_progress(len(found), known)
        return Tree(found.values())

    # --- the claim --------------------------------------------------------------------------------

    def claim(self, controller_id: int, epoch: int) -> ZkClaim:
        """Become ZooKeeper's controller, for the quorum's leader of `epoch`.

        One transaction, conditional on the versions read before it: it increments
        /controller_epoch, replaces the ephemeral /controller with a persistent one, and writes the
        controller into /migration, whose log offset stays. From then on every write of a controller
        that claimed ZooKeeper or was elected earlier fails, and so does a claim whose reads came
        before this one.

        Raises FencedError if another controller of the same epoch, or one of a later epoch, holds
        ZooKeeper; ZNodeError if one of these znodes is malformed. Raises ZooKeeperError, also after
        a concurrent change, which may be retried.
        """
        current = self.read(znodes.CONTROLLER_EPOCH)
        holder = self.read(znodes.CONTROLLER)
        node = self.read(znodes.MIGRATION)
        _refuse_older(holder, node, controller_id, epoch)
        zk_epoch = 1 if current is None else current.integer(current.text()) + 1
        position = Position(controller_id, epoch, -1, -1)
        if node is not None:
            before = Position.decode(node)
            position = replace(before, controller_id=controller_id, controller_epoch=epoch)
        transaction = self._client.transaction()
        epoch_version = self._put(transaction, znodes.CONTROLLER_EPOCH, current, b"%d" % zk_epoch)
        if holder is not None:
            transaction.delete(znodes.CONTROLLER, holder.version)
        transaction.create(znodes.CONTROLLER, _controller(controller_id, epoch), self._acl)
        migration_version = self._put(transaction, znodes.MIGRATION, node, position.encode())
        try:
            self._commit(transaction, "claiming ZooKeeper")
        except FencedError:
            raise ZooKeeperError(
                "claiming ZooKeeper: another controller claimed it at the same time"
            ) from None
        return ZkClaim(controller_id, epoch, zk_epoch, epoch_version, migration_version, position)

    def _put(self, transaction: Any, path: str, before: ZNode | None, data: bytes) -> int:
        """Create a missing znode or set an unchanged one; returns the version it will have."""
        if before is None:
            transaction.create(path, data, self._acl)
            return 0
        transaction.set_data(path, data, version=before.version)
        return before.version + 1

    def refresh(self, lease: ZkClaim) -> ZkClaim:
        """Read the claim again after a write of unknown outcome.

        Raises FencedError if another controller has claimed ZooKeeper since, or ZooKeeperError.
        """
        current = self.read(znodes.CONTROLLER_EPOCH)
        node = self.read(znodes.MIGRATION)
        if current is None or node is None or current.version != lease.epoch_version:
            raise FencedError("another controller has claimed ZooKeeper since")
        return replace(lease, migration_version=node.version, position=Position.decode(node))

    def release(self) -> None:
        """Give ZooKeeper back to its brokers by deleting /controller and /migration.

        One transaction, conditional on the versions read before it: a concurrent claim or election
        makes it fail. The brokers elect a controller as soon as /controller is deleted; a
        /controller that belongs to a broker stays (KIP-866 "Rollback"). Raises ZooKeeperError;
        ZNodeError if /controller is malformed.
        """
        current = self.read(znodes.CONTROLLER_EPOCH)
        holder, migration = self.read(znodes.CONTROLLER), self.read(znodes.MIGRATION)
        transaction = self._client.transaction()
        if current is not None:
            transaction.check(znodes.CONTROLLER_EPOCH, current.version)
        if migration is not None:
            transaction.delete(znodes.MIGRATION, migration.version)
        if holder is not None and not _is_brokers(holder):
            transaction.delete(znodes.CONTROLLER, holder.version)
        try:
            self._commit(transaction, "giving ZooKeeper back")
        except FencedError:
            raise ZooKeeperError(
                "giving ZooKeeper back: a controller took it at the same time"
            ) from None

    # --- writing under the claim ------------------------------------------------------------------

    def write(
        self, lease: ZkClaim, operations: Iterable[ZNodeOperation], position: Position
    ) -> ZkClaim:
        """Write operations in transactions, the last of which sets `/migration` to `position`.

        Each transaction checks the claim. After a FencedError nothing more was written.
        """
        batch: list[ZNodeOperation] = []
        size = 0
        for operation in operations:
            if len(batch) >= WRITE_OPERATIONS_MAX or size >= WRITE_BYTES_MAX:
                lease = self._write(lease, batch, None)
                batch, size = [], 0
            batch.append(operation)
            size += len(operation.path) + len(getattr(operation, "data", None) or b"")
        return self._write(lease, batch, position)

    def _write(
        self, lease: ZkClaim, operations: Sequence[ZNodeOperation], position: Position | None
    ) -> ZkClaim:
        transaction = self._client.transaction()
        transaction.check(znodes.CONTROLLER_EPOCH, lease.epoch_version)
        if position is None:
            transaction.check(znodes.MIGRATION, lease.migration_version)
        else:
            transaction.set_data(
                znodes.MIGRATION, position.encode(), version=lease.migration_version
            )
        for operation in operations:
            match operation:
                case CreateSequential(prefix, data):
                    transaction.create(prefix, data, self._acl, sequence=True)
                case Create(path, data):
                    transaction.create(path, data or b"", self._acl)
                case SetData(path, data):
                    transaction.set_data(path, data or b"")
                case Delete(path):
                    transaction.delete(path)
        self._commit(transaction, f"writing {len(operations)} znodes", operations)
        if position is None:
            return lease
        return replace(lease, migration_version=lease.migration_version + 1, position=position)

    def _commit(
        self, transaction: Any, what: str, operations: Sequence[ZNodeOperation] = ()
    ) -> None:
        try:
            results = transaction.commit_async().get(timeout=COMMIT_TIMEOUT_S)
        except (KazooException, KazooTimeoutError) as error:
            raise self._failed(what, error) from None
        for index, result in enumerate(results):
            if isinstance(result, RolledBackError | RuntimeInconsistency):
                continue
            if isinstance(result, BadVersionError) or (
                isinstance(result, NodeExistsError | NoNodeError)
                and index < len(results) - len(operations)
            ):
                raise FencedError(f"{what}: another controller has claimed ZooKeeper since")
            if isinstance(result, Exception):
                operation = operations[index - (len(results) - len(operations))]
                raise ZooKeeperError(f"{what}: {operation.path}: {type(result).__name__}")

    def _failed(self, what: str, error: Exception) -> ZooKeeperError:
        reason = str(error) or type(error).__name__
        return ZooKeeperError(f"zookeeper.connect={self.connect_string}: {what}: {reason}")


def _is_partition(path: str) -> bool:
    """Whether a path is a partition's folder, which has no data: only its children are listed.

    Partitions make up most of a large tree; each takes two reads, the folder and its state.
    """
    parts = path.split("/")
    return len(parts) == 6 and parts[1:3] == ["brokers", "topics"] and parts[4] == "partitions"


def _is_state(path: str) -> bool:
    """Whether a path is a partition's state, which has no children."""
    return path.endswith("/state") and _is_partition(path.removesuffix("/state"))


def _refuse_older(
    holder: ZNode | None, migration: ZNode | None, controller_id: int, epoch: int
) -> None:
    """Raise FencedError if a leader of a later epoch, or another one of `epoch`, has a claim.

    Raises ZNodeError if a znode is malformed.

    /migration names the last claim even if /controller is missing. It is outdated, and ignored,
    once a broker holds /controller again.
    """
    claims = []
    if holder is not None:
        claims.append((holder.number("brokerid"), holder.number("kraftControllerEpoch", -1)))
    if migration is not None and not _is_brokers(holder):
        position = Position.decode(migration)
        claims.append((position.controller_id, position.controller_epoch))
    for other_id, other in claims:
        if other > epoch or (other == epoch and other_id != controller_id):
            raise FencedError(
                f"controller {other_id} holds ZooKeeper since epoch {other}, ours is {epoch}"
            )


def _is_brokers(holder: ZNode | None) -> bool:
    """Whether a /controller belongs to a broker in ZooKeeper mode. Raises ZNodeError."""
    return holder is not None and holder.number("kraftControllerEpoch", -1) < 0


def _controller(controller_id: int, epoch: int) -> bytes:
    """The data of /controller, in the version that KIP-866 adds."""
    fields = {
        "version": 2,
        "brokerid": controller_id,
        "timestamp": str(time.time_ns() // 1_000_000),
        "kraftControllerEpoch": epoch,
    }
    return json.dumps(fields, separators=(",", ":")).encode()
