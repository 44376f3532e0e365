"""A migrating controller's operations on ZooKeeper. They block: call them from a thread.

Owns the connection and the claim. After a write of unknown outcome (a lost connection) the claim is
read again, and the next write compares the whole tree instead of single changes.

Source: KIP-866, "Controller Leadership", "Dual Write Mode".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.migration import writing, znodes
from quorate.migration.errors import FencedError, MigrationError, WrongClusterError, ZNodeError
from quorate.migration.operations import ZNodeOperation
from quorate.migration.reading import known_brokers
from quorate.migration.tls import ZooKeeperTls
from quorate.migration.znodes import Tree
from quorate.migration.zookeeper import Position, ZkClaim, ZooKeeper


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a synchronization or a dual write."""

    offset: int
    operations: int
    milliseconds: float
    """How long it took, in milliseconds."""


class ZkMigrationClient:
    """A migrating controller's connection to ZooKeeper, and its claim.

    connect, session_timeout_s, tls: of the connection. cluster_id: the quorum's, which must equal
    the one in ZooKeeper. on_write: called with each operation before it is written.
    """

    def __init__(
        self,
        connect: str,
        controller_id: int,
        cluster_id: str,
        *,
        session_timeout_s: float = 18.0,
        tls: ZooKeeperTls | None = None,
        on_write: Callable[[ZNodeOperation], None] = lambda _operation: None,
    ) -> None:
        self._connect = connect
        self._controller_id = controller_id
        self._cluster_id = cluster_id
        self._session_timeout_s = session_timeout_s
        self._tls = tls
        self._on_write = on_write
        self._client: ZooKeeper | None = None
        self._lease: ZkClaim | None = None
        self._is_unsure = False

    def close(self) -> None:
        """End the session. The claim stays in ZooKeeper: it is not bound to a session."""
        if self._client is not None:
            self._client.close()
        self._client = self._lease = None

    @property
    def client(self) -> ZooKeeper:
        """The connection, opened on first use. Raises ZooKeeperError."""
        if self._client is None:
            client = ZooKeeper(
                self._connect, session_timeout_s=self._session_timeout_s, tls=self._tls
            )
            client.start()
            self._client = client
        return self._client

    @property
    def zk_epoch(self) -> int:
        """The number that the claim wrote to `/controller_epoch`. Raises FencedError if none."""
        return self._claimed().zk_epoch

    def _claimed(self) -> ZkClaim:
        if self._lease is None:
            raise FencedError("ZooKeeper is not claimed by this controller")
        return self._lease

    def known_brokers(self) -> frozenset[int]:
        """Every broker that must take part (see `reading`); reads no partition znodes."""
        client = self.client
        topics = [f"{znodes.TOPICS}/{name}" for name in client.children(znodes.TOPICS)]
        trees = (znodes.BROKER_IDS, f"{znodes.CONFIG}/brokers", znodes.DELETE_TOPICS)
        return known_brokers(client.read_some((znodes.TOPICS, *topics), trees))

    def check_cluster(self) -> None:
        """Compare the cluster id in ZooKeeper. Raises WrongClusterError, ZooKeeperError."""
        node = self.client.read(znodes.CLUSTER_ID)
        try:
            found = None if node is None else node.object().get("id")
        except ZNodeError as error:
            raise WrongClusterError(f"zookeeper.connect={self._connect}: {error}") from None
        if found != self._cluster_id:
            says = "is missing" if node is None else f"contains {found}"
            raise WrongClusterError(
                f"zookeeper.connect={self._connect}: {znodes.CLUSTER_ID} {says}, but this quorum "
                f"was formatted for the cluster {self._cluster_id}: correct the ensemble or its "
                "chroot, or format the quorum for that cluster"
            )

    def claim(self, epoch: int) -> None:
        """Claim ZooKeeper. Raises FencedError, WrongClusterError, ZooKeeperError."""
        self.check_cluster()
        self._lease = self.client.claim(self._controller_id, epoch)
        self._is_unsure = False

    def read_tree(self) -> Tree:
        return self.client.read_tree()

    def synchronize(self, image: MetadataImage) -> Written:
        """Make ZooKeeper equal to the image. Raises FencedError, ZooKeeperError."""
        began = time.monotonic()
        zk_epoch = self._sure().zk_epoch
        tree = self.client.read_tree()
        return self._write(image, writing.operations(tree, writing.wanted(image, zk_epoch)), began)

    def write_changes(self, image: MetadataImage, changes: MetadataDelta) -> Written:
        """Write what changed to ZooKeeper. Raises FencedError, ZooKeeperError.

        After a write of unknown outcome this synchronizes everything.
        """
        if self._is_unsure:
            return self.synchronize(image)
        began = time.monotonic()
        lease = self._sure()
        scope = writing.scope(image, changes)
        tree = self.client.read_some(scope.nodes | scope.ancestors(), scope.trees)
        wanted = writing.wanted(image, lease.zk_epoch, changes)
        return self._write(image, writing.operations(tree, wanted), began)

    def _sure(self) -> ZkClaim:
        """The claim, read again after a write of unknown outcome. Raises MigrationError."""
        claim = self._claimed()
        if self._is_unsure:
            claim = self._lease = self.client.refresh(claim)
        return claim

    def _write(
        self, image: MetadataImage, operations: Iterable[ZNodeOperation], began: float
    ) -> Written:
        lease = self._sure()
        count = 0

        def counted() -> Iterator[ZNodeOperation]:
            nonlocal count
            for operation in operations:
                self._on_write(operation)
                count += 1
                yield operation

        position = Position(self._controller_id, lease.epoch, image.offset, image.epoch)
        try:
            self._lease = self.client.write(lease, counted(), position)
        except MigrationError:
            self._is_unsure = True
            raise
        self._is_unsure = False
        return Written(image.offset, count, (time.monotonic() - began) * 1000)
