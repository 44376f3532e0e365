"""Logs that tests write, and servers that hand them out as a leader does, over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from quorate.applications import ApplicationState
from quorate.backup.archive import RETIRED_MS, Archive
from quorate.backup.archiver import Archived, Archiver, Warn
from quorate.backup.stores import LocalStore, ObjectStore
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.log.config import LogConfig
from quorate.log.metadata_log import MetadataLog
from quorate.metadata.config.config_defs import CLEANUP_POLICY, COMPACT
from quorate.metadata.image.configs import DEFAULT_BROKER
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.raft.batches import ControlRecord, KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.batch import build_control_batch, build_data_batch, iter_batches, stamp
from quorate.records.metadata import ConfigRecord, MetadataRecord
from quorate.records.primitives import Buffer
from quorate.rpc.client.batch_reader import READ, BatchReader, QuorumConnection
from quorate.rpc.wire.cluster_id import cluster_metadata
from quorate.rpc.wire.values import ReadChunk
from quorate.runtime.application_snapshots import ApplicationPart
from quorate.runtime.metadata_batches import build_metadata_batch, snapshot_batches
from quorate.runtime.replay import derive_state, load_snapshot, replay

from tests.logs.cleaning import clean
from tests.spark.read_server import read_server

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
OTHER = "h3JvRzZ1Tn6b5kq0m2xY8w"
DIRECTORY = "Rigw3vfNRMmcl9pdbu4hDQ"
LEADER = CurrentLeader(1)
VOTERS = VoterSet.of(
    [Voter(ReplicaKey(1, DIRECTORY), (Endpoint("CONTROLLER", "localhost", 9093),))]
)


BROKER = 4
"""The resource type of brokers' configs. Those of the empty name are the cluster's."""
Changed = Callable[[list[Buffer]], Iterable[Buffer]]


class WrittenLog:
    """A log that grows; batches of applications have keys. Closed by `close`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.failures: list[BaseException] = []
        self.log = MetadataLog.open(
            directory,
            LogConfig(preallocate_bytes=0),
            on_durable=lambda _: None,
            on_failure=self.failures.append,
        )

    @classmethod
    def begun(cls, directory: Path) -> WrittenLog:
        """With what a formatted quorum's first leader writes: offsets 0 to 2."""
        written = cls(directory)
        written.control(1, LeaderChange(1, (), ()), KRaftVersion(1), VotersRecord(VOTERS))
        return written

    @property
    def end(self) -> int:
        return self.log.end_offset

    def _append(self, batch: bytearray, epoch: int | None) -> None:
        stamp(batch, self.log.end_offset, self.log.last_epoch if epoch is None else epoch)
        self.log.append(1, [batch])

    def control(self, epoch: int, *records: ControlRecord) -> None:
        self._append(build_control_batch(records, 1000), epoch)

    def application(self, count: int, *, epoch: int | None = None, time_ms: int = 1000) -> None:
        """One batch, in the last epoch by default."""
        records = [(b"", b"value-%d" % (self.end + number)) for number in range(count)]
        self._append(build_data_batch(records, time_ms), epoch)

    def metadata(self, count: int, *, epoch: int | None = None, time_ms: int = 1000) -> None:
        """One batch of records without keys: settings whose values differ."""
        end = self.end
        self.records(
            *(ConfigRecord(BROKER, "", f"setting.{n}", str(end + n)) for n in range(count)),
            epoch=epoch,
            time_ms=time_ms,
        )

    def records(
        self, *records: MetadataRecord, epoch: int | None = None, time_ms: int = 1000
    ) -> None:
        """One batch of metadata."""
        self._append(build_metadata_batch(records, time_ms), epoch)

    def batch(self, batch: bytearray) -> None:
        """A batch in the last epoch."""
        self._append(batch, None)

    def compact(self) -> OffsetAndEpoch:
        """Write a checkpoint at the end, and let the log begin there."""
        name = self.checkpoint()
        self.clean()
        assert self.log.start == name
        return name

    def checkpoint(
        self, time_ms: int = 900, *, changed: Changed = lambda batches: batches, epoch: int = 0
    ) -> OffsetAndEpoch:
        """Write a checkpoint at the end, as nodes do.

        changed: replaces its batches. epoch: another one for its name.
        """
        name = OffsetAndEpoch(self.end, epoch or self.log.last_epoch)
        while self.log.durable_end < name.offset:
            pass
        previous = self.log.latest_snapshot()
        image, state = MetadataImage(), None
        if previous is not None:
            loaded = load_snapshot(self.log, previous)
            image, state = loaded.image, loaded.applications
        image, state = self._replayed(image, state, 0 if previous is None else previous.offset)
        is_compact = image.configs.of(*DEFAULT_BROKER).get(CLEANUP_POLICY) == COMPACT
        part = ApplicationPart(
            self.log, previous, self.end, time_ms, state, None, is_compact=is_compact
        )
        batches = [*snapshot_batches(image.records(), time_ms), *part.batches()]
        self.log.write_snapshot(name, 1, VOTERS, time_ms, changed(batches))
        return name

    def _replayed(
        self, image: MetadataImage, state: ApplicationState | None, position: int
    ) -> tuple[MetadataImage, ApplicationState | None]:
        for chunk in self.log.read(position, 1 << 30):
            for header, batch in iter_batches(chunk):
                if header.is_control:
                    continue
                done = replay(image, [(header, batch)])
                if done.finalized_by is not None:
                    state = asyncio.run(derive_state(self.log, done.finalized_by))
                elif state is not None:
                    for changes in done.applications:
                        state.apply(changes)
        return image, state

    def clean(self) -> None:
        """Let the log begin at its newest checkpoint."""
        self.log.config = LogConfig(preallocate_bytes=0, retention_bytes=0)
        clean(self.log, 0)

    def read(self, end: int | None = None) -> bytes:
        return b"".join(bytes(b) for b in self.log.read(self.log.start_offset, 1 << 30, end))

    def close(self) -> None:
        self.log.close()


@contextmanager
def served(
    written: WrittenLog, cluster_id: str = CLUSTER, *, cut_checkpoints: Sequence[int] = ()
) -> Iterator[BatchReader]:
    """A reader of a server with this log, all of it committed, as that of a quorum's leader.

    cut_checkpoints: after how many pieces the streams of the first checkpoints break.
    """
    cuts = list(cut_checkpoints)

    def chunk(records: bytes = b"", **fields: Any) -> ReadChunk:
        start, end = written.log.start_offset, written.end
        return ReadChunk(ErrorCode.NONE, LEADER, end, end, start, records=records, **fields)

    def answer(from_offset: int, context: grpc.ServicerContext) -> Iterator[ReadChunk]:
        position = from_offset
        if position < written.log.start_offset:
            name = written.log.snapshots()[-1]
            limit = cuts.pop(0) if cuts else None
            batches = written.log.iter_snapshot_batches(name, include_control=True)
            for number, batch in enumerate(batches):
                if number == limit:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "the node stops")
                yield chunk(bytes(batch.data), snapshot=name)
            position = name.offset
        if position < written.end:
            for view in written.log.read(position, 1 << 30):
                yield chunk(bytes(view))
        yield chunk(last=True)

    def read(data: bytes, context: grpc.ServicerContext) -> Iterator[ReadChunk]:
        context.send_initial_metadata(cluster_metadata(cluster_id))
        request = READ.decode_request(READ.method.request.FromString(data))
        assert request.linearizable
        assert request.include_control
        return answer(request.from_offset, context)

    with (
        read_server(read) as address,
        BatchReader(QuorumConnection((address,), timeout_s=5)) as reader,
    ):
        yield reader


def back_up(
    written: WrittenLog,
    target: Path | ObjectStore,
    cluster_id: str = CLUSTER,
    *,
    segment_bytes: int = 1 << 20,
    keep_ms: int | None = None,
    retired_ms: int = RETIRED_MS,
    warn: Warn = lambda _: None,
    archived: Archived = lambda _: None,
) -> Archiver:
    """Archive a log once; returns what did it."""
    store = LocalStore(target) if isinstance(target, Path) else target
    with served(written, cluster_id) as reader, store.writing():
        archive = Archive(store, retired_ms=retired_ms)
        archiver = Archiver(
            archive,
            reader,
            segment_bytes=segment_bytes,
            keep_ms=keep_ms,
            warn=warn,
            archived=archived,
        )
        archiver.advance()
    return archiver
