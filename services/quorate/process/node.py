"""The replica of the metadata log in every node: a controller may vote, a broker observes.

A `MetadataReplica` consists of the raft node, which starts from the recovered state, the driver
that owns it, the transport to other nodes, the loader of the metadata image, and the snapshotter.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.log.disk import FILE_MODE
from quorate.log.meta_properties import MetaProperties
from quorate.log.metadata_log import MetadataLog, partition_directory
from quorate.log.quorum_state import REMOVED_MARKER, QuorumStateFile
from quorate.log.recovery import log_recovery
from quorate.process.component import Component
from quorate.process.log_level import LogLevelConfig
from quorate.process.node_config import NodeConfig
from quorate.process.shutdown import Shutdown
from quorate.process.storage import Storage
from quorate.raft import InitialState, LogState, RaftConfig, RaftNode
from quorate.raft import outputs as out
from quorate.raft.config import VoterSettings
from quorate.raft.types import ReplicaKey, VoterSet
from quorate.rpc.client.transport import Peers, PeerTransport
from quorate.rpc.tls import TlsConfig
from quorate.runtime.clock import Clock
from quorate.runtime.driver import RaftDriver
from quorate.runtime.leader_search_log import LeaderSearchLog
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.outbound import Outbound
from quorate.runtime.snapshot_policy import SnapshotPolicy
from quorate.runtime.snapshots import Snapshotter
from quorate.telemetry.logs import NodeContext

if TYPE_CHECKING:
    from quorate.runtime.tracing import WriteTraces

LOGGER = logging.getLogger(__name__)

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of a batch in the metadata log, bytes."""


PeersFactory = Callable[[Peers, Callable[[], VoterSet]], Peers]
"""Makes a transport from the one over gRPC, and a function that returns the current voters."""


class MetadataReplica:
    """One replica, in the process that owns its storage. `components` start and stop it.

    raft: see `raft_config`. tls: for connections to other nodes. on_role: logs a role change.
    peers: makes another transport between controllers from the one over gRPC.
    """

    def __init__(
        self,
        config: NodeConfig,
        storage: Storage,
        raft: RaftConfig,
        shutdown: Shutdown,
        context: NodeContext,
        *,
        tls: TlsConfig | None,
        on_role: Callable[[out.RoleChanged], None],
        policy: SnapshotPolicy | None = None,
        traces: WriteTraces | None = None,
        peers: PeersFactory | None = None,
    ) -> None:
        self.on_leadership: Callable[[out.LeadershipAcquired | out.LeadershipLost], None] = (
            lambda _: None
        )
        """Called when this replica gains or loses leadership. Set it before the start."""
        self.on_committed: Callable[[int], None] = lambda _: None
        """Called after each advance of the high watermark. Set it before the start."""
        log = storage.log
        directory = partition_directory(config.metadata_log_dir)
        quorum_state = QuorumStateFile(directory)
        self._removed_marker = directory / REMOVED_MARKER
        initial = _initial_state(log, quorum_state, self._removed_marker, can_vote=raft.can_vote)
        log_recovery(log.recovered)
        self.clock = Clock()
        random_source = random.Random()  # noqa: S311 - it spreads timers
        self._raft = RaftNode(raft, initial, random_source, self.clock.now_ms())
        self.transport: Peers = PeerTransport(
            storage.meta.cluster_id,
            tls,
            is_encrypted=config.is_encrypted,
            resolve=lambda endpoint: config.grpc_endpoint(endpoint, self._raft.voters),
        )
        if peers is not None:
            self.transport = peers(self.transport, lambda: self._raft.voters)
        self.loader = MetadataLoader(log, on_fatal=shutdown.fail)
        self.loader.add_listener(LogLevelConfig(config, context).changed)
        self.driver = storage.driver = RaftDriver(
            self._raft,
            log,
            quorum_state,
            Outbound(self.transport),
            self.clock,
            on_fatal=shutdown.fail,
            on_committed=self._committed,
            on_role=on_role,
            on_voters=self._voters_changed if raft.can_vote else lambda _: None,
            on_leadership=self._leadership_changed,
            traces=traces,
        )
        self._search_log = LeaderSearchLog(self.driver, shutdown.fail)
        self.snapshotter = Snapshotter(self.driver, policy or SnapshotPolicy(), self.loader)
        self._context = context

    def components(self) -> tuple[Component, ...]:
        """The components of the node, in start order."""
        return (
            Component("driver", self._start, self.driver.close),
            Component.of("leader search log", self._search_log),
            Component("loader", self.loader.start, self.loader.stop),
            Component("snapshotter", self.snapshotter.start, self.snapshotter.stop),
        )

    def voter_ids(self) -> list[int]:
        """The ids of the current voters."""
        return [voter.id for voter in self._raft.voters]

    @property
    def is_attached(self) -> bool:
        """Whether this replica leads, or a leader answers its fetches."""
        return self._raft.is_attached

    def _start(self) -> None:
        raft = self._raft
        self._context.position = lambda: (raft.epoch, raft.core.log.end_offset)
        self.driver.start()

    def _committed(self, high_watermark: int) -> None:
        self.loader.committed(high_watermark)
        self.on_committed(high_watermark)

    def _leadership_changed(self, change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        # Look up the callback on each call: its owner needs this driver, and sets it afterwards.
        self.on_leadership(change)

    def _voters_changed(self, change: out.VotersChanged) -> None:
        """Keep a removed voter from rejoining by itself, even after a restart."""
        LOGGER.info("voter set %s, effective from offset %d", change.voters, change.offset)
        if change.removed_self and not change.is_voter:
            self._removed_marker.touch(FILE_MODE)
        elif change.is_voter:
            self._removed_marker.unlink(missing_ok=True)


def raft_config(config: NodeConfig, meta: MetaProperties) -> RaftConfig:
    """The configuration of a node's replica, which may vote if the node is a controller."""
    return RaftConfig(
        meta.cluster_id,
        ReplicaKey(config.node_id, meta.directory_id),
        config.endpoints,
        bootstrap=config.bootstrap_endpoints,
        static_voters=config.static_voters,
        incarnation=secrets.randbits(64),
        can_vote=isinstance(config.raft, VoterSettings),
        **{each.name: getattr(config.raft, each.name) for each in fields(config.raft)},
    )


def _initial_state(
    log: MetadataLog, quorum_state: QuorumStateFile, removed_marker: Path, *, can_vote: bool
) -> InitialState:
    """The recovered state, in the form that the raft node takes."""
    recovered = log.recovered
    # An entry of RecoveredLog.epochs is an epoch and its start offset.
    epochs = tuple((entry.epoch, entry.offset) for entry in recovered.epochs)
    state = LogState(recovered.start, recovered.end_offset, epochs, recovered.latest_snapshot)
    election = quorum_state.read()
    if can_vote:
        # An observer has no votes to lose.
        quorum_state.check(election, recovered.last_epoch)
    return InitialState(
        election,
        state,
        recovered.voters,
        recovered.kraft_versions,
        removed_marker.exists(),
        recovered.required_end,
    )
