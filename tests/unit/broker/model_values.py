"""What the model of a cluster is made of: promises, disks, processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from quorate.broker.metadata_view import MetadataView
from quorate.broker.partition import PartitionReplica
from quorate.broker.values import ProposeIsr
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.raft import LogState
from quorate.raft.batches import Batch


class Promise(Enum):
    """Which failures are to lose nothing; see `model`."""

    FENCING = "fencing"
    ELIGIBLE = "eligible leader replicas"
    FLUSHED = "flush before ack"


@dataclass(slots=True)
class Disk:
    """What a broker's machine holds. flushed: how many entries survive the loss of the tail."""

    entries: list[tuple[Batch, str]] = field(default_factory=list)
    flushed: int = 0
    clean_epoch: int = -1

    def state(self) -> LogState:
        epochs: list[tuple[int, int]] = []
        for batch, _ in self.entries:
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, batch.base_offset))
        end = self.entries[-1][0].end_offset if self.entries else 0
        return LogState(end_offset=end, epochs=epochs)


@dataclass(slots=True)
class Process:
    """A broker's process. epoch: -1 until it is registered."""

    incarnation: str
    previous_epoch: int
    image: MetadataImage = field(default_factory=MetadataImage)
    view: MetadataView = field(default_factory=lambda: MetadataView(0))
    replayed: int = 0
    epoch: int = -1
    replica: PartitionReplica | None = None
    stopping: bool = False
    asked: list[ProposeIsr] = field(default_factory=list)
    asked_again_ms: int = 0


class LossError(AssertionError):
    """What must not happen has happened."""
